"""Exact full-graph training and inference of graph neural networks, distributed with MPI."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gcnmpi")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "unknown"
