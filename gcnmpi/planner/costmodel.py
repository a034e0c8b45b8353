"""The cost model: predicted seconds, bytes, messages and memory of an epoch under a scheme.

An epoch is a list of products, which follow from the widths and the orders of the layers. The
scheme's forecast gives the bytes and operations of each product on each rank, and the layout of
every matrix; :class:`~gcnmpi.planner.machine.Machine` gives the seconds of each step. The model
assumes that ranks do not wait for each other within a product, and all wait for the slowest at its
end:

======== =========================================================================================
term     seconds per epoch
======== =========================================================================================
products Σ over products of the largest over ranks of: Σ of its tiles' sparse and dense products
         (``Machine.sparse_seconds``, ``dense_seconds``), α·messages + max(sent, received)/β
         (``transfer_seconds``) and its buffers once through memory
passes   over dense matrices: bias, ReLU and back, dropout, loss, update
reduce   all gradients of whole weights, and the loss, in float64: one all-reduce
scratch  values that are written to a file and read again, at the speed of the disk
======== =========================================================================================

Transfers do not overlap with arithmetic in the model: by default, MPI makes progress only inside
its calls. Plexus (section 4) predicts the first two terms in this way, without dense products and
latency. CAGNET (section IV) has closed forms for layers of equal width f, as α·messages + β·numbers
per layer, forward and backward:

====================== ============================================================
1D (IV-A)              α·(lg P + 2P) + β·(2nf + f²)
1.5D, c copies (IV-B)  β·(2nf/c + 2nfc/P)
2D (IV-C)              α·(5√P + 3 lg P) + β·(8nf/√P + 2nnz/√P + f²)
3D (IV-D)              α·4P^⅓ + β·(2nnz + 12nf)/P^⅔
====================== ============================================================

The program uses not these but the exact numbers of the forecasts, which are equal to those that a
run counts: with the narrower side of each layer, nothing for a first layer with fixed features,
gradients of weights counted separately, and without the piece that a rank owns itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.layout.place import Incidence, Place, Space
from gcnmpi.nn.operator import Finish
from gcnmpi.nn.operators.inserted import FINISH, FINISH_BACKWARD
from gcnmpi.nn.operators.relations import (
    LINEAR_BY,
    LINEAR_BY_GRAD,
    LINEAR_BY_T,
    LinearBy,
    MeanOf,
)
from gcnmpi.nn.operators.residences import REFILL
from gcnmpi.nn.operators.spaces import EXPAND, FOLD
from gcnmpi.nn.operators.sparse import SPARSE_COMBINE, SPARSE_WEIGHT_GRAD
from gcnmpi.nn.program import INPUT, Step, products
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.planner.case import Case
from gcnmpi.planner.memory import memory
from gcnmpi.schemes.forecast import Dense, Span, Sparse, whole_row_work
from gcnmpi.schemes.operations import DENSE, SUMS, Operation, Product

# How often an operation reads or writes each number of its matrix.
BIAS, RELU, RELU_BACKWARD, PLUS, LOSS, UPDATE = 3, 2, 3, 3, 12, 10
# Products that compute, and how often. Attention is as one product with M, its gradient as two.
ARITHMETIC = dict.fromkeys((*SUMS, *DENSE, Operation.WEIGHT_GRAD, Operation.EXPAND), 1)
ARITHMETIC |= {Operation.FOLD: 2}
# Steps of a product by kind; its gradients may be added by another step.
BY_KIND = LINEAR_BY, LINEAR_BY_T, LINEAR_BY_GRAD


@dataclass(frozen=True)
class Cost:
    """Cost of an epoch for the busiest rank; bytes and messages are counted as in runs.

    Attributes
    ----------
    seconds : float
        Of forward pass, backward pass and update.
    phases : dict of str to float
        Seconds of each phase: "sparse", "dense", "passes", "transfer", "reduce"; of mini-batches
        also "sample" and "bind" (:mod:`gcnmpi.planner.batches`), and "scratch" where values are
        written to a file.
    sent, received, messages : int
        Bytes and messages of exchanges and collectives of products, each the largest over ranks.
        The reduction of gradients is not included, as in a run's record.
    reduced_bytes : int
        Bytes of what reductions sum: gradients, and moments of batch norms. A run's
        ``reduce_bytes`` are the bytes that it moves for that.
    memory : int
        Peak bytes of a rank.
    evaluation : float
        Seconds of an evaluation on all vertices, which is not part of an epoch.
    """

    seconds: float
    sent: int
    received: int
    messages: int
    reduced_bytes: int
    memory: int
    phases: dict[str, float] = field(default_factory=dict)
    evaluation: float = 0.0


def predict(case: Case) -> Cost:
    """The cost of an epoch of training under a scheme."""
    phases, volumes = step_seconds(case)
    return cost_of(case, phases, volumes, memory(case), evaluation_seconds(case))


def cost_of(
    case: Case,
    phases: Mapping[str, float],
    volumes: Mapping[int, Volume],
    needed: int,
    evaluation: float,
) -> Cost:
    """The cost of all ranks together, of the rank that has most of each.

    Of the seconds of an epoch by phase, the volume of each rank in it, bytes of memory that are
    needed, and the seconds of an evaluation.
    """
    return Cost(
        seconds=sum(phases.values()),
        sent=max(volume.sent for volume in volumes.values()),
        received=max(volume.received for volume in volumes.values()),
        messages=max(volume.messages for volume in volumes.values()),
        reduced_bytes=sum(case.reductions(next(iter(volumes)))),
        memory=needed,
        phases=dict(phases),
        evaluation=evaluation,
    )


def step_seconds(
    case: Case, ranks: Sequence[int] | None = None
) -> tuple[dict[str, float], dict[int, Volume]]:
    """Seconds of forward pass, backward pass and update by phase; what each rank moves in it.

    Of these ranks; None: of those that the forecast says.
    """
    phases, volumes = products_seconds(case, [*case.steps, None], ranks)
    ranks = list(volumes)
    phases["passes"] = max(
        passes_seconds(case, rank, case.steps) + _update_seconds(case, rank) for rank in ranks
    )
    where = case.size * case.groups, case.ranks_per_node
    sums = case.reductions(ranks[0])
    phases["reduce"] = sum(case.machine.all_reduce_seconds(n, *where) for n in sums)
    if any(step.instruction.moves for step in case.steps):
        phases["scratch"] = max(disk_seconds(case, rank, case.steps) for rank in ranks)
    return phases, volumes


def disk_seconds(case: Case, rank: int, steps: Sequence[Step]) -> float:
    """Seconds in which the values of some steps are written to a file, or read from it."""
    values = [case.program.values[s.number] for s in steps if s.instruction.moves]
    numbers = sum(case.piece_numbers(rank, value.place, value.width) for value in values)
    ranks = min(case.size * case.groups, case.ranks_per_node)
    return case.machine.disk_seconds(numbers * case.work.itemsize, ranks)


def evaluation_seconds(case: Case) -> float:
    """Seconds of an exact evaluation on all vertices, without its metrics."""
    steps = case.program.evaluation
    phases, volumes = products_seconds(case, steps)
    return sum(phases.values()) + max(
        passes_seconds(case, rank, steps) + disk_seconds(case, rank, steps) for rank in volumes
    )


def products_seconds(
    case: Case, steps: Sequence[Step | None], ranks: Sequence[int] | None = None
) -> tuple[dict[str, float], dict[int, Volume]]:
    """Seconds and volumes of the products of some steps; None among them is the loss."""
    ranks = list(case.forecast.ranks() if ranks is None else ranks)
    phases = dict.fromkeys(("sparse", "dense", "transfer"), 0.0)
    volumes = dict.fromkeys(ranks, NOTHING)
    for step in steps:
        slowest: dict[str, float] = {}
        for rank in ranks:
            if step is None:
                made = products_of_loss(case, rank)
            else:
                made = products(case.program, [step], partial(case.rows, rank))
            seconds, volume = _step(case, rank, made, step)
            if step is not None:
                seconds["sparse"] += _sparse_seconds(case, rank, step)
                seconds["dense"] += _seconds_by_kind(case, rank, step)
                share = case.made(rank, step)
                seconds = {phase: share * value for phase, value in seconds.items()}
            volumes[rank] += volume
            slowest = max(slowest, seconds, key=lambda parts: sum(parts.values()))
        for name, value in slowest.items():
            phases[name] += value
    return phases, volumes


def _step(
    case: Case, rank: int, products: Sequence[Product], step: Step | None
) -> tuple[dict[str, float], Volume]:
    """Seconds of a step's products on a rank, by phase, and the volume they send and receive."""
    forecast, machine, itemsize = case.forecast, case.machine, case.work.itemsize
    seconds, moved = {"sparse": 0.0, "dense": 0.0, "transfer": 0.0}, NOTHING
    for product in products:
        name, k, *sizes = product
        for part in _work(case, rank, product, step):
            if isinstance(part, Sparse):
                one = machine.sparse_seconds(part, itemsize, case.work.distances)
                seconds["sparse"] += ARITHMETIC[name] * one
            else:
                seconds["dense"] += machine.dense_seconds(part, itemsize)
        volume = forecast.volume(rank, name, k, *sizes)
        if volume != NOTHING:
            spans = forecast.span(name, k) or [Span(case.size, 1)]
            seconds["transfer"] += machine.transfer_seconds(volume, spans, case.ranks_per_node)
            seconds["transfer"] += machine.copy_seconds(forecast.buffers(rank, name, k, *sizes))
        moved += volume
    return seconds, moved


def _work(case: Case, rank: int, product: Product, step: Step | None) -> Sequence[Sparse | Dense]:
    """The local products of one of a step's products, on as many rows as its value has."""
    name, k, *sizes = product
    if name not in ARITHMETIC or (step is not None and step.instruction in (EXPAND, FOLD, REFILL)):
        return ()
    place = Place(k) if step is None else case.program.values[step.number].place
    if place.space is Space.OWN or name in SUMS:
        return case.forecast.work(rank, name, k, *sizes)
    return whole_row_work(case.rows(rank, place), name, *sizes)


def _sparse_seconds(case: Case, rank: int, step: Step) -> float:
    """Seconds of a product with features as a sparse matrix, or with the arcs of some relations.

    Or with the transpose of one of these.
    """
    mean = step.operator
    if step.instruction.by_relation and isinstance(mean, MeanOf):
        rows, inner, entries = case.arcs(rank)
        product = Sparse(rows, inner, entries * len(mean.which) // mean.relations, mean.width)
        return case.machine.sparse_seconds(product, case.work.itemsize)
    if step.instruction not in (SPARSE_COMBINE, SPARSE_WEIGHT_GRAD):
        return 0.0
    rows, inner = case.forecast.shape(rank, Place(0), case.program.values[INPUT].width)
    if step.instruction is SPARSE_WEIGHT_GRAD:
        rows, inner = inner, rows
    product = Sparse(rows, inner, case.input_entries(rank), step.operator.width, shuffled=True)
    return case.machine.sparse_seconds(product, case.work.itemsize)


def _seconds_by_kind(case: Case, rank: int, step: Step) -> float:
    """Seconds of a product of rows with the weight of each one's kind, or of its gradients."""
    linear, values = step.operator, case.program.values
    if not isinstance(linear, LinearBy) or step.instruction not in BY_KIND:
        return 0.0
    rows, inner = case.rows(rank, values[step.number].place), values[linear.inputs[1]].width
    return case.machine.kinds_seconds(
        rows, inner, linear.width // linear.blocks, case.work.itemsize
    )


def passes_seconds(case: Case, rank: int, steps: Sequence[Step]) -> float:
    """Seconds of the element-wise and row-wise passes of some steps over dense matrices.

    Each pass is counted separately, which is too much if a kernel fuses it with a product.
    """
    values = case.program.values
    numbers, dropped = 0.0, 0.0
    for step in steps:
        value = values[step.number]
        piece = case.made(rank, step) * case.piece_numbers(rank, value.place, value.width)
        if step.instruction.visits:
            # Entry by entry, whatever it makes of these.
            width = max(values[i].width for i in (step.number, *step.reads))
            of_groups = case.program.incidence(step) is Incidence.GROUPS
            place = Place(step.k, space=Space.GROUPS if of_groups else Space.ENTRIES)
            piece = case.piece_numbers(rank, place, width)
        numbers += PLUS * (step.plus is not None) * piece
        finish = step.operator if step.instruction is FINISH else step.finish
        if isinstance(finish, Finish):
            numbers += (BIAS * bool(finish.bias) + RELU * (finish.kind != "none")) * piece
            dropped += piece * (finish.p > 0)
        elif step.instruction is FINISH_BACKWARD or step.finish_gradient is not None:
            numbers += RELU_BACKWARD * piece
            finish = step.finish_gradient[0] if step.finish_gradient else step.operator
            dropped += piece * (getattr(finish, "kind", "") == "none")
        else:
            numbers += step.instruction.passes * piece
    seconds = case.machine.copy_seconds(numbers * case.work.itemsize)
    return seconds + dropped * case.machine.dropout_number


def _update_seconds(case: Case, rank: int) -> float:
    """Seconds of the passes of the loss and of the optimizer."""
    logits = case.program.values[case.program.logits]
    piece = case.piece_numbers(rank, logits.place, logits.width)
    numbers = LOSS * case.work.train_share * piece + UPDATE * case.parameter_numbers(rank)
    return case.machine.copy_seconds(numbers * case.work.itemsize)


def products_of_loss(case: Case, rank: int) -> list[Product]:
    """Products of the loss: operations on rows that ranks share."""
    options, k = case.work.config.task, case.program.place.layer
    return task_of(options).products(options, k, case.train_rows(rank))
