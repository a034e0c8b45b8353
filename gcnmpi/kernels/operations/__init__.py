"""The operations of a kernel in groups, with their meaning: see ``kernels.interface``."""
