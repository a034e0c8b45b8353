"""Kernels in NumPy, SciPy and GraphBLAS, to which the others fall back."""
