"""The compiled kernel: its sources are in ``src/``."""
