"""Columns of Parquet files as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partition.errors import UserError
from partition.importing.readers.arc_columns import piece_of
from partition.importing.readers.columns import (
    UnclearColumns,
    arc_places,
    columns_note,
    given_roles,
    named_roles,
    unread_columns,
)
from partition.importing.readers.files import finite_weights, quoted
from partition.importing.readers.parquet_tables import (
    array_of,
    column_names,
    is_text,
    open_parquet,
    parquet_errors,
)
from partition.importing.readers.source import Layout, Piece, Reading, Stream
from partition.importing.readers.text import in_step
from partition.resident import check_memory

AT_ONCE = 1 << 20  # rows


def stream(path: Path, layout: Layout, reading: Reading) -> Stream:
    """Read a list of arcs: columns called source and target, and perhaps weight, or --columns.

    Two columns with other names are taken in their order. Ids are integers, or texts. A UserError
    if it is not clear what a column is, a value is missing, or a weight is not finite.
    """
    names, places = _columns(path, layout)
    data, places = arc_places(names, places, layout, path)
    chosen = [names[place] for place in (*places, *data.places)]
    ends, features = len(places), len(data.features)
    file = open_parquet(path)
    rows, schema = file.metadata.num_rows, file.schema_arrow
    text = layout.string_ids or any(is_text(schema.field(name).type) for name in chosen[:2])
    if reading.whole:
        check_memory(16 * rows, f"{path}: {rows} rows")

    readers = reading.readers

    def pieces() -> Iterator[Piece]:
        for done, groups in _shares(file.metadata, readers.size)[readers.rank :: readers.size]:
            with parquet_errors(path):
                for batch in file.iter_batches(AT_ONCE, groups, chosen):
                    yield _piece(batch, done)
                    done += len(batch)
                    reading.tell("reading", done, rows)

    def _piece(batch: pa.RecordBatch | pa.Table, done: int) -> Piece:
        found = [array_of(batch.column(name), name, path) for name in chosen]
        source, target = (_ends(one, text, path) for one in found[:2])
        weights = found[2] if ends > 2 else None
        if weights is not None:
            if weights.ndim != 1 or weights.dtype.kind not in "biuf":
                form = f"{weights.dtype} {weights.shape}"
                raise UserError(f"{path}: weights are {form}, not numbers")
            weights = finite_weights(weights, str(path), done)
        of_arcs = found[ends : ends + features], found[ends + features :]
        return Piece(source, target, weights, piece_of(*of_arcs, str(path), done), done)

    def nothing() -> Piece:
        return _piece(schema.empty_table(), 0)

    return Stream(
        in_step(pieces(), readers, nothing),
        str(path),
        weighted=len(places) == 3,
        text=text,
        rest={
            "format": "parquet",
            "notes": {"columns": columns_note(names, places, data)},
            "unread": unread_columns(names, places, data),
        },
    )


def _shares(metadata: pq.FileMetaData, readers: int) -> list[tuple[int, list[int]]]:
    """Groups of rows that one reader reads, with the number of their first row.

    Several groups if these are small; a group is not split, since it would be decoded as a whole.
    """
    total = metadata.num_rows
    least = total if readers == 1 else min(AT_ONCE, -(-total // readers))
    shares: list[tuple[int, list[int]]] = []
    done = begun = 0
    for group in range(metadata.num_row_groups):
        if not shares or done - begun >= least:
            begun = done
            shares.append((done, []))
        shares[-1][1].append(group)
        done += metadata.row_group(group).num_rows
    return shares


def _columns(path: Path, layout: Layout) -> tuple[list[str], tuple[int, ...]]:
    """The names of the columns, and the places of source, target and perhaps weight."""
    names = column_names(path)
    shown = ", ".join(map(quoted, names)) or "none"
    places = named_roles(names)
    if layout.columns is not None:
        places = given_roles(layout.columns)
        if max(places) >= len(names):
            raise UserError(
                f"{path} has the columns {shown}, --columns {layout.columns} names more"
            )
    elif places is None and len(names) == 2:
        places = (0, 1)
    if places is None:
        raise UnclearColumns(
            f"{path} has the columns {shown}, and it is not clear what they are",
            "say it in their order, such as --columns source,target,weight or source,target,-,-",
        )
    if not open_parquet(path).metadata.num_rows:
        raise UserError(f"{path} holds no arcs")
    return names, places


def _ends(ends: np.ndarray, text: bool, path: Path) -> np.ndarray | pa.Array:
    """Sources or targets as an Arrow array of texts, or as int64."""
    if ends.dtype.kind == "f":
        raise UserError(
            f"{path}: ids are {ends.dtype}, not whole numbers or texts",
            "frames have fractions where values are missing: leave these rows out, and write "
            "integers",
        )
    if text:
        return pa.array(ends.astype(str), pa.string())
    if ends.ndim != 1 or ends.dtype.kind not in "iu" or (len(ends) and ends.max() >= 2**63):
        raise UserError(f"{path}: ids are {ends.dtype} {ends.shape}, not integers or texts")
    return ends.astype(np.int64)
