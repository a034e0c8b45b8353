"""An import by all ranks, from what is asked for to the folder under its name."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gcnmpi.core.resident import peak_bytes
from gcnmpi.importing import arcs
from gcnmpi.importing.sending import Ranks
from gcnmpi.importing.vertices import IdCollector
from gcnmpi.mpi.comm import Comm, agreed, by_rank_0, check_same, from_root, maximum
from partition.errors import UserError, system_errors
from partition.graph.graph import Graph
from partition.graph.manifest import Known, Manifest
from partition.graph.store import NewFolder, new_folder
from partition.importing.arcs import Building, Columns, arcs_at_once, scratch_folder
from partition.importing.assemble import Import, named_errors
from partition.importing.readers import SHARED, checked_format
from partition.importing.readers.libraries import is_dataset
from partition.importing.readers.reading import open_stream
from partition.importing.readers.source import Readers, Reading, Tell
from partition.records import map_npy

FEWEST = 1 << 10  # arcs that are sent at once


@dataclass(frozen=True)
class Imported:
    """A graph folder that was made, and what it took."""

    path: Path
    manifest: Manifest
    seconds: float
    memory: int  # the most bytes that a rank has had


def import_together(
    comm: Comm,
    asked: Import,
    report: Callable[[str], None] = lambda line: None,
    tell: Tell = lambda stage, done, total: None,
) -> Imported:
    """Make a graph folder out of a list of arcs; it is that of an import by one process.

    Parameters
    ----------
    asked : Import
        ``memory`` are the bytes that a rank may take, itself included.
    report : callable
        Called on rank 0 with what the user should know.
    tell : callable
        Told the stage of the work, how much of it is done, and how much there is.

    Raises
    ------
    UserError
        On all ranks, as of :func:`partition.importing.assemble.import_graph`; or if a format is not
        read by several, or ranks see different files.
    """
    began = time.perf_counter()
    state = _looked_at(comm, asked)
    made: list[NewFolder] = []  # on rank 0
    with contextlib.ExitStack() as stack:

        def begin() -> tuple[Path, Path]:
            made.append(stack.enter_context(new_folder(asked.out, asked.overwrite, report)))
            return made[0].temporary, stack.enter_context(scratch_folder(asked.out))

        folder, scratch = from_root(comm, begin)
        own = scratch / f"rank-{comm.rank}"
        with named_errors(asked.source):
            graph, known, facts = _arcs(comm, asked, state, folder, own, tell)

        def finish() -> Manifest:
            whole, about = asked.with_data(graph, facts, report)
            return made[0].fill(whole, about, asked.direction, asked.keep_features, known)

        tell("data of vertices and checksums", 0, 1)
        manifest = by_rank_0(comm, finish)
        by_rank_0(comm, stack.close)
    seconds, peak = time.perf_counter() - began, int(maximum(comm, peak_bytes()))
    return Imported(asked.out, manifest, seconds, peak)


def _arcs(
    comm: Comm, asked: Import, state: tuple[int, int], folder: Path, own: Path, tell: Tell
) -> tuple[Graph, Known, dict[str, object]]:
    """Read, send, sort and write the arcs: the graph without data of vertices, and its facts."""
    layout, rules, memory = asked.layout, asked.rules(), asked.memory
    assert memory is not None
    with agreed(comm):
        most = arcs_at_once(memory, 0)
        ranks = Ranks(comm, max(FEWEST, most // (8 * comm.size)))
        readers = Readers(comm.rank, comm.size, comm.allgather, partial(agreed, comm))
        reading = Reading(tell=tell, readers=readers)
        stream = open_stream(asked.source, asked.format, replace(layout, ids=None), reading)
    with ranks.writing():
        own.mkdir()
    ids = IdCollector(ranks, stream, layout, int(memory // 200))
    data = arcs.SpreadArcData(ranks, own, asked.arc_files)
    # The first of two weights stays, and each arc has its data: so arcs keep their order.
    ordered = stream.weighted or rules.parallel or bool(asked.arc_files.given())
    ordered = ordered or bool(layout.arc_features or layout.arc_label)
    form = {"weighted": stream.weighted, "numbered": ordered}
    read = Columns(own / "read", "source", "target", weighted=stream.weighted)
    for piece in stream.pieces:
        with ranks.writing():
            read.append(piece.source, piece.target, piece.weights, None)
            data.add(piece)
        ids.add(piece.source, piece.target)
    with agreed(comm):
        if _state(asked.source) != state:
            raise UserError(f"{asked.source} changed while it was read", "import it again")
    first, rows = ranks.before(read.rows)
    has_data = data.all_read(comm.allgather(read.rows))
    numbering = ids.numbering()
    if numbering.share is not None:  # the ids of the vertices are not their numbers
        start, some = numbering.share
        ranks.write(folder / "ids.npy", some, numbering.n, start)
    read = arcs.numbered(ranks, read, numbering, own / "numbered")
    bounds = arcs.bounds_of(comm, read, numbering, most // 2)
    exchange = arcs.ArcExchange(ranks, numbering.n, bounds)
    with agreed(comm):
        most = arcs_at_once(memory, len(exchange.rows) + numbering.n // comm.size)
        names = map_npy(folder / "ids.npy") if numbering.share is not None else None
    build = Building(own, numbering.n, exchange.rows, names, most, tell, rules)
    vertices = numbering.low, first if ordered else None
    keys, counts = arcs.at_their_rows(exchange, read, *vertices, rules, own / "arcs")
    with ranks.writing():
        pieces = keys.keys(max(1, most // 2))
        settled = build.settled(counts, pieces, form, numbered=has_data or rules.parallel)
        keys.delete()
    rules.set_sums_of(comm.allgather(rules))
    with agreed(comm):
        rules.check_copies(numbering.n, names)
    settled.weighted = rules.valued(stream.weighted)
    if rules.undirected:
        settled = arcs.with_reverses(exchange, build, settled)
    arcs.write_arcs(ranks, folder, build, settled)
    of_arcs = data.write(folder, settled)
    with agreed(comm):
        files = [file for name in arcs.FILES if (file := folder / f"{name}.npy").exists()]
        arrays: dict[str, Any] = {file.stem: map_npy(file) for file in files}
        graph = Graph(**arrays, parallel=rules.parallel)
    known = arcs.known_of(comm, graph, exchange.rows)
    facts = {"format": stream.rest["format"]} | rules.facts(rows, False, has_data)
    return replace(graph, arc_data=of_arcs), known, facts | dict(stream.rest.get("notes", {}))


def _looked_at(comm: Comm, asked: Import) -> tuple[int, int]:
    """Size and time of the source, which is the same for all; the mistakes that show before."""
    with agreed(comm):
        if comm.rank == 0:
            asked.check()
        if is_dataset(asked.source):
            raise UserError(
                f"{asked.source} is loaded by one process", "gcn-partition import reads data sets"
            )
        format = checked_format(asked.source, asked.format, asked.layout)
        if format not in SHARED:
            raise UserError(
                f"{asked.source} has the format {format}, which is not read by several ranks",
                f"gcn-partition import reads it in one process; ranks read {', '.join(SHARED)}",
            )
        size, when = _state(asked.source)
    hint = "put it where all hosts see the same file"
    check_same(comm, {f"size of {asked.source.name}": size}, hint)
    return size, when


def _state(path: Path) -> tuple[int, int]:
    """Size and time of the last change of a file."""
    with system_errors(f"cannot read {path}"):
        found = os.stat(path)
    return found.st_size, found.st_mtime_ns
