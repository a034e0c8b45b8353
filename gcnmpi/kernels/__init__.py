"""Local arithmetic: sparse × dense products and everything dense. One file a kernel."""

from partition.errors import UserError
from partition.registry import Registry

KERNELS = Registry(
    "kernel",
    {
        "native": "gcnmpi.kernels.native:NativeKernel",
        "cupy": "gcnmpi.kernels.cupy_:CupyKernel",
        "graphblas": "gcnmpi.kernels.graphblas_:GraphBLASKernel",
        "scipy": "gcnmpi.kernels.scipy_:SciPyKernel",
    },
    extras={"cupy": "cuda"},
    options={"cupy": ("comm.cuda_aware", "comm.nccl")},
)
AUTO = "auto"


def resolve(name: str) -> tuple[str, str | None]:
    """The kernel that ``name`` stands for: of ``"auto"``, native where it was built.

    Returns
    -------
    kernel : str
        A name in ``KERNELS``.
    warning : str or None
        Why it is not the best one.
    """
    if name != AUTO:
        return name, None
    try:
        KERNELS.get("native")
    except UserError as error:
        return "graphblas", f"the native kernel {error.message}; using graphblas"
    return "native", None
