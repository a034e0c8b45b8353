"""Models in the files of other partitioners: METIS .graph, Scotch .grf, hMETIS .hgr, PaToH .u.

All are lines of decimal numbers; Arrow composes them, a bounded piece at a time, since a loop over
10⁸ pins would take hours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from partition.backends import check_options
from partition.backends.catalogue import MODELS, describe, settled, unknown_model
from partition.errors import UserError, check_name
from partition.graph.graph import chunks
from partition.graph.sampling import pointers
from partition.graph.store import open_graph
from partition.locks import check_outside_graphs
from partition.models.descriptions import Description, GraphModel, HypergraphModel
from partition.pipeline import balance as demands
from partition.records import atomic_file

FORMATS = {
    "metis": "METIS, ParMETIS, KaHIP, Scotch's gpart: an undirected graph",
    "scotch": "PT-Scotch's dgpart: the same graph, one weight per vertex",
    "hmetis": "hMETIS, KaHyPar, Mt-KaHyPar: a hypergraph, one weight per vertex",
    "patoh": "PaToH, Zoltan: a hypergraph",
}
_GRAPHS = ("metis", "scotch")
_ONE_WEIGHT = {"scotch": "METIS", "hmetis": "PaToH"}  # and the format that takes several
PIECE = 1 << 20


def export_model(
    path: str | os.PathLike[str],
    file: str | os.PathLike[str],
    format: str,
    model: str | None = None,
    *,
    k: int | None = None,
    seed: int = 0,
    direction: str | None = None,
    balance: str = demands.DEFAULT_BALANCE,
    overwrite: bool = False,
    **options: Any,
) -> dict[str, object]:
    """Write a model of the graph folder ``path`` for another program.

    The model is by default gp for METIS and Scotch, hp for the others; only shp depends on k. For
    ``seed``, ``direction``, ``balance`` and the options of the model see
    :func:`partition.pipeline.adding.add_partition`. Bad arguments are refused before anything is
    written.

    Returns
    -------
    dict
        ``file``, ``format``, ``model``, ``direction``, ``options``, ``vertices``, ``constraints``;
        ``nets`` and ``pins``, or ``edges``; ``bytes``.
    """
    check_name("format", format, FORMATS)
    stored = open_graph(path)
    direction = stored.direction(direction)
    model = model or ("gp" if format in _GRAPHS else "hp")
    if model not in MODELS:
        raise unknown_model(model)
    settings = check_options(model, MODELS[model].options, options, "model")
    if k is None and MODELS[model].settle is not None:
        raise UserError(f"the model {model!r} depends on the number of parts", "give -k")
    names = demands.parse_balance(balance)
    if Path(file).exists() and not overwrite:
        raise UserError(f"{file} is there already", "choose another name or give --force")
    demands.check_seed(seed)
    if k is not None and not 1 <= k <= stored.manifest.n:
        raise UserError(f"k = {k} is not in 1..{stored.manifest.n}, the number of vertices")

    graph = stored.merged
    settings = settled(graph, model, k or 1, seed, direction, settings)
    described = describe(graph, model, k or 1, seed=seed, direction=direction, **settings)
    weights = demands.constraint_weights(graph, direction, names)
    write_model(file, described, format, weights)
    facts: dict[str, object] = {
        "file": str(file), "format": format, "model": model, "direction": direction,
        "options": settings, "vertices": graph.n,
        "constraints": list(demands.single_constraints(graph, names)),
    }  # fmt: skip
    if isinstance(described, GraphModel):
        facts["edges"] = len(described.indices) // 2
    elif isinstance(described, HypergraphModel):
        facts |= {"nets": described.nets, "pins": int(described.indptr[-1])}
    return facts | {"bytes": Path(file).stat().st_size}


def write_model(
    file: str | os.PathLike[str], model: Description, format: str, weights: np.ndarray | None = None
) -> None:
    """Write a model for another program: all of the file, or nothing.

    Vertices are numbered from 0 in PaToH files, from 1 in the others. ``weights``, (constraints, n)
    integers, are by default those of the model; METIS and PaToH take several a vertex.
    """
    check_name("format", format, FORMATS)
    kind = GraphModel if format in _GRAPHS else HypergraphModel
    if not isinstance(model, kind):
        hypergraph = "a hypergraph (--model hp, mg, shp)"
        wanted = "a graph (--model gp)" if format in _GRAPHS else hypergraph
        raise UserError(f"a {format} file holds {wanted}")
    weights = np.asarray(model.weights[np.newaxis] if weights is None else weights)
    if format in _ONE_WEIGHT and len(weights) > 1:
        hint = f"balance one thing, or write a {_ONE_WEIGHT[format]} file"
        raise UserError(f"a file of format {format} has one weight per vertex", hint)
    check_outside_graphs(file)
    several = f" {len(weights)}" if len(weights) > 1 else ""
    with atomic_file(file) as out:
        if isinstance(model, GraphModel):
            _write_graph(out, model, weights, format, several)
        elif isinstance(model, HypergraphModel):
            _write_hypergraph(out, model, weights, format, several)


def _write_graph(
    out: IO[bytes], model: GraphModel, weights: np.ndarray, format: str, several: str
) -> None:
    """METIS: ``n edges 010 [constraints]``, then of each vertex its weights and its neighbours.

    Scotch: ``0``, ``n arcs``, ``1 001``; of each vertex its weight, how many neighbours, and these.
    """
    degrees = np.diff(model.indptr)
    head = f"{len(degrees)} {len(model.indices) // 2} 010{several}"
    if format == "scotch":
        head = f"0\n{len(degrees)} {len(model.indices)}\n1 001"
        weights = np.vstack((weights, degrees))
    out.write(f"{head}\n".encode())
    out.writelines(_lines(model.indptr, model.indices, 1, weights))


def _write_hypergraph(
    out: IO[bytes], model: HypergraphModel, weights: np.ndarray, format: str, several: str
) -> None:
    """Of each net [its cost and] its pins, then the weights of each vertex, behind a head.

    hMETIS: ``nets n 1[1|0]``; PaToH: ``0 n nets pins 1|3 [constraints]``, pins from 0 on.
    """
    n, plain = weights.shape[1], model.costs is None
    head = f"{model.nets} {n} {10 if plain else 11}"
    if format == "patoh":
        head = f"0 {n} {model.nets} {int(model.indptr[-1])} {1 if plain else 3}{several}"
    costs = np.empty((0, model.nets), np.int64)
    costs = costs if model.costs is None else np.asarray(model.costs)[np.newaxis]
    out.write(f"{head}\n".encode())
    out.writelines(_lines(model.indptr, model.pins, int(format == "hmetis"), costs))
    out.writelines(_lines(np.zeros(n + 1, np.int64), model.pins[:0], 0, weights))


def _lines(
    indptr: np.ndarray, indices: np.ndarray, base: int, before: np.ndarray
) -> Iterator[bytes]:
    """A line per row of a pattern: the row's numbers of ``before``, then its indices + base."""
    import pyarrow as pa  # here, since most commands would wait for it
    import pyarrow.compute as pc

    ahead = len(before)
    # So that a piece has at most PIECE numbers (but for a single row of more).
    cost = np.asarray(indptr) + ahead * np.arange(len(indptr))
    for first, last in chunks(cost, PIECE):
        sizes = np.diff(indptr[first : last + 1])
        ends = pointers(sizes + ahead)
        numbers = np.empty(ends[-1], np.int64)
        front = (ends[:-1, np.newaxis] + np.arange(ahead)).ravel()
        numbers[front] = before[:, first:last].T.ravel()
        rest = np.ones(len(numbers), bool)
        rest[front] = False
        numbers[rest] = indices[indptr[first] : indptr[last]]
        numbers[rest] += base
        words = pa.array(numbers).cast(pa.string())
        lines = pc.binary_join(pa.LargeListArray.from_arrays(ends, words), " ")
        yield "\n".join([*lines.to_pylist(), ""]).encode()
