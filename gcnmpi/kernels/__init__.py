"""Local arithmetic: sparse × dense products and everything dense, in one room for each kernel."""

from gcnmpi.options.kernel import KERNELS

__all__ = ["KERNELS"]
