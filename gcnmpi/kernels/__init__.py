"""Local arithmetic: sparse × dense products and everything dense. One file a kernel."""

from partition.registry import Registry

KERNELS = Registry(
    "kernel",
    {
        "cupy": "gcnmpi.kernels.cupy_:CupyKernel",
        "graphblas": "gcnmpi.kernels.graphblas_:GraphBLASKernel",
        "scipy": "gcnmpi.kernels.scipy_:SciPyKernel",
    },
    extras={"cupy": "cuda"},
)
