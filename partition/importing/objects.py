"""Graphs that are arrays, or objects of other libraries, as folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partition.errors import UserError, check_name
from partition.graph.graph import DIRECTIONS, MASKS
from partition.graph.store import Manifest, check_target, write_graph
from partition.importing.assemble import build_graph
from partition.importing.readers import arc_columns, classes, dgl_bin, files, npz
from partition.importing.readers.names import arc_roles
from partition.importing.readers.numbering import check_ids, number_vertices
from partition.importing.readers.source import Source, TypedSource
from partition.importing.readers.typed_tables import checked, typed_source_of
from partition.importing.tensors import host_array
from partition.importing.vertex_data import RandomSplit, attach_arrays

OF_VERTICES = ("x", "y", *npz.MASK_FIELDS)


def import_arrays(
    out_path: str | os.PathLike[str],
    edge_index: object,
    *,
    edge_weight: object = None,
    n: int | None = None,
    ids: object = None,
    features: object = None,
    labels: object = None,
    targets: object = None,
    masks: Mapping[str, object] | None = None,
    split: RandomSplit | None = None,
    arc_features: object = None,
    arc_labels: object = None,
    arc_masks: Mapping[str, object] | None = None,
    undirected: bool = False,
    direction: str = "in",
    duplicates: str = "merge",
    self_loops: str = "keep",
    keep_features: str = "auto",
    missing_labels: Sequence[str] = (),
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Manifest:
    """Make a graph folder out of arrays, with the checks of files that hold them.

    Parameters
    ----------
    out_path, direction, overwrite, report, keep_features
        See :func:`partition.graph.store.write_graph`.
    edge_index : (2, E) integers, or SciPy sparse matrix
        Sources and targets of the arcs, numbers from 0; or an (n, n) matrix with a row for each
        source, whose entries are weights unless all are 1.
    edge_weight : (E,) numbers, optional
        Finite weights of the arcs; 1 without it.
    n : int, optional
        Number of vertices; without it, the rows of features, labels or targets, or the largest
        number in ``edge_index`` and 1.
    ids : (n,) integers or texts, optional
        The names of the vertices, each once; their numbers without it.
    features : (n, d) numbers, or SciPy sparse matrix, optional
    labels : (n,) integers or texts, optional
        Classes, −1 for a vertex without a label; also (n, 1).
    targets : (n,) or (n, c) numbers, optional
        See :func:`partition.importing.vertex_data.attach`.
    masks : mapping of "train" / "val" / "test" to array, optional
        (n,) bool, or 0 and 1, or numbers of vertices; or (n, splits) bool.
    split : RandomSplit, optional
        How masks are drawn, in place of ``masks``.
    arc_features : (E,) or (E, d) numbers, optional
        Of each arc that ``edge_index`` lists; of a matrix, of its entries row by row.
    arc_labels : (E,) integers or texts, or (E,) or (E, tasks) fractions, optional
        Classes, −1 for an arc without one; or numbers to be learned, NaN where unknown.
    arc_masks : mapping of "train" / "val" / "test" to (E,) bool, optional
    undirected, duplicates, self_loops
        See :func:`partition.importing.assemble.build_graph`.
    missing_labels : sequence of str
        Words for no label: see :func:`partition.importing.readers.classes.class_labels`.

    Raises
    ------
    UserError
        For an array of another shape or kind, or arrays that are no graph; or if the folder cannot
        be written.
    """
    out_path = Path(out_path)
    check_name("direction", direction, DIRECTIONS)
    check_target(out_path, overwrite)
    x = None if features is None else _features(features)
    y = None if labels is None else _numpy(labels, "y")
    if y is not None and y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    wanted = None if targets is None else _numpy(targets, "targets")
    rows = [len(array) for array in (x, y, wanted) if array is not None and array.ndim]
    source = _source(edge_index, edge_weight, rows[0] if n is None and rows else n)
    if ids is not None:
        source = replace(source, ids=_ids_of_arrays(ids, source.n))
    of_arcs = {"features": arc_features, "labels": arc_labels, **(arc_masks or {})}
    source = replace(source, arc_data=arc_table_of(of_arcs, len(source.source)))
    graph, facts = build_graph(
        source, undirected=undirected, duplicates=duplicates, self_loops=self_loops
    )
    of_masks = {name: _numpy(mask, f"{name}_mask") for name, mask in (masks or {}).items()}
    graph = attach_arrays(
        graph, features=x, labels=y, targets=wanted, masks=of_masks, split=split,
        missing_labels=missing_labels, report=report,
    )  # fmt: skip
    if split is not None:
        facts["split"] = split.facts()
    return write_graph(
        out_path, graph, source=facts, direction=direction, overwrite=overwrite, report=report,
        keep_features=keep_features,
    )  # fmt: skip


def _source(edge_index: object, edge_weight: object, n: int | None) -> Source:
    edge_index = _host(edge_index, "edge_index")
    if sp.issparse(edge_index):
        if edge_weight is not None:
            raise UserError("edge_weight: the entries of a sparse edge_index are its weights")
        arcs = npz.arcs_of(files.csr_of(edge_index, "edge_index"), "edge_index", "arrays")
        if n not in (None, arcs.n):
            raise UserError(f"edge_index has {arcs.n} vertices, not {n}")
        return arcs
    source, target = arc_columns.ends_of(_numpy(edge_index, "edge_index"), "edge_index", "(2, E)")
    if n is None:
        n = int(max(source.max(initial=-1), target.max(initial=-1))) + 1
    if n < 1:
        raise UserError("edge_index holds a graph without vertices", "give n")
    weights = None
    if edge_weight is not None:
        weights = _numpy(edge_weight, "edge_weight")
        if weights.shape != source.shape or weights.dtype.kind not in "biuf":
            form = f"{weights.dtype} {weights.shape}"
            raise UserError(
                f"edge_weight holds {form}, not a number for each of {len(source)} arcs"
            )
        weights = files.finite_weights(weights, "edge_weight")
    return Source(n=n, source=source, target=target, weights=weights, format="arrays")


def arc_table_of(given: Mapping[str, object], count: int) -> arc_columns.ArcTable:
    """Arrays of features, labels and masks of so many arcs, those that are not None."""
    named = {name: "arc_" + (f"{name}_mask" if name in MASKS else name) for name in given}
    arrays = {name: _numpy(a, named[name]) for name, a in given.items() if a is not None}
    for name, array in arrays.items():
        rows = len(array) if array.ndim else 0
        if not array.ndim or rows != count:
            raise UserError(f"{named[name]} has {rows} rows, there are {count} arcs")
    return arc_columns.arc_table(arrays, named)


def _ids_of_arrays(ids: object, n: int) -> np.ndarray:
    array = _numpy(ids, "ids")
    if array.shape != (n,) or array.dtype.kind not in "iuU":
        raise UserError(f"ids are {array.dtype} {array.shape}, not one for each of {n} vertices")
    check_ids(array, "ids")
    return array if array.dtype.kind == "U" else array.astype(np.int64)


def _features(features: object) -> np.ndarray:
    features = _host(features, "x")
    if sp.issparse(features):
        return files.dense_features(files.csr_of(features, "x"), "x")
    return _numpy(features, "x")


def _host(value: object, where: str) -> Any:
    try:
        return value if sp.issparse(value) else host_array(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{where} is no array: {error}") from error


def _numpy(value: object, where: str) -> np.ndarray:
    """An array from one, or from a tensor of another library, on any device, with a gradient."""
    array = _host(value, where)
    if sp.issparse(array):
        raise UserError(f"{where} is a sparse matrix", "give a dense array")
    if array.dtype.kind not in "biufSU":
        raise UserError(f"{where} is no array of numbers, but of {array.dtype}")
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array


@dataclass(frozen=True)
class _LibraryGraph:
    """The content of a graph of another library.

    ``vertices`` are those of ``OF_VERTICES`` that it has, ``edges`` get an attribute of all edges,
    of which the first of ``weights`` that there is may be the weight. ``known``: attributes of
    known names are data of the edges, unasked.
    """

    edge_index: object
    n: int | None = None
    ids: np.ndarray | None = None
    undirected: bool | None = None
    vertices: Mapping[str, object] = field(default_factory=dict)
    edges: Mapping[str, Callable[[], np.ndarray | None]] = field(default_factory=dict)
    weights: Sequence[str] = (arc_columns.WEIGHT,)
    known: bool = True


def arrays_of(
    graph: object, arc_features: str | None = None, arc_label: str | None = None
) -> dict[str, Any]:
    """The content of a graph of another library, as arguments of :func:`import_arrays`.

    Parameters
    ----------
    graph : networkx.Graph, igraph.Graph, torch_geometric.data.Data, dgl.DGLGraph,
            pandas.DataFrame or a SciPy sparse matrix
        Of NetworkX and igraph the vertices are in its order, called as there, and attributes of
        all vertices called ``x``, ``y``, ``train_mask`` … are taken, and ``weight`` of all edges;
        edges without a direction become two arcs. Of PyTorch Geometric, ``x``, ``y``,
        ``edge_index``, ``edge_weight`` (or an ``edge_attr`` of one column) and the masks; of DGL,
        ``feat``, ``label``, the masks, and ``weight``. A data frame has a row for each arc, in
        columns called source, target and perhaps weight. Data of edges are taken likewise, of
        arrays called ``edge_attr``, ``feat``, ``x``, ``edge_label``, ``y`` and as masks.
    arc_features, arc_label : str, optional
        Attributes of edges, or columns of a data frame, that are features and labels of the arcs:
        names and patterns, "w1,w2", "f*".

    Raises
    ------
    UserError
        If it is none of these, has vertices of several types, or lacks an attribute of some
        vertices only.
    """
    packages = [base.__module__.split(".")[0] for base in type(graph).__mro__]
    found = next((package for package in packages if package in LIBRARIES), None)
    if found is None:
        raise UserError(
            f"a {type(graph).__module__}.{type(graph).__name__} is no graph that is known",
            f"known are those of {', '.join(LIBRARIES)}; gcnmpi.graph.from_arrays takes arrays",
        )
    content = LIBRARIES[found](graph)
    arrays = {name: getattr(content, name) for name in ("edge_index", "n", "ids", "undirected")}
    given = {name: value for name, value in content.vertices.items() if value is not None}
    arrays |= {"features": given.pop("x", None)}
    if "y" in given:
        kind, values = classes.classes_or_targets(host_array(given.pop("y")))
        arrays[kind] = values
    masks = {name.removesuffix("_mask"): host_array(a).astype(bool) for name, a in given.items()}
    arrays |= {"masks": masks or None} | _arc_data(content, arc_features, arc_label)
    return {name: value for name, value in arrays.items() if value is not None}


def typed_of(graph: Any) -> TypedSource | None:
    """The content of a heterogeneous graph of PyTorch Geometric or DGL; None of anything else.

    Of each type what is taken of a graph of one type, of each relation its arcs and weights. A
    UserError if an array does not fit the others.
    """
    packages = {base.__module__.split(".")[0] for base in type(graph).__mro__}
    if "torch_geometric" in packages and hasattr(graph, "edge_types"):
        counts = {name: graph[name].num_nodes for name in graph.node_types}
        vertices = {name: _arrays(graph[name].to_dict())[0] for name in graph.node_types}
        arcs = {key: _arrays(graph[key].to_dict())[0] for key in graph.edge_types}
    elif "dgl" in packages and not graph.is_homogeneous:
        counts = {name: int(graph.num_nodes(name)) for name in graph.ntypes}
        vertices = {name: _renamed(_arrays(graph.nodes[name].data)[0]) for name in graph.ntypes}
        arcs = {}
        for key in graph.canonical_etypes:
            ends = np.stack([host_array(end) for end in graph.edges(etype=key, order="eid")])
            data, _ = _arrays(graph.edges[key].data)
            arcs[key] = {"edge_index": ends} | {
                "edge_weight" if name in dgl_bin.WEIGHTS else name: a for name, a in data.items()
            }
    else:
        return None
    where = f"the {type(graph).__name__}"
    return checked(typed_source_of(vertices, arcs, where, "arrays", counts), where)


def _arrays(fields: Mapping[str, object]) -> tuple[dict[str, np.ndarray], int | None]:
    """The attributes that are arrays or tensors, and of how many vertices a matrix of arcs is."""
    return npz.with_dense(
        {
            name: host_array(value)
            for name, value in fields.items()
            if isinstance(value, np.ndarray)
            or hasattr(value, "detach")
            or hasattr(value, "sparse_sizes")
        },
        "the graph",
    )


def _arc_data(content: _LibraryGraph, features: str | None, label: str | None) -> dict[str, object]:
    """Data of edges, and their weights, as arguments of :func:`import_arrays`."""
    where, names = "the graph", list(content.edges)
    wanted = arc_columns.chosen(names, label, "arc_label", where)
    wanted += arc_columns.chosen(names, features, "arc_features", where, content.weights)
    weight = next((w for w in content.weights if w in names and w not in wanted), None)
    weights = None if weight is None else content.edges[weight]()
    if content.known:
        unasked = (*arc_columns.FEATURES, *arc_columns.LABELS, *npz.MASK_FIELDS)
        wanted += [name for name in unasked if name in names and name != weight]
    got = {name: content.edges[name]() for name in dict.fromkeys(wanted)}
    arrays = {name: array for name, array in got.items() if array is not None}
    table, _, _ = arc_columns.pick(arrays, None, features, label, where)
    found = dict(table.columns)
    labels = found.pop("labels", None)
    if labels is not None and table.names is not None:
        labels = np.array(table.names)[labels]
    return {
        "edge_weight": None if weights is None else weights.reshape(-1),
        "arc_features": found.pop("features", None),
        "arc_labels": labels,
        "arc_masks": found or None,
    }


def _networkx(graph: Any) -> _LibraryGraph:
    number = {vertex: i for i, vertex in enumerate(graph.nodes)}
    ends = [(number[edge[0]], number[edge[1]]) for edge in graph.edges()]
    of_edges = [found for *_, found in graph.edges(data=True)]
    of_vertices = [found for _, found in graph.nodes(data=True)]
    names = dict.fromkeys(str(name) for found in of_edges for name in found)
    edges = {name: [found.get(name) for found in of_edges] for name in names}
    vertices = {name: [found.get(name) for found in of_vertices] for name in OF_VERTICES}
    return _of_lists(list(number), ends, graph.is_directed(), edges, vertices)


def _igraph(graph: Any) -> _LibraryGraph:
    named = "name" in graph.vs.attributes()
    vertices = graph.vs["name"] if named else list(range(graph.vcount()))
    data = {name: graph.vs[name] for name in OF_VERTICES if name in graph.vs.attributes()}
    edges = {name: graph.es[name] for name in graph.es.attributes()}
    return _of_lists(vertices, graph.get_edgelist(), graph.is_directed(), edges, data)


def _of_lists(
    vertices: list[object],
    ends: Iterable[tuple[int, int]],
    directed: bool,
    edges: Mapping[str, list[object]],
    data: Mapping[str, list[object]],
) -> _LibraryGraph:
    """A graph that is kept as objects, one for each vertex and each edge."""
    edge_index = np.array(list(ends), np.int64).reshape(-1, 2).T
    if not directed:  # an edge is the same whichever end comes first
        edge_index = np.sort(edge_index, axis=0)
    return _LibraryGraph(
        edge_index, len(vertices), _ids(vertices), None if directed else True,
        {name: _column(name, "vertices", values) for name, values in data.items()},
        {name: partial(_column, name, "edges", values) for name, values in edges.items()},
    )  # fmt: skip


def _ids(vertices: list[object]) -> np.ndarray | None:
    """The names of vertices: integers, or texts; None where they are 0..n−1."""
    if all(type(vertex) is int and abs(vertex) < 2**63 for vertex in vertices):
        numbers = np.array(vertices, np.int64)
        return None if (numbers == np.arange(len(numbers))).all() else numbers
    texts = np.array([str(vertex) for vertex in vertices])
    check_ids(texts, "the graph")
    return texts


def _column(name: str, of: str, values: list[object]) -> np.ndarray | None:
    """An attribute of all vertices or edges; None where none has it."""
    missing = sum(value is None for value in values)
    if missing == len(values):
        return None
    if missing:
        raise UserError(
            f"the attribute {name!r} is missing at {missing} of {len(values)} {of}",
            "give it to all of them, or to none",
        )
    try:
        return np.array(values)
    except ValueError as error:
        raise UserError(f"the attribute {name!r} is no array: {error}") from error


def _pyg(data: Any) -> _LibraryGraph:
    fields = dict(data.to_dict()) if hasattr(data, "to_dict") else {}
    arrays, n = _arrays(fields)
    dense = fields | arrays
    if dense.get("edge_index") is None:
        raise UserError(
            f"a {type(data).__name__} without an edge_index is no graph of one type of vertices"
        )
    count = host_array(dense["edge_index"]).shape[1:]
    of_edges = {
        key: host_array(values) for key, values in dense.items()
        if key.startswith("edge_") and key != "edge_index" and values is not None
    }  # fmt: skip
    weights = [name for name in [npz.weights_name(of_edges)] if name is not None]
    edges = {
        key: partial(of_edges.get, key)
        for key, array in of_edges.items()
        if key in weights or array.shape[:1] == count
    }
    vertices = {name: dense.get(name) for name in OF_VERTICES}
    n = n if data.num_nodes is None else int(data.num_nodes)
    return _LibraryGraph(dense["edge_index"], n, vertices=vertices, edges=edges, weights=weights)


def _dgl(graph: Any) -> _LibraryGraph:
    ends = np.stack([host_array(end) for end in graph.edges(order="eid")])
    named = _renamed(graph.ndata)
    return _LibraryGraph(
        ends, int(graph.num_nodes()), vertices={name: named.get(name) for name in OF_VERTICES},
        edges={name: partial(host_array, values) for name, values in graph.edata.items()},
        weights=dgl_bin.WEIGHTS,
    )  # fmt: skip


def _renamed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of vertices of DGL under the names of PyTorch Geometric."""
    return {dgl_bin.NAMES.get(name, name): values for name, values in data.items()}


def _pandas(frame: Any) -> _LibraryGraph:
    names = [str(name) for name in frame.columns]
    roles = arc_roles(names)
    if roles is None:
        raise UserError(
            f"the data frame has the columns {', '.join(names)}: it is not clear which are arcs",
            "call them source, target and, if there is one, weight",
        )
    places = [roles["source"], roles["target"]]
    lacking = frame.iloc[:, places].isna().to_numpy().any(axis=1)
    if lacking.any():
        row = int(np.argmax(lacking))
        raise UserError(
            f"row {row} of the data frame lacks a vertex", "frame.dropna() leaves it out"
        )
    ends = [frame.iloc[:, place].to_numpy() for place in places]
    if "f" in (end.dtype.kind for end in ends):
        hint = "frame.astype({'source': 'int64', 'target': 'int64'})"
        raise UserError("ids in the data frame are fractions, not whole numbers or texts", hint)
    texts = None
    if not all(end.dtype.kind in "iu" for end in ends):
        both = np.concatenate([end.astype(str) for end in ends])
        texts, numbers = np.unique(both, return_inverse=True)
        ends = np.split(numbers, 2)
    source, target = (end.astype(np.int64) for end in ends)
    n, source, target, ids = number_vertices(source, target, "the data frame", names=texts)
    columns = {name: partial(_of_frame, frame, i) for i, name in enumerate(names)}
    edges = {name: columns[name] for i, name in enumerate(names) if i not in places}
    weights = [names[roles["weight"]]] if "weight" in roles else []
    return _LibraryGraph(
        np.stack([source, target]), n, ids, edges=edges, weights=weights, known=False
    )


def _of_frame(frame: Any, place: int) -> np.ndarray:
    return frame.iloc[:, place].to_numpy()


# The package of a class → the content of its objects.
LIBRARIES: Mapping[str, Callable[[Any], _LibraryGraph]] = {
    "networkx": _networkx,
    "igraph": _igraph,
    "torch_geometric": _pyg,
    "dgl": _dgl,
    "pandas": _pandas,
    "scipy": _LibraryGraph,
}
