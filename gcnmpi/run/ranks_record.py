"""A record tells of single ranks: the rows each holds and sends, and where its time goes.

Both are small: who sends how many rows to whom is recorded once, and the seconds of the phases
ever less often, so that a long run on many ranks has few of them.
"""

from __future__ import annotations

import numpy as np

from gcnmpi.core.precision import row_bytes
from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.hosts import most_ranks_a_node
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
from gcnmpi.run.problem import Problem
from gcnmpi.run.step import Forecast, Step
from gcnmpi.schemes.operations import EXCHANGES, Operation, Product
from partition.errors import UserError

LISTED = 256  # ranks up to which the record says who sends to whom
# Of epochs 16 to 31, 32 to 63 … 16 are sampled, each standing for those before it; of more
# than 64 ranks fewer, so that the numbers stay as many.
SAMPLES, NUMBERS = 16, 1024
DIGITS = 3


def ranks_record(problem: Problem, step: Step) -> dict[str, object]:
    """The rows that every rank holds and sends, for rank 0 to record; all call it together.

    Parameters
    ----------
    step : Step
        An epoch; of mini-batches, each sends other rows.

    Returns
    -------
    dict
        ``rows``, ``entries``: one number per rank, as the scheme forecasts them;
        ``memory_forecast_bytes``; ``peers``, ``peer_rows``: for each rank those that it sends to in
        an expand and how many rows, or None where no one plan serves all exchanges of an epoch or
        there are more than ``LISTED`` ranks; ``expand_row_bytes``, ``fold_row_bytes``: bytes of
        one such row in all exchanges of an epoch. Empty on other ranks.
    """
    comm, plan = problem.runtime.comm, problem.scheme.plan
    products, memory = step.work.products(), step.work.forecast()
    per_node = most_ranks_a_node(comm)
    sends: list[tuple[list[int], list[int]]] | None = None
    if plan is not None and products is not None and comm.size <= LISTED:
        mine = plan.send_peers.tolist(), np.diff(plan.send_offsets).tolist()
        sends = comm.gather(mine, root=0)
    if comm.rank:
        return {}
    there, back = _row_bytes(problem, products or [])
    return _forecast(problem, per_node, memory) | {
        "peers": None if sends is None else [peers for peers, _ in sends],
        "peer_rows": None if sends is None else [rows for _, rows in sends],
        "expand_row_bytes": there,
        "fold_row_bytes": back,
    }


class PhaseSamples:
    """The seconds that every rank spent in each phase, between two epochs that are sampled.

    Parameters
    ----------
    runtime : Runtime
    epoch : int
        The last epoch that is over.

    Attributes
    ----------
    taken : list of dict
        On rank 0: ``epoch``, ``after`` and ``seconds``, a list for each phase.
    """

    def __init__(self, runtime: Runtime, epoch: int) -> None:
        self._comm, self._phases = runtime.everyone, runtime.phases
        self._epoch, self._before = epoch, self._now()
        self.taken: list[dict[str, object]] = []

    def due(self, epoch: int) -> bool:
        """Whether an epoch is sampled: every one at first, then every second, every fourth …"""
        return epoch % sampled_every(epoch, self._comm.size) == 0

    def take(self, epoch: int) -> None:
        """Keep what has gone by since the last sample, on rank 0; all call it together."""
        now = self._now()
        mine = now - self._before
        every = np.empty((self._comm.size, len(mine)) if self._comm.rank == 0 else 0)
        self._comm.Gather(mine, every, root=0)
        after, self._epoch, self._before = self._epoch, epoch, now
        if self._comm.rank:
            return
        seconds = {
            name: [float(f"{value:.{DIGITS}g}") for value in column]
            for name, column in zip(EPOCH_PHASES, every.T.tolist(), strict=True)
            if any(column)
        }
        self.taken.append({"epoch": epoch, "after": after, "seconds": seconds})

    def _now(self) -> np.ndarray:
        return np.array([self._phases.seconds.get(name, 0.0) for name in EPOCH_PHASES])


def sampled_every(epoch: int, size: int) -> int:
    """How many epochs a sample stands for at an epoch: a power of two that grows with it.

    >>> [sampled_every(epoch, 4) for epoch in (1, 63, 64, 1000, 10_000)]
    [1, 2, 4, 32, 512]
    >>> sampled_every(1000, 1024)
    512
    """
    most = max(1, epoch * max(size, NUMBERS // SAMPLES) // NUMBERS)
    return 1 << (most.bit_length() - 1)


def _forecast(problem: Problem, per_node: int, memory: Forecast | None) -> dict[str, object]:
    """Rows and entries of every rank, and memory of the one that needs most, as ``plan`` has it.

    None of them where nothing can be forecast: a run that goes well does not end for that.
    """
    config, source = problem.config, problem.source
    candidate = Candidate(config.scheme, {}, 0, source.partition, groups=config.train.groups)
    size = problem.runtime.everyone.size
    try:
        setting = Setting(source.stored, config, Machine(), per_node, locality=False)
        case = setting.case(candidate, size)
    except UserError:
        return dict.fromkeys(("rows", "entries", "memory_forecast_bytes"))
    needed = memory(case, source) if memory else setting.epochs.memory(candidate, case)
    groups, copies = config.train.groups, case.forecast.samples
    held = [case.arcs(rank) for rank in range(problem.runtime.comm.size)] * groups
    return {
        "rows": [rows // copies for rows, _, _ in held],
        "entries": [entries for _, _, entries in held],
        "memory_forecast_bytes": needed,
    }


def _row_bytes(problem: Problem, products: list[Product]) -> tuple[int, int]:
    """Bytes that a row of the exchange takes in an epoch: in expands, and in folds."""
    config, folds = problem.config, problem.scheme.describe().get("backward") == "fold"
    itemsize = problem.runtime.kernel.dtype.itemsize
    there = back = 0
    for name, _, *widths in products:
        if name in EXCHANGES:
            taken = row_bytes(config.comm.precision, widths[0], itemsize)
            if name is Operation.FOLD or (name is Operation.AGGREGATE_T and folds):
                back += taken
            else:
                there += taken
    return there, back
