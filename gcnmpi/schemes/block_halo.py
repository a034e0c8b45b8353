"""Whole rows of neighbours for block rows: each copy of a block has all of its arcs.

A product is divided over the copies of a block, and partial sums are added up. A maximum or a
softmax over neighbours is no sum; so here every copy brings all rows that its block needs, from
the ranks of its own process column, and does all of the work: c times the traffic of one copy.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp

from gcnmpi.halo.exchange import agree_on_plan
from gcnmpi.halo.plan import STEP, Plan
from gcnmpi.halo.product import HaloProduct
from gcnmpi.halo.rows import BroadcastHalo, ExchangedHalo, Halo
from gcnmpi.layout.loading import load_m
from gcnmpi.layout.runtime import Runtime, Source
from gcnmpi.layout.tiling import Tiling, sparse_tile
from gcnmpi.mpi.collectives import Group
from gcnmpi.mpi.comm import Comm
from gcnmpi.options.config import Config
from partition.graph.graph import index_dtype


def load_halo(
    runtime: Runtime, source: Source, config: Config, tiling: Tiling, column: Group, sparse: bool
) -> Halo:
    """The halo of this rank's block row.

    Parameters
    ----------
    column : Group
        The ranks with the same copy; rank q of it holds block q.
    sparse : bool
        Whether rows travel point to point, to those who need them, or whole blocks to all.
    """
    comm, max_bytes = runtime.comm, config.loading.max_buffer_mb * 2**20
    # The pattern alone: no degrees.
    options = dataclasses.replace(config.graph, normalize="none")
    entries = load_m(comm, source, options, max_bytes)
    n, cuts = tiling.ordering.n, tiling.cuts
    sides = (tiling.ordering, cuts), (tiling.ordering, np.array([0, n]))
    tile = sparse_tile(comm, entries, *sides, tiling.holders, (tiling.row, 0), max_bytes)
    del entries
    needed = needed_rows(tile, 0, tiling)
    plan = plan_of(column.comm, tiling, needed, max_bytes)
    pattern = localise(tile, 0, tiling, plan)
    ids = np.concatenate((tiling.vertices, _vertices(tiling, plan.halo)))
    if sparse:
        of_column = runtime.of_group(column.comm)
        products = HaloProduct(of_column, plan, config)
        return ExchangedHalo(runtime, products, pattern, ids)
    return BroadcastHalo(runtime, column, np.diff(cuts).tolist(), cuts[:-1], plan, pattern, ids)


def needed_rows(tile: sp.csr_array, first: int, tiling: Tiling) -> np.ndarray:
    """Positions of the rows of other blocks that a tile has entries for, increasing.

    Parameters
    ----------
    tile : csr_array
        Own rows; columns count from position ``first``.
    """
    needed = np.unique(tile.indices).astype(np.int64) + first
    return np.setdiff1d(needed, np.arange(*_own(tiling)), assume_unique=True)


def plan_of(column: Comm, tiling: Tiling, needed: np.ndarray, max_bytes: float) -> Plan:
    """The exchange within a process column, whose rank q holds block q; by positions, not ids."""
    own, owners = np.arange(*_own(tiling)), block_of(needed, tiling)
    return agree_on_plan(column, own, needed, owners, max_bytes)


def localise(tile: sp.csr_array, first: int, tiling: Tiling, plan: Plan) -> sp.csr_array:
    """A tile over the plan's local columns, own ones first: (nown, nown + nhalo)."""
    shape = (plan.nown, plan.nown + plan.nhalo)
    start, stop = _own(tiling)
    column = np.empty(tile.nnz, index_dtype(shape[1]))
    for at in range(0, tile.nnz, STEP):
        place = tile.indices[at : at + STEP].astype(np.int64) + first
        own = (place >= start) & (place < stop)
        halo = plan.nown + np.searchsorted(plan.halo, place)
        column[at : at + STEP] = np.where(own, place - start, halo)
    matrix = sp.csr_array((tile.data, column, tile.indptr), shape=shape)
    matrix.sort_indices()
    return matrix


def block_of(positions: np.ndarray, tiling: Tiling) -> np.ndarray:
    """The block that each position is in."""
    return np.searchsorted(tiling.cuts, positions, side="right") - 1


def _own(tiling: Tiling) -> tuple[int, int]:
    return int(tiling.cuts[tiling.row]), int(tiling.cuts[tiling.row + 1])


def _vertices(tiling: Tiling, positions: np.ndarray) -> np.ndarray:
    """Ids of the vertices at increasing positions, block by block."""
    found = np.empty(len(positions), tiling.vertices.dtype)
    blocks = block_of(positions, tiling)
    for block in np.unique(blocks):
        some = blocks == block
        start, stop = tiling.cuts[block : block + 2].tolist()
        found[some] = tiling.ordering.vertices(start, stop)[positions[some] - start]
    return found
