"""Local arithmetic: sparse × dense products and everything dense. One file a kernel."""

from partition.errors import UserError
from partition.registry import Registry

KERNELS = Registry(
    "kernel",
    {
        "native": "gcnmpi.kernels.native.kernel:NativeKernel",
        "cupy": "gcnmpi.kernels.cuda.kernel:CupyKernel",
        "graphblas": "gcnmpi.kernels.host.graphblas_:GraphBLASKernel",
        "scipy": "gcnmpi.kernels.host.scipy_:SciPyKernel",
    },
    extras={"cupy": "cuda"},
    options={"cupy": ("comm.cuda_aware", "comm.nccl", "gpu.spmm", "gpu.graph")},
)
AUTO = "auto"
SCALES = ("native",)  # multiply with patterns, and numbers of rows in place of values
ONE_PASS = frozenset({"native", "cupy"})  # that need no memory for a softmax and its gradient
_PORTABLE = ("graphblas", "scipy")  # without a compiler: the first that is installed
SLOWER = "using {}, which is slower, for attention many times"


def resolve(name: str, threads: int = 1) -> tuple[str, str | None]:
    """The kernel that ``name`` stands for: of ``"auto"``, native where it was built for threads.

    Parameters
    ----------
    threads : int
        How many a rank has, at most.

    Returns
    -------
    kernel : str
        A name in ``KERNELS``.
    warning : str or None
        Why it is not the best one.
    """
    if name not in (AUTO, "native"):
        return name, None
    try:
        parallel = KERNELS.get("native").parallel
    except UserError as error:
        if name != AUTO:
            return name, None  # whoever asks for it is told
        other = _portable()
        return other, f"the native kernel {error.message}; {SLOWER.format(other)}"
    if parallel or threads == 1:
        return "native", None
    serial = f"the native kernel was built without OpenMP: it has one thread, not {threads}"
    if name != AUTO or (other := _portable()) == "scipy":  # which has one thread too
        return "native", serial
    return other, f"{serial}; {SLOWER.format(other)}"


def _portable() -> str:
    first, second = _PORTABLE
    try:
        KERNELS.get(first)
    except UserError:
        return second
    return first


def must_be_best(name: str) -> None:
    """Refuse to measure with what ``"auto"`` falls back to: nobody means to.

    A UserError if the native kernel was not built, and ``name`` leaves the choice.
    """
    kernel, warning = resolve(name)
    if warning is not None:
        raise UserError(
            warning,
            "install gcnmpi again, where there is a C++ compiler; or name the kernel that you want "
            f"to measure: --set kernel={kernel} (benchmarks/spmm.py: --kernels)",
        )
