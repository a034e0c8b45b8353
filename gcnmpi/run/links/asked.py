"""``gcnmpi score``: scores of pairs that a user gives, and the best partners of vertices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gcnmpi.mpi.comm import Comm, agreed, from_root, maximum, redistribute, slice_of
from gcnmpi.options.requests import ScoreRequest
from gcnmpi.options.task import LinkOptions
from gcnmpi.run.inference import SCORES, Computed, Inference, compute
from gcnmpi.run.links.partners import NOBODY, best_partners
from gcnmpi.run.links.scoring import Decoder, of_decoder
from gcnmpi.run.results import Rows, check_writable, deliver, on_root, write_table
from gcnmpi.run.vertices import called, picked_vertices
from partition.errors import UserError, unknown_name
from partition.graph.graph import MASKS
from partition.graph.relations import number_relations
from partition.graph.store import StoredGraph, open_graph
from partition.graph.vertex_pairs import list_pairs, read_pairs

Tell = Callable[[str], None]
ALL = "all"  # vertices
AT_ONCE = 1 << 20  # pairs of a rank that are scored at a time


def score_pairs(comm: Comm, asked: ScoreRequest, tell: Tell = lambda line: None) -> Inference:
    """The score of each pair, (m,) of the run's dtype, in the order in which they are given.

    ``tell``: see :func:`gcnmpi.run.inference.infer`. On all ranks a UserError as of
    :func:`gcnmpi.run.inference.compute`; or if the weights score no pairs, there are no pairs, or
    one has a vertex that the graph does not have.
    """
    check_writable(comm, asked.out)
    with agreed(comm):
        stored = open_graph(asked.graph, check=False)
    name = from_root(comm, lambda: _name_of_set(stored, asked))
    mine, relations, count = _share(comm, stored, asked, name)
    done = compute(comm, _for_scores(asked, name), tell)
    problem, decoder = done.problem, Decoder(done.problem)
    with agreed(comm):
        if decoder.relations > 1 and relations is None:
            raise UserError(
                f"{asked.weights} tells relations apart, and the pairs have none",
                "give --columns source,relation,target, or the name of pairs in the folder",
            )
        largest = -1 if relations is None else int(relations.max(initial=-1))
        if largest >= decoder.relations > 1:
            raise UserError(
                f"{asked.weights} knows {decoder.relations} relations, and a pair is of "
                f"relation {largest}"
            )
    parameters, rows = of_decoder(problem, done.weights.parameters), done.result.array
    scores = np.empty(len(mine), problem.runtime.kernel.dtype)
    for start in range(0, int(maximum(comm, len(mine))), AT_ONCE):
        some = mine[start : start + AT_ONCE]
        of = None if relations is None else relations[start : start + AT_ONCE]
        keys = np.zeros(len(some), np.uint64)
        placed = decoder.place(some, keys, [], lasts=False, home=True, relations=of)
        passes = decoder.scored(placed, rows, parameters).passes
        assert placed.home is not None
        found = problem.runtime.kernel.to_host(passes.evaluate())[:, 0]
        scores[start : start + AT_ONCE] = placed.home.bring(found)
    own = slice_of(count, comm.rank, comm.size)
    all_rows = Rows(np.arange(own.start, own.stop), np.arange(len(mine)), scores, count)
    limit = problem.config.loading.max_bytes
    named = {"column": "score", "name": "score"}
    whole = deliver(comm, asked.out, all_rows, None, limit, **named)
    return _inference(done, all_rows.shape, scores.dtype, whole)


def top_partners(
    comm: Comm, asked: ScoreRequest, tell: Tell = lambda line: None
) -> tuple[Inference, dict[str, np.ndarray] | None]:
    """The best partners of vertices: see :func:`gcnmpi.run.links.partners.best_partners`.

    Returns
    -------
    inference : Inference
    columns : dict of three arrays, or None
        On rank 0, where no file is to be written: "vertex", "partner" and "score", a row for each
        vertex that is given and each of its partners, the best one first. Vertices are called as in
        the source of the graph.

    Raises
    ------
    UserError
        As :func:`score_pairs`; or if there are fewer than K other vertices, or one is not of the
        type that the relation leads from.
    """
    check_writable(comm, asked.out)
    with agreed(comm):
        stored = open_graph(asked.graph, check=False)
    picked = from_root(comm, lambda: _vertices(stored, asked))
    done = compute(comm, _for_scores(asked, None), tell)
    problem = done.problem
    with agreed(comm):
        decoder = problem.network.decoder
        relation = _relation(stored, asked, 1 if decoder is None else decoder.relations)
        vertices = _sources(stored, picked, relation)
    parameters, rows = of_decoder(problem, done.weights.parameters), done.result.array
    numbers, best = best_partners(
        problem, rows, parameters, vertices, asked.top or 0, asked.with_arcs, relation
    )
    limit, places = problem.config.loading.max_bytes, np.arange(len(numbers))
    partners, scores = (
        on_root(comm, Rows(numbers, places, each, len(vertices)), limit)
        for each in (best.partners, best.scores)
    )

    def columns() -> tuple[dict[str, np.ndarray] | None, int]:
        assert partners is not None
        assert scores is not None
        there, ids = partners != NOBODY, stored.graph.ids
        ends = np.repeat(vertices, there.sum(axis=1)), partners[there]
        named = ends if ids is None else tuple(np.asarray(ids)[each] for each in ends)
        table = dict(zip(("vertex", "partner", "score"), (*named, scores[there]), strict=True))
        if asked.out is None:
            return table, len(ends[0])
        write_table(table, asked.out)
        return None, len(ends[0])

    table, count = None, 0
    with agreed(comm):
        if comm.rank == 0:
            table, count = columns()
    return _inference(done, (comm.bcast(count), 3), best.scores.dtype), table


def _inference(
    done: Computed, shape: tuple[int, ...], dtype: np.dtype, values: np.ndarray | None = None
) -> Inference:
    problem = done.problem
    direction = problem.source.direction
    facts = done.weights, problem.config, direction, shape, dtype, done.memory, values
    return Inference(*facts, problem.told)


def _for_scores(asked: ScoreRequest, name: str | None) -> ScoreRequest:
    """The rows that scores are made of; the arcs that a set of pairs holds out are left out of M.

    It is the set that is scored, if the user names no other one.
    """
    config, given = asked.config, set(asked.given)
    if name is not None and isinstance(config.task, LinkOptions) and "task.pairs" not in given:
        config = dataclasses.replace(config, task=dataclasses.replace(config.task, pairs=name))
        given.add("task.pairs")
    return dataclasses.replace(asked, config=config, given=given, what=SCORES)


def _name_of_set(stored: StoredGraph, asked: ScoreRequest) -> str | None:
    """The set of pairs in the folder that is named; None: a file or an array."""
    pairs, sets = asked.pairs, list_pairs(stored.path)
    if not isinstance(pairs, str | Path):
        if asked.of:
            raise UserError("of names a part of a set of pairs in the folder", "leave it out")
        return None
    if asked.of and asked.of not in MASKS:
        raise unknown_name("part of a set of pairs", asked.of, MASKS)
    name = str(pairs)
    if name in sets and (asked.of or not Path(pairs).is_file()):
        return name
    if asked.of:
        raise unknown_name(f"set of pairs of {stored.path}", name, sets)
    if not Path(pairs).exists():
        there = f"; it has the sets {', '.join(sets)}" if sets else ""
        raise UserError(
            f"{name} is no file, and no set of pairs of {stored.path}",
            f"give a table or an .npy of two vertices a row{there}",
        )
    return None


def _share(
    comm: Comm, stored: StoredGraph, asked: ScoreRequest, name: str | None
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """This rank's share of the pairs, (m/P, 2) int64, their relations, and how many there are.

    Rank 0 reads them: an order of lines is that of one process. The relations are (m/P,) int64;
    None where pairs have none.
    """
    found, counts = np.zeros((0, 2), np.int64), np.zeros(0, np.int64)
    relations, told = np.zeros(0, np.int64), False
    with agreed(comm):
        if comm.rank == 0:
            read, of = _given(stored, asked, name)
            found, told = np.ascontiguousarray(read, np.int64), of is not None
            relations = np.zeros(len(found), np.int64) if of is None else of.astype(np.int64)
            slices = [slice_of(len(found), rank, comm.size) for rank in range(comm.size)]
            counts = np.array([some.stop - some.start for some in slices])
    destination = np.repeat(np.arange(len(counts)), counts)
    limit = asked.config.loading.max_bytes
    (mine, of_mine), _ = redistribute(comm, destination, [found, relations], limit)
    return mine, of_mine if comm.bcast(told) else None, comm.bcast(len(found))


def _given(
    stored: StoredGraph, asked: ScoreRequest, name: str | None
) -> tuple[np.ndarray, np.ndarray | None]:
    from partition.importing.pair_files import listed_pairs, vertices_of  # it imports Arrow

    relations = None
    if name is not None:
        mask, pairs = asked.of or "test", read_pairs(stored.path, name)
        found, where = pairs.positives[mask], f"{name}, {mask}"
        relations = pairs.relations.get(mask)
    elif isinstance(asked.pairs, str | Path):
        where = str(asked.pairs)
        found, relations = listed_pairs(Path(where), stored.graph, asked.columns)
    else:
        found, where = np.asarray(asked.pairs), "pairs"
        if found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iuU":
            raise UserError(
                f"pairs are vertices in the shape (m, 2), not {found.dtype} {found.shape}"
            )
        found = vertices_of(found, stored.graph, where)
    if not len(found):
        raise UserError(f"{where}: there are no pairs")
    return found, relations


def _relation(stored: StoredGraph, asked: ScoreRequest, count: int) -> int | None:
    """The number of the relation of partners; None: none is named, of ``count`` that scores know.

    Scores that know one only may have partners by a relation, too: its types and its arcs.
    """
    weights, name = asked.weights, asked.relation
    names = ", ".join(map(str, stored.graph.relations)) or f"0 to {count - 1}"
    if count <= 1 and name is None:
        return None
    if name is None:
        raise UserError(
            f"{weights} tells relations apart: a vertex has other partners by each",
            f"name one: --relation, of {names}",
        )
    if count <= 1 and not stored.graph.relations:
        raise UserError(
            f"{weights} does not tell relations apart, nor does the graph", "leave out --relation"
        )
    given = np.array([int(name) if name.isdecimal() and not stored.graph.relations else name])
    if given.dtype.kind == "U" and not stored.graph.relations:
        raise UserError(f"--relation {name}: the graph has no names of relations", f"take {names}")
    number = int(number_relations({"": given}, "--relation", stored.graph.relations)[0][""][0])
    if number >= count > 1:
        raise UserError(f"{weights} knows {count} relations, and --relation {name} is {number}")
    return number


def _sources(stored: StoredGraph, picked: np.ndarray | None, relation: int | None) -> np.ndarray:
    """The vertices that get partners, (q,) int64: those that are picked, or all of the type."""
    graph, every = stored.graph, range(stored.manifest.n)
    if relation is not None and graph.vertex_types is not None:
        every = graph.vertex_types.range(graph.relations[relation].source)
    if picked is None:
        return np.arange(every.start, every.stop)
    wrong = (picked < every.start) | (picked >= every.stop)
    if wrong.any():
        first = int(picked[wrong.argmax()])
        name, one = first if graph.ids is None else graph.ids[first], graph.relations[relation or 0]
        raise UserError(
            f"vertex {name} has no partners by {one}: it is no {one.source}",
            f"name vertices of the type {one.source}, or another --relation",
        )
    return picked


def _vertices(stored: StoredGraph, asked: ScoreRequest) -> np.ndarray | None:
    """The vertices that get partners, (q,) int64; None: all."""
    n, k = stored.manifest.n, asked.top or 0
    vertices = ALL if asked.vertices is None else asked.vertices
    if not 1 <= k < n:
        raise UserError(
            f"{k} partners of each vertex: {stored.path} has {n} vertices",
            f"a number from 1 to {n - 1}",
        )
    if isinstance(vertices, str):
        if vertices == ALL:
            return None
        if Path(vertices).is_file():
            vertices = Path(vertices)
        else:
            words = enumerate((word.strip() for word in vertices.split(",")), start=1)
            picked = called(stored, words, "vertices, word")
            return _some(picked, vertices)
    if not isinstance(vertices, Path):
        vertices = np.asarray(vertices)
    return _some(picked_vertices(stored, vertices), vertices)


def _some(picked: np.ndarray, given: object) -> np.ndarray:
    if not len(picked):
        raise UserError(f"vertices {given}: there are none")
    return picked
