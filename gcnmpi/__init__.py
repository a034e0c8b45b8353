"""Exact full-graph training and inference of graph neural networks, distributed with MPI.

The functions and classes are described in docs/python.md. Importing the package imports nothing
else: each name is looked up when it is used, and MPI starts with the first function that trains,
infers or evaluates.
"""

# Name → where it is defined; a module, or "module:attribute". __init__.pyi tells type checkers.
_NAMES = {
    "Builder": "gcnmpi.nn.network:Builder",
    "Run": "gcnmpi.api.record:Run",
    "Stopped": "gcnmpi.run.claims:Stopped",
    "UserError": "partition.errors:UserError",
    "evaluate": "gcnmpi.api.inference:evaluate",
    "graph": "gcnmpi.api.graph",
    "infer": "gcnmpi.api.inference:infer",
    "launch": "gcnmpi.api.launching:launch",
    "propagate": "gcnmpi.api.inference:propagate",
    "RankError": "gcnmpi.api.launching:RankError",
    "score": "gcnmpi.api.inference:score",
    "stack": "gcnmpi.nn.networks.stack:stack",
    "top": "gcnmpi.api.inference:top",
    "train": "gcnmpi.api.training:train",
    "verify": "gcnmpi.api.training:verify",
}


def __getattr__(name: str) -> object:
    """A name of the API, or ``__version__``."""
    if name in _NAMES:
        from importlib import import_module

        module, _, attribute = _NAMES[name].partition(":")
        found = import_module(module)
        return getattr(found, attribute) if attribute else found
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gcnmpi")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES, "__version__"])
