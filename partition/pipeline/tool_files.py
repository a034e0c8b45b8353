"""Models in the files of other partitioners: METIS .graph, Scotch .grf, hMETIS .hgr, PaToH .u.

All are lines of decimal numbers; Arrow composes them, a bounded piece at a time, since a loop over
10⁸ pins would take hours.
"""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from partition.backends import check_options
from partition.backends.catalogue import MODELS, describe, settled, unknown_model
from partition.errors import UserError, check_name, require
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
    path: str | os.PathLike[str], file: str | os.PathLike[str], format: str,
    model: str | None = None, *, k: int | None = None, overwrite: bool = False, **options: Any,
) -> dict[str, object]:  # fmt: skip
    """Write a model of the graph folder ``path`` for another program.

    The model is by default gp for METIS and Scotch, hp for the others; only shp depends on k. The
    options are ``seed``, ``direction`` and ``balance``, and those of the model: see
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
    recipe = demands.recipe_of(stored, options)
    model = model or ("gp" if format in _GRAPHS else "hp")
    if model not in MODELS:
        raise unknown_model(model)
    settings = check_options(model, MODELS[model].options, options, "model")
    if k is None and MODELS[model].settle is not None:
        raise UserError(f"the model {model!r} depends on the number of parts", "give -k")
    graph, names, direction = stored.merged, recipe.constraints, recipe.direction
    if Path(file).exists() and not overwrite:
        raise UserError(f"{file} is there already", "choose another name or give --force")
    demands.check_seed(recipe.seed)
    known = k is None or 1 <= k <= graph.n
    require(known, f"k = {k} is not in 1..{graph.n}, the number of vertices")

    settings = settled(graph, model, k or 1, recipe.seed, direction, settings)
    described = describe(graph, model, k or 1, seed=recipe.seed, direction=direction, **settings)
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

    * METIS: ``n edges 010 [constraints]``, then of each vertex its weights and its neighbours.
    * Scotch: ``0``, ``n arcs``, ``1 001``; of each vertex its weight, how many neighbours, and
      these.
    * hMETIS: ``nets n 1[1|0]``; PaToH: ``0 n nets pins 1|3 [constraints]``, pins from 0 on. Then of
      each net [its cost and] its pins, and the weights of each vertex.
    """
    check_name("format", format, FORMATS)
    if not isinstance(model, GraphModel if format in _GRAPHS else HypergraphModel):
        hypergraph = "a hypergraph (--model hp, mg, shp)"
        wanted = "a graph (--model gp)" if format in _GRAPHS else hypergraph
        raise UserError(f"a {format} file holds {wanted}")
    weights = np.asarray(model.weights[np.newaxis] if weights is None else weights)
    if format in _ONE_WEIGHT and len(weights) > 1:
        hint = f"balance one thing, or write a {_ONE_WEIGHT[format]} file"
        raise UserError(f"a file of format {format} has one weight per vertex", hint)
    check_outside_graphs(file)
    n, several = weights.shape[1], f" {len(weights)}" if len(weights) > 1 else ""
    if isinstance(model, GraphModel):
        head = f"{n} {len(model.indices) // 2} 010{several}"
        if format == "scotch":
            head = f"0\n{n} {len(model.indices)}\n1 001"
            weights = np.vstack((weights, np.diff(model.indptr)))
        lines = [_lines(model.indptr, model.indices, 1, weights)]
    elif isinstance(model, HypergraphModel):
        plain = model.costs is None
        head = f"{model.nets} {n} {10 if plain else 11}"
        if format == "patoh":
            head = f"0 {n} {model.nets} {int(model.indptr[-1])} {1 if plain else 3}{several}"
        costs = model.net_costs()[np.newaxis][: 0 if plain else 1]
        lines = [_lines(model.indptr, model.pins, int(format == "hmetis"), costs)]
        lines.append(_lines(np.zeros(n + 1, np.int64), model.pins[:0], 0, weights))
    with atomic_file(file) as out:
        out.write(f"{head}\n".encode())
        out.writelines(chain(*lines))


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
