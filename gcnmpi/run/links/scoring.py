"""Scores of pairs of vertices from the rows that a network gives them, and gradients of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from gcnmpi.core.volume import NOTHING, Volume, all_reduce
from gcnmpi.halo.pairs import ScoredPairs, in_order, place_pairs, who_scores
from gcnmpi.halo.plan import Plan
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.kernels.rows import entry_rows
from gcnmpi.layout.entries import RELATION
from gcnmpi.layout.loading import places_of
from gcnmpi.mpi.comm import redistribute, reduce_in_place, slice_of
from gcnmpi.nn.compile.on_scheme import decoder_program
from gcnmpi.nn.decoders import OFFSET, TABLE, symmetric
from gcnmpi.nn.model import Passes
from gcnmpi.nn.program import FEATURES, Program, products
from gcnmpi.options.task import OF_RELATIONS, LinkOptions
from gcnmpi.run.problem import Problem
from gcnmpi.schemes.operations import EXCHANGES
from gcnmpi.schemes.row_scheme import RowScheme
from gcnmpi.schemes.scored import PairScheme
from partition.graph.vertex_pairs import PairSet

AT_ONCE = 1 << 21  # numbers of rows that are multiplied at once


@dataclass(frozen=True)
class Scored:
    """Pairs that a rank scores, and the passes of the decoder over them.

    Attributes
    ----------
    pairs : ScoredPairs
    passes : Passes
    scheme : PairScheme
    """

    pairs: ScoredPairs
    passes: Passes
    scheme: PairScheme


class Decoder:
    """The decoder of a problem's network, on all ranks together.

    Attributes
    ----------
    program : Program
    symmetric : bool
        Whether a pair has the same score both ways.
    relations : int
        How many relations it tells apart; 0: it reads none.
    """

    def __init__(self, problem: Problem) -> None:
        task = problem.config.task
        assert isinstance(task, LinkOptions)
        self.program: Program = decoder_program(problem.network)
        assert problem.network.decoder is not None, "a network of another task"
        self.relations = problem.network.decoder.relations
        self.symmetric, self._problem = symmetric(task), problem
        self.own, self.parts, self.places = rows_of(problem)
        steps = (*self.program.forward, *self.program.backward), self.program.evaluation
        self._exchanged = [
            [each for each in products(self.program, some, lambda place: 0) if each[0] in EXCHANGES]
            for some in steps
        ]

    def place(
        self,
        pairs: np.ndarray,
        keys: np.ndarray,
        given: list[np.ndarray],
        lasts: bool,
        home: bool = False,
        relations: np.ndarray | None = None,
    ) -> ScoredPairs:
        """Bring pairs to the ranks that score them: see :func:`gcnmpi.halo.pairs.place_pairs`.

        Their keys are the last of what is given, before them their relations, where the decoder
        reads these; ``lasts``: whether they stay for many steps.
        """
        if self.relations:
            given = [*given, self.kinds(relations, len(pairs))]
        runtime, limit = self._problem.runtime, self._problem.config.loading.max_bytes
        who = who_scores(self.symmetric, lasts)
        facts = runtime.comm, self.own, self.parts, self.places, pairs
        rest = [*given, keys], who, limit, runtime.traffic if home else None
        return place_pairs(*facts, *rest)

    def scored(
        self,
        pairs: ScoredPairs,
        rows: Array,
        parameters: Mapping[str, Array],
        training: tuple[Mapping[str, Array], Array] | None = None,
        lasts: bool = False,
        together: bool = True,
    ) -> Scored:
        """The passes of pairs.

        Parameters
        ----------
        rows : (nown, width) array
            The rank's own rows of vertices; others may take their place in its memory.
        parameters : Parameters
            Of the whole network.
        parameters : mapping of str to array
            Those of the decoder; there may be others.
        training : (mapping of str to array, (nown, width) array), optional
            Where the gradients go, and that of the rows; None: an evaluation.
        lasts : bool
            Whether there will be many passes.
        together : bool
            Whether all ranks call it together; else the pairs need nothing of others.
        """
        problem = self._problem
        runtime, config = problem.runtime, problem.config
        total = np.array([pairs.pattern.nnz])
        if together:
            reduce_in_place(runtime.comm, total)
        scheme = PairScheme(runtime, config, pairs, pairs.given[-1], int(total[0]), lasts)
        gradients: dict[str, Array] = {}
        if training is not None:
            gradients = {**training[0], FEATURES: training[1]}
        arcs = self._arcs(pairs)
        passes = Passes(
            scheme, runtime.kernel, self.program, config.train.seed, lambda place: int(total[0]),
            rows, {**parameters, FEATURES: rows}, gradients,
            ("evaluation" if training is None else "training",),
            arcs=lambda given, place: arcs[given],
        )  # fmt: skip
        return Scored(pairs, passes, scheme)

    def kinds(self, relations: np.ndarray | None, count: int) -> np.ndarray:
        """The relations of pairs, (count,) int32, as far as the decoder tells them apart."""
        if relations is None or self.relations == 1:
            return np.zeros(count, np.int32)
        return relations.astype(np.int32)

    def _arcs(self, pairs: ScoredPairs) -> dict[str, Array]:
        """The rows of pairs that the program reads."""
        if not self.relations:
            return {}
        kernel = self._problem.runtime.kernel
        column = pairs.given[-2][:, np.newaxis].astype(kernel.dtype)
        return {RELATION: kernel.from_host(column)}

    def volume(self, scored: Scored, backward: bool) -> Volume:
        """The volume of one evaluation, or of a training pass and its way back."""
        every = self._exchanged[0 if backward else 1]
        return sum((scored.scheme.volume(*each) for each in every), NOTHING)


class KnownPairs:
    """The pairs to be learned of which this rank owns an end, to recognise them by.

    With their relations, where the decoder tells these apart.
    """

    def __init__(self, problem: Problem, decoder: Decoder, n: int) -> None:
        comm, pairs = problem.runtime.comm, pairs_of(problem)
        every = pairs.positives["train"]
        mine = slice_of(len(every), comm.rank, comm.size)
        ends = np.asarray(every[mine], np.int64)
        self._n, self._relations = n, decoder.relations
        relations = np.zeros(len(ends), np.int64)
        if self._relations > 1 and pairs.relations:
            relations += pairs.relations["train"][mine]
        both = [ends]
        if decoder.symmetric or not pairs.directed:
            both.append(ends[:, ::-1])
        limit, found = problem.config.loading.max_bytes, []
        for of in both:
            to = decoder.parts[of[:, 0]]
            (of, kinds), _ = redistribute(comm, to, [of, relations], limit)
            found.append(self._numbered(of[:, 0], of[:, 1], kinds))
        self._keys = np.unique(np.concatenate(found))

    def among(self, pairs: ScoredPairs) -> np.ndarray:
        """Which of the pairs that this rank scores are known, (entries,) bool."""
        pattern, ids = pairs.pattern, pairs.ids.astype(np.int64)
        rows = entry_rows(pattern.indptr)
        relations = pairs.given[-2] if self._relations else np.zeros(len(rows), np.int64)
        wanted = self._numbered(ids[rows], ids[pattern.indices], relations)
        if not len(self._keys):
            return np.zeros(len(wanted), bool)
        places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.asarray(self._keys[places] == wanted)

    def _numbered(self, u: np.ndarray, v: np.ndarray, relations: np.ndarray) -> np.ndarray:
        return (u * self._n + v) * max(1, self._relations) + relations


def pairs_of(problem: Problem) -> PairSet:
    """The pairs that the task names; the arcs of those held out have left M."""
    pairs = problem.source.stored.pairs
    assert pairs is not None, "opened for another task"
    return pairs


def of_decoder(problem: Problem, whole: Mapping[str, np.ndarray]) -> dict[str, Array]:
    """The parameters of the decoder, as the kernel takes them, of whole ones of the network."""
    decoder, kernel = problem.network.decoder, problem.runtime.kernel
    assert decoder is not None, "a network of another task"
    return {name: kernel.from_host(whole[name]) for name in decoder.parameters}


def rows_of(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rank's own vertices, in the order of its rows; owners of all, and their numbers there.

    The last two are in memory that the ranks of a node share.
    """
    scheme = problem.scheme
    assert isinstance(scheme, RowScheme)
    rows, limit = scheme.own_rows, problem.config.loading.max_bytes
    return rows.vertices, rows.parts, places_of(problem.runtime.comm, rows, limit)


class LocalScores:
    """Scores of pairs whose rows this rank has all: own ones, and some that were sent to all ranks.

    Parameters
    ----------
    decoder : Decoder
    own : (nown, width) array
    parameters : mapping of str to array
        Those of the decoder; there may be others.
    sent : int
        How many rows of others there may be.
    """

    def __init__(
        self,
        problem: Problem,
        decoder: Decoder,
        own: Array,
        parameters: Mapping[str, Array],
        sent: int,
    ) -> None:
        kernel = problem.runtime.kernel
        self._problem, self._kernel, self._parameters = problem, kernel, parameters
        self._decoder, self._given = decoder, own
        task = problem.config.task
        assert isinstance(task, LinkOptions)
        self._form, self._host = _form_of(task, parameters, kernel.to_host), kernel.to_host(own)
        if self._form is not None and self._form.p:
            self._host = _of_length_one(self._host)
            self._given = kernel.from_host(self._host)
        self._own = len(own)
        self._sent, self._count = np.empty((sent, own.shape[1]), kernel.dtype), 0
        self._rows: Array | None = None  # own ones and those that were sent

    @property
    def width(self) -> int:
        """Columns of a row."""
        return max(1, self._sent.shape[1])

    def send(self, vertices: np.ndarray) -> None:
        """Send the rows of some vertices, (q,) int64, to all ranks, which call it together.

        They get the numbers nown, nown + 1, … for :meth:`of`.
        """
        runtime, rows = self._problem.runtime, self._sent[: len(vertices)]
        rows[...] = 0
        mine = np.flatnonzero(self._decoder.parts[vertices] == runtime.comm.rank)
        rows[mine] = self._host[self._decoder.places[vertices[mine]]]
        if runtime.comm.size > 1:
            with runtime.phases("reduce"):
                reduce_in_place(runtime.comm, rows)
        runtime.traffic.count(self.volume(len(vertices)))
        self._count = len(vertices)
        if self._rows is not None:
            self._join(self._rows)

    def with_own(
        self,
        some: np.ndarray,
        own: np.ndarray,
        relations: np.ndarray | None = None,
        turned: bool = False,
    ) -> np.ndarray:
        """The scores of some of the rows that were sent, first, with some own ones.

        Numbers of both, (q,) and (m,) → (q, m). ``relations`` are those of the first, (q,);
        ``turned``: own ones are the first of the pairs.
        """
        sent, others = self._sent[some], self._host[own]
        if self._form is not None:
            return self._form.tile(self._form.queries(sent, relations, turned), others)
        first = np.repeat(len(own) + np.arange(len(sent)), len(own))
        second = np.tile(np.arange(len(own)), len(sent))
        rows = self._kernel.from_host(np.concatenate((others, sent)))
        if turned:
            first, second = second, first
        of = None if relations is None else np.repeat(relations, len(own))
        return self._by_passes(rows, first, second, of).reshape(len(sent), len(own))

    def norms(self) -> np.ndarray:
        """The norms of own rows, (nown,) float64, for :meth:`bound`; ∞: scores have no bound."""
        if self._form is None or self._form.p:
            return np.full(self._own, np.inf)
        squares = np.einsum("ij,ij->i", self._host, self._host, dtype=np.float64)
        norms: np.ndarray = np.sqrt(squares)
        return norms

    def bound(self, relations: np.ndarray | None = None) -> tuple[np.ndarray, float]:
        """Numbers a, (q,) float64, and b: no score with an own row x is above a ‖x‖ + b.

        By Cauchy and Schwarz; a is one where scores have no bound. ``relations`` are those of the
        rows that were sent, (q,).
        """
        sent = self._sent[: self._count]
        if self._form is None or self._form.p:
            return np.ones(len(sent)), 0.0
        queries = self._form.queries(sent, relations)
        return np.linalg.norm(queries, axis=1).astype(np.float64), self._form.offset

    def volume(self, count: int) -> Volume:
        """The volume of so many rows that are sent to all ranks."""
        nbytes = count * self._sent.shape[1] * self._sent.dtype.itemsize
        return all_reduce(nbytes, self._problem.runtime.comm.size)

    def of(
        self, first: np.ndarray, second: np.ndarray, relations: np.ndarray | None = None
    ) -> np.ndarray:
        """The scores of pairs of local numbers, (m,) → (m,) of the kernel's dtype."""
        if self._form is None:
            return self._by_passes(self._joined(), first, second, relations)
        rows, found = self._kernel.to_host(self._joined()), np.empty(len(first), self._kernel.dtype)
        step = max(1, AT_ONCE // max(1, rows.shape[1]))
        for start in range(0, len(first), step):
            some = slice(start, start + step)
            of = None if relations is None else relations[some]
            left = self._form.queries(rows[first[some]], of)
            found[some] = self._form.each(left, rows[second[some]])
        return found

    def _joined(self) -> Array:
        """Own rows, and behind them those that were sent."""
        if self._rows is None:
            self._rows = self._kernel.empty(self._own + len(self._sent), self._sent.shape[1])
            self._kernel.copy(self._given, self._rows[: self._own])
            self._join(self._rows)
        return self._rows

    def _join(self, rows: Array) -> None:
        sent = self._kernel.from_host(self._sent[: self._count])
        self._kernel.copy(sent, rows[self._own : self._own + self._count])

    def _by_passes(
        self, rows: Array, first: np.ndarray, second: np.ndarray, relations: np.ndarray | None
    ) -> np.ndarray:
        """By the decoder's program, of which these rows are all rows there are."""
        order, count = in_order(second), len(rows)
        order = order[in_order(first[order])]
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(first, minlength=count), out=starts[1:])
        columns = second[order].astype(np.int32)
        pattern = sp.csr_array((np.ones(len(order), np.int8), columns, starts), (count, count))
        numbers, none = np.arange(count), np.zeros(0, np.int64)
        plan = Plan(numbers, none, none, np.zeros(1, int), none, np.zeros(1, int), none)
        of = self._decoder.kinds(relations, len(order))[order]
        given = [of, np.zeros(len(order), np.uint64)]
        alone = ScoredPairs(plan, pattern, numbers, given, None)
        scored = self._decoder.scored(alone, rows, self._parameters, together=False)
        found = np.empty(len(first), self._kernel.dtype)
        found[order] = self._kernel.to_host(scored.passes.evaluate())[:, 0]
        return found


_DISTANCES = {1: "cityblock", 2: "euclidean"}


@dataclass(frozen=True)
class _Form:
    """A score that is q·y + offset, or offset − ‖q − y‖ₚ, where q depends on the other row.

    Attributes
    ----------
    table : (relations, width) or (1, 1) array
        A row for each relation; one for all, where they are not told apart.
    offset : float
    p : int
        Of a distance, of rows of length 1; 0: a product.
    complex : bool
        Whether columns of rows are [real | imaginary]; then y is the conjugate of the second row.
    """

    table: np.ndarray
    offset: float = 0.0
    p: int = 0
    complex: bool = False

    def queries(
        self, rows: np.ndarray, relations: np.ndarray | None, turned: bool = False
    ) -> np.ndarray:
        """The rows q, (q, width), of the first vertices of pairs; ``turned``: of the second ones.

        ``relations`` are those of the pairs, (q,); None: there is one.
        """
        table = self.table if relations is None or len(self.table) == 1 else self.table[relations]
        found: np.ndarray
        if self.p:
            found = rows - table if turned else rows + table
        elif self.complex:
            half = rows.shape[1] // 2
            (a, b), (c, d) = ((x[:, :half], x[:, half:]) for x in (rows, table))
            d = -d if turned else d  # the conjugate of r
            found = np.hstack((a * c - b * d, b * c + a * d))
        else:
            found = rows * table
        return found

    def tile(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The scores of all pairs of (q, width) and (m, width) rows, (q, m)."""
        scores: np.ndarray
        if self.p:
            from scipy.spatial.distance import cdist  # takes 0.1 s, which most runs are spared

            apart = cdist(queries, others, _DISTANCES[self.p]).astype(others.dtype)
            scores = others.dtype.type(self.offset) - apart
        else:
            scores = queries @ others.T
            scores = scores + scores.dtype.type(self.offset) if self.offset else scores
        return scores

    def each(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The score of each pair of (m, width) rows, (m,)."""
        found: np.ndarray
        if self.p:
            found = -np.linalg.norm(queries - others, ord=self.p, axis=1)
        else:
            found = np.einsum("ij,ij->i", queries, others)
        return found + found.dtype.type(self.offset)


def _of_length_one(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their length, as a network divides them."""
    found: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def _form_of(
    task: LinkOptions, parameters: Mapping[str, object], host: Callable[..., np.ndarray]
) -> _Form | None:
    """The closed form of a task's decoder; None: its score has none.

    ``host`` brings a parameter to memory of the host.
    """
    if task.decoder == "dot":
        return _Form(np.ones((1, 1), np.float32))
    if task.decoder in OF_RELATIONS:
        table = host(parameters[TABLE])
        table = table.reshape(-1, table.shape[-1])
        offset = float(host(parameters[OFFSET])[0]) if OFFSET in parameters else 0.0
        p = task.decoder_p if task.decoder == "transe" else 0
        return _Form(table, offset, p, task.decoder == "complex")
    if task.decoder == "hadamard" and not task.decoder_hidden:
        weight, bias = (f"decoder.lins.0.{name}" for name in ("weight", "bias"))
        offset = float(host(parameters[bias])[0]) if bias in parameters else 0.0
        return _Form(host(parameters[weight]).reshape(1, -1), offset)
    return None
