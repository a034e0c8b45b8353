"""Kernels in NumPy, SciPy and GraphBLAS: what the others fall back to."""
