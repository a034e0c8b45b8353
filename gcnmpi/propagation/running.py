"""A propagation from what is asked for to its file: checks, loading, the method, the rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.layout.runtime import Source
from gcnmpi.mpi.comm import Comm, agreed, from_root, maximum, reduce_in_place
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.propagation.checkpoint import facts_of
from gcnmpi.propagation.checks import needs_symmetry
from gcnmpi.propagation.interface import Outcome
from gcnmpi.propagation.memory import check_memory
from gcnmpi.propagation.settings import PropagateRequest
from gcnmpi.propagation.space import Space
from gcnmpi.run.opening import Opened, load_matrix, make_plan, open_split, start
from gcnmpi.run.results import check_writable, deliver
from gcnmpi.schemes.interface import Scheme
from partition.errors import UserError


@dataclass(frozen=True)
class Products:
    """Products of one kind, "aggregate" or "expand", and width, and how often they were made.

    ``each`` is the volume of all ranks together for one, by the forecast of the scheme.
    """

    name: str
    width: int
    times: int
    each: Volume


@dataclass(frozen=True)
class Propagated:
    """The result of a propagation on all ranks.

    Attributes
    ----------
    outcome : Outcome
        Own rows, and what the method says.
    counted, reduced : Volume
        What the products of all ranks moved, and what sums over ranks moved.
    seconds : float
        Of the method, on the slowest rank: without loading and writing.
    memory : int
        Bytes that were forecast for the rank that needs most.
    values : array or None
        The result on rank 0, where nothing was to be written.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    outcome: Outcome
    products: tuple[Products, ...]
    counted: Volume
    reduced: Volume
    seconds: float
    warnings: tuple[str, ...]
    memory: int
    values: np.ndarray | None = None

    @property
    def predicted(self) -> Volume:
        """The volume that the products of all ranks were to move."""
        return sum((made.each * made.times for made in self.products), NOTHING)


def propagate(
    comm: Comm, asked: PropagateRequest, tell: Callable[[str], None] = lambda line: None
) -> Propagated:
    """Compute a method on all ranks and write a row for each vertex, in the original order.

    Without a file to write, rank 0 gets the array. ``tell`` is called on rank 0 with lines of
    progress.

    Raises
    ------
    UserError
        On all ranks, if the graph, the partition, the method and its options do not fit together,
        a node has too little memory, a file that is given cannot be read, or the one that is asked
        for cannot be written.
    """
    check_writable(comm, asked.out)
    from_root(comm, lambda: _check(asked))
    with agreed(comm):
        _check_scheme(asked)
    plan = make_plan(comm, asked.graph, asked.partition, asked.config)
    source, config = plan.source, plan.config
    memory = check_memory(comm, source, asked, config, tell)
    if asked.checkpoints is not None:
        what = asked.name, asked.options, asked.files_of_options
        facts = from_root(comm, lambda: facts_of(*what, source, config, comm.size))
    opened = start(comm, source, config)
    space, warnings = Space(opened, _matrix(opened, asked), tell), opened.told
    tell(_heading(space, source, opened.runtime.kernel.name, asked.name))
    if asked.checkpoints is not None:
        warnings += tuple(space.checkpoints.open(*asked.checkpoints, facts, asked.force, tell))
    began = time.perf_counter()
    outcome = asked.method.run(space, asked.options)
    seconds = maximum(comm, time.perf_counter() - began)
    rows = space.result(outcome.rows)
    values = deliver(
        comm, asked.out, rows, space.stored.graph.ids, space.max_bytes,
        column=outcome.column, name=outcome.name, arrays=outcome.arrays,
    )  # fmt: skip
    kinds = sorted(space.products.items())
    each = [space.scheme.volume(name, 1, width) for (name, width), _ in kinds]
    figures = np.array([astuple(volume) for volume in (*space.counted_volumes(), *each)])
    reduce_in_place(comm, figures)
    counted, sums, *volumes = (Volume(*line) for line in figures.tolist())
    products = tuple(
        Products(*kind, times, volume) for (kind, times), volume in zip(kinds, volumes, strict=True)
    )
    moves = products, counted, sums
    what_it_is = rows.shape, rows.values.dtype, outcome
    return Propagated(*what_it_is, *moves, seconds, warnings, memory, values)


def _matrix(opened: Opened, asked: PropagateRequest) -> Scheme:
    """The matrix of the method on its ranks."""
    method = asked.method
    try:
        return load_matrix(opened.runtime, opened.source, opened.config, method.demand)
    except UserError as error:
        if method.matrix.fixed and "graph.normalize" in (error.hint or ""):
            raise UserError(f"{error.message}: {asked.name} is defined by it") from None
        raise


def _check(asked: PropagateRequest) -> None:
    """Compare the method with the graph folder, on rank 0."""
    stored = open_split(asked.graph, asked.config)
    if asked.method.matrix.symmetric:
        needs_symmetry(stored, f"{asked.name} needs a symmetric matrix")
    asked.method.check(stored, asked.options)


def _check_scheme(asked: PropagateRequest) -> None:
    """A UserError for a scheme that cuts rows of dense matrices, or does not bring the needed."""
    entries = {name: SCHEMES.get(name) for name in SCHEMES}
    able = [
        name
        for name, entry in entries.items()
        if entry.gives_rows or (entry.keeps_rows and not asked.method.rows)
    ]
    scheme = asked.config.scheme.name
    if scheme not in able:
        does = "cuts the rows that a propagation computes with"
        if entries[scheme].keeps_rows:
            does = f"brings no rows of neighbours together, which {asked.name} looks at"
        raise UserError(
            f"scheme {scheme!r} {does}", f"use scheme.name = {', '.join(able[:-1])} or {able[-1]}"
        )


def _heading(space: Space, source: Source, kernel: str, name: str) -> str:
    partition = f", partition {source.partition.name}" if source.partition else ""
    ranks = f"{space.comm.size} rank{'s' * (space.comm.size > 1)}"
    how = f"{space.scheme.name}, {kernel}, {space.dtype}"
    return f"{name} of {source.stored.manifest.name}{partition}: {ranks}, {how}"
