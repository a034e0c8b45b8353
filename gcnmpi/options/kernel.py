"""Local arithmetic: sparse × dense products and everything dense. One file a kernel."""

from gcnmpi.options.settings import Options, key
from partition.errors import UserError
from partition.registry import Registry


class DeviceOptions(Options, section="comm"):
    """How arrays of devices travel.

    Attributes
    ----------
    cuda_aware
        messages from the memory of the device (yes; the run crashes if MPI does not support it) or
        through the host (no); auto: yes if the library says so (MPIX_Query_cuda_support of Open
        MPI), or MPICH_GPU_SUPPORT_ENABLED=1 or MV2_USE_CUDA=1 is set
    nccl
        NCCL sums gradients on the devices (yes: an error where ranks share a device, or CuPy has no
        NCCL) or MPI on the host (no); auto: NCCL where it is possible, with more than one rank;
        docs/gpu.md#what-is-where
    """

    cuda_aware: str = key("auto", choices=("auto", "yes", "no"))
    nccl: str = key("auto", choices=("auto", "yes", "no"))


class GpuOptions(Options, section="gpu"):
    """``[gpu]``: the libraries that compute on devices, and how.

    Attributes
    ----------
    spmm
        sparse products: our own, docs/gpu.md#by-pieces, or cusparse: its deterministic algorithm,
        for less than 2^31 - 128 entries a rank
    graph
        on one rank, an epoch is a CUDA graph (yes), docs/gpu.md#cuda-graphs, or launched kernel by
        kernel (no); auto: where it can be one
    """

    spmm: str = key("own", choices=("own", "cusparse"))
    graph: str = key("no", choices=("no", "auto", "yes"))


KERNELS = Registry(
    "kernel",
    {
        "native": "gcnmpi.kernels.native.kernel:NativeKernel",
        "cupy": "gcnmpi.kernels.cuda.kernel:CupyKernel",
        "graphblas": "gcnmpi.kernels.host.graphblas_:GraphBLASKernel",
        "scipy": "gcnmpi.kernels.host.scipy_:SciPyKernel",
    },
    extras={"cupy": "cuda"},
    options={"cupy": (DeviceOptions, GpuOptions)},
)
AUTO = "auto"
SCALES = ("native",)  # multiply with patterns, and numbers of rows in place of values
ONE_PASS = frozenset({"native", "cupy"})  # that need no memory for a softmax and its gradient
PORTABLE = ("graphblas", "scipy")  # without a compiler: the first that is installed
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
    first, second = PORTABLE
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
            f"to measure: --set kernel={kernel} (bench spmm: --kernels, bench_peers.py: --kernel)",
        )
