"""Data sets that other libraries download: ``pyg:Planetoid/Cora``, ``ogb:ogbn-arxiv``, ``dgl:…``.

The library brings a data set here; its file is read as any other of the same format.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from partition.errors import UserError, shortened, unknown_name


def is_dataset(source: Path) -> bool:
    """Whether a source is a data set of a library, and no file of that name."""
    return str(source).partition(":")[0] in LOADERS and not source.exists()


@contextlib.contextmanager
def local_file(source: Path) -> Iterator[Path]:
    """The file or folder that a source is: itself, or that of a data set while the block lasts.

    A UserError if the library is not installed, does not know the data set, or cannot load it.
    """
    if not is_dataset(source):
        yield source
        return
    library, _, name = str(source).partition(":")
    with tempfile.TemporaryDirectory(prefix="gcnmpi-") as folder:
        with contextlib.redirect_stdout(sys.stderr):  # libraries tell how far they are
            file = LOADERS[library](name, Path(folder))
        yield file


def _pyg(name: str, folder: Path) -> Path:
    torch, known = _library("torch", PYG), _library("torch_geometric.datasets", PYG)
    data = _only("pyg", name, known)
    fields = data.to_dict() if hasattr(data, "to_dict") else {}
    if not {"_global_store", "edge_index"} & fields.keys():  # the former of several types
        raise UserError(f"pyg:{name} holds no graph")
    if "edge_index" in fields:
        tensors = {key: value for key, value in fields.items() if isinstance(value, torch.Tensor)}
        fields = {**tensors, "num_nodes": int(data.num_nodes)}
    torch.save(fields, folder / "data.pt")
    return folder / "data.pt"


def _dgl(name: str, folder: Path) -> Path:
    dgl = _library("dgl", "pip install dgl")
    graph = _only("dgl", name, _library("dgl.data", "pip install dgl"))
    dgl.save_graphs(str(folder / "graph.bin"), [graph])
    return folder / "graph.bin"


def _ogb(name: str, folder: Path) -> Path:
    if not name.startswith("ogbn-"):
        raise UserError(f"{name!r} is no node property data set of OGB", "ogb:ogbn-arxiv is one")
    found = _cache("ogb") / name.replace("-", "_")
    if not (found / "raw").is_dir():
        known = _library("ogb.nodeproppred", "pip install ogb")
        made = _made("ogb", name, lambda: known.NodePropPredDataset(name, root=str(found.parent)))
        found = Path(made.root)
    return found


LOADERS: dict[str, Callable[[str, Path], Path]] = {"pyg": _pyg, "ogb": _ogb, "dgl": _dgl}
PYG = "pip install torch torch_geometric"


def _only(library: str, name: str, known: ModuleType) -> Any:
    """The only graph of a data set, ``CLASS/ARGUMENT/…``."""
    called, *arguments = name.split("/")
    make = getattr(known, called, None)
    if not inspect.isclass(make):
        classes = [each for each in dir(known) if inspect.isclass(getattr(known, each))]
        raise unknown_name(f"data set of {library}", called, classes)
    names = [each for each in inspect.signature(make).parameters if each != "root"]
    given: dict[str, str] = dict(zip(names, arguments, strict=False))
    if "root" in inspect.signature(make).parameters:
        given["root"] = str(_cache(library) / called)
    dataset = _made(library, name, lambda: make(**given))
    if len(dataset) != 1:
        raise UserError(
            f"{library}:{name} has {len(dataset)} graphs, and one is imported",
            "gcnmpi.torch.open(list(dataset)) takes many",
        )
    return dataset[0]


def _made(library: str, name: str, make: Callable[[], object]) -> Any:
    try:
        return make()
    except Exception as error:
        reason = shortened(" ".join(f"{type(error).__name__}: {error}".split()), 200)
        raise UserError(
            f"the library cannot load {library}:{name}: {reason}",
            "it downloads data sets when they are first asked for: is there a network here?",
        ) from error


def _library(module: str, command: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        package = error.name or module
        raise UserError(f"this needs the Python package {package!r}", command) from error


def _cache(library: str) -> Path:
    """Where data sets stay, for the next time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gcnmpi" / library
