"""Exact full-graph training and inference of graph neural networks, distributed with MPI."""


def __getattr__(name: str) -> str:
    """``__version__``, looked up when it is asked for: importing the package imports nothing."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gcnmpi")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"
