"""What the cost model is asked of: a network, trained under a scheme on a machine."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gcnmpi.layout.place import Place
from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.nn.network import Network
from gcnmpi.nn.program import INPUT, Program, Step, products, summed
from gcnmpi.options.config import Config
from gcnmpi.options.task import outputs
from gcnmpi.planner.machine import Machine
from gcnmpi.schemes.forecast import Forecast
from gcnmpi.schemes.operations import Product
from partition.errors import UserError
from partition.graph.graph import Graph, training_vertices
from partition.graph.store import StoredGraph


@dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes
    ----------
    config : Config
    n : int
        Vertices.
    network : Network
    train_share : float
        Share of the vertices that train.
    distances : (quantiles,) array or None
        How far apart the ends of arcs are in the graph's order: see ``Machine.sparse_seconds``.
    feature_entries : int
        Entries of features that are kept as a sparse matrix; 0: they are dense.
    target_bytes : int
        Bytes of a number to be learned, of which a vertex has as many as the output has columns; 0:
        it has one class.
    """

    config: Config
    n: int
    network: Network
    train_share: float
    distances: np.ndarray | None = field(default=None, compare=False)
    feature_entries: int = 0
    target_bytes: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.config.dtype).itemsize


@dataclass(frozen=True)
class Case:
    """What is predicted: the forecast of a scheme, the training, and the machine.

    Attributes
    ----------
    forecast : Forecast
        The scheme on ``size`` ranks.
    ranks_per_node : int
        Ranks fill the nodes one after the other.
    program : Program
        The network on that scheme.
    """

    forecast: Forecast
    size: int
    work: Workload
    machine: Machine
    ranks_per_node: int
    program: Program

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps of an epoch, without the loss."""
        return (*self.program.forward, *self.program.backward)

    def products(self, rank: int) -> list[Product]:
        """Products of an epoch, without those of the loss."""
        return products(self.program, self.steps, partial(self.rows, rank))

    def rows(self, rank: int, place: Place) -> int:
        """Rows of a rank's piece of a matrix at a place."""
        return self.forecast.shape(rank, place, 1)[0]


def workload(
    stored: StoredGraph,
    config: Config,
    features: int | None = None,
    classes: int | None = None,
    locality: bool = True,
) -> Workload:
    """What training a configuration on a graph is.

    Parameters
    ----------
    features, classes : int, optional
        Other widths than the graph's, or where it has none.
    locality : bool
        Whether ``distances`` is to be there.

    Raises
    ------
    UserError
        If the graph has no features or no labels, and none are given.
    """
    manifest = stored.manifest
    ends = (features or manifest.features, classes or outputs(config.task.name, manifest))
    for what, width in zip(("features", "labels"), ends, strict=True):
        if not width:
            raise UserError(
                f"{stored.path} has no {what}",
                f"import it with --{what} FILE.npy, or --{what} random:16 for an experiment",
            )
    trained = training_vertices(stored.graph)
    share = 1.0 if trained is None else float(np.mean(trained))
    config = replace(config, graph=graph_of(config))
    network = network_of(config.model, *ends)
    distances = arc_distances(stored.graph) if locality else None
    entries = manifest.feature_entries if features in (None, manifest.features) else 0
    target_bytes = 0
    if config.task.name != "classes":  # classes that are several labels are float32
        targets = stored.graph.targets
        target_bytes = 4 if targets is None else targets.dtype.itemsize
    return Workload(config, manifest.n, network, share, distances, entries, target_bytes)


def arc_distances(graph: Graph, quantiles: int = 256, sampled: int = 1 << 16) -> np.ndarray | None:
    """Quantiles of |source − target| over arcs spread evenly over the graph; None without arcs."""
    if not graph.nnz:
        return None
    places = np.unique(np.linspace(0, graph.nnz - 1, min(sampled, graph.nnz)).astype(np.int64))
    source = np.searchsorted(graph.indptr, places, side="right") - 1
    apart = np.abs(source - np.asarray(graph.indices[places], np.int64))
    return np.quantile(apart, np.linspace(0, 1, quantiles))


# Sizes of what a rank holds.


def parameter_numbers(case: Case, rank: int) -> int:
    """Numbers of weights and biases, and of features where they are trained."""
    numbers = 0
    for name, parameter in case.program.parameters.items():
        whole = int(np.prod(parameter.shape))
        numbers += weight_numbers(case, rank, name) if parameter.is_weight else whole
    features = case.program.values[INPUT]
    trained = case.program.trained_features
    return numbers + trained * piece_numbers(case, rank, features.place, features.width)


def input_entries(case: Case, rank: int) -> int:
    """Entries of a rank's rows of features that are a sparse matrix, if they are spread evenly."""
    rows = case.rows(rank, Place(0))
    return case.work.feature_entries * rows // max(1, case.work.n)


def weight_numbers(case: Case, rank: int, name: str) -> int:
    """Numbers of a weight that a rank holds."""
    program = case.program
    k, shape = program.weight_layers[name], program.parameters[name].shape
    return case.forecast.weight_numbers(rank, k, *shape)


def piece_numbers(case: Case, rank: int, place: Place, width: int) -> int:
    """Numbers of a rank's piece of a dense matrix."""
    rows, columns = case.forecast.shape(rank, place, width)
    return rows * columns


def train_rows(case: Case, rank: int) -> int:
    """Training vertices of a rank, if they are spread evenly."""
    return round(case.rows(rank, case.program.place) * case.work.train_share)


def moments_bytes(case: Case) -> list[int]:
    """Size of each sum over ranks that steps of an epoch make, of moments of batch norms."""
    return [8 * numbers for numbers in summed(case.steps)]


def reduced_bytes(case: Case, rank: int) -> int:
    """Size of what is summed over ranks: gradients of what is whole everywhere, and the loss."""
    numbers = 1
    for name, parameter in case.program.parameters.items():
        whole = int(np.prod(parameter.shape))
        if not parameter.is_weight or weight_numbers(case, rank, name) == whole:
            numbers += whole
    return 8 * numbers
