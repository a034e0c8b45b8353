"""The case that the cost model predicts: a network, trained under a scheme on a machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gcnmpi.layout.place import Place, Space
from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.network import Network
from gcnmpi.nn.program import INPUT, Program, Step, products, summed
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config
from gcnmpi.options.frames import Frames
from gcnmpi.planner.machine import Machine
from gcnmpi.schemes.forecast import Forecast, Sparse
from gcnmpi.schemes.operations import Operation, Product
from partition.errors import UserError
from partition.graph.graph import Graph, examples_of
from partition.graph.store import StoredGraph
from partition.resident import let_go

ARC_ROWS, GROUP_ROWS = (Place(0, space=space) for space in (Space.ENTRIES, Space.GROUPS))
"""Where features of arcs are, and relations of groups of arcs."""


@dataclass(frozen=True)
class Workload:
    """A configuration on a graph of n vertices, to be trained.

    Attributes
    ----------
    train_share : float
        Share of the vertices that train, or of the arcs.
    distances : (quantiles,) array or None
        How far apart the ends of arcs are in the graph's order: see ``Machine.sparse_seconds``.
    feature_entries : int
        Entries of features that are kept as a sparse matrix; 0: they are dense.
    target_bytes : int
        Bytes of a number to be learned, of which a row has as many as the output has columns; 0: it
        has one class.
    frames : Frames or None
        Where each step has features of its own: how they go over time.
    """

    config: Config
    n: int
    network: Network
    train_share: float
    distances: np.ndarray | None = field(default=None, compare=False)
    feature_entries: int = 0
    target_bytes: int = 0
    frames: Frames | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.config.dtype).itemsize


@dataclass(frozen=True)
class Case:
    """The forecast of a scheme on ``size`` ranks, the training as a program on it, and the machine.

    Ranks fill the nodes one after the other, ``ranks_per_node`` each. There are so many ``groups``
    of ``size`` ranks, which sum gradients together.
    """

    forecast: Forecast
    size: int
    work: Workload
    machine: Machine
    ranks_per_node: int
    program: Program
    groups: int = 1

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps of an epoch, without the loss."""
        return (*self.program.forward, *self.program.backward)

    def products(self, rank: int) -> list[Product]:
        """Products of an epoch, without those of the loss."""
        return products(self.program, self.steps, partial(self.rows, rank))

    def peak(self, needs: Callable[[int], int]) -> int:
        """Peak bytes of the rank that needs most.

        They are those of the process, its share of the node's part vector, and ``needs(rank)``.
        """
        shared = 4 * self.work.n // min(self.size, self.ranks_per_node)
        return int(self.machine.process_bytes) + shared + max(map(needs, self.forecast.ranks()))

    def rows(self, rank: int, place: Place) -> int:
        """Rows of a rank's piece of a matrix at a place."""
        return self.forecast.shape(rank, place, 1)[0]

    def made(self, rank: int, step: Step) -> float:
        """The share of its rows that a step makes: all, or those that are not there any more."""
        program, value = self.program, step.writes
        if value is None or value not in program.repeated:
            return 1.0
        first = program.buffers[program.training_buffers[value]].first
        return 1 - min(1.0, first / max(1, self.rows(rank, program.values[value].place)))

    def piece_numbers(self, rank: int, place: Place, width: int) -> int:
        """Numbers of a rank's piece of a dense matrix."""
        rows, columns = self.forecast.shape(rank, place, width)
        return rows * columns

    def weight_numbers(self, rank: int, name: str) -> int:
        """Numbers of a weight that a rank holds."""
        k, shape = self.program.weight_layers[name], self.program.parameters[name].shape
        return self.forecast.weight_numbers(rank, k, *shape)

    def parameter_numbers(self, rank: int) -> int:
        """Numbers of weights and biases, and of features where they are trained."""
        program, features = self.program, self.program.values[INPUT]
        numbers = sum(
            self.weight_numbers(rank, name) if one.is_weight else int(np.prod(one.shape))
            for name, one in program.parameters.items()
        )
        if program.trained_features:
            numbers += self.piece_numbers(rank, features.place, features.width)
        return numbers

    def input_entries(self, rank: int) -> int:
        """Entries of a rank's rows of sparse features, if they are spread evenly."""
        return self.work.feature_entries * self.rows(rank, Place(0)) // max(1, self.work.n)

    def train_rows(self, rank: int) -> int:
        """Training vertices or arcs of a rank, if they are spread evenly."""
        return round(self.rows(rank, self.program.place) * self.work.train_share)

    def arcs(self, rank: int) -> tuple[int, int, int]:
        """Own rows, rows with the halo, and entries of M of a rank that has whole rows."""
        product = Operation.EXPAND if self.program.needs_halo else Operation.AGGREGATE
        tiles = sparse_work(self.forecast, rank, product)
        rows, entries = (
            self.rows(rank, Place(self.program.place.layer)),
            sum(t.entries for t in tiles),
        )
        if self.program.needs_entries:
            entries = self.rows(rank, ARC_ROWS)
        return rows, max((t.inner for t in tiles), default=rows), entries

    def kept(self, rank: int, step: Step) -> int:
        """Numbers that a step keeps: see ``Instruction``."""
        rows, columns, entries = self.arcs(rank)
        if not (step.instruction.visits or step.instruction.gathers):
            entries = self.rows(rank, self.program.values[step.number].place)
        return step.kept(rows, columns, entries)

    def reduced_bytes(self, rank: int) -> int:
        """Size of the sum over ranks: gradients of all that is whole everywhere, and the loss."""
        numbers = 1
        for name, parameter in self.program.parameters.items():
            whole = int(np.prod(parameter.shape))
            if not parameter.is_weight or self.weight_numbers(rank, name) == whole:
                numbers += whole
        return 8 * numbers

    def reductions(self, rank: int) -> list[int]:
        """Bytes of each reduction of an epoch: of moments of batch norms, and of gradients."""
        return [*(8 * numbers for numbers in summed(self.steps)), self.reduced_bytes(rank)]


def sparse_work(forecast: Forecast, rank: int, operation: Operation) -> list[Sparse]:
    """The tiles of M that a rank multiplies with in an operation of the first layer."""
    return [part for part in forecast.work(rank, operation, 1, 1) if isinstance(part, Sparse)]


def workload(
    stored: StoredGraph,
    config: Config,
    features: int | None = None,
    classes: int | None = None,
    locality: bool = True,
) -> Workload:
    """The training of a configuration on a graph.

    ``features`` and ``classes`` are other widths than the graph's: a UserError says that it has
    none, and none are given. ``locality``: whether ``distances`` is to be there.
    """
    manifest, task = stored.manifest, task_of(config.task)
    config = task.resolve(config, stored)
    inputs, wanted = task.ends(config.task, config.model, manifest)
    widths = features or inputs, classes or wanted
    for what, width in zip(("features", "labels"), widths, strict=True):
        if not width:
            raise UserError(
                f"{stored.path} has no {what}",
                f"import it with --{what} FILE.npy, or --{what} random:16 for an experiment",
            )
    share, target_bytes = task.learned(examples_of(stored.graph, config.task.on))
    config = replace(config, graph=graph_of(config))
    network = network_of(config.model, *widths, manifest.arc_features, config.task, manifest.schema)
    distances = arc_distances(stored.graph) if locality else None
    entries = manifest.feature_entries if features in (None, manifest.inputs) else 0
    frames = task.frames(config.task, network.operators[0].width)
    return Workload(config, manifest.n, network, share, distances, entries, target_bytes, frames)


def arc_distances(graph: Graph, quantiles: int = 256, sampled: int = 1 << 16) -> np.ndarray | None:
    """Quantiles of |source − target| over arcs spread evenly over the graph; None without arcs."""
    if not graph.nnz:
        return None
    places = np.unique(np.linspace(0, graph.nnz - 1, min(sampled, graph.nnz)).astype(np.int64))
    source = np.searchsorted(graph.indptr, places, side="right") - 1
    apart = np.abs(source - np.asarray(graph.indices[places], np.int64))
    let_go(graph.indptr, graph.indices)
    return np.quantile(apart, np.linspace(0, 1, quantiles))
