"""The 3D scheme: Split-3D-SpMM on a grid of p1 × p2 × p3 ranks.

Tripathy, Yelick and Buluç 2020, section IV-D. Layer l of the third axis is a grid of p1 × p2
ranks on which the 2D scheme (:mod:`gcnmpi.schemes.summa`) multiplies with its part of the inner
dimension, n/p3 of it, all layers at once; then the partial sums are reduce-scattered along the
fiber (i, j, ·), of which every rank gets its row piece. So the output is laid out as the input is:
rank (i, j, l) holds the l-th of p3 parts of row block i, columns block j, of dense matrices, and
row block i, the j-th of p2 parts of layer l, of M and Mᵀ. Everything else is the 2D scheme's, in
the rows of one layer; every row is on one (i, l) only, so gradients count once.

No input is replicated, but partial sums are: a rank holds them for all rows of its row block, p3
times its piece of the result, for as long as a product takes.

:mod:`gcnmpi.schemes.summa_forecast` has the volumes. A rank of a cubic grid receives about
nnz/P^⅔ + 2nf/P^⅔ words in M·H, as the paper says, but for its own blocks, which do not travel.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from gcnmpi.layout.grid import factorizations, parse_grid
from gcnmpi.layout.runtime import Demand, Runtime, Source
from gcnmpi.layout.tiling import permutation_kind
from gcnmpi.options.config import Config, SchemeConfig
from gcnmpi.schemes.forecast import Facts
from gcnmpi.schemes.interface import Entry
from gcnmpi.schemes.summa import Summa, check_permutation, load_on_grid
from gcnmpi.schemes.summa_forecast import Grid, SummaForecast


def load(
    runtime: Runtime,
    source: Source,
    config: Config,
    demand: Demand,
) -> Summa:
    """Bring its tiles of M and Mᵀ to every rank of the grid."""
    grid = _grid(config.scheme, runtime.comm.size)
    return load_on_grid(Split3D, grid, runtime, source, config, demand)


def parts_needed(config: SchemeConfig, size: int) -> int:
    """None: blocks are whole parts where their number divides that of the parts."""
    _grid(config, size)
    return 0


def variants(config: SchemeConfig, size: int) -> list[SchemeConfig]:
    """Every grid of three numbers; with one layer it is the 2D scheme, which ranks for itself."""
    return [
        dataclasses.replace(config, name="split3d", grid="x".join(map(str, grid)))
        for grid in factorizations(size, 3)
        if grid[2] > 1 or size == 1
    ]


def make_forecast(config: SchemeConfig, size: int, facts: Facts) -> SummaForecast:
    """On paper."""
    shuffled = permutation_kind(config, facts.metrics is not None) == "single"
    return SummaForecast(_grid(config, size), config.block, facts, shuffled=shuffled)


def _grid(config: SchemeConfig, size: int) -> Grid:
    check_permutation(config)
    rows, columns, layers = parse_grid(config.grid, size, 3)
    return rows, columns, layers


ENTRY = Entry(load, parts_needed, variants, make_forecast)


class Split3D(Summa):
    """The 2D scheme in layers."""

    name = "split3d"

    def describe(self) -> dict[str, Any]:
        """The whole grid, and how many times its piece of a result a rank holds in partial sums."""
        grid = "x".join(map(str, self.grid))
        return {**super().describe(), "grid": grid, "partial_sums": self.grid[2]}
