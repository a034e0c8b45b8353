"""The tools of a rank, where M comes from, and the demands of a network on a scheme."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gcnmpi.core.arrays import Summation
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.mpi.comm import Comm
from gcnmpi.options.config import Config
from partition.graph.relations import VertexTypes
from partition.graph.store import Partition, StoredGraph


@dataclass(frozen=True)
class Runtime:
    """The tools with which everything on a rank computes and communicates.

    Attributes
    ----------
    comm : Comm
        The ranks that hold the graph together: a group.
    summation : Summation or None
        Sums arrays of devices over all ranks; None: MPI does, on the host.
    world : Comm or None
        The ranks of all groups, of which each holds the graph; None: there is one group.
    """

    comm: Comm
    kernel: Kernel
    phases: Phases
    traffic: Traffic
    summation: Summation | None = None
    world: Comm | None = None

    @property
    def everyone(self) -> Comm:
        """All ranks that train together: over these, gradients and moments are summed."""
        return self.comm if self.world is None else self.world

    def of_group(self, comm: Comm) -> Runtime:
        """That of some of the ranks of a group, which they share a row or column of a grid with."""
        return replace(self, comm=comm, summation=None, world=None)


@dataclass(frozen=True)
class Source:
    """The graph, its partition without the part vector, and the direction of M, "in" or "out"."""

    stored: StoredGraph
    partition: Partition | None
    direction: str


def resolved_direction(stored: StoredGraph, config: Config) -> str:
    """``graph.direction``, "auto" replaced by the graph's own."""
    wanted = config.graph.direction
    return stored.manifest.direction if wanted == "auto" else wanted


def vertices_of(stored: StoredGraph, type: int | None) -> range:
    """The vertices of the type of a number; of None, there are none."""
    counts = stored.manifest.vertex_types
    return range(0) if type is None else VertexTypes.of_counts(counts).range([*counts][type])


@dataclass(frozen=True)
class Demand:
    """The demands of a network on a scheme.

    Attributes
    ----------
    depth : int
        Number of layers of products with M: where layouts rotate, some layers need tiles of it.
    products : bool
        Whether there are such products at all.
    rows : bool
        Whether it needs whole rows of neighbours.
    transposed : bool
        Whether there are products with Mᵀ: in training.
    entries : bool
        Whether it has matrices with a row for each entry of M.
    groups : bool
        Whether it has matrices with a row for each group of these of one relation.
    sums_groups : bool
        Whether the products are with the matrix of means by relation, which has a row for each of
        these groups; then there are no whole rows, and ``rows`` asks for the entries only.
    type : int or None
        The number of the type of vertices that matrices of :attr:`Space.OF_TYPE` have rows of.
    batches : bool
        Whether mini-batches will be cut out of M: the scheme keeps what they are cut from.
    one_loop : bool
        Whether all self-loops of a vertex are one entry.
    """

    depth: int = 1
    products: bool = True
    rows: bool = False
    transposed: bool = True
    entries: bool = False
    groups: bool = False
    type: int | None = None
    sums_groups: bool = False
    batches: bool = False
    one_loop: bool = False

    def visits(self, epochs: int) -> float:
        """How often so many epochs multiply with M, or with its transpose."""
        return 2.0 * self.depth * epochs

    @property
    def only_visits(self) -> bool:
        """Whether entries of M are looked at one by one, if at all: nobody reads its values."""
        return not self.products and not self.batches
