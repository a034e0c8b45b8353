"""Memory of what is on its way from a graph folder into matrices: part of the cost model."""

from __future__ import annotations

import numpy as np

from gcnmpi.kernels.rows import PERMUTED_AT_ONCE
from gcnmpi.layout.arcs import ENTRIES_AT_ONCE
from gcnmpi.layout.loading import ENTRY_ON_ITS_WAY
from gcnmpi.layout.place import Place, Space
from gcnmpi.options.config import Config
from gcnmpi.schemes.forecast import Forecast

PATTERN_INDEX = 4  # bytes of a number in the pattern of M, by rows and by columns
WEIGHT_BYTES = 8  # of an entry that is placed
PIECES = 3  # of a piece of a file: read, packed and received
# Bytes of a row while its entries are counted and placed, and of each local vertex.
ROW_NUMBERS, COLUMN_NUMBERS = 48, 12


def placed_arcs(forecast: Forecast, rank: int, config: Config, values: bool = True) -> int:
    """Bytes of own rows while arcs are placed in them, and of a piece that is on its way.

    See :mod:`gcnmpi.layout.placing`. Values, if there will be any, are made of the weights,
    and in their place where they have their type and are asked for once.
    """
    facts, entries = forecast.facts, forecast.entries(rank)
    rows, inner = (forecast.shape(rank, Place(0, space=i), 1)[0] for i in (Space.OWN, Space.WHOLE))
    one = PATTERN_INDEX + values * WEIGHT_BYTES * facts.valued
    in_place = facts.valued and facts.itemsize == WEIGHT_BYTES and (facts.folds or facts.one_tile)
    if values and facts.scaled is None and not in_place:
        one += facts.itemsize
    moving = _piece(entries, config)
    return one * entries + moving + ROW_NUMBERS * rows + COLUMN_NUMBERS * inner


def placed_tiles(entries: int, config: Config) -> int:
    """Bytes of so many entries of tiles of M while they are placed, and of a piece on its way.

    See :func:`gcnmpi.layout.tiling.sparse_tile`. In the end, they are there as the kernel has them,
    too.
    """
    one = 2 * PATTERN_INDEX + WEIGHT_BYTES + np.dtype(config.dtype).itemsize
    return one * entries + _piece(entries, config)


def arriving_arcs(rows: int, width: int, itemsize: int, config: Config) -> int:
    """Rows of a file with a row for each arc, a piece of them on its way; then converted."""
    stored, converted = (rows * width * i for i in (itemsize, np.dtype(config.dtype).itemsize))
    piece = min(ENTRIES_AT_ONCE, int(config.loading.max_bytes) // ENTRY_ON_ITS_WAY)
    moving = PIECES * min(stored, piece * width * itemsize)
    return stored + max(moving, converted)


def _piece(entries: int, config: Config) -> int:
    """Bytes of the entries that are read, sent and received at once, of so many."""
    piece = min(ENTRIES_AT_ONCE * ENTRY_ON_ITS_WAY, int(config.loading.max_bytes))
    return min(piece, ENTRY_ON_ITS_WAY * entries)


def arriving_rows(
    rows: int, columns: int, width: int, itemsize: int, config: Config, normalised: bool = False
) -> int:
    """Rows of a file as they arrive; then brought in order, and converted.

    ``width`` and ``itemsize`` are the columns of the file and bytes of a number; of ``normalised``
    rows each is divided by its sum.
    """
    stored = rows * columns * itemsize
    packed = min(int(config.loading.max_bytes), stored)
    whole = packed * width // max(1, columns)
    # To be normalised, rows are copied in their own precision, and in float64.
    sending = packed + whole * (4 if normalised else 1)
    wanted = np.dtype(config.dtype).itemsize
    converted = rows * columns * wanted if wanted != itemsize else 0
    return stored + max(sending, stored // PERMUTED_AT_ONCE, converted)
