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

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.kernels import resolve
from gcnmpi.layout.loading import PERMUTED_AT_ONCE
from gcnmpi.layout.place import Place
from gcnmpi.mpi.collectives import reduction_scratch
from gcnmpi.nn.instructions import INSTRUCTIONS, kept, products
from gcnmpi.nn.loss import loss_products
from gcnmpi.nn.model import input_pieces
from gcnmpi.nn.program import Finish, Product, Program, Step, Value
from gcnmpi.planner.case import Case
from gcnmpi.schemes.forecast import EXCHANGES, Span, Sparse
from partition.graph.graph import index_dtype

# How often an operation reads or writes each number of its matrix.
BIAS, RELU, RELU_BACKWARD, LOSS, UPDATE = 3, 2, 3, 12, 10
# Products that compute, and how often. Attention is as one product with M, its gradient as two.
ARITHMETIC = dict.fromkeys(("aggregate", "aggregate_t", "combine", "combine_t", "weight_grad"), 1)
ARITHMETIC |= {"expand": 1, "fold": 2}
# Bytes of a column's number in a kernel's sparse matrix; of a row's beginning.
INDEX_BYTES = {"native": 4, "scipy": 4, "cupy": 4}
WIDE_INDEX = 8
# Copies of a rank's arcs on their way from disk into M, and bytes of one beside its two ends.
LOADING_COPIES, WEIGHT_BYTES = 3, 8
FEATURE_BYTES = 4  # of a number of the features, as it is stored
ENTRY_INDEX = 4  # bytes of a column's number in a sparse matrix of features
SPARSE_LOADING = 48  # bytes of an entry of that as it arrives and is brought in order


@dataclass(frozen=True)
class Cost:
    """Cost of an epoch for the busiest rank; bytes and messages are counted as in runs.

    Attributes
    ----------
    seconds : float
        Seconds of forward pass, backward pass and update.
    phases : dict of str to float
        Seconds of each phase: "sparse", "dense", "passes", "transfer", "reduce".
    sent, received, messages : int
        Bytes and messages of exchanges and collectives of products, each the largest over ranks.
        The reduction of gradients is not included, as in a run's record.
    reduced_bytes : int
        Bytes of the array that the reduction sums. A run's ``reduce_bytes`` are the bytes that it
        moves for that.
    memory : int
        Peak bytes of a rank.
    """

    seconds: float
    sent: int
    received: int
    messages: int
    reduced_bytes: int
    memory: int
    phases: dict[str, float] = field(default_factory=dict)


def predict(case: Case) -> Cost:
    """The cost of an epoch of training under a scheme."""
    ranks = list(case.forecast.ranks())
    phases = dict.fromkeys(("sparse", "dense", "transfer"), 0.0)
    volumes = dict.fromkeys(ranks, NOTHING)
    for step in [*case.steps, None]:
        slowest: dict[str, float] = {}
        for rank in ranks:
            made = _loss_products(case, rank)
            if step is not None:
                made = products(case.program, [step], partial(case.rows, rank))
            seconds, volume = _step(case, rank, made)
            if step is not None:
                seconds["sparse"] += _sparse_seconds(case, rank, step)
            volumes[rank] += volume
            slowest = max(slowest, seconds, key=lambda parts: sum(parts.values()))
        for name, value in slowest.items():
            phases[name] += value
    phases["passes"] = max(_passes_seconds(case, rank) for rank in ranks)
    reduced = reduced_bytes(case, ranks[0])
    phases["reduce"] = case.machine.all_reduce_seconds(reduced, case.size, case.ranks_per_node)
    return Cost(
        seconds=sum(phases.values()),
        sent=max(volume.sent for volume in volumes.values()),
        received=max(volume.received for volume in volumes.values()),
        messages=max(volume.messages for volume in volumes.values()),
        reduced_bytes=reduced,
        memory=memory(case),
        phases=phases,
    )


def reduced_bytes(case: Case, rank: int) -> int:
    """Size of what is summed over ranks: gradients of what is whole everywhere, and the loss."""
    numbers = 1
    for name, parameter in case.program.parameters.items():
        whole = int(np.prod(parameter.shape))
        if not parameter.is_weight or _weight_numbers(case, rank, name) == whole:
            numbers += whole
    return 8 * numbers


def memory(case: Case) -> int:
    """Peak bytes of the rank that needs most.

    It is the sum of the process itself, its share of the part vector of the node, and the largest
    of these four:

    * the rank's arcs ``LOADING_COPIES`` times, and the buffers for reading and sending them;
    * M and Mᵀ, features while they are received, and the buffers for that;
    * M and Mᵀ, and the product with fixed features while it is computed;
    * M and Mᵀ, and training: dense matrices, buffers, weights, moments, and MPI's own memory for
      the largest of the reductions.
    """
    node_share = 4 * case.work.n // min(case.size, case.ranks_per_node)
    ranks = case.forecast.ranks()
    return int(case.machine.process_bytes) + node_share + max(_memory(case, r) for r in ranks)


def matrices(program: Program) -> list[Value]:
    """Dense matrices that a network keeps on a scheme: constants, and buffers of the passes."""
    return [*(program.values[i] for i in program.kept), *program.buffers]


# Seconds.


def _step(case: Case, rank: int, products: Sequence[Product]) -> tuple[dict[str, float], Volume]:
    """Seconds of some products on a rank, by phase, and the volume that they send and receive."""
    forecast, machine, itemsize = case.forecast, case.machine, case.work.itemsize
    seconds, moved = {"sparse": 0.0, "dense": 0.0, "transfer": 0.0}, NOTHING
    for product in products:
        name, k, *sizes = product
        for part in forecast.work(rank, name, k, *sizes) if name in ARITHMETIC else ():
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


def _sparse_seconds(case: Case, rank: int, step: Step) -> float:
    """Seconds of a product with features as a sparse matrix, or with its transpose."""
    if step.name not in ("sparse_combine", "sparse_weight_grad"):
        return 0.0
    rows, inner = case.forecast.shape(rank, Place(0), case.program.values[0].width)
    if step.name == "sparse_weight_grad":
        rows, inner = inner, rows
    product = Sparse(rows, inner, input_entries(case, rank), step.operator.width, shuffled=True)
    return case.machine.sparse_seconds(product, case.work.itemsize)


def _passes_seconds(case: Case, rank: int) -> float:
    """Seconds of all element-wise and row-wise passes over dense matrices.

    Each pass is counted separately, which is too much if a kernel fuses it with a product.
    """
    work, values = case.work, case.program.values
    numbers, dropped = 0.0, 0
    for step in case.steps:
        value = values[step.number]
        piece = _numbers(case, rank, value.place, value.width)
        own = isinstance(step.operator, Finish) and step.name == "finish"
        finish = step.operator if own else step.finish
        if isinstance(finish, Finish):
            numbers += (BIAS * bool(finish.bias) + RELU * (finish.kind != "none")) * piece
            dropped += piece * (finish.p > 0)
        elif step.name == "finish_backward" or step.finish_gradient is not None:
            numbers += RELU_BACKWARD * piece
            finish = step.finish_gradient[0] if step.finish_gradient else step.operator
            dropped += piece * (getattr(finish, "kind", "") == "none")
        else:
            numbers += INSTRUCTIONS[step.name].passes * piece
    logits = values[case.program.logits]
    numbers += LOSS * work.train_share * _numbers(case, rank, logits.place, logits.width)
    numbers += UPDATE * parameter_count(case, rank)
    seconds = case.machine.copy_seconds(numbers * work.itemsize)
    return seconds + dropped * case.machine.dropout_number


# Memory.


def _memory(case: Case, rank: int) -> int:
    kept = (features_memory, _first_memory, _training_memory)
    held = matrix_memory(case, rank) + max(memory_of(case, rank) for memory_of in kept)
    return max(loading_memory(case, rank), held)


def matrix_memory(case: Case, rank: int) -> int:
    """Bytes of a rank's tiles of M and Mᵀ."""
    entries = case.forecast.entries(rank)
    parts = case.forecast.work(rank, "aggregate", 1, 1)
    tiles = [part for part in parts if isinstance(part, Sparse) and not part.received]
    index = INDEX_BYTES.get(resolve(case.work.config.kernel)[0], WIDE_INDEX)
    # Rows begin in the tiles of M and in those of Mᵀ, which may be the same.
    starts = 2 * WIDE_INDEX * sum(tile.rows for tile in tiles)
    return entries * (index + case.work.itemsize) + starts


def loading_memory(case: Case, rank: int) -> int:
    """The rank's arcs on their way, and the buffers for reading and sending them."""
    entries = case.forecast.entries(rank)
    arc = 2 * np.dtype(index_dtype(case.work.n)).itemsize + WEIGHT_BYTES
    limit = int(case.work.config.loading.max_buffer_mb * 2**20)
    # What is sent at once is packed; before that, as much of the files is in memory.
    return LOADING_COPIES * entries * arc + 2 * min(limit, entries * arc)


def features_memory(case: Case, rank: int) -> int:
    """H⁰ as it arrives; then brought in order, a part of its columns at a time, and converted.

    If some columns of a file are sent, its whole rows are in memory.
    """
    if case.program.sparse:
        return SPARSE_LOADING * input_entries(case, rank)
    work, width = case.work, case.program.values[0].width
    rows, columns = case.forecast.shape(rank, Place(0), width)
    stored = rows * columns * FEATURE_BYTES
    packed = min(int(work.config.loading.max_buffer_mb * 2**20), stored)
    whole = packed * width // max(1, columns)
    # To be normalised, rows are copied in their own precision, and in float64.
    sending = packed + whole * (4 if work.config.graph.feature_norm == "row" else 1)
    converted = rows * columns * work.itemsize if work.itemsize != FEATURE_BYTES else 0
    return stored + max(sending, stored // PERMUTED_AT_ONCE, converted)


def _training_memory(case: Case, rank: int) -> int:
    forecast, work, program = case.forecast, case.work, case.program
    shapes = [forecast.shape(rank, v.place, v.width) for v in matrices(program)]
    dense = sum(rows * columns for rows, columns in shapes)
    # The loss copies the logits of training vertices, and makes their gradient.
    logits = program.values[program.logits]
    _, columns = forecast.shape(rank, logits.place, logits.width)
    dense += 2 * _train_rows(case, rank) * columns
    sparse = len(program.sparse) * input_memory(case, rank, transposed=True)
    dense += sum(kept(program, step, *arcs_of(case, rank)) for step in case.steps)
    # Buffers of one product and width serve all layers.
    distinct = {(product[0], *product[2:]): product for product in case.products(rank)}
    buffers = sum(forecast.buffers(rank, *product) for product in distinct.values())
    if forecast.own_buffers:
        # Each matrix that is exchanged has a halo of its own.
        exchanged = Counter(v.width for v in matrices(program) if v.exchanged)
        counted = Counter(sizes[0] for name, *sizes in distinct if name in EXCHANGES)
        for width, number in exchanged.items():
            halo = forecast.volume(rank, "aggregate", 1, width).received
            buffers += max(0, number - counted[width]) * halo
    # Weights, gradients and the moments of the optimizer, and the buffer of the reduction.
    train, reduced = work.config.train, reduced_bytes(case, rank)
    copies = 4 if train.optimizer == "adam" else 2 + (train.momentum > 0)
    state = copies * parameter_count(case, rank) * work.itemsize + reduced
    scratch = [forecast.reduction_scratch(rank, *product) for product in distinct.values()]
    most = max([reduction_scratch(reduced), *scratch])
    return dense * work.itemsize + sparse + buffers + state + most


def _first_memory(case: Case, rank: int) -> int:
    """H⁰, M·H⁰ and what that product takes, where it is made once: see ``aggregate_input``."""
    constants = [step for step in case.program.constants if step.name == "aggregate"]
    if not constants:
        return 0
    forecast, values, itemsize = case.forecast, case.program.values, case.work.itemsize
    width = values[0].width
    (rows, columns), (result_rows, _) = (
        forecast.shape(rank, values[i].place, width) for i in (0, constants[0].writes)
    )
    pieces = input_pieces(width)
    held = rows * columns
    if pieces == 1 or rows != result_rows or 0 in case.program.kept:
        held += result_rows * columns
    held += sum(_numbers(case, rank, values[i].place, width) for i in case.program.kept[2:])
    if pieces > 1:
        held += (rows + result_rows) * -(-columns // pieces)
    product = "aggregate", 1, -(-width // pieces)
    state = 2 * parameter_count(case, rank) * itemsize
    scratch = forecast.buffers(rank, *product) + forecast.reduction_scratch(rank, *product)
    return held * itemsize + state + scratch


# Sizes.


def input_entries(case: Case, rank: int) -> int:
    """Entries of a rank's rows of features that are a sparse matrix, if they are spread evenly."""
    rows = case.rows(rank, Place(0))
    return case.work.feature_entries * rows // max(1, case.work.n)


def input_memory(case: Case, rank: int, transposed: bool) -> int:
    """Bytes of such a matrix; with its transpose, and where the entries of that come from."""
    entries, width = input_entries(case, rank), case.program.values[0].width
    each = ENTRY_INDEX + case.work.itemsize
    starts = WIDE_INDEX * case.rows(rank, Place(0))
    return (
        entries * each + starts + transposed * (entries * (each + ENTRY_INDEX) + WIDE_INDEX * width)
    )


def parameter_count(case: Case, rank: int) -> int:
    """Numbers of weights and biases, and of features where they are trained."""
    numbers = 0
    for name, parameter in case.program.parameters.items():
        whole = int(np.prod(parameter.shape))
        numbers += _weight_numbers(case, rank, name) if parameter.is_weight else whole
    features = case.program.values[0]
    trained = case.program.trained_features
    return numbers + trained * _numbers(case, rank, features.place, features.width)


def _weight_numbers(case: Case, rank: int, name: str) -> int:
    """Numbers of a weight that a rank holds."""
    program = case.program
    k, shape = program.weight_layers[name], program.parameters[name].shape
    return case.forecast.weight_numbers(rank, k, *shape)


def arcs_of(case: Case, rank: int) -> tuple[int, int, int]:
    """Own rows, rows with the halo, and entries of M of a rank that has whole rows."""
    product = "expand" if case.program.needs_halo else "aggregate"
    tiles = [p for p in case.forecast.work(rank, product, 1, 1) if isinstance(p, Sparse)]
    rows = case.rows(rank, case.program.place)
    return rows, max((t.inner for t in tiles), default=rows), sum(t.entries for t in tiles)


def _numbers(case: Case, rank: int, place: Place, width: int) -> int:
    rows, columns = case.forecast.shape(rank, place, width)
    return rows * columns


def _train_rows(case: Case, rank: int) -> int:
    """Training vertices of a rank, if they are spread evenly."""
    return round(case.rows(rank, case.program.place) * case.work.train_share)


def _loss_products(case: Case, rank: int) -> list[Product]:
    return loss_products(case.program.place.layer, _train_rows(case, rank))
