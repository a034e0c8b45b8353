"""Input of partitioning tools: a graph or a hypergraph made from the pattern of M.

Every model has ``weights``: the entries of each row of M, the arithmetic that a vertex brings.

The *column-net* hypergraph: nets are rows of H. The *medium-grain* one: rows of H and partial sums
that travel (Pelt and Bisseling 2014). Every entry (i, j) of M belongs to the group of its row or to
that of its column. Entries of row groups are multiplied where row i lives, which needs row j of H
there; entries of column groups where row j of H lives, which sends a partial sum of row i. A vertex
is a row group, the column group of the same number and the diagonal entry between them: all that
will be on one part.

The *stochastic* hypergraph: what mini-batches will communicate, learnt from sampled ones. Demirci
et al. 2022, section 4.3.3 and algorithm 3: one column-net hypergraph per sampled mini-batch, all
merged into one, whose connectivity−1 estimates the expected volume.

The paper's hypergraphs hold the nets of a batch's own vertices. In a batch of a share q of all
vertices an arc is seen with probability q², so most arcs are in none of a few batches, and a
partitioner cuts them for nothing. Since a vertex is in a batch (nearly) independently of who else
is, the net of j in batches *with* j is distributed as j with its readers in *any* batch. So by
default (``owners = all``) every batch makes a net for every vertex: the same expectation from 1/q
times as many nets, and the batches of one epoch see every arc exactly once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from partition.errors import UserError, require
from partition.graph import sampling
from partition.graph.aggregation import arrivals, column_pieces, columns, loops, symmetrised
from partition.graph.cover import summed_entries
from partition.graph.graph import REVERSED, Graph, first_of_equals, row_sizes
from partition.graph.hashing import key, mixed
from partition.graph.sampling import Pattern, pointers, segments
from partition.registry import Setting, Settings


@dataclass(frozen=True)
class HypergraphModel:
    """A hypergraph: vertices are rows of M, nets are rows of H that travel.

    Attributes
    ----------
    weights : (n,) int64
    indptr : (nets + 1,) integers
    pins : integers
        ``pins[indptr[j]:indptr[j+1]]`` are the vertices that net j connects, its owner among them.
    costs : (nets,) int64, optional
        What net j costs in each part but one that it touches; 1 where None.
    owners : (nets,) integers, optional
        The vertex whose row net j stands for; where None there are n nets, and it is j.
    folds : (nets,) bool, optional
        Whether partial sums go from the other parts to the owner's along net j, rather than a row
        from the owner's to the others; rows on all nets where None.
    """

    weights: np.ndarray
    indptr: np.ndarray
    pins: np.ndarray
    costs: np.ndarray | None = None
    owners: np.ndarray | None = None
    folds: np.ndarray | None = None

    @property
    def nets(self) -> int:
        """How many nets it has."""
        return len(self.indptr) - 1

    def net_costs(self) -> np.ndarray:
        """The cost of each net, (nets,) int64."""
        return np.ones(self.nets, np.int64) if self.costs is None else np.asarray(self.costs)

    def facts_of(self, nets: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray | None]:
        """Costs, owners and folds of some nets: all that follows the pins in this class."""
        costs, folds = (
            None if facts is None else np.asarray(facts)[nets] for facts in (self.costs, self.folds)
        )
        return costs, nets if self.owners is None else np.asarray(self.owners)[nets], folds


def hypergraph_model(graph: Graph, direction: str = "in") -> HypergraphModel:
    """The column-net hypergraph of M: net j pins j and every i with an entry (i, j).

    The parts that net j touches, less one, is what its row is sent to: connectivity−1, summed
    over the nets, **is** the volume of one exchange (Çatalyürek and Aykanat 1999).
    """
    ends = np.asarray(graph.indptr) if direction == "in" else arrivals(graph)
    # The diagonal where it is missing, at the end of its net.
    missing = ~loops(graph)
    full = pointers(np.diff(ends) + missing)
    pins = np.empty(full[-1], dtype=graph.indices.dtype)
    own = np.flatnonzero(missing)
    pins[full[own + 1] - 1] = own
    del own
    for first, last, some, rows in column_pieces(graph, direction):
        shift = np.repeat(full[first:last] - some[:-1], np.diff(some))
        shift += np.arange(len(rows))
        pins[shift] = rows
    return HypergraphModel(row_sizes(graph, direction), full, pins)


def connectivity(model: HypergraphModel, parts: np.ndarray, k: int) -> int:
    """Σ cost·(λ − 1) over the nets, for k parts: what a partitioner makes small."""
    net = np.repeat(np.arange(model.nets, dtype=np.int64), np.diff(model.indptr))
    touched = np.unique(net * k + parts[model.pins]) // k
    others = np.maximum(np.bincount(touched, minlength=model.nets) - 1, 0)
    return int(others @ model.net_costs())


def without_large_nets(model: HypergraphModel, limit: int) -> HypergraphModel:
    """The hypergraph without its nets of more than ``limit`` pins; its vertices stay."""
    kept = np.flatnonzero(np.diff(model.indptr) <= limit)
    return model if len(kept) == model.nets else of_nets(model, kept)


def of_nets(model: HypergraphModel, nets: np.ndarray) -> HypergraphModel:
    """The hypergraph of some of the nets, increasing numbers; its vertices stay."""
    sizes, kept = np.diff(model.indptr), np.zeros(model.nets, bool)
    kept[nets] = True
    pins = np.asarray(model.pins)[: model.indptr[-1]]
    if not kept.all():
        pins = pins[np.repeat(kept, sizes)]
    return HypergraphModel(model.weights, pointers(sizes[nets]), pins, *model.facts_of(nets))


@dataclass(frozen=True)
class GraphModel:
    """An undirected graph without loops; each edge is stored at both of its ends.

    Attributes
    ----------
    weights : (n,) int64
    indptr : (n + 1,) integers
    indices : integers
        ``indices[indptr[i]:indptr[i+1]]`` are the neighbours of vertex i.
    costs : integers, optional
        Of each stored edge, what cutting it costs; 1 where None. METIS alone looks at them.
    """

    weights: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    costs: np.ndarray | None = None


def graph_model(graph: Graph, direction: str = "in", *, max_net: int = 0) -> GraphModel:
    """The symmetrised graph: i and j are neighbours where M or its transpose has (i, j).

    Its edge cut only resembles the volume. Columns of M with more than ``max_net`` entries, the
    diagonal among them, are left out, unless it is 0: rows of H that most parts need whatever is
    done. The direction matters to the weights, and to these columns.
    """
    require(max_net >= 0, f"max_net = {max_net}: it is a number of entries, 0 for no limit")
    left_out, arcs = None, graph.nnz
    if max_net:
        sizes = row_sizes(graph, REVERSED[direction])
        left_out, arcs = (sizes > max_net, direction), int(sizes[sizes <= max_net].sum())
    degree = np.zeros(graph.n, np.int64)
    # As many as there can be: what is never written takes no memory.
    indices, found = np.empty(2 * arcs, graph.indices.dtype), 0
    for first, last, some, neighbours in symmetrised(graph, left_out=left_out):
        degree[first:last] = some
        indices[found : found + len(neighbours)] = neighbours
        found += len(neighbours)
    return GraphModel(row_sizes(graph, direction), pointers(degree), indices[:found])


@dataclass(frozen=True)
class RowModel:
    """Rows and nothing between them, for tools that do not look at the arcs.

    Attributes
    ----------
    weights : (n,) int64
    """

    weights: np.ndarray


def row_model(graph: Graph, direction: str = "in") -> RowModel:
    """The rows of M with their weights alone."""
    return RowModel(row_sizes(graph, direction))


def medium_grain_model(
    graph: Graph, direction: str = "in", parts: np.ndarray | None = None
) -> HypergraphModel:
    """The hypergraph whose connectivity−1 is the volume of an exchange of rows and partial sums.

    Column net j pins j and the rows i whose groups have an entry (i, j); it is there if row j may
    be sent. Row net i pins i and the columns j whose groups have an entry (i, j); ``folds`` marks
    it: along it, partial sums go to its owner. A vertex weighs the entries of its groups, so the
    work is counted where it will be done.

    With ``parts``, (n,) integers, it is made for improving them: connectivity−1 is then, at these
    parts, the volume of the mixed exchange. Without them, an entry belongs to the shorter one of
    its row and its column, since a long one will be cut in any case.
    """
    indptr, rows = columns(graph, direction)
    column = np.repeat(np.arange(graph.n, dtype=rows.dtype), np.diff(indptr))
    proper = rows != column  # entries beside the diagonal
    row, column = rows[proper], column[proper]
    lengths = [np.bincount(ends, minlength=graph.n) for ends in (row, column)]
    summed = lengths[1][column] < lengths[0][row]
    if parts is not None:
        summed = _by_cover(row, column, np.asarray(parts), summed)
    return _grains(row, column, summed, graph.n)


def _by_cover(
    row: np.ndarray, column: np.ndarray, parts: np.ndarray, otherwise: np.ndarray
) -> np.ndarray:
    """Which entries belong to their column in the best assignment for these parts: (m,) bool.

    For entries that are cut there is no choice: it is the cover. The others cost nothing as they
    are, and should cost little once one of their ends moves away: an entry belongs to its column
    if its row gets sums from more parts than its column's row of H is sent to, and to its row
    if it is the other way round; where both are equal, as ``otherwise`` says.
    """
    row_part, column_part = parts[row], parts[column]
    cut = row_part != column_part
    summed = summed_entries(row, column, row_part, column_part)
    sums = _partners(row[summed], column_part[summed], len(parts))
    sent = _partners(column[cut & ~summed], row_part[cut & ~summed], len(parts))
    by_row, by_column = sent[column], sums[row]
    free = np.where(by_column == by_row, otherwise, by_column > by_row)
    return np.where(cut, summed, free)


def _partners(vertices: np.ndarray, partners: np.ndarray, n: int) -> np.ndarray:
    """The different partners of each vertex: (n,) integers."""
    k = int(partners.max(initial=0)) + 1
    return np.bincount(np.unique(vertices.astype(np.int64) * k + partners) // k, minlength=n)


def _grains(row: np.ndarray, column: np.ndarray, summed: np.ndarray, n: int) -> HypergraphModel:
    worker = np.where(summed, column, row)
    net = np.where(summed, row.astype(np.int64) + n, column)
    sizes = np.bincount(net, minlength=2 * n)
    # Every net pins its owner first; those that pin nothing else are left out.
    kept = np.flatnonzero(sizes)
    number = np.full(2 * n, -1, np.int64)
    number[kept] = np.arange(len(kept))
    order = np.argsort(net, kind="stable")
    indptr = pointers(sizes[kept] + 1)
    pins = np.empty(indptr[-1], np.int32 if n < 2**31 else np.int64)
    pins[indptr[:-1]] = kept % n
    pins[np.arange(len(net)) + number[net[order]] + 1] = worker[order]
    return HypergraphModel(
        weights=1 + np.bincount(worker, minlength=n),
        indptr=indptr,
        pins=pins,
        owners=kept % n,
        folds=kept >= n,
    )


Description = RowModel | GraphModel | HypergraphModel
"""The symmetrised graph of M; and its rows alone, for tools that do not look at the arcs."""


_PROBES = 5
# Where theta is left open: no more than this is drawn, if a larger theta will do with less.
THETA = 0.02
MOST_BATCHES, _MOST_PINS = 20_000, 1 << 29
_MOST_TO_START = 1 << 23  # pins, where what is made of them is refined without any sample
_MAX_PINS = 2**31 - 1
# Nets that wait to be merged into the others, in pins.
PENDING_PINS = 1 << 23


def nets_needed(k: int, theta: float, delta: float) -> int:
    """Nets whose mean connectivity is within θ of the expected one with probability 1 − δ.

    Hoeffding's inequality for connectivities in 1..k (Demirci et al. 2022, equation 14):
    |N| ≥ (k − 1)² / (2θ²) · ln(2/δ). It holds for a partition chosen before the nets are drawn;
    one that is fitted to them needs more. θ > 0 and 0 < δ < 1 are checked.
    """
    require(0 < theta < math.inf, f"theta = {theta}: the error of the mean connectivity is above 0")
    require(0 < delta < 1, f"delta = {delta}: a probability between 0 and 1")
    return math.ceil((k - 1) ** 2 / (2 * theta**2) * math.log(2 / delta))


def settle(graph: Graph, direction: str, k: int, seed: int, options: Settings) -> Settings:
    """The options of the model with everything decided that they left open.

    ``batch`` becomes a number of vertices. Where ``batches`` is 0, it becomes b = ⌈|N| / mean nets
    per batch⌉ with |N| from :func:`nets_needed` and the mean over a few batches. Nets of one pin,
    whose connectivity is 1 under every partition, are not counted. With nets of all vertices, b is
    rounded up to whole epochs. A sampler that draws other than by vertices makes nets of its
    batches alone. A hypergraph that would be too large is refused.
    """
    theta, delta = float(options["theta"]) or THETA, float(options["delta"])
    wanted, batches = nets_needed(k, theta, delta), int(options["batches"])
    told = f"batches = {batches}: a number, or 0 for what theta and delta ask for"
    require(batches >= 0, told)
    if options["sampler"] != "vertex":
        options = {**options, "owners": "batch"}
    sampler, drawn = _drawn(graph, direction, seed, options)
    if batches == 0:
        probes = list(islice(drawn, _PROBES))
        nets, pins = np.mean([(len(one.owners), len(one.pins)) for one in probes], 0).tolist()
        epoch = sampler.batches if options["owners"] == "all" else 1
        if not options["theta"] and nets:
            # A larger theta, rather than hours: an epoch of batches at least.
            bound = _MOST_PINS if share_of_vertices(graph.n, options) is None else _MOST_TO_START
            most = max(min(MOST_BATCHES, bound // max(pins, 1)), epoch)
            reached = theta * math.sqrt(wanted / (most * nets))
            if reached > theta:
                theta = float(f"{reached:.2g}")
                wanted = min(wanted, math.floor(most * nets))
        batches = math.ceil(wanted / nets) if nets else 1
        batches = -(-batches // epoch) * epoch
        if pins * batches > _MAX_PINS:
            asked = f"theta = {theta:g} and delta = {delta:g} ask for {wanted:,} nets"
            many = f"{asked}: {batches:,} batches of {pins:,.0f} pins are too many"
            raise UserError(many, "choose a larger theta, or give the number of batches")
        options = {**options, "theta": theta}
    return {**options, "batch": str(sampler.size), "batches": max(batches, 1)}


def share_of_vertices(n: int, options: Settings) -> float | None:
    """The probability that a vertex is in a batch, given one; None where they come together."""
    if options["sampler"] != "vertex":
        return None
    return max(1, sampling.batch_size(str(options["batch"]), n) - 1) / max(1, n - 1)


def stochastic_model(
    graph: Graph, direction: str, *, seed: int, batches: int, **options: Setting
) -> HypergraphModel:
    """The hypergraphs of ``batches`` mini-batches, merged.

    The vertices are those of the graph, weighing what they weigh in a full batch. For each vertex
    j that a batch reads (and layer, where layers differ) there is a net of j, its owner, and the
    vertices whose rows of M read it there. Nets of one pin are left out, nets with the same owner
    and the same pins become one that costs as many; both happen while batches are drawn, so that
    memory holds the distinct nets and a bounded number of others. The options are those of
    :func:`partition.graph.sampling.make_sampler`, and ``owners``, "all" or "batch".
    """
    merged = _nets(Pattern(np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int32)))
    pending, waiting = list[_Nets](), 0
    for nets in islice(_drawn(graph, direction, seed, options)[1], batches):
        pending.append(nets)
        waiting += len(nets.pins)
        if waiting > max(PENDING_PINS, len(merged.pins) // 2):
            merged, pending, waiting = _merge([merged, *pending]), [], 0
            if len(merged.pins) > _MAX_PINS:
                what = f"{batches} batches have more than {_MAX_PINS} pins"
                raise UserError(what, "choose a larger theta, fewer or smaller batches")
    merged = _merge([merged, *pending])
    of_nets = merged.indptr, merged.pins, merged.costs, merged.owners
    return HypergraphModel(row_sizes(graph, direction), *of_nets)


@dataclass(frozen=True)
class _Nets:
    """Nets with sorted pins, their owners and costs, and two hashes of owner and pins."""

    owners: np.ndarray
    indptr: np.ndarray
    pins: np.ndarray
    costs: np.ndarray
    codes: np.ndarray  # (2, nets) uint64


def _drawn(
    graph: Graph, direction: str, seed: int, options: Settings
) -> tuple[sampling.Sampler, Iterator[_Nets]]:
    """The sampler of mini-batches, and the nets of one after the other.

    Nets of all vertices: batch by batch of one epoch after the other. Nets of the batch's own
    vertices: the first batch of each epoch, so independent draws.
    """
    own = sampling.stream_seed(seed, sampling.MODEL)
    name, size, fanouts = (str(options[key]) for key in ("sampler", "batch", "fanouts"))
    sampler = sampling.make_sampler(name, graph.n, size, own, fanouts)
    side = sampling.sides(graph, direction, sampler.side)

    def nets() -> Iterator[_Nets]:
        for number in count():
            if options["owners"] == "all":  # every column of M, with its rows in the batch
                inside = np.zeros(sampler.n, bool)
                inside[sampler.members(*divmod(number, sampler.batches))] = True
                entry = np.flatnonzero(inside[side.other])
                indptr = np.searchsorted(entry, side.indptr)
                yield _nets(Pattern(np.arange(sampler.n), indptr, side.other[entry]))
            else:
                yield _joined([*map(_nets, sampler.patterns(side, number, 0))])

    return sampler, nets()


def _nets(pattern: Pattern) -> _Nets:
    """The nets of more than one pin: each column's rows and its owner."""
    sizes = np.diff(pattern.indptr)
    place = np.repeat(np.arange(len(sizes)), sizes)
    other = pattern.rows != pattern.columns[place]
    place, rows = place[other], pattern.rows[other]
    # Every owner joins its net; sorted, so that equal nets have equal pins.
    kept = np.flatnonzero(np.bincount(place, minlength=len(sizes)))
    place = np.concatenate([place, kept])
    pins = np.concatenate([rows, pattern.columns[kept].astype(rows.dtype)])
    order = np.lexsort((pins, place))
    pins, place = pins[order], place[order]

    owners = pattern.columns[kept]
    indptr = pointers(np.bincount(place, minlength=len(sizes))[kept])
    codes = np.empty((2, len(kept)), np.uint64)
    for half in range(2):
        hashed = np.add.reduceat(mixed(pins, key(half)), indptr[:-1]) if len(kept) else codes[half]
        codes[half] = mixed(hashed ^ mixed(owners, key(half, 1)), key(half, 2))
    return _Nets(owners, indptr, pins, np.ones(len(kept), np.int64), codes)


def _joined(pieces: list[_Nets]) -> _Nets:
    if len(pieces) == 1:
        return pieces[0]
    indptr = pointers(np.concatenate([np.diff(piece.indptr) for piece in pieces]))
    owners, pins, costs, codes = (
        np.concatenate([getattr(piece, name) for piece in pieces], -1)
        for name in ("owners", "pins", "costs", "codes")
    )
    return _Nets(owners, indptr, pins, costs, codes)


def _merge(pieces: list[_Nets]) -> _Nets:
    """The distinct nets, in order of owners; the costs of equal ones added.

    Nets are taken for equal where 128 bits of hash are, and then compared pin by pin; any that
    differed nevertheless would stay a net of its own.
    """
    nets = _joined(pieces)
    order = np.lexsort((*nets.codes, nets.owners))
    owners, codes = nets.owners[order], nets.codes[:, order]
    sizes = np.diff(nets.indptr)[order]
    first = first_of_equals(owners, *codes)
    group = np.cumsum(first) - 1
    leader = np.flatnonzero(first)[group]

    copy = np.flatnonzero(~first & (sizes == sizes[leader]))
    one, lengths = segments(nets.indptr, order[copy])
    two, _ = segments(nets.indptr, order[leader[copy]])
    unequal = nets.pins[one] != nets.pins[two]
    differs = np.zeros(len(copy), bool)
    if len(copy):
        differs = np.logical_or.reduceat(unequal, np.cumsum(lengths) - lengths)
    alone = ~first
    alone[copy[~differs]] = False
    keep = np.flatnonzero(first | alone)

    target = np.where(alone, np.arange(len(order)), leader)
    costs = np.zeros(len(order), np.int64)
    np.add.at(costs, target, nets.costs[order])
    place, counts = segments(nets.indptr, order[keep])
    return _Nets(owners[keep], pointers(counts), nets.pins[place], costs[keep], codes[:, keep])
