"""``gcn-partition synth``: synthetic graphs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from partition.cli import common
from partition.commands import Commands, Result, command
from partition.graph import store
from partition.graph.graph import Graph
from partition.importing import synthetic


@dataclass(frozen=True)
class _Sbm:
    """Arguments of :func:`partition.importing.synthetic.sbm`.

    Attributes
    ----------
    n : -n --vertices
    classes : -c --classes
        Communities.
    degree
        Mean degree.
    intra
        Share of edges in a community.
    features
        Columns of features.
    noise
        Standard deviation.
    train
        Share to train on.
    val
        Share to validate on.
    """

    n: int = 20000
    classes: int = 8
    degree: float = 10
    intra: float = 0.8
    features: int = 32
    noise: float = 1.0
    train: float = 0.1
    val: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class _Rmat:
    """Arguments of :func:`partition.importing.synthetic.rmat`.

    Attributes
    ----------
    scale
        2**SCALE vertices.
    arcs
        Arcs to draw.  [default: 16 per vertex]
    a : -a
        Upper left probability.
    b : -b
        Upper right probability.
    c : -c
        Lower left probability.
    undirected
        Add the reverse of every arc.
    shuffle
        Number vertices at random.
    features
        Columns of random features.  [default: none]
    classes
        Random classes.  [default: none]
    """

    scale: int = 14
    arcs: int | None = None
    a: float = 0.57
    b: float = 0.19
    c: float = 0.19
    undirected: bool = False
    shuffle: bool = True
    features: int | None = None
    classes: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class _Hetero:
    """Arguments of :func:`partition.importing.synthetic.hetero`.

    Attributes
    ----------
    classes : -c --classes
        Communities.
    intra
        Share of arcs that follow the shift of their relation.
    noise
        Standard deviation.
    train
        Share to train on.
    val
        Share to validate on.
    reverse
        Add the reverse of each relation.
    """

    classes: int = 4
    intra: float = 0.8
    noise: float = 1.0
    train: float = 0.1
    val: float = 0.1
    reverse: bool = False
    seed: int = 0


@command
def sbm(out: common.NewGraph, options: _Sbm, *, force: common.Force = False) -> Result:
    """A stochastic block model: planted communities, with features that depend on them."""
    return write_synthetic(out, "sbm", synthetic.sbm(**vars(options)), vars(options), force)


@command
def rmat(out: common.NewGraph, wanted: _Rmat, *, force: common.Force = False) -> Result:
    """An R-MAT graph, with very unequal degrees: few vertices have very many arcs."""
    arcs = 16 << max(0, wanted.scale) if wanted.arcs is None else wanted.arcs
    options = vars(wanted) | {"arcs": arcs}
    return write_synthetic(out, "rmat", synthetic.rmat(**options), options, force)


@command
def hetero(
    out: common.NewGraph,
    options: _Hetero,
    *,
    types: str = synthetic.TYPES,
    relations: str = synthetic.RELATIONS,
    features: int = 16,
    force: common.Force = False,
) -> Result:
    """A graph of several types and relations: labels that relations tell.

    Each vertex has a community, and an arc of the r-th relation joins community c to c + r.

    Parameters
    ----------
    types : TYPE:N[:D],…
        Vertices of each type, and columns of features where it is not --features. The first has
        labels.
    relations : A-NAME-B:N,…
        Arcs of each relation.
    features
        Columns of features.

    Examples
    --------
    gcn-partition synth hetero g.graph --reverse
    gcn-partition synth hetero g.graph --types paper:4000,author:6000:8,venue:50:0 \\
        --relations author-writes-paper:20000,paper-cites-paper:8000,paper-at-venue:4000
    """
    store.check_target(out, force)
    sizes = synthetic.parse_types(types, features)
    graph = synthetic.hetero(sizes, synthetic.parse_relations(relations), **vars(options))
    facts = {"types": types, "relations": relations, "features": features} | vars(options)
    return write_synthetic(out, "hetero", graph, facts, force)


@click.group(cls=Commands, commands=[sbm, rmat, hetero])
def synth() -> None:
    """Make a synthetic graph.

    sbm has communities and labels; rmat has very unequal degrees; hetero has types of vertices and
    relations.
    """


def write_synthetic(
    out: Path, kind: str, graph: Graph, options: dict[str, Any], force: bool
) -> Result:
    """Write a graph of a generator, whose arguments the manifest gets, and say what it has."""
    source = {"synthetic": kind} | {key: v for key, v in options.items() if v is not None}
    manifest = store.write_graph(out, graph, source=source, overwrite=force, report=common.note)
    direction = "directed" if manifest.directed else "undirected"
    line = (
        f"{out}: {manifest.n:,} vertices, {manifest.nnz:,} arcs, {direction}, "
        f"{manifest.features} features, {manifest.classes} classes"
    )
    return Result({"path": str(out), "manifest": manifest}, line)
