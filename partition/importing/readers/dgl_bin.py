"""Graphs in the files of ``dgl.save_graphs``, version 2 of the format, read without DGL.

The file is a stream of numbers in little-endian order: vectors and texts begin with their length in
8 bytes, arrays with a header that has their type and shape. Nothing in it is a program. Sources:
``heterograph_serialize.cc``, ``unit_graph.cc``, ``coo.h``, ``spmat.h`` and ``ndarray.h`` of DGL.

DGL 0.9 to 2.x, one graph of one type of vertices and arcs: ``feat`` (``features``), ``label``
(``labels``), ``train_mask`` and so on; of arcs ``weight`` (``w``), ``feat``, ``label`` and masks.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.importing.readers.files import quoted
from partition.importing.readers.npz import source_of
from partition.importing.readers.source import Layout, Source
from partition.records import open_regular

FILE, HETERO, IMMUTABLE, UNIT, COO, CSR, ARRAY = (
    0xDD2E4FF046B4A13F, 0xDD589FBE35224ABF, 0xDD3C5FFE20046ABF, 0xDD2E60F0F6B4A127,
    0xDD61FFD305DFF127, 0xDD6CD31205DFF127, 0xDD5E40F096B4A13F,
)  # fmt: skip
META_BYTES = 4096
VERSION = GRAPH_KIND = 2
MARKED = 1 << 32  # of formats, which older files number otherwise
IN_COO, IN_CSR, IN_CSC = 1, 2, 4
KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
# DGL's names of the data of vertices and arcs, and ours.
NAMES = {"feat": "x", "features": "x", "label": "y", "labels": "y"}
WEIGHTS = ("weight", "w", "edge_weight")
IN_PYTHON = "in Python: gcnmpi.graph.from_object(dgl.load_graphs(FILE)[0][0], folder=…)"


def read(path: Path, layout: Layout) -> Source:
    """Read the only graph of a file: ``feat``, ``label``, the masks, and ``weight`` of its arcs.

    A UserError if it holds several, or vertices or arcs of several types.
    """
    stream = _Stream(path)
    if stream.number() != FILE:
        raise UserError(f"{path} is not a file of dgl.save_graphs")
    version, kind, graphs = stream.number(), stream.number(), stream.number()
    if (version, kind) != (VERSION, GRAPH_KIND):
        raise UserError(
            f"{path} is in version {version} of DGL's format, {VERSION} is read", IN_PYTHON
        )
    if graphs != 1:
        raise UserError(f"{path} holds {graphs} graphs, one is read", IN_PYTHON)
    stream.at = META_BYTES
    stream.at = stream.number()  # labels of graphs are passed over
    stream.expect(HETERO)
    if _metagraph(stream) != (1, 1) or stream.number() != 1:
        raise UserError(
            f"{path} holds a graph with vertices or arcs of several types",
            "dgl.to_homogeneous(g, ndata=['feat']) makes one of one type",
        )
    ends = np.stack(_arcs(stream))
    sizes = stream.vector()
    n = sizes[0] if len(sizes) == 1 else -1
    if ends.size and not 0 <= ends.min() <= ends.max() < n:
        raise stream.damaged(f"vertices outside 0..{n - 1}")
    fields = {NAMES.get(name, name): array for name, array in stream.table().items()}
    arc_data, asked = stream.table(), (layout.arc_features or "").split(",")
    weights = [arc_data[name] for name in WEIGHTS if name in arc_data and name not in asked]
    fields |= {"edge_index": ends} | ({"edge_weight": weights[0]} if weights else {})
    of_arcs = {name: a for name, a in arc_data.items() if name in asked or name not in WEIGHTS}
    return source_of(fields, str(path), "dgl", layout, of_arcs, n)


def _arcs(stream: _Stream) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets, out of one of the forms that the file has."""
    stream.expect(UNIT)
    forms = stream.number()
    stream.number()  # forms that the program may make
    if not forms & MARKED or not forms & (IN_COO | IN_CSR | IN_CSC):
        raise UserError(f"{stream.path} was saved by an old version of DGL", IN_PYTHON)
    found = []
    for form in (IN_COO, IN_CSR, IN_CSC):
        if forms & form:
            _metagraph(stream)
            if form == IN_COO:
                found.append(_coo(stream))
            else:
                _, row, column = _csr(stream)
                found.append((row, column) if form == IN_CSR else (column, row))
    return found[0]


def _metagraph(stream: _Stream) -> tuple[int, int]:
    """The graph of types: how many of vertices and of arcs there are."""
    stream.expect(IMMUTABLE)
    types, arcs = _csr(stream)[:2]
    return types, len(arcs)


def _coo(stream: _Stream) -> tuple[np.ndarray, np.ndarray]:
    stream.expect(COO)
    stream.at += 16  # rows and columns
    row, column, number = stream.array(), stream.array(), stream.array()
    stream.at += 2  # whether they are sorted
    return _in_order(row, column, number, stream)


def _csr(stream: _Stream) -> tuple[int, np.ndarray, np.ndarray]:
    """The number of rows; row and column of each entry."""
    stream.expect(CSR)
    rows, _ = stream.number(), stream.number()
    indptr, column, number = stream.array(), stream.array(), stream.array()
    stream.at += 1  # whether columns are sorted
    degrees: np.ndarray = np.diff(indptr.astype(np.int64)) if indptr.ndim == 1 else np.array([-1])
    if len(degrees) != rows or (degrees < 0).any() or degrees.sum() != len(column):
        raise stream.damaged("row pointers that do not rise to the number of arcs")
    return rows, *_in_order(np.repeat(np.arange(rows), degrees), column, number, stream)


def _in_order(
    row: np.ndarray, column: np.ndarray, number: np.ndarray, stream: _Stream
) -> tuple[np.ndarray, np.ndarray]:
    """The arcs in the order of their numbers, which are theirs where none are given."""
    if row.shape != column.shape or row.ndim != 1 or row.dtype.kind not in "iu":
        raise stream.damaged("rows and columns that do not fit each other")
    if not number.size:
        return row, column
    if number.shape != row.shape or (np.sort(number) != np.arange(len(row))).any():
        raise stream.damaged("numbers of arcs that are not 0, 1, 2 …")
    order = np.argsort(number)
    return row[order], column[order]


class _Stream:
    """A file that is read from front to back, never beyond its end."""

    def __init__(self, path: Path) -> None:
        self.path, self.at = path, 0
        with open_regular(path) as file:
            empty = not os.fstat(file.fileno()).st_size
            self._bytes = np.empty(0, np.uint8) if empty else np.memmap(file, np.uint8, "r")

    def damaged(self, what: str) -> UserError:
        """The refusal of a file, with the fault that was found in it."""
        return UserError(f"{self.path} is truncated or damaged: it has {what}", IN_PYTHON)

    def take(self, nbytes: int) -> np.ndarray:
        """The bytes that follow, so many."""
        if not 0 <= nbytes <= len(self._bytes) - self.at:
            raise self.damaged("an end where more was announced")
        self.at += nbytes
        return self._bytes[self.at - nbytes : self.at]

    def number(self) -> int:
        """The next number of 8 bytes."""
        return int.from_bytes(self.take(8).tobytes(), "little")

    def expect(self, magic: int) -> None:
        """A UserError unless the next number is this one."""
        if self.number() != magic:
            raise self.damaged(f"no {magic:#x} where one has to be")

    def vector(self) -> list[int]:
        """Numbers of 8 bytes."""
        return np.frombuffer(self.take(8 * self.number()), "<i8").tolist()

    def table(self) -> dict[str, np.ndarray]:
        """Arrays by name, of the only type."""
        if self.number() != 1:
            raise self.damaged("data of several types")
        return {self.text(): self.array() for _ in range(self.number())}

    def text(self) -> str:
        """A name, with its length before it."""
        return self.take(self.number()).tobytes().decode("utf-8", "replace")

    def array(self) -> np.ndarray:
        """An array of numbers, in the file's memory."""
        self.expect(ARRAY)
        self.at += 16  # reserved, and the device, which is always the host
        ndim = int.from_bytes(self.take(4).tobytes(), "little")
        kind, bits, lanes = struct.unpack("<BBH", self.take(4).tobytes())
        if not ndim <= 32:
            raise self.damaged(f"an array of {ndim} dimensions")
        shape = np.frombuffer(self.take(8 * ndim), "<i8").tolist()
        nbytes = self.number()
        bits = 8 if kind == 6 else bits
        known = kind in KINDS and bits in (8, 16, 32, 64) and lanes == 1
        if not known or min(shape, default=0) < 0:
            raise self.damaged(f"an array of type {kind}, {bits} bits, which is not read")
        if math.prod(shape) * bits != 8 * nbytes:
            raise self.damaged(f"{nbytes} bytes for an array of shape {quoted(str(shape))}")
        return np.frombuffer(self.take(nbytes), f"<{KINDS[kind]}{bits // 8}").reshape(shape)
