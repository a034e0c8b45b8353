"""The facts with which the oracle makes a pass over a network: the matrix, arcs, rows, numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from gcnmpi.layout.entries import entry_keys
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators.arcs import ArcInput, EndDots, WeighedSum
from gcnmpi.nn.operators.relations import MeanOf
from gcnmpi.nn.operators.spaces import Pick, Reduce, Source, Spread, Target
from partition.graph.graph import ARCS, VERTICES, Graph

Arrays = Mapping[str, np.ndarray]
Gradients = tuple[Sequence[np.ndarray], Arrays]
Backward = Callable[[np.ndarray], Gradients]


@dataclass(frozen=True)
class ArcRows:
    """The arcs that matrices have a row for, by the vertex they lead to, then that they come from.

    Parallel ones are in the order of the graph; a self-loop that M has beside the graph's arcs is
    one too.
    """

    n: int
    target: np.ndarray  # (arcs,) the row of M
    source: np.ndarray  # (arcs,) the column
    keys: np.ndarray  # (arcs,) uint64, for dropout
    given: np.ndarray  # (arcs, d) features, 0 of loops that were added
    relation: np.ndarray  # (arcs,) its number, 0 too
    places: np.ndarray  # (stored arcs,) where those of the graph are among them
    types: np.ndarray | None = None  # (n,) the number of the type of each vertex
    turned: np.ndarray | None = None  # (relations,) whether each is the reverse of another
    rows: int | None = None  # how many rows they lead to, if these are not the vertices

    @classmethod
    def of(
        cls,
        graph: Graph,
        direction: str,
        self_loops: bool,
        features: np.ndarray | None = None,
        relation: np.ndarray | None = None,
        one_loop: bool = False,
    ) -> ArcRows:
        """The arcs of a graph, in a direction; what is given has a row for each stored one.

        With ``one_loop`` a vertex has one self-loop at most, the first of the graph.
        """
        ends = np.repeat(np.arange(graph.n), np.diff(graph.indptr)), np.array(graph.indices, int)
        i, j = ends[::-1] if direction == "in" else ends
        given = np.zeros((len(i), 0)) if features is None else np.asarray(features, np.float64)
        kinds = np.zeros(len(i), int) if relation is None else np.asarray(relation, int)
        if one_loop:
            firsts = np.unique(np.where(i == j, i, graph.n + np.arange(len(i))), return_index=True)
            some = np.sort(firsts[1])
            i, j, given, kinds = i[some], j[some], given[some], kinds[some]
        stored = len(i)
        if self_loops:
            lonely = np.setdiff1d(np.arange(graph.n), i[i == j])
            i, j = np.append(i, lonely), np.append(j, lonely)
            given = np.vstack((given, np.zeros((len(lonely), given.shape[1]))))
            kinds = np.append(kinds, np.zeros(len(lonely), int))
        order = np.lexsort((j, i))  # stable: parallel arcs stay in their order
        i, j = i[order], j[order]
        pairs = i * graph.n + j
        numbers = np.arange(len(i)) - np.searchsorted(pairs, pairs)
        places = np.argsort(order)[:stored]
        keys = entry_keys(i, j, numbers)
        types = None if graph.vertex_types is None else graph.vertex_types.of(np.arange(graph.n))
        turned = np.array(graph.schema.turned)
        return cls(graph.n, i, j, keys, given[order], kinds[order], places, types, turned)

    @property
    def degrees(self) -> np.ndarray:
        """The number of arcs into each vertex, (n,)."""
        return np.bincount(self.target, minlength=self.count)

    @property
    def count(self) -> int:
        """How many rows they lead to."""
        return self.n if self.rows is None else self.rows

    @cached_property
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """The vertex and relation of each group of arcs, (groups, 2), and each arc's group."""
        of_arcs = np.stack((self.target, self.relation), axis=1)
        found, group = np.unique(of_arcs, axis=0, return_inverse=True)
        return found, group.ravel()

    @property
    def grouped(self) -> ArcRows:
        """The same arcs, as if each led to its group."""
        found, group = self.groups
        return replace(self, rows=len(found), target=group)

    @property
    def of_groups(self) -> ArcRows:
        """The groups, as if each were an arc into its vertex."""
        (vertex, relation), keys = self.groups[0].T, self.group_keys
        return replace(self, target=vertex, source=vertex, relation=relation, keys=keys)

    @property
    def group_keys(self) -> np.ndarray:
        """Keys of the groups for dropout, (groups,) uint64."""
        vertex, relation = self.groups[0].T
        return entry_keys(vertex, vertex, 1 + relation)

    @property
    def means(self) -> sp.csr_array:
        """The matrix of means by relation, (groups, n); its rows in the order of their keys."""
        ends = self.groups[1], self.source
        found = sp.csr_array((self.features("share")[:, 0], ends), (len(self.groups[0]), self.n))
        return found[np.argsort(self.group_keys)]

    def features(self, what: str) -> np.ndarray:
        """The rows of arcs, (arcs, d), that :class:`ArcInput` says."""
        if what == "relation":
            return self.relation[:, np.newaxis].astype(float)
        if what == "group":
            return self.groups[0][:, 1:].astype(float)
        if what == "part":
            assert self.turned is not None
            ways = self.n * self.turned[self.relation] + self.target
            of_groups = np.bincount(self.groups[1])
            first = np.unique(self.groups[1], return_index=True)[1]
            return (of_groups / np.bincount(ways)[ways[first]])[:, np.newaxis]
        if what.startswith("type"):
            assert self.types is not None
            return self.types[:, np.newaxis].astype(float)
        if what == "share":
            return 1 / self.grouped.degrees[self.grouped.target][:, np.newaxis]
        found, own = self.given.copy(), self.target == self.source
        if what == "mean":
            into = self.target[~own]
            counts = np.maximum(np.bincount(into, minlength=self.n), 1)[:, np.newaxis]
            found[own] = (summed(found[~own], into, self.n) / counts)[self.target[own]]
        return found

    def of_type(self, type: int) -> np.ndarray:
        """Which vertices are of the type of that number, (n,) bool."""
        assert self.types is not None
        return self.types == type

    def into(self, x: np.ndarray) -> np.ndarray:
        """The sum over the arcs into each vertex, (n, columns)."""
        return summed(x, self.target, self.count)

    def out_of(self, x: np.ndarray) -> np.ndarray:
        """The sum over the arcs that come from each vertex, (n, columns)."""
        return summed(x, self.source, self.n)


@dataclass(frozen=True)
class Pass:
    """The matrix and the numbers with which a pass over the operators is made.

    The epoch is that of a training pass; None: an evaluation, without dropout and with running
    moments.
    """

    matrix: sp.csr_array  # M, (n, n)
    arcs: ArcRows  # of an operator on groups: as if they were vertices, or arcs
    seed: int
    epoch: int | None
    moments: dict[str, np.ndarray]  # where batch norms leave those of the next epoch, by name
    trained_features: bool = False  # whether the features have a gradient
    keys: np.ndarray | None = None  # of the rows of the value, where these are not vertices


def summed(values: np.ndarray, ends: np.ndarray, n: int) -> np.ndarray:
    """The sum of the rows of ``values`` with the same end, (n, columns)."""
    ones = (np.ones(len(ends)), (ends, np.arange(len(ends))))
    return sp.coo_array(ones, shape=(n, len(ends))).tocsr() @ values


GROUPS, OF_TYPE = "groups", "of type"


def rows_of(operator: Operator, inputs: Sequence[str]) -> str:
    """The rows of a value, by those of its inputs: vertices, arcs or groups."""
    if isinstance(operator, ArcInput):
        if operator.given.startswith("type"):
            return VERTICES
        return GROUPS if operator.given in ("group", "part") else ARCS
    if isinstance(operator, Source | EndDots):
        return ARCS
    if isinstance(operator, Pick | Spread):
        return OF_TYPE if isinstance(operator, Pick) else VERTICES
    if isinstance(operator, Target | Reduce | WeighedSum | MeanOf):
        return _ROWS[operator.to]
    return next((one for one in inputs if one != VERTICES), VERTICES)


def arcs_of(operator: Operator, arcs: ArcRows, rows: Sequence[str]) -> ArcRows:
    """The arcs as an operator sees them, whose inputs and value have ``rows``."""
    if isinstance(operator, ArcInput) or GROUPS not in (
        *rows,
        _ROWS.get(getattr(operator, "within", "")),
    ):
        return arcs
    goes_over_arcs = ARCS in rows or isinstance(operator, WeighedSum | EndDots)
    return arcs.grouped if goes_over_arcs else arcs.of_groups


_ROWS = {"own": VERTICES, "entries": ARCS, "groups": GROUPS, "of_type": OF_TYPE}
