"""Arguments and results of functions as data: JSON and arrays, and nothing that runs when read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.api.graph import Graph
from gcnmpi.api.graph import open as open_graph
from gcnmpi.api.record import Run
from partition.errors import UserError
from partition.records import NUMBERS, TEXTS, atomic_file, read_npz


def write_data(folder: Path, name: str, value: object) -> None:
    """Write a value to ``NAME.npz`` and ``NAME.json`` in a folder.

    It may be made of None, numbers, texts, lists, tuples, dicts with texts as keys, paths, NumPy
    arrays of numbers or texts, graphs and runs; a UserError if something else is in it.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = _to_json(value, arrays, name)
    with atomic_file(folder / f"{name}.npz") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    with atomic_file(folder / f"{name}.json", "w") as file:
        json.dump(tree, file)


def read_data(folder: Path, name: str) -> Any:
    """The value that :func:`write_data` wrote."""
    arrays = read_npz(folder / f"{name}.npz", kinds=NUMBERS + TEXTS)
    return _from_json(json.loads((folder / f"{name}.json").read_text(encoding="utf-8")), arrays)


def _to_json(value: object, arrays: dict[str, np.ndarray], where: str) -> object:
    """JSON, in which whatever JSON lacks is an object with its kind as its only key."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS + TEXTS:
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_to_json(item, arrays, f"{where}[{i}]") for i, item in enumerate(value)]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        items = {key: _to_json(item, arrays, f"{where}[{key!r}]") for key, item in value.items()}
        return {"dict": items}
    for kind, cls in (("path", Path), ("graph", Graph), ("run", Run)):
        if isinstance(value, cls):
            return {kind: str(value if isinstance(value, Path) else value.path.absolute())}
    raise UserError(
        f"{where} is a {type(value).__name__}, which cannot be handed from process to process",
        "numbers, texts, lists, dicts, NumPy arrays, paths, graphs and runs can",
    )


def _from_json(tree: Any, arrays: dict[str, np.ndarray]) -> object:
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "dict":
        return {key: _from_json(item, arrays) for key, item in content.items()}
    if kind in ("list", "tuple"):
        items = [_from_json(item, arrays) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "array":
        return arrays[content]
    made: dict[str, Callable[[str], object]] = {"path": Path, "graph": open_graph, "run": Run}
    return made[kind](content)
