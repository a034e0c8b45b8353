"""CUDA source, by what it computes: put together in :mod:`gcnmpi.kernels.cuda`."""
