"""The JSON files of a graph folder, checked field by field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

import numpy as np

from partition.errors import UserError, shown
from partition.graph.content import FILES
from partition.graph.graph import DIRECTIONS, MASKS
from partition.graph.metrics import Metrics, NodeTraffic
from partition.records import atomic_file, open_regular, to_json

FORMAT = "gcnmpi-graph"
VERSION = 4
# Version 1 has no data_id; 2 no targets, one split only, dense features; 3 no sums.
READABLE = (1, 2, 3, 4)
PARTITION_FORMAT = "gcnmpi-partition"
PARTITION_VERSION = 1
EXCHANGES = ("rows", "mixed")  # what is sent: rows of H alone, or partial sums too
MADE_FOR_MIXED = ("mg",)  # models whose objective is the volume of a mixed exchange
# What a row of a history has where its partition was measured.
STEP_FIGURES = ("volume", "max_send", "max_recv", "messages", "imbalance")
AGAIN = "import the graph again"
MAX_JSON = 1 << 28  # bytes of a file that is read whole


@dataclass(frozen=True)
class Manifest:
    """What a graph folder says of itself.

    Attributes
    ----------
    id : str
        Content id of the structure: a hash of n, indptr, indices and weights. A partition
        carries the id of its graph.
    data_id : str
        Content id of what belongs to the vertices: see :func:`partition.graph.content.data_id`.
        Empty where it is not known, in folders of format version 1.
    sums : mapping of str to str
        Of each file of arrays, its type and checksum: see :func:`partition.graph.content.sums_of`.
        Empty where they are not known, in folders of format versions 1 to 3.
    symmetric_pattern, symmetric_values : bool
        Whether A equals its transpose, as a pattern and with its values.
    direction : {"in", "out"}
        The direction that partitioning and training use unless they are told otherwise.
    features, classes : int
        Width of the feature rows and number of classes; 0 where there are none.
    feature_entries : int
        Entries of the features where they are kept as CSR; 0: they are a dense array.
    masks : tuple of str
        Which of "train", "val", "test" there are.
    class_names : tuple of str
        Names of the classes; empty where they are their numbers.
    targets : int
        Columns of the targets; 0 where there are none.
    splits : int
        How many splits the masks are of.
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
    data_id: str = ""
    targets: int = 0
    splits: int = 1
    feature_entries: int = 0
    sums: Mapping[str, str] = field(default_factory=dict)
    format: str = FORMAT
    version: int = VERSION


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
        ``partition.graph.metrics`` of this partition for M in each direction.
    mixed : mapping of direction to mapping
        The same for the mixed exchange; empty in partitions stored before there was one.
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
    mixed: Mapping[str, Any] = field(default_factory=dict)
    nodes: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    deterministic: bool = True
    id: str = ""

    @property
    def exchange(self) -> str:
        """The exchange it was made for: what it was refined for, or what its model counts."""
        kept = [row["exchange"] for row in self.history if row.get("chosen") and "exchange" in row]
        refined = self.options.get("refine") or {}
        said = (self.options.get("exchange"), refined.get("exchange"), *kept[-1:])
        found = next((exchange for exchange in said if exchange in EXCHANGES), None)
        return found or EXCHANGES[self.model in MADE_FOR_MIXED]


def read_manifest(path: Path) -> Manifest:
    """The manifest of the graph folder ``path``.

    Raises
    ------
    UserError
        If there is none, it is damaged, or of a version that is not known.
    """
    file = path / "manifest.json"
    if not path.exists():
        raise UserError(f"there is no graph folder {path}", "gcn-partition import SOURCE OUT.graph")
    if not file.exists():
        raise UserError(
            f"{path} is not a graph folder: it has no manifest.json",
            f"gcn-partition import {path} OUT.graph makes one of a file"
            if path.is_file()
            else None,
        )
    facts = read_json(file)
    if facts.get("format") != FORMAT:
        raise UserError(f"{file} does not describe a graph")
    if facts.get("version") not in READABLE:
        known = ", ".join(map(str, READABLE))
        raise UserError(
            f"{path} has format version {facts.get('version')!r}, this program reads {known}",
            "import the graph again",
        )
    _check_fields(file, facts, Manifest, _MANIFEST)
    # What follows from each other.
    if facts["directed"] == facts["symmetric_pattern"] or (
        facts["symmetric_values"] and not facts["symmetric_pattern"]
    ):
        raise UserError(f"{file} is damaged: directed and symmetric_… contradict each other", AGAIN)
    lists = {key: tuple(facts.get(key, ())) for key in ("masks", "class_names")}
    if lists["class_names"] and len(lists["class_names"]) != facts["classes"]:
        raise UserError(
            f"{file} is damaged: class_names are not those of {facts['classes']} classes"
        )
    return Manifest(**(facts | lists))


def read_description(file: Path) -> dict[str, Any]:
    """The fields of a :class:`Partition` but ``parts``, from the file that describes it.

    Raises
    ------
    UserError
        If it cannot be read or is damaged.
    """
    facts = read_json(file)
    version = facts.pop("version", None)
    if facts.pop("format", None) != PARTITION_FORMAT or version != PARTITION_VERSION:
        raise UserError(f"{file} is not a version {PARTITION_VERSION} partition")
    _check_fields(file, facts, Partition, _PARTITION)
    for kind, name in ((Metrics, "metrics"), (Metrics, "mixed"), (NodeTraffic, "nodes")):
        if facts.get(name) and set(facts[name]) != set(DIRECTIONS):
            raise UserError(f"{file} is damaged: {name} lacks a direction")
        for direction, figures in facts.get(name, {}).items():
            if not _are_figures(kind, figures, facts["k"]):
                raise UserError(f"{file} is damaged: {name} of direction {direction!r}")
            if name == "mixed" and None in (figures.get("send_sums"), figures.get("recv_sums")):
                raise UserError(f"{file} is damaged: {name} of direction {direction!r}")
    return facts


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of anybody's.

    Raises
    ------
    UserError
        If it cannot be read, is too long, or holds something else.
    """
    try:
        with open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > MAX_JSON:
                raise UserError(f"{file} is damaged: it is longer than {MAX_JSON >> 20} MiB")
            facts = json.loads(stream.read(size))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot read {file}: {reason}") from error
    if not isinstance(facts, dict):
        raise UserError(f"{file} does not hold a JSON object")
    return _printable(facts)


def _printable(value: Any) -> Any:
    """A JSON value whose texts steer no terminal, wherever they are printed."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) is int else _printable(item) for item in value]
    return value


def write_json(file: Path, facts: Mapping[str, Any]) -> None:
    """Write a JSON file: all of it, or nothing."""
    with atomic_file(file, "w") as stream:
        dump_json(stream, facts)


def dump_json(stream: IO[str], facts: Mapping[str, Any]) -> None:
    """The form that JSON files of a graph folder have."""
    json.dump(facts, stream, indent=1, default=to_json)
    stream.write("\n")


def _check_fields(
    file: Path, facts: Mapping[str, Any], kind: type, checks: Mapping[str, Callable[[Any], bool]]
) -> None:
    known = {entry.name: entry for entry in fields(kind)}
    for name in facts:
        if name not in known:
            raise UserError(f"{file} is damaged: it has an unknown field {name[:100]!r}")
    for name, check in checks.items():
        if name not in facts:
            if known[name].default is MISSING and known[name].default_factory is MISSING:
                raise UserError(f"{file} is damaged: {name} is missing")
        elif not check(facts[name]):
            if isinstance(facts[name], list | dict):
                raise UserError(f"{file} is damaged: {name} does not hold what it should")
            text = repr(facts[name])
            raise UserError(f"{file} is damaged: {name} cannot be {text[:60]}")


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**48


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_direction(value: Any) -> bool:
    return type(value) is str and value in DIRECTIONS


def _is_object(value: Any) -> bool:
    return type(value) is dict


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 2**63


def _is_masks(value: Any) -> bool:  # they name files
    names = isinstance(value, list) and all(type(name) is str and name in MASKS for name in value)
    return names and len(set(value)) == len(value)


def _is_splits(value: Any) -> bool:
    return _is_count(value) and value > 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(type(name) is str for name in value)


def _are_sums(value: Any) -> bool:  # they name files
    return type(value) is dict and set(value) <= set(FILES) and all(map(_is_text, value.values()))


def _are_figures(kind: type, figures: Mapping[str, Any], k: int) -> bool:
    """Whether they are the fields of a dataclass of counts: a number per part, or per node."""
    known = {entry.name: entry for entry in fields(kind)}
    needed = {name for name, entry in known.items() if entry.default is MISSING}
    if not needed <= set(figures) <= set(known):
        return False
    # Nodes hold ranks_per_node parts each, the last one perhaps fewer.
    per_node = figures.get("ranks_per_node", 1)
    if not _is_count(per_node) or per_node == 0 or figures.get("k", k) != k:
        return False
    lists = {name: value for name, value in figures.items() if "list" in known[name].type}
    for name, value in lists.items():
        if value is None and name not in needed:
            continue
        if type(value) is not list or len(value) != -(-k // per_node):
            return False
        if not all(map(_is_count, value)):
            return False
    return "direction" not in known or _is_direction(figures["direction"])


def _is_history(rows: Any) -> bool:
    """Whether rows of a history have what is shown of them."""
    if type(rows) is not list or not all(type(row) is dict for row in rows):
        return False
    tried = any("chosen" in row for row in rows)
    for row in rows:
        known = STEP_FIGURES if "volume" in row else [f for f in STEP_FIGURES if f in row]
        numbers = [*known, *(["predicted"] if tried and "volume" in row else [])]
        texts = ["step", *(["direction"] if "direction" in row else []), *(["note"] * tried)]
        if not all(_is_number(row.get(name)) for name in numbers):
            return False
        if not all(_is_text(row.get(name)) for name in texts):
            return False
        if not _is_number(row.get("seconds", "")) or (tried and "chosen" not in row):
            return False
    return True


def _is_options(value: Any) -> bool:
    """Whether an object has options that a refinement can go on with."""
    if type(value) is not dict:
        return False
    per_node = value.get("ranks_per_node")
    return _is_text(value.get("balance", "")) and (
        per_node is None or (_is_count(per_node) and per_node > 0)
    )


def _is_by_direction(value: Any) -> bool:
    return type(value) is dict and all(
        key in DIRECTIONS and type(facts) is dict for key, facts in value.items()
    )


_MANIFEST: dict[str, Callable[[Any], bool]] = {
    "id": _is_text, "name": _is_text, "n": _is_count, "nnz": _is_count, "directed": _is_flag,
    "symmetric_pattern": _is_flag, "symmetric_values": _is_flag, "weighted": _is_flag,
    "direction": _is_direction, "features": _is_count, "classes": _is_count, "masks": _is_masks,
    "source": _is_object, "data_id": _is_text, "targets": _is_count, "splits": _is_splits,
    "feature_entries": _is_count,
    "class_names": _is_names, "sums": _are_sums,
}  # fmt: skip

_PARTITION: dict[str, Callable[[Any], bool]] = {
    "name": _is_text,
    "k": lambda k: type(k) is int and 0 < k <= np.iinfo(np.int32).max,
    "graph_id": _is_text, "model": _is_text, "tool": _is_text, "tool_version": _is_text,
    "direction": _is_direction,
    "seed": lambda seed: seed is None or (type(seed) is int and abs(seed) < 2**63),
    "imbalance": lambda imbalance: imbalance is None or _is_number(imbalance),
    "options": _is_options, "metrics": _is_by_direction, "mixed": _is_by_direction,
    "nodes": _is_by_direction,
    "history": _is_history,
    "seconds": _is_number, "deterministic": _is_flag, "id": _is_text,
}  # fmt: skip
