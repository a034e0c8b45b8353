"""The cost model: predicted seconds, bytes, messages and memory of an epoch under a scheme.

An epoch is a list of products, which follow from the widths and the orders of the layers. The
scheme's outline gives the bytes and operations of each product on each rank, and the layout of
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

The program uses not these but the exact numbers of the outlines, which are equal to those that a
run counts: with the narrower side of each layer, nothing for a first layer with fixed features,
gradients of weights counted separately, and without the piece that a rank owns itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gcnmpi.core.config import Config
from gcnmpi.core.volume import NOTHING, Volume
from gcnmpi.kernels import resolve
from gcnmpi.layout.loading import PERMUTED_AT_ONCE
from gcnmpi.layout.place import Place
from gcnmpi.mpi.collectives import reduction_scratch
from gcnmpi.nn.layers import Product, choose_orders, input_pieces, network_products
from gcnmpi.nn.loss import loss_products
from gcnmpi.planner.machine import Machine
from gcnmpi.schemes.outline import Outline, Span, Sparse
from partition.errors import UserError
from partition.graph.graph import Graph, index_dtype, training_vertices
from partition.graph.store import StoredGraph

KNOWN = ("gcn",)  # models whose products are described here
# How often an operation reads or writes each number of its matrix.
BIAS, RELU, RELU_BACKWARD, LOSS, UPDATE = 3, 2, 3, 12, 10
# Products that compute; the others only move what is there.
ARITHMETIC = ("aggregate", "aggregate_t", "combine", "combine_t", "weight_grad")
# Bytes of a column's number in a kernel's sparse matrix; of a row's beginning.
INDEX_BYTES = {"native": 4, "scipy": 4, "cupy": 4}
WIDE_INDEX = 8
# Copies of a rank's arcs on their way from disk into M, and bytes of one beside its two ends.
LOADING_COPIES, WEIGHT_BYTES = 3, 8
FEATURE_BYTES = 4  # of a number of the features, as it is stored


@dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes
    ----------
    config : Config
    n : int
        Vertices.
    widths : tuple of int
        Columns of H⁰ … Hᴸ.
    train_share : float
        Share of the vertices that train.
    distances : (quantiles,) array or None
        How far apart the ends of arcs are in the graph's order: see ``Machine.sparse_seconds``.
    """

    config: Config
    n: int
    widths: tuple[int, ...]
    train_share: float
    distances: np.ndarray | None = field(default=None, compare=False)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.widths) - 1

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.config.dtype).itemsize


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


def workload(
    stored: StoredGraph, config: Config, features: int | None = None, classes: int | None = None
) -> Workload:
    """What training a configuration on a graph is.

    Parameters
    ----------
    features, classes : int, optional
        Other widths than the graph's, or where it has none.

    Raises
    ------
    UserError
        If the model is not known here, or the graph has no features or no labels, and none are
        given.
    """
    if config.model.name not in KNOWN:
        raise UserError(
            f"the cost model does not know model {config.model.name!r}: it would describe another "
            f"network ({', '.join(KNOWN)})",
            "describe its products in gcnmpi/planner/costmodel.py; train runs it without",
        )
    manifest = stored.manifest
    ends = (features or manifest.features, classes or manifest.classes)
    for what, width in zip(("features", "labels"), ends, strict=True):
        if not width:
            raise UserError(
                f"{stored.path} has no {what}",
                f"import it with --{what} FILE.npy, or --{what} random:16 for an experiment",
            )
    trained = training_vertices(stored.graph)
    share = 1.0 if trained is None else float(np.mean(trained))
    widths = (ends[0], *config.model.hidden, ends[1])
    return Workload(config, manifest.n, widths, share, arc_distances(stored.graph))


def arc_distances(graph: Graph, quantiles: int = 256, sampled: int = 1 << 16) -> np.ndarray | None:
    """Quantiles of |source − target| over arcs spread evenly over the graph; None without arcs."""
    if not graph.nnz:
        return None
    places = np.unique(np.linspace(0, graph.nnz - 1, min(sampled, graph.nnz)).astype(np.int64))
    source = np.searchsorted(graph.indptr, places, side="right") - 1
    apart = np.abs(source - np.asarray(graph.indices[places], np.int64))
    return np.quantile(apart, np.linspace(0, 1, quantiles))


@dataclass(frozen=True)
class Case:
    """What is predicted: the outline of a scheme, the training, and the machine.

    Attributes
    ----------
    outline : Outline
        The scheme on ``size`` ranks.
    ranks_per_node : int
        Ranks fill the nodes one after the other.
    """

    outline: Outline
    size: int
    work: Workload
    machine: Machine
    ranks_per_node: int

    @property
    def orders(self) -> tuple[str, ...]:
        """Order of products of each layer; a UserError if the scheme has not the one wanted."""
        return choose_orders(self.work.config.model, self.work.widths, self.outline.orders)

    @property
    def products(self) -> list[Product]:
        """Products of an epoch, without those of the loss."""
        model = self.work.config.model
        return network_products(model, self.work.widths, self.orders, backward=True)


def predict(case: Case) -> Cost:
    """The cost of an epoch of training under a scheme.

    Raises
    ------
    UserError
        If the scheme cannot multiply in the order that the configuration wants.
    """
    ranks = list(case.outline.ranks())
    phases = dict.fromkeys(("sparse", "dense", "transfer"), 0.0)
    volumes = dict.fromkeys(ranks, NOTHING)
    for step in [*([product] for product in case.products), None]:
        slowest: dict[str, float] = {}
        for rank in ranks:
            products = _loss_products(case, rank) if step is None else step
            seconds, volume = _step(case, rank, products)
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
    widths, numbers = case.work.widths, 1
    for k in range(1, case.work.depth + 1):
        whole = widths[k - 1] * widths[k]
        if case.outline.weight_numbers(rank, k, *widths[k - 1 : k + 1]) == whole:
            numbers += whole
        if case.work.config.model.bias:
            numbers += widths[k]
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
    ranks = case.outline.ranks()
    return int(case.machine.process_bytes) + node_share + max(_memory(case, r) for r in ranks)


def matrices(work: Workload, orders: Sequence[str]) -> list[tuple[str, Place, int]]:
    """Dense matrices that a network keeps: name, place and width of each.

    Matrices of equal name, width and layout share memory: they are the workspace of all layers.
    """
    model, widths, depth = work.config.model, work.widths, work.depth
    first = Place(1, aggregated=True) if orders[0] == "given" else Place(0)
    found = [("input", first, widths[0])]
    if model.input_dropout:
        found.append(("dropped", Place(0), widths[0]))
    for k, order in enumerate(orders, start=1):
        d_in, d_out = widths[k - 1 : k + 1]
        found.append((f"output {k}", Place(k), d_out))
        input_grad = k > 1 or model.train_features
        if order == "aggregate":
            found.append((f"aggregated {k}", Place(k, aggregated=True), d_in))
        if order == "combine":
            found += [("product", Place(k), d_out), ("aside", Place(k), d_out)]
        elif input_grad:
            found.append(("aside", Place(k, aggregated=True), d_in))
        if input_grad:
            found.append(("product", Place(k - 1), d_in))
    found.append(("product", Place(depth), widths[-1]))
    return found


# Seconds.


def _step(case: Case, rank: int, products: Sequence[Product]) -> tuple[dict[str, float], Volume]:
    """Seconds of some products on a rank, by phase, and the volume that they send and receive."""
    outline, machine, itemsize = case.outline, case.machine, case.work.itemsize
    seconds, moved = {"sparse": 0.0, "dense": 0.0, "transfer": 0.0}, NOTHING
    for product in products:
        name, k, *sizes = product
        for part in outline.work(rank, name, k, *sizes) if name in ARITHMETIC else ():
            if isinstance(part, Sparse):
                seconds["sparse"] += machine.sparse_seconds(part, itemsize, case.work.distances)
            else:
                seconds["dense"] += machine.dense_seconds(part, itemsize)
        volume = outline.volume(rank, name, k, *sizes)
        if volume != NOTHING:
            spans = outline.span(name, k) or [Span(case.size, 1)]
            seconds["transfer"] += machine.transfer_seconds(volume, spans, case.ranks_per_node)
            seconds["transfer"] += machine.copy_seconds(outline.buffers(rank, name, k, *sizes))
        moved += volume
    return seconds, moved


def _passes_seconds(case: Case, rank: int) -> float:
    """Seconds of all element-wise and row-wise passes over dense matrices.

    Each pass is counted separately, which is too much if a kernel fuses it with a product.
    """
    work, model = case.work, case.work.config.model
    numbers, dropped = 0.0, 0
    for k in range(1, work.depth + 1):
        piece = _numbers(case, rank, Place(k), work.widths[k])
        numbers += BIAS * piece * model.bias
        if k < work.depth:
            numbers += (RELU + RELU_BACKWARD) * piece
            dropped += piece * (model.dropout > 0)
    numbers += LOSS * work.train_share * _numbers(case, rank, Place(work.depth), work.widths[-1])
    numbers += UPDATE * _parameters(case, rank)
    if model.input_dropout:
        times = 2 if model.train_features else 1
        dropped += times * _numbers(case, rank, Place(0), work.widths[0])
    seconds = case.machine.copy_seconds(numbers * work.itemsize)
    return seconds + dropped * case.machine.dropout_number


# Memory.


def _memory(case: Case, rank: int) -> int:
    outline, work = case.outline, case.work
    entries = outline.entries(rank)
    parts = outline.work(rank, "aggregate", 1, 1)
    tiles = [part for part in parts if isinstance(part, Sparse) and not part.received]
    index = INDEX_BYTES.get(resolve(work.config.kernel)[0], WIDE_INDEX)
    # Rows begin in the tiles of M and in those of Mᵀ, which may be the same.
    sparse = entries * (index + work.itemsize) + 2 * WIDE_INDEX * sum(tile.rows for tile in tiles)

    arc = 2 * np.dtype(index_dtype(work.n)).itemsize + WEIGHT_BYTES
    limit = int(work.config.loading.max_buffer_mb * 2**20)
    # What is sent at once is packed; before that, as much of the files is in memory.
    loading = LOADING_COPIES * entries * arc + 2 * min(limit, entries * arc)
    kept = (_features_memory, _first_memory, _training_memory)
    return max(loading, sparse + max(memory_of(case, rank) for memory_of in kept))


def _features_memory(case: Case, rank: int) -> int:
    """H⁰ as it arrives; then brought in order, a part of its columns at a time, and converted.

    If some columns of a file are sent, its whole rows are in memory.
    """
    work, width = case.work, case.work.widths[0]
    rows, columns = case.outline.shape(rank, Place(0), width)
    stored = rows * columns * FEATURE_BYTES
    packed = min(int(work.config.loading.max_buffer_mb * 2**20), stored)
    whole = packed * width // max(1, columns)
    # To be normalised, rows are copied in their own precision, and in float64.
    sending = packed + whole * (4 if work.config.graph.feature_norm == "row" else 1)
    converted = rows * columns * work.itemsize if work.itemsize != FEATURE_BYTES else 0
    return stored + max(sending, stored // PERMUTED_AT_ONCE, converted)


def _training_memory(case: Case, rank: int) -> int:
    outline, work = case.outline, case.work
    # A workspace of one shape on this rank is one matrix, whichever layer asks for it.
    kept = {
        (name, outline.shape(rank, place, width), width)
        for name, place, width in matrices(work, case.orders)
    }
    dense = sum(rows * columns for _, (rows, columns), _ in kept)
    # The loss copies the logits of training vertices, and makes their gradient.
    _, columns = outline.shape(rank, Place(work.depth), work.widths[-1])
    dense += 2 * _train_rows(case, rank) * columns
    # Buffers of one product and width serve all layers.
    distinct = {(product[0], *product[2:]): product for product in case.products}
    buffers = sum(outline.buffers(rank, *product) for product in distinct.values())
    if outline.own_buffers and case.orders[0] == "aggregate" and work.config.model.input_dropout:
        # Evaluation exchanges the features themselves, training what dropout leaves of them: with
        # a halo each, and one buffer of packed rows.
        buffers += outline.volume(rank, "aggregate", 1, work.widths[0]).received
    # Weights, gradients and the moments of the optimizer, and the buffer of the reduction.
    train, reduced = work.config.train, reduced_bytes(case, rank)
    copies = 4 if train.optimizer == "adam" else 2 + (train.momentum > 0)
    state = copies * _parameters(case, rank) * work.itemsize + reduced
    scratch = [outline.reduction_scratch(rank, *product) for product in distinct.values()]
    return dense * work.itemsize + buffers + state + max([reduction_scratch(reduced), *scratch])


def _first_memory(case: Case, rank: int) -> int:
    """H⁰, M·H⁰ and what that product takes, where it is made once: see ``aggregate_input``."""
    if case.orders[0] != "given":
        return 0
    outline, width, itemsize = case.outline, case.work.widths[0], case.work.itemsize
    shapes = [outline.shape(rank, Place(*place), width) for place in ((0,), (1, True))]
    (rows, columns), (result_rows, _) = shapes
    pieces = input_pieces(width)
    kept = rows * columns
    if pieces == 1 or rows != result_rows:
        kept += result_rows * columns
    if pieces > 1:
        kept += (rows + result_rows) * -(-columns // pieces)
    product = "aggregate", 1, -(-width // pieces)
    state = 2 * _parameters(case, rank) * itemsize
    scratch = outline.buffers(rank, *product) + outline.reduction_scratch(rank, *product)
    return kept * itemsize + state + scratch


# Sizes.


def _parameters(case: Case, rank: int) -> int:
    """Numbers of weights and biases, and of features where they are trained."""
    model, widths = case.work.config.model, case.work.widths
    numbers = sum(widths[1:]) if model.bias else 0
    for k in range(1, case.work.depth + 1):
        numbers += case.outline.weight_numbers(rank, k, *widths[k - 1 : k + 1])
    return numbers + model.train_features * _numbers(case, rank, Place(0), widths[0])


def _numbers(case: Case, rank: int, place: Place, width: int) -> int:
    rows, columns = case.outline.shape(rank, place, width)
    return rows * columns


def _train_rows(case: Case, rank: int) -> int:
    """Training vertices of a rank, if they are spread evenly."""
    rows, _ = case.outline.shape(rank, Place(case.work.depth), case.work.widths[-1])
    return round(rows * case.work.train_share)


def _loss_products(case: Case, rank: int) -> list[Product]:
    return loss_products(case.work.depth, _train_rows(case, rank))
