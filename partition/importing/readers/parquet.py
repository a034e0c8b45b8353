"""Lists of arcs in Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from partition.errors import UserError
from partition.importing.readers import Allocate, Layout, Piece, Source, Stream, Tell
from partition.importing.readers.columns import ROLES, given_roles, named_roles
from partition.importing.readers.files import finite_weights, quoted
from partition.importing.readers.numbering import number_texts, number_vertices
from partition.importing.readers.parquet_tables import (
    array_of,
    column_names,
    column_of,
    open_parquet,
    parquet_errors,
)
from partition.importing.readers.vertex_files import read_ids

AT_ONCE = 1 << 20  # rows


def read(path: Path, layout: Layout) -> Source:
    """Read a list of arcs: columns called source and target, and perhaps weight, or --columns.

    Two columns with other names are taken in their order. Ids are integers, or texts.

    Raises
    ------
    UserError
        If it is not clear what a column is, a value is missing, or a weight is not finite.
    """
    names, places = _columns(path, layout)
    found = [column_of(path, names[place]) for place in places]
    text = layout.string_ids or any(ends.dtype.kind == "U" for ends in found[:2])
    source, target = (ends.astype(str) if text else _integers(ends, path) for ends in found[:2])
    texts = None
    if text:
        ends = (pa.chunked_array([pa.array(ends, pa.string())]) for ends in (source, target))
        texts, source, target = number_texts(str(path), *ends)
    given = None if layout.ids is None else read_ids(layout.ids, text=text)
    n, source, target, ids = number_vertices(
        source, target, str(path), names=texts, vertices=layout.vertices, ids=given
    )
    weights = finite_weights(_numbers(found[2], path), str(path)) if len(found) > 2 else None
    return Source(
        n=n, source=source, target=target, weights=weights, ids=ids, format="parquet",
        notes=_notes(names, places),
    )  # fmt: skip


def stream(path: Path, layout: Layout, allocate: Allocate, tell: Tell) -> Stream:
    """The same a piece at a time, with ids that are integers."""
    names, places = _columns(path, layout)
    chosen = [names[place] for place in places]

    def pieces() -> Iterator[Piece]:
        total, done = open_parquet(path).metadata.num_rows, 0
        with parquet_errors(path):
            for batch in open_parquet(path).iter_batches(AT_ONCE, columns=chosen):
                found = [array_of(batch.column(name), name, path) for name in chosen]
                if layout.string_ids or any(ends.dtype.kind == "U" for ends in found[:2]):
                    raise UserError(
                        f"{path}: --memory is for ids that are integers; these are texts",
                        "import it without --memory: texts are numbered in memory",
                    )
                source, target = (_integers(ends, path) for ends in found[:2])
                weights = None
                if len(found) > 2:
                    weights = finite_weights(_numbers(found[2], path), str(path))
                yield source, target, weights
                done += len(source)
                tell("reading", done, total)

    return Stream(
        pieces=pieces(),
        where=str(path),
        weighted=len(places) == 3,
        vertices=layout.vertices,
        ids=None if layout.ids is None else read_ids(layout.ids),
        rest={"format": "parquet", "notes": _notes(names, places)},
    )


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
        raise UserError(
            f"{path} has the columns {shown}, and it is not clear what they are",
            "say it in their order, such as --columns source,target,weight or source,target,-,-",
        )
    if not open_parquet(path).metadata.num_rows:
        raise UserError(f"{path} holds no arcs")
    return names, places


def _notes(names: list[str], places: tuple[int, ...]) -> dict[str, str]:
    note = ", ".join(f"{role} {quoted(names[i])}" for role, i in zip(ROLES, places, strict=False))
    unread = [quoted(name) for i, name in enumerate(names) if i not in places]
    return {"columns": note + (f"; not read: {', '.join(unread)}" if unread else "")}


def _integers(ends: np.ndarray, path: Path) -> np.ndarray:
    if ends.ndim != 1 or ends.dtype.kind not in "iu" or (len(ends) and ends.max() >= 2**63):
        raise UserError(f"{path}: ids are {ends.dtype} {ends.shape}, not integers or texts")
    return ends.astype(np.int64)


def _numbers(weights: np.ndarray, path: Path) -> np.ndarray:
    if weights.ndim != 1 or weights.dtype.kind not in "biuf":
        raise UserError(f"{path}: weights are {weights.dtype} {weights.shape}, not numbers")
    return weights
