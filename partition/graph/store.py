"""The graph folder on disk: a manifest, plain ``.npy`` arrays, and named partitions.

::

    NAME.graph/
        manifest.json
        indptr.npy indices.npy [weights.npy] [labels.npy] [targets.npy]
        [features.npy, or features_indptr.npy features_indices.npy features_data.npy]
        [train_mask.npy val_mask.npy test_mask.npy] [ids.npy]
        [arc_features.npy] [arc_labels.npy] [arc_train_mask.npy …] [arc_ids.npy]
        [arc_type.npy] [features/TYPE.npy …]
        partitions/NAME.npz  NAME.json
        [pairs/NAME/] [samples/NAME/]

Arrays are memory-mapped on reading. Everything is written under a temporary name and renamed.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Required, TypedDict

import msgspec
import numpy as np

from partition.errors import UserError, check_name, system_errors, unknown_name
from partition.graph import manifest as manifests
from partition.graph.graph import DIRECTIONS, Graph, kept_form, merged, settled
from partition.graph.manifest import Manifest, check_target, dump_json, read_json, read_manifest
from partition.graph.metrics import Metrics, NodeTraffic, vertex_counts
from partition.graph.samples import SAMPLES, SampleSet
from partition.graph.vertex_pairs import PAIRS, PairSet
from partition.locks import folder_inside, folder_lock
from partition.records import Positive, Whole, atomic_file, atomic_folder, read_npz, sweep

EXCHANGES = ("rows", "mixed")  # of rows of H alone, or of partial sums too
_SUMMED = ("mixed", "by_relation")  # figures of exchanges with partial sums
EXCHANGED = ("metrics", *_SUMMED)  # figures of a partition that are metrics of an exchange
_PARTITION = {"format": "gcnmpi-partition", "version": 1}
# The figures in a row of a history whose partition was measured.
_STEP_FIGURES = ("volume", "max_send", "max_recv", "messages", "imbalance")


@dataclass(frozen=True)
class StoredGraph:
    """An open graph folder: its path, its manifest and its memory-mapped arrays.

    ``pairs`` are those of a task on links: arcs that are held out are not in M; ``samples`` those
    of a task on many states of the graph.
    """

    path: Path
    manifest: Manifest
    graph: Graph
    pairs: PairSet | None = None
    samples: SampleSet | None = None

    @cached_property
    def merged(self) -> Graph:
        """The graph as M has it: see :func:`partition.graph.graph.merged`."""
        return merged(self.graph)

    def direction(self, asked: str | None) -> str:
        """The direction that is asked for, its own by default; a UserError if it is none."""
        return check_name("direction", asked or self.manifest.direction, DIRECTIONS)


def write_graph(
    path: str | os.PathLike[str], graph: Graph, *, source: Mapping[str, object],
    direction: str = "in", overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None, keep_features: str = "auto",
) -> Manifest:  # fmt: skip
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
        Replace a folder of that name. The partitions in it are kept if the arcs are the same.
    report : callable
        Told which partitions were kept, and which were not.
    keep_features : {"auto", "dense", "sparse"}
        See :func:`partition.graph.graph.kept_form`.

    Raises
    ------
    UserError
        If the name is wrong, the folder is there already or in use, or it cannot be written.
    """
    path = Path(path)
    check_target(path, overwrite)
    with new_folder(path, overwrite, report) as new:
        return new.fill(graph, source, direction, keep_features)


@dataclass(frozen=True)
class NewFolder:
    """A graph folder that is made, under a ``temporary`` name beside its ``path``."""

    path: Path
    temporary: Path
    locks: contextlib.ExitStack
    lost: dict[str, list[str]]

    def fill(
        self, graph: Graph, source: Mapping[str, object], direction: str,
        keep_features: str = "auto", known: manifests.Known | None = None,
    ) -> Manifest:  # fmt: skip
        """Write the arrays of a graph that are not there yet, and the manifest.

        See :func:`write_graph`; what is known, :func:`partition.graph.manifest.write_arrays`.
        """
        graph = settled(graph)
        if graph.vertex_types is None or keep_features != "auto":
            graph = replace(graph, features=kept_form(graph.features, keep_features))
        path, new = self.path, self.temporary
        said = {"name": path.stem, "direction": direction, "source": dict(source)}
        manifest = manifests.write_arrays(new, graph, known, path, **said)
        if path.exists():
            # Until the new folder is in its place.
            lock = folder_lock(path, manifests.REPLACING, patience=manifests.WAIT)
            self.locks.enter_context(lock)
            self.lost["partitions"] = _keep_partitions(path, new, graph, manifest)
            self.lost["pairs"] = PAIRS.keep(path, new, graph_id=manifest.id)
            self.lost["samples"] = SAMPLES.keep(path, new, n=manifest.n)
        return manifest


@contextlib.contextmanager
def new_folder(path: Path, overwrite: bool, report: Callable[[str], None]) -> Iterator[NewFolder]:
    """A folder that is renamed to ``path`` in the end, or nothing is left of it.

    See :func:`write_graph`.
    """
    lost: dict[str, list[str]] = {}
    with contextlib.ExitStack() as locks, atomic_folder(path, overwrite=overwrite) as temporary:
        (temporary / "partitions").mkdir()
        yield NewFolder(path, temporary, locks, lost)
    if kept := list_partitions(path):
        report(f"the arcs are the same: partitions kept: {', '.join(kept)}")
    for kind, names in lost.items():
        if names:
            of = "vertices" if kind == "samples" else "arcs"
            report(f"{kind} deleted, of other {of} or damaged: {', '.join(names)}")


def open_graph(path: str | os.PathLike[str], *, check: bool = True) -> StoredGraph:
    """Open a graph folder and map its arrays.

    Parameters
    ----------
    check : bool
        Read arcs, labels and targets, in bounded memory, and refuse numbers that no graph has, or
        other than the manifest says. Otherwise the caller does so for the rows that it reads:
        :func:`partition.graph.graph.check_arcs`.

    Raises
    ------
    UserError
        If it is no graph folder, of another version, or an array is missing, truncated, damaged
        or of another shape than the manifest says.
    """
    path = Path(path)
    return StoredGraph(path, *manifests.read_graph(path, check))


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
    metrics : mapping of direction to Metrics
        Of this partition for M in each direction.
    mixed : mapping of direction to Metrics
        The same for the mixed exchange; empty in partitions stored before there was one.
    by_relation : mapping of direction to Metrics
        The same for the mixed exchange of means by relation, of a graph with relations.
    nodes : mapping of direction to NodeTraffic
        Traffic between nodes, of a partition that was mapped to them; otherwise empty.
    history : sequence of mapping
        The steps that were done, or tried: a row each, ``step``, ``seconds`` and figures.
    seconds : float
        Time the tool took.
    deterministic : bool
        Whether the same command gives the same parts again.
    id : str
        Content id of the part vector, given to it by :func:`write_partition`.
    """

    name: str
    parts: np.ndarray
    k: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    graph_id: str
    model: str
    tool: str
    tool_version: str
    direction: manifests.Direction
    seed: Whole | None = None
    imbalance: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[manifests.Direction, Metrics] = field(default_factory=dict)
    mixed: Mapping[manifests.Direction, Metrics] = field(default_factory=dict)
    by_relation: Mapping[manifests.Direction, Metrics] = field(default_factory=dict)
    nodes: Mapping[manifests.Direction, NodeTraffic] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    deterministic: bool = True
    id: str = ""

    @property
    def exchange(self) -> str:
        """The exchange that it was refined for, or else that its model counts."""
        kept = [row["exchange"] for row in self.history if row.get("chosen") and "exchange" in row]
        refined = self.options.get("refine") or {}
        said = (self.options.get("exchange"), refined.get("exchange"), *kept[-1:])
        found = next((exchange for exchange in said if exchange in EXCHANGES), None)
        # The objective of the medium-grain model is the volume of a mixed exchange.
        return found or EXCHANGES[self.model == "mg"]


@contextlib.contextmanager
def partition_lock(
    path: str | os.PathLike[str], name: str, purpose: str, *, exclusive: bool = True
) -> Iterator[None]:
    """Keep others from replacing the graph, and from making or removing the partition ``name``.

    Parameters
    ----------
    purpose : str
        For the message to others: "gcn-partition add".
    exclusive : bool
        For who makes or removes the partition; otherwise, for who uses it.

    Raises
    ------
    UserError
        If the name is malformed, or another process holds a lock that excludes this one.
    """
    folder = _partition_files(path, name)[0].parent
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder_lock(path, purpose, exclusive=False))
        if exclusive and not folder.is_symlink():
            with contextlib.suppress(OSError):  # the lock says why not
                folder.mkdir(exist_ok=True)
        if exclusive or folder.is_dir():
            lock, what = f".{name}.lock", f"{purpose} {name}"
            stack.enter_context(folder_lock(folder, what, exclusive=exclusive, name=lock))
        if exclusive:
            sweep(folder)
        yield


def write_partition(
    path: str | os.PathLike[str], partition: Partition, *, overwrite: bool = False
) -> Partition:
    """Put a partition into the graph folder ``path``; returns it as stored, with its id.

    Raises
    ------
    UserError
        If the name is malformed or taken, the partition is of another graph, or the files cannot be
        written.
    """
    vector, description = _partition_files(path, partition.name)
    if read_manifest(Path(path)).id != partition.graph_id:
        raise UserError(f"{path} is another graph than the partition was made for")
    if PAIRS.has(path, partition.name):
        raise UserError(f"{path} has pairs {partition.name!r}", "give another --name")
    parts = np.asarray(partition.parts, np.int32)
    stored = replace(partition, parts=parts, id=manifests.parts_id(partition.k, parts))
    facts: dict[str, Any] = _PARTITION | vars(stored)
    del facts["parts"]
    for name in EXCHANGED:
        facts[name] = {key: each.stored() for key, each in facts[name].items()}
    with system_errors(f"cannot write {vector}"):
        vector.parent.mkdir(exist_ok=True)
    # Two files, one writer at a time: they belong together.
    with folder_lock(
        vector.parent, "writing a partition", name=".write.lock", patience=manifests.WAIT
    ):
        check_free(path, partition.name, overwrite)
        with contextlib.ExitStack() as both:
            # The description is renamed last, and is gone meanwhile: a partition without one is
            # not listed and not read.
            file = both.enter_context(atomic_file(description, "w"))
            dump_json(file, facts)
            file.flush()
            with atomic_file(vector) as out:
                np.savez_compressed(out, parts=parts)
                out.flush()  # a full disk is noticed before anything is lost
                description.unlink(missing_ok=True)
    return stored


def read_partition(path: str | os.PathLike[str], name: str, *, parts: bool = True) -> Partition:
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
    manifest = read_manifest(path)
    if not description.exists():
        if names := list_partitions(path):
            raise unknown_name(f"partition of {path}", name, names)
        hint = f"make one: gcn-partition add {path} --model hp -k 4"
        raise UserError(f"{path} has no partition {name!r}, nor any other", hint)
    partition = _read_description(description)
    if partition.graph_id != manifest.id:
        what = f"partition {name!r} in {path} was made for another graph "
        what += f"(id {partition.graph_id}, this graph is {manifest.id})"
        raise UserError(what, "make it again with gcn-partition add")
    if not parts:
        return partition
    # The vector is as long as the graph, not as long as the manifest says.
    manifests.map_array(path / "indptr.npy", "i", (manifest.n + 1,))
    vector = read_npz(file, ("parts",), shapes={"parts": (manifest.n,)}).get("parts", np.empty(0))
    if vector.shape != (manifest.n,) or vector.dtype.kind != "i":
        raise UserError(f"{file} does not hold the parts of {manifest.n} vertices")
    if len(vector) and (vector.min() < 0 or vector.max() >= partition.k):
        raise UserError(f"{file} has a part number outside 0..{partition.k - 1}")
    if manifests.parts_id(partition.k, vector.astype(np.int32, copy=False)) != partition.id:
        if _read_description(description).id != partition.id:  # replaced while it was read
            return read_partition(path, name)
        what = f"{file} does not hold the parts that {description.name} describes"
        raise UserError(what, "make the partition again with gcn-partition add")
    return replace(partition, parts=vector)


def _read_description(file: Path) -> Partition:
    """A partition without its parts, from the file that describes it."""
    facts = read_json(file)
    if {key: facts.pop(key, None) for key in _PARTITION} != _PARTITION:
        raise UserError(f"{file} is not a version {_PARTITION['version']} partition")
    partition = manifests.checked(file, facts | {"parts": np.empty(0, np.int32)}, Partition)
    manifests.checked(file, partition.options, _Options)
    manifests.checked(file, partition.history, list[_Step])
    whole = {"history": _is_whole(partition.history)}
    for name in (*EXCHANGED, "nodes"):
        found = getattr(partition, name)
        figures = [name not in _SUMMED or (f.send_sums and f.recv_sums) for f in found.values()]
        figures += [_are_of_parts(each, partition.k) for each in found.values()]
        whole[name] = all(figures) and set(found) in (set(), set(DIRECTIONS))
    if wrong := [name for name, so in whole.items() if not so]:
        raise UserError(f"{file} is damaged: {wrong[0]} does not hold what it should")
    return partition


class _Step(TypedDict, total=False):
    """A row of a history: what is shown of it."""

    step: Required[str]
    seconds: Required[float]
    volume: float
    max_send: float
    max_recv: float
    messages: float
    imbalance: float
    predicted: float
    direction: str
    note: str


class _Options(TypedDict, total=False):
    """Options of a partition that a refinement goes on with."""

    balance: str
    ranks_per_node: Positive | None


def _is_whole(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether rows that were measured have all figures, and all rows a choice if one has."""
    tried = any("chosen" in row for row in history)
    always = {"note", "chosen"} if tried else set()
    measured = {*_STEP_FIGURES} | ({"predicted"} if tried else set())
    return all(always | (measured if "volume" in row else set()) <= row.keys() for row in history)


def _are_of_parts(figures: Metrics | NodeTraffic, k: int) -> bool:
    """Whether figures have a number for each part, or for each node."""
    lists = [each for each in vars(figures).values() if isinstance(each, list)]
    if isinstance(figures, NodeTraffic):  # the last node may hold fewer parts
        return {len(one) for one in lists} == {-(-k // figures.ranks_per_node)}
    lists += (figures.types or {}).values()
    return figures.k == k and {len(one) for one in lists} == {k}


def list_partitions(path: str | os.PathLike[str]) -> list[str]:
    """Names of the partitions of a graph folder, sorted."""
    return sorted(file.stem for file in folder_inside(path, "partitions").glob("[!.]*.json"))


def has_partition(path: str | os.PathLike[str], name: str) -> bool:
    """Whether there is a partition of that name; a UserError if none could be called so."""
    return _partition_files(path, name)[1].exists()


def remove_partition(path: str | os.PathLike[str], *names: str) -> None:
    """Delete partitions: all, or none and a UserError if one does not exist or is in use."""
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(names):
            if not has_partition(path, name):
                raise unknown_name(f"partition of {path}", name, list_partitions(path))
            stack.enter_context(partition_lock(path, name, "gcn-partition remove"))
        for name in names:
            discard_partition(path, name)


def discard_partition(path: str | os.PathLike[str], name: str) -> None:
    """Delete a partition, if it is there, whose lock the caller holds."""
    vector, description = _partition_files(path, name)
    with system_errors(f"cannot remove {description}"):
        description.unlink(missing_ok=True)
        vector.unlink(missing_ok=True)


def check_free(path: str | os.PathLike[str], name: str, overwrite: bool) -> None:
    """A UserError if there is a partition of that name, unless it may be overwritten."""
    if has_partition(path, name) and not overwrite:
        hint = "give --name or --force, or remove it first"
        raise UserError(f"{path} has a partition {name!r} already", hint)


def _keep_partitions(old: Path, new: Path, graph: Graph, manifest: Manifest) -> list[str]:
    """Bring the partitions along if the arcs are the same, with their training vertices counted.

    Returns the names of those that are left behind.
    """
    left, same = list_partitions(old), False
    with contextlib.suppress(UserError):  # it is damaged, and replaced for that reason
        same = read_manifest(old).id == manifest.id
    for name in list_partitions(old) if same else []:
        with contextlib.suppress(UserError):
            partition = read_partition(old, name)
            counts = vertex_counts(graph, partition.parts, partition.k)
            metrics = {key: replace(each, **counts) for key, each in partition.metrics.items()}
            write_partition(new, replace(partition, metrics=metrics))
            left.remove(name)
    return left


def _partition_files(path: str | os.PathLike[str], name: str) -> tuple[Path, Path]:
    manifests.check_stored_name("a partition", name)
    folder = folder_inside(path, "partitions")
    return folder / f"{name}.npz", folder / f"{name}.json"


def pair_names(name: str) -> dict[str, str]:
    """The names of the two partitions of a pair, by exchange.

    >>> pair_names("auto-4")
    {'rows': 'auto-4-rows', 'mixed': 'auto-4-mixed'}
    """
    return {exchange: f"{name}-{exchange}" for exchange in EXCHANGES}


def members(path: str | os.PathLike[str], name: str) -> list[str]:
    """The partitions of a graph folder that a name stands for: one, or those of a pair, rows first.

    The name itself where it stands for none: who reads it says so.
    """
    if has_partition(path, name):
        return [name]
    there = set(list_partitions(path))
    return [member for member in pair_names(name).values() if member in there] or [name]


def member(path: str | os.PathLike[str], name: str, exchange: str = "rows") -> str:
    """The partition that a name stands for in an exchange; the other one if it is the only one."""
    found = members(path, name)
    wanted = pair_names(name)[exchange]
    return wanted if wanted in found else found[0]
