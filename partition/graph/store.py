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

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from partition.errors import UserError, system_errors, unknown_name
from partition.graph import content
from partition.graph.folders import (
    REPLACING,
    WAIT,
    check_room,
    check_stored_name,
    check_target,
    map_array,
    save_array,
)
from partition.graph.graph import (
    AGAIN,
    Graph,
    check_arcs,
    check_direction,
    check_labels,
    check_targets,
    merged,
    read_arc_data,
    training_rows,
)
from partition.graph.links import PairSet, has_pairs, keep_pairs
from partition.graph.manifest import (
    EXCHANGED,
    EXCHANGES,
    PARTITION_FORMAT,
    PARTITION_VERSION,
    Manifest,
    Partition,
    dump_json,
    manifest_of,
    read_description,
    read_manifest,
    stored_fields,
)
from partition.graph.metrics import rows_of_types
from partition.graph.samples import SampleSet, keep_samples
from partition.graph.sparse_rows import kept_form, read_features
from partition.graph.typed import check_ends, read_types, settled
from partition.locks import folder_inside, folder_lock
from partition.records import atomic_file, atomic_folder, read_npz, sweep


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
        return check_direction(asked or self.manifest.direction)


def write_graph(
    path: str | os.PathLike[str],
    graph: Graph,
    *,
    source: Mapping[str, object],
    direction: str = "in",
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
    keep_features: str = "auto",
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
        Replace a folder of that name. The partitions in it are kept if the arcs are the same.
    report : callable
        Told which partitions were kept, and which were not.
    keep_features : {"auto", "dense", "sparse"}
        See :func:`partition.graph.sparse_rows.kept_form`.

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
    complete: Callable[[Graph, Manifest], None]

    def fill(
        self,
        graph: Graph,
        source: Mapping[str, object],
        direction: str,
        keep_features: str = "auto",
        known: content.Known | None = None,
    ) -> Manifest:
        """Write the arrays of a graph that are not there yet, and the manifest.

        See :func:`write_graph`, and :func:`partition.graph.manifest.manifest_of` for what is known.
        """
        graph = settled(graph)
        if graph.vertex_types is None or keep_features != "auto":
            graph = replace(graph, features=kept_form(graph.features, keep_features))
        arrays = content.file_arrays(graph)
        manifest = manifest_of(graph, arrays, self.path.stem, direction, source, known)
        files = {name: self.temporary / f"{name}.npy" for name in arrays}
        missing = {name: array for name, array in arrays.items() if not files[name].exists()}
        check_room(self.path, missing)
        for name, array in missing.items():
            save_array(files[name], array)
        self.complete(graph, manifest)
        return manifest


@contextlib.contextmanager
def new_folder(path: Path, overwrite: bool, report: Callable[[str], None]) -> Iterator[NewFolder]:
    """A folder that is renamed to ``path`` in the end, or nothing is left of it.

    See :func:`write_graph`.
    """
    before: list[str] = []
    lost: dict[str, list[str]] = {}
    with contextlib.ExitStack() as stack, atomic_folder(path, overwrite=overwrite) as temporary:
        (temporary / "partitions").mkdir()

        def complete(graph: Graph, manifest: Manifest) -> None:
            with atomic_file(temporary / "manifest.json", "w") as file:
                dump_json(file, stored_fields(manifest))
            if path.exists():
                # Until the new folder is in its place.
                stack.enter_context(folder_lock(path, REPLACING, patience=WAIT))
                before.extend(list_partitions(path))
                _keep_partitions(path, temporary, graph, manifest)
                lost["pairs deleted, of other arcs"] = keep_pairs(path, temporary, manifest.id)
                samples = keep_samples(path, temporary, manifest.n)
                lost["samples deleted, of other vertices"] = samples

        yield NewFolder(path, temporary, complete)
    kept = list_partitions(path)
    if kept:
        report(f"the arcs are the same: partitions kept: {', '.join(kept)}")
    gone = {"partitions deleted, of other arcs": [name for name in before if name not in kept]}
    for what, names in (gone | lost).items():
        if names:
            report(f"{what} or damaged: {', '.join(names)}")


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
    manifest = read_manifest(path)
    n, nnz = manifest.n, manifest.nnz

    def load(name: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
        return map_array(path / f"{name}.npy", shape, kind)

    def load_mask(name: str) -> np.ndarray:
        shapes = [(n,), (n, manifest.splits)] if manifest.splits > 1 else [(n,)]
        return map_array(path / f"{name}_mask.npy", shapes[0], "b", *shapes[1:])

    graph = Graph(
        indptr=load("indptr", (n + 1,), "i"),
        indices=load("indices", (nnz,), "i"),
        weights=load("weights", (nnz,), "f") if manifest.weighted else None,
        features=read_features(load, (n, manifest.features), manifest.feature_entries),
        labels=load("labels", (n,), "i") if manifest.classes else None,
        masks={name: load_mask(name) for name in manifest.masks},
        ids=load("ids", (n,), "iU") if (path / "ids.npy").exists() else None,
        class_names=manifest.class_names or None,
        targets=load("targets", (n, manifest.targets), "f") if manifest.targets else None,
        arc_data=read_arc_data(
            load, nnz, manifest.arc_features, manifest.arc_classes, manifest.arc_targets,
            manifest.arc_masks, manifest.arc_class_names, (path / "arc_ids.npy").exists(),
        ),
        parallel=manifest.parallel,
        **read_types(
            load, nnz, manifest.vertex_types, manifest.relations, manifest.type_features
        ),
    )  # fmt: skip
    if graph.indptr[0] != 0 or graph.indptr[-1] != nnz:
        raise UserError(
            f"{path}/indptr.npy goes from {graph.indptr[0]} to {graph.indptr[-1]}, the manifest "
            f"says 0 to {nnz}",
            AGAIN,
        )
    content.check_files(path, graph, manifest.sums)
    if check:
        try:
            check_arcs(graph, 0, n)
            check_ends(graph, 0, n)
            check_labels(graph, manifest.classes)
            check_targets(graph)
        except UserError as error:
            raise UserError(f"{path} is damaged: {error.message}", error.hint) from None
        if manifest.sums:
            arrays = content.file_arrays(graph).items()
            read = {name: array for name, array in arrays if name in content.OPENED}
            content.check_sums(path, content.sums_of(read), manifest.sums)
        if manifest.symmetric_pattern:
            content.check_symmetry(path, content.excess_of(graph, manifest.symmetric_values))
    return StoredGraph(path, manifest, graph)


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
    if has_pairs(path, partition.name):
        raise UserError(f"{path} has pairs {partition.name!r}", "give another --name")
    parts = np.asarray(partition.parts, np.int32)
    stored = replace(partition, parts=parts, id=content.parts_id(partition.k, parts))
    facts = {"format": PARTITION_FORMAT, "version": PARTITION_VERSION}
    facts |= {f.name: getattr(stored, f.name) for f in fields(Partition) if f.name != "parts"}
    for name in EXCHANGED:
        facts[name] = {key: each.stored() for key, each in getattr(stored, name).items()}
    with system_errors(f"cannot write {vector}"):
        vector.parent.mkdir(exist_ok=True)
    # Two files, one writer at a time: they belong together.
    with folder_lock(vector.parent, "writing a partition", name=".write.lock", patience=WAIT):
        if description.exists() and not overwrite:
            raise UserError(
                f"{path} has a partition {partition.name!r} already",
                "give --name or --force, or remove it first",
            )
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
        names = list_partitions(path)
        if not names:
            hint = f"make one: gcn-partition add {path} --model hp -k 4"
            raise UserError(f"{path} has no partition {name!r}, nor any other", hint)
        raise unknown_name(f"partition of {path}", name, names)
    partition = read_description(description)
    if partition.graph_id != manifest.id:
        raise UserError(
            f"partition {name!r} in {path} was made for another graph "
            f"(id {partition.graph_id}, this graph is {manifest.id})",
            "make it again with gcn-partition add",
        )
    if not parts:
        return partition
    # The vector is as long as the graph, not as long as the manifest says.
    map_array(path / "indptr.npy", (manifest.n + 1,), "i")
    vector = read_npz(file, ("parts",), shapes={"parts": (manifest.n,)}).get("parts", np.empty(0))
    if vector.shape != (manifest.n,) or vector.dtype.kind != "i":
        raise UserError(f"{file} does not hold the parts of {manifest.n} vertices")
    if len(vector) and (vector.min() < 0 or vector.max() >= partition.k):
        raise UserError(f"{file} has a part number outside 0..{partition.k - 1}")
    if content.parts_id(partition.k, vector.astype(np.int32, copy=False)) != partition.id:
        if read_description(description).id != partition.id:  # replaced while it was read
            return read_partition(path, name)
        raise UserError(
            f"{file} does not hold the parts that {description.name} describes",
            "make the partition again with gcn-partition add",
        )
    return replace(partition, parts=vector)


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


def _keep_partitions(old: Path, new: Path, graph: Graph, manifest: Manifest) -> None:
    """Bring the partitions along if the arcs are the same, with their training vertices counted."""
    try:
        same = read_manifest(old).id == manifest.id
    except UserError:  # it is damaged, and replaced for that reason
        return
    training = training_rows(graph)
    for name in list_partitions(old) if same else []:
        try:
            partition = read_partition(old, name)
        except UserError:
            continue
        train = None
        if training is not None:
            train = np.bincount(partition.parts[training], minlength=partition.k).tolist()
        types = rows_of_types(graph, partition.parts, partition.k)
        metrics = {
            key: replace(found, train=train, types=types)
            for key, found in partition.metrics.items()
        }
        write_partition(new, replace(partition, metrics=metrics))


def _partition_files(path: str | os.PathLike[str], name: str) -> tuple[Path, Path]:
    check_stored_name("a partition", name)
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
