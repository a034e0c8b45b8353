"""Data of arcs: kept where they were read, fetched by the ranks of the sorted arcs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from gcnmpi.importing.arcs import Spool, in_rounds
from gcnmpi.importing.exchange import answered, before
from gcnmpi.layout.writing import writing_apart
from gcnmpi.mpi.comm import Comm, agreed
from partition.graph.graph import ArcData
from partition.importing.arc_data import ArcFiles, check_classes, class_numbers
from partition.importing.readers.arc_columns import arc_table
from partition.importing.readers.source import Piece
from partition.importing.spools import Columns, DataFiles
from partition.records import map_npy

Form = tuple[np.dtype, tuple[int, ...]]


class DataOfArcs:
    """Columns of the arcs that a rank reads: those of pieces, and of files with a row for each.

    ``there``: whether there are any, known once all is read.
    """

    def __init__(self, comm: Comm, folder: Path, files: ArcFiles) -> None:
        self._comm, self._folder, self._files = comm, folder, files
        self._kept = DataFiles(folder / "data")
        with agreed(comm):
            self._arrays = files.mapped()
        self._forms: dict[str, Form] = {}
        self._columns: dict[str, np.ndarray] = {}
        self._names: list[str] | None = None

    def add(self, piece: Piece) -> None:
        """Keep the data of a piece."""
        some = slice(piece.first, piece.first + len(piece.source))
        rows = {name: array[some] for name, array in self._arrays.items()}
        texts = {
            name: pa.array(array.tolist(), pa.string())
            for name, array in rows.items()
            if array.dtype.kind == "U"
        }
        numbers = {name: array for name, array in rows.items() if name not in texts}
        of_files = arc_table(numbers, self._files.named()).columns
        self._kept.append({**piece.data, **of_files, **texts} if len(piece.source) else {})

    def all_read(self, count: int) -> bool:
        """Look at the columns when all of so many arcs are read; returns whether there are any."""
        comm = self._comm
        with agreed(comm):
            self._files.check_rows(self._arrays, count, "it lists")
        table = self._kept.table()
        self._columns = dict(table.columns)
        forms = {name: (a.dtype, a.shape[1:]) for name, a in self._columns.items()}
        self._forms = dict(itertools.chain(*(each.items() for each in comm.allgather(forms))))
        for name, (dtype, shape) in self._forms.items():
            self._columns.setdefault(name, np.empty((0, *shape), dtype))
        own = list(table.names or ())
        names = sorted(set().union(*comm.allgather(own)))
        if names:
            self._names = names
            codes = np.searchsorted(np.array(names), np.array(own, dtype=str))
            self._columns["labels"] = _Coded(self._columns["labels"], codes)  # type: ignore[assignment]
        return bool(self._forms)

    def write(
        self, folder: Path, keys: Columns, spool: Spool, at_once: int, max_bytes: float
    ) -> ArcData:
        """Write the columns of the stored arcs, each of which has that of its arc of the source."""
        comm = self._comm
        if not self._forms:
            return ArcData()
        runs = np.array(spool.firsts, np.int64).reshape(-1, 3)[:, :2]
        whose = comm.allgather(runs)
        ranks = np.repeat(np.arange(comm.size, dtype=np.int32), [len(some) for some in whose])
        firsts, places = np.concatenate(whose).T
        order = np.argsort(firsts)
        ranks, firsts, places = ranks[order], firsts[order], places[order]

        def numbers() -> Iterator[np.ndarray]:
            starts = list(range(0, keys.rows, at_once))
            for start in starts + [keys.rows] * (in_rounds(comm, len(starts)) - len(starts)):
                yield keys.rows_from(start, min(at_once, keys.rows - start))[-1]

        def fetched(name: str) -> Iterator[np.ndarray]:
            column = self._columns[name]
            for wanted in numbers():
                run = np.searchsorted(firsts, wanted, side="right") - 1
                place = places[run] + wanted - firsts[run]
                yield answered(comm, ranks[run], place, lambda at: column[at], max_bytes)

        first, total = before(comm, keys.rows)
        files: dict[str, Path] = {}

        def stored(name: str, form: Form, pieces: Iterable[np.ndarray]) -> np.ndarray:
            files[name] = folder / f"arc_{name}.npy"
            at = first
            with writing_apart(comm, files[name], form[0], (total, *form[1])) as put:
                for piece in pieces:
                    with agreed(comm):
                        put(at, piece)
                    at += len(piece)
            return map_npy(files[name])

        data: dict[str, np.ndarray] = {}
        class_names = None
        for name, form in self._forms.items():
            pieces: Iterable[np.ndarray] = fetched(name)
            if name == "labels" and not form[1]:
                values = np.empty(0, np.int64)
                for piece in pieces:
                    values = np.union1d(values, piece)
                    with agreed(comm):
                        check_classes(values)
                values = np.unique(np.concatenate(comm.allgather(values)))
                with agreed(comm):
                    check_classes(values)
                    classes, class_names = class_numbers(values, self._names)
                form = np.dtype(np.int32), ()
                pieces = (classes[np.searchsorted(values, piece)] for piece in fetched(name))
                if classes.max(initial=-1) < 0:
                    continue
            data[name] = stored(name, form, pieces)
        at, same = first, True
        for piece in numbers():
            same = same and bool((piece == np.arange(at, at + len(piece))).all())
            at += len(piece)
        same = all(comm.allgather(same))
        ids = None if same else stored("ids", (np.dtype(np.int64), ()), numbers())
        return ArcData(data.get("features"), data.get("labels"), {}, ids, class_names)


class _Coded:
    """Labels by their places in a list of texts, read by those in the list of all ranks."""

    def __init__(self, labels: np.ndarray, codes: np.ndarray) -> None:
        self._labels, self._codes = labels, codes

    def __getitem__(self, at: np.ndarray) -> np.ndarray:
        return self._codes[self._labels[at]].astype(np.int64)
