"""Data of arcs: kept where they were read, fetched by the ranks of the sorted arcs."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from gcnmpi.importing.arcs import appending, rounds
from gcnmpi.importing.vertices import answered, before
from gcnmpi.mpi.comm import Comm, agreed
from partition.graph.graph import ArcData
from partition.importing.arcs import Columns, DataFiles
from partition.importing.data_files import ArcFiles, check_classes, class_numbers
from partition.importing.readers.arc_columns import arc_table
from partition.importing.readers.source import Piece
from partition.records import map_npy


class SpreadArcData:
    """Columns of the arcs that a rank reads: those of pieces, and of files with a row for each."""

    def __init__(self, comm: Comm, folder: Path, files: ArcFiles) -> None:
        self._comm, self._files = comm, files
        self._kept = DataFiles(folder / "data")
        with agreed(comm):
            self._arrays = files.mapped()
        self._runs: list[
            tuple[int, int]
        ] = []  # numbers of arcs that begin a piece: in the source, here
        self._rows = 0
        self._forms: dict[str, tuple[np.dtype, tuple[int, ...]]] = {}

    def add(self, piece: Piece) -> None:
        """Keep the data of a piece."""
        count = len(piece.source)
        if not count:
            return
        some = slice(piece.first, piece.first + count)
        rows = {name: array[some] for name, array in self._arrays.items()}
        texts = {
            name: pa.array(array.tolist(), pa.string())
            for name, array in rows.items()
            if array.dtype.kind == "U"
        }
        numbers = {name: array for name, array in rows.items() if name not in texts}
        of_files = arc_table(numbers, self._files.in_files()).columns
        self._kept.append({**piece.data, **of_files, **texts})
        self._runs.append((piece.first, self._rows))
        self._rows += count

    def all_read(self, count: int) -> bool:
        """Check files when all of so many arcs are read; returns whether there are any data."""
        with agreed(self._comm):
            self._files.check_rows(self._arrays, count, "it lists")
        own = {name: (a.dtype, a.shape[1:]) for name, a in self._kept.table().columns.items()}
        self._forms = dict(ChainMap(*self._comm.allgather(own)))
        return bool(self._forms)

    def write(self, folder: Path, keys: Columns, at_once: int, max_bytes: float) -> ArcData:
        """Write the columns of the stored arcs, each of which has that of its arc of the source."""
        comm, table, forms = self._comm, self._kept.table(), self._forms
        if not forms:
            return ArcData()
        # Labels that are texts are places in a rank's own list, here made those in a list of all.
        texts = list(table.names or ())
        names = sorted(set().union(*comm.allgather(texts)))
        codes = np.searchsorted(np.array(names, str), np.array(texts, str))
        whose = comm.allgather(np.array(self._runs, np.int64).reshape(-1, 2))
        ranks = np.repeat(np.arange(comm.size, dtype=np.int32), [len(some) for some in whose])
        firsts, places = np.concatenate(whose).T
        order = np.argsort(firsts)
        ranks, firsts, places = ranks[order], firsts[order], places[order]

        def numbers() -> Iterator[np.ndarray]:
            return (wanted for *_, wanted in rounds(comm, keys, at_once))

        def fetched(name: str) -> Iterator[np.ndarray]:
            dtype, shape = forms[name]
            column = table.columns.get(name, np.empty((0, *shape), dtype))

            def rows(at: np.ndarray) -> np.ndarray:
                found = column[at]
                return codes[found].astype(dtype) if name == "labels" and names else found

            for wanted in numbers():
                run = np.searchsorted(firsts, wanted, side="right") - 1
                place = places[run] + wanted - firsts[run]
                yield answered(comm, ranks[run], place, rows, max_bytes)

        first, total = before(comm, keys.rows)

        def stored(
            name: str, dtype: np.dtype, shape: tuple[int, ...], pieces: Iterator[np.ndarray]
        ) -> np.ndarray:
            path = folder / f"arc_{name}.npy"
            with appending(comm, path, dtype, (total, *shape), first) as put:
                for piece in pieces:
                    with agreed(comm):
                        put(piece)
            return map_npy(path)

        def classes() -> tuple[np.ndarray | None, tuple[str, ...] | None]:
            values = np.empty(0, np.int64)
            for piece in fetched("labels"):
                values = np.union1d(values, piece)
                with agreed(comm):
                    check_classes(values)
            values = np.unique(np.concatenate(comm.allgather(values)))
            with agreed(comm):
                check_classes(values)
                found, class_names = class_numbers(values, names or None)
            if found.max(initial=-1) < 0:
                return None, class_names
            pieces = (found[np.searchsorted(values, piece)] for piece in fetched("labels"))
            return stored("labels", np.dtype(np.int32), (), pieces), class_names

        data = {
            name: stored(name, *form, fetched(name))
            for name, form in forms.items()
            if name != "labels" or form[1]
        }
        labels, class_names = data.get("labels"), None
        if "labels" in forms and labels is None:
            labels, class_names = classes()
        at, same = first, True
        for wanted in numbers():
            same = same and bool((wanted == np.arange(at, at + len(wanted))).all())
            at += len(wanted)
        ids = None
        if not all(comm.allgather(same)):
            ids = stored("ids", np.dtype(np.int64), (), numbers())
        return ArcData(data.get("features"), labels, {}, ids, class_names)
