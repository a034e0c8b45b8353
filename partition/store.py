"""The graph folder on disk: a manifest, plain ``.npy`` arrays, and named partitions.

::

    NAME.graph/
        manifest.json
        indptr.npy indices.npy [weights.npy] [features.npy] [labels.npy]
        [train_mask.npy val_mask.npy test_mask.npy] [ids.npy]
        partitions/NAME.npz  NAME.json

Arrays are memory-mapped on reading. Everything is written under a temporary name and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError, unknown_name
from partition.graph import MASKS, Graph, symmetry
from partition.records import NUMBERS, TEXTS, atomic_file, map_npy, read_npz, to_json

FORMAT = "gcnmpi-graph"
VERSION = 1
PARTITION_FORMAT = "gcnmpi-partition"


@dataclass(frozen=True)
class Manifest:
    """What a graph folder says of itself.

    Attributes
    ----------
    id : str
        Content id of the structure: a hash of n, indptr, indices and weights. A partition
        carries the id of its graph.
    symmetric_pattern, symmetric_values : bool
        Whether A equals its transpose, as a pattern and with its values.
    direction : {"in", "out"}
        The direction that partitioning and training use unless they are told otherwise.
    features, classes : int
        Width of the feature rows and number of classes; 0 where there are none.
    masks : tuple of str
        Which of "train", "val", "test" there are.
    class_names : tuple of str
        Names of the classes; empty where they are their numbers.
    source : mapping
        Where the graph came from, and what became of its self-loops and duplicate arcs.
    """

    id: str
    name: str
    n: int
    nnz: int
    directed: bool
    symmetric_pattern: bool
    symmetric_values: bool
    weighted: bool
    direction: str
    features: int
    classes: int
    masks: tuple[str, ...]
    source: Mapping[str, Any]
    class_names: tuple[str, ...] = ()
    format: str = FORMAT
    version: int = VERSION


@dataclass(frozen=True)
class StoredGraph:
    """An open graph folder: its path, its manifest and its memory-mapped arrays."""

    path: Path
    manifest: Manifest
    graph: Graph


@dataclass(frozen=True)
class Partition:
    """A named assignment of vertices to parts, with all that is needed to make it again.

    Attributes
    ----------
    parts : (n,) int32
        Part of each vertex, 0..k−1.
    graph_id : str
        ``Manifest.id`` of the graph it was made for.
    direction : {"in", "out"}
        The direction of M that its model described.
    imbalance : float or None
        The imbalance that was asked for, as a fraction of the average part weight.
    metrics : mapping of direction to mapping
        ``partition.metrics`` of this partition for M in each direction.
    nodes : mapping of direction to mapping
        Traffic between nodes, of a partition that was mapped to them; otherwise empty.
    history : sequence of mapping
        What was done in several steps, or tried: a row each, ``step``, ``seconds`` and figures.
    seconds : float
        Time the tool took.
    deterministic : bool
        Whether the same command gives the same parts again.
    id : str
        Content id of the part vector, given to it by :func:`write_partition`.
    """

    name: str
    parts: np.ndarray
    k: int
    graph_id: str
    model: str
    tool: str
    tool_version: str
    direction: str
    seed: int | None = None
    imbalance: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    deterministic: bool = True
    id: str = ""


def write_graph(
    path: str | os.PathLike,
    graph: Graph,
    *,
    source: Mapping[str, Any],
    direction: str = "in",
    overwrite: bool = False,
) -> Manifest:
    """Write a graph folder: all of it, or nothing.

    Parameters
    ----------
    path : path
        The folder to make; its name ends in ``.graph``.
    source : mapping
        Provenance for the manifest.
    direction : {"in", "out"}
        Recorded as the graph's own direction.
    overwrite : bool
        Replace a folder of that name (and the partitions in it).

    Raises
    ------
    UserError
        If the name is wrong, the folder is there already, or it cannot be written.
    """
    path = Path(path)
    check_target(path, overwrite)
    pattern, values = symmetry(graph)
    manifest = Manifest(
        id=content_id(graph),
        name=path.stem,
        n=graph.n,
        nnz=graph.nnz,
        directed=not pattern,
        symmetric_pattern=pattern,
        symmetric_values=values,
        weighted=graph.weights is not None,
        direction=direction,
        features=0 if graph.features is None else int(graph.features.shape[1]),
        classes=graph.classes,
        masks=tuple(name for name in MASKS if name in graph.masks),
        source=dict(source),
        class_names=graph.class_names or (),
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        (temporary / "partitions").mkdir(parents=True)
        for name, array in _arrays(graph).items():
            with atomic_file(temporary / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
        _write_json(temporary / "manifest.json", asdict(manifest))
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def check_target(path: Path, overwrite: bool = False) -> None:
    """Refuse a path that :func:`write_graph` could not write a graph folder to.

    Raises
    ------
    UserError
        If the name is wrong, something is there already, or the place is not writable.
    """
    if path.suffix != ".graph":
        raise UserError(f"a graph folder's name ends in .graph, not {path.name!r}")
    if path.exists() and not overwrite:
        raise UserError(f"{path} is there already", "choose another name or give --force")
    if path.exists() and not (path / "manifest.json").exists():
        raise UserError(f"{path} is not a graph folder and is not replaced")
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: {parent} is not a folder that you may write to")


def open_graph(path: str | os.PathLike) -> StoredGraph:
    """Open a graph folder and map its arrays.

    Raises
    ------
    UserError
        If it is no graph folder, of another version, or an array is missing, truncated or of
        another shape than the manifest says.
    """
    path = Path(path)
    manifest = _read_manifest(path)
    n, nnz = manifest.n, manifest.nnz

    def load(name: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
        return _map_array(path / f"{name}.npy", shape, kind)

    graph = Graph(
        indptr=load("indptr", (n + 1,), "i"),
        indices=load("indices", (nnz,), "i"),
        weights=load("weights", (nnz,), "f") if manifest.weighted else None,
        features=load("features", (n, manifest.features), "f") if manifest.features else None,
        labels=load("labels", (n,), "i") if manifest.classes else None,
        masks={name: load(f"{name}_mask", (n,), "b") for name in manifest.masks},
        ids=load("ids", (n,), "iU") if (path / "ids.npy").exists() else None,
        class_names=manifest.class_names or None,
    )
    if graph.indptr[-1] != nnz:
        raise UserError(f"{path}/indptr.npy ends at {graph.indptr[-1]}, the manifest says {nnz}")
    return StoredGraph(path, manifest, graph)


def write_partition(
    path: str | os.PathLike, partition: Partition, *, overwrite: bool = False
) -> Partition:
    """Put a partition into the graph folder ``path``; returns it as stored, with its id.

    Raises
    ------
    UserError
        If the name is malformed or taken, or the files cannot be written.
    """
    vector, description = _partition_files(path, partition.name)
    if description.exists() and not overwrite:
        raise UserError(
            f"{path} has a partition {partition.name!r} already",
            "give --name or --force, or remove it first",
        )
    parts = np.asarray(partition.parts, np.int32)
    stored = replace(partition, parts=parts, id=_digest(partition.k, parts))
    facts = {"format": PARTITION_FORMAT, "version": VERSION}
    facts |= {f.name: getattr(stored, f.name) for f in fields(Partition) if f.name != "parts"}
    vector.parent.mkdir(exist_ok=True)
    # The description goes last: a partition without one is not listed and not read.
    description.unlink(missing_ok=True)
    with atomic_file(vector) as file:
        np.savez_compressed(file, parts=parts)
    _write_json(description, facts)
    return stored


def read_partition(path: str | os.PathLike, name: str, *, parts: bool = True) -> Partition:
    """Read the partition ``name`` of the graph folder ``path``.

    Parameters
    ----------
    parts : bool
        Read the part vector too; otherwise it is left empty (the description is small).

    Raises
    ------
    UserError
        If there is none of that name, its files are damaged, it belongs to another graph, or
        a part number is outside 0..k−1.
    """
    path = Path(path)
    file, description = _partition_files(path, name)
    manifest = _read_manifest(path)
    if not description.exists():
        names = list_partitions(path)
        if not names:
            hint = f"make one: gcn-partition add {path} --model hp -k 4"
            raise UserError(f"{path} has no partition {name!r}, nor any other", hint)
        raise unknown_name(f"partition of {path}", name, names)
    facts = _read_json(description)
    if facts.pop("format", None) != PARTITION_FORMAT or facts.pop("version", None) != VERSION:
        raise UserError(f"{description} is not a version {VERSION} partition")
    if facts.get("graph_id") != manifest.id:
        raise UserError(
            f"partition {name!r} in {path} was made for another graph "
            f"(id {facts.get('graph_id')}, this graph is {manifest.id})",
            "make it again with gcn-partition add",
        )
    vector = _read_parts(file, manifest.n) if parts else np.empty(0, np.int32)
    try:
        partition = Partition(parts=vector, **facts)
    except TypeError as error:
        raise UserError(f"{description} is damaged: {error}") from error
    if type(partition.k) is not int or not 0 < partition.k <= np.iinfo(np.int32).max:
        raise UserError(f"{description} is damaged: it has {partition.k!r} parts")
    if len(vector) and (vector.min() < 0 or vector.max() >= partition.k):
        raise UserError(f"{file} has a part number outside 0..{partition.k - 1}")
    if parts and _digest(partition.k, vector.astype(np.int32, copy=False)) != partition.id:
        raise UserError(
            f"{file} does not hold the parts that {description.name} describes",
            "make the partition again with gcn-partition add",
        )
    return partition


def list_partitions(path: str | os.PathLike) -> list[str]:
    """Names of the partitions of a graph folder, sorted."""
    return sorted(file.stem for file in (Path(path) / "partitions").glob("[!.]*.json"))


def has_partition(path: str | os.PathLike, name: str) -> bool:
    """Whether there is a partition of that name; a UserError if none could be called so."""
    return _partition_files(path, name)[1].exists()


def remove_partition(path: str | os.PathLike, name: str) -> None:
    """Delete the partition ``name``; a UserError if there is none."""
    vector, description = _partition_files(path, name)
    if not description.exists():
        raise unknown_name(f"partition of {path}", name, list_partitions(path))
    description.unlink()
    vector.unlink(missing_ok=True)


def content_id(graph: Graph) -> str:
    """Hash of the structure of a graph: n, indptr, indices and weights; 32 hex digits."""
    return _digest(graph.n, graph.indptr, graph.indices, graph.weights)


def _digest(number: int, *arrays: np.ndarray | None) -> str:
    digest = hashlib.blake2b(np.int64(number).tobytes(), digest_size=16)
    for array in arrays:
        if array is not None:
            for start in range(0, len(array), 1 << 22):
                digest.update(array[start : start + (1 << 22)].tobytes())
    return digest.hexdigest()


def _arrays(graph: Graph) -> dict[str, np.ndarray]:
    named = {
        "indptr": graph.indptr,
        "indices": graph.indices,
        "weights": graph.weights,
        "features": graph.features,
        "labels": graph.labels if graph.classes else None,
        "ids": graph.ids,
    }
    named |= {f"{name}_mask": mask for name, mask in graph.masks.items()}
    return {name: np.ascontiguousarray(a) for name, a in named.items() if a is not None}


def _map_array(path: Path, shape: tuple[int, ...], kind: str) -> np.ndarray:
    if not path.exists():
        raise UserError(f"{path} is missing", "import the graph again")
    try:
        array = map_npy(path, kinds=NUMBERS + TEXTS)
    except UserError as error:
        raise UserError(
            f"{path} is damaged or truncated: {error.message}", "import it again"
        ) from None
    if array.shape != shape or array.dtype.kind not in kind:
        raise UserError(
            f"{path} holds {array.dtype} {array.shape}, the manifest asks for {shape}",
            "import the graph again",
        )
    return array


def _read_manifest(path: Path) -> Manifest:
    if not path.exists():
        raise UserError(f"there is no graph folder {path}", "gcn-partition import SOURCE OUT.graph")
    if not (path / "manifest.json").exists():
        raise UserError(f"{path} is not a graph folder: it has no manifest.json")
    facts = _read_json(path / "manifest.json")
    if facts.get("format") != FORMAT:
        raise UserError(f"{path}/manifest.json does not describe a graph")
    if facts.get("version") != VERSION:
        raise UserError(
            f"{path} has format version {facts.get('version')}, this program reads {VERSION}",
            "import the graph again",
        )
    try:
        lists = {key: tuple(facts.get(key, ())) for key in ("masks", "class_names")}
        manifest = Manifest(**(facts | lists))
    except (TypeError, KeyError) as error:
        raise UserError(f"{path}/manifest.json is damaged: {error}") from error
    for name in ("n", "nnz", "features", "classes"):
        if not isinstance(getattr(manifest, name), int):
            raise UserError(f"{path}/manifest.json is damaged: {name} is no number")
    if any(name not in MASKS for name in manifest.masks):  # they name files
        raise UserError(f"{path}/manifest.json is damaged: masks other than {', '.join(MASKS)}")
    return manifest


def _partition_files(path: str | os.PathLike, name: str) -> tuple[Path, Path]:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,199}", name):
        raise UserError(
            f"{name!r} is no name for a partition",
            "use at most 200 letters, digits and any of _ . + = -",
        )
    folder = Path(path) / "partitions"
    return folder / f"{name}.npz", folder / f"{name}.json"


def _read_parts(file: Path, n: int) -> np.ndarray:
    vector = read_npz(file, ("parts",)).get("parts", np.empty(0))
    if vector.shape != (n,) or vector.dtype.kind != "i":
        raise UserError(f"{file} does not hold the parts of {n} vertices")
    return vector


def _read_json(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(facts, dict):
        raise UserError(f"{path} does not hold a JSON object")
    return facts


def _write_json(path: Path, facts: Mapping[str, Any]) -> None:
    with atomic_file(path, "w") as file:
        json.dump(facts, file, indent=1, default=to_json)
        file.write("\n")
