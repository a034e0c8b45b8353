"""Graphs of other libraries: their objects, files that NetworkX reads, data sets that they bring.

A data set is called ``pyg:Planetoid/Cora``, ``ogb:ogbn-arxiv`` or ``dgl:…``. Its library brings it
here; its file is read as any other of the same format.
"""

import contextlib
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from partition.errors import UserError, require, shortened, unknown_name
from partition.graph.sparse import sp
from partition.importing.readers import arc_columns, classes, files, npz
from partition.importing.readers.names import arc_roles
from partition.importing.readers.numbering import check_ids, number_vertices
from partition.importing.readers.source import Layout, Source, TypedSource
from partition.importing.readers.torch_files import DGL_NAMES, DGL_WEIGHTS, host_array
from partition.importing.readers.typed_tables import checked, typed_source_of
from partition.resident import check_memory

_OBJECT_BYTES = 8  # that NetworkX takes, for each byte of a file
_OF_VERTICES = ("x", "y", *npz.MASK_FIELDS)


def numpy_array(value: object, where: str, *, sparse: bool = False) -> np.ndarray:
    """An array from one, or from a tensor of another library, on any device, with a gradient.

    A UserError if it is none of numbers or texts; or a sparse matrix, unless one is taken for rows
    of numbers.
    """
    array = _host(value, where)
    if sp.issparse(array):
        if not sparse:
            raise UserError(f"{where} is a sparse matrix", "give a dense array")
        return files.dense_features(files.csr_of(array, where), where)
    kind = array.dtype.kind
    require(kind in "biufSU", f"{where} is no array of numbers, but of {array.dtype}")
    return np.char.decode(array, "utf-8") if kind == "S" else array


def _host(value: object, where: str) -> Any:
    try:
        return value if sp.issparse(value) else host_array(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{where} is no array: {error}") from error


def source_of_arrays(edge_index: object, edge_weight: object, n: int | None) -> Source:
    """The arcs of a (2, E) array with their weights, or of an (n, n) matrix, row = source.

    A UserError if they are no graph.
    """
    ends, fields = _host(edge_index, "edge_index"), dict[str, np.ndarray]()
    if sp.issparse(ends):
        both = "edge_weight: the entries of a sparse edge_index are its weights"
        require(edge_weight is None, both)
        arcs = npz.arcs_of(files.csr_of(ends, "edge_index"), "edge_index", "arrays", Layout())
        require(n in (None, arcs.n), f"edge_index has {arcs.n} vertices, not {n}")
        return arcs
    fields["edge_index"] = numpy_array(ends, "edge_index")
    if edge_weight is not None:
        fields["edge_weight"] = numpy_array(edge_weight, "edge_weight")
    n = None if n is None else int(n)
    return npz.source_of(fields, "the data", "arrays", Layout(), {}, n)


def checked_ids(ids: object, n: int) -> np.ndarray:
    """The names of n vertices, (n,) int64 or texts; a UserError unless each has one of its own."""
    array = numpy_array(ids, "ids")
    if array.shape != (n,) or array.dtype.kind not in "iuU":
        raise UserError(f"ids are {array.dtype} {array.shape}, not one for each of {n} vertices")
    check_ids(array, "ids")
    return array if array.dtype.kind == "U" else array.astype(np.int64)


@dataclass(frozen=True)
class _LibraryGraph:
    """The content of a graph of another library.

    ``fields`` are those of ``_OF_VERTICES`` that it has, ``edges`` attributes of all edges, as
    arrays or as lists, of which the first of ``weights`` that there is may be the weight.
    ``known``: attributes of known names are data of the edges, unasked.
    """

    edge_index: object
    n: int | None = None
    ids: np.ndarray | None = None
    undirected: bool | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    edges: Mapping[str, Any] = field(default_factory=dict)
    weights: Sequence[str] = (arc_columns.WEIGHT,)
    known: bool = True

    def arc_data(
        self, features: str | None, label: str | None
    ) -> tuple[np.ndarray | None, arc_columns.ArcTable]:
        """The weights of the edges, and the data that are asked for or known."""
        where, names = "the graph", list(self.edges)
        wanted = arc_columns.chosen(names, label, "arc_label", where)
        wanted += arc_columns.chosen(names, features, "arc_features", where, self.weights)
        weight = next((w for w in self.weights if w in names and w not in wanted), None)
        unasked = (*arc_columns.FEATURES, *arc_columns.LABELS, *npz.MASK_FIELDS)
        unasked = unasked if self.known else ()
        wanted += [name for name in unasked if name in names and name != weight]
        arrays = {name: _column(name, "edges", self.edges[name]) for name in dict.fromkeys(wanted)}
        there = {name: array for name, array in arrays.items() if array is not None}
        table, _, _ = arc_columns.pick(there, None, features, label, where)
        weights = None if weight is None else _column(weight, "edges", self.edges[weight])
        return None if weights is None else weights.reshape(-1), table


def arrays_of(
    graph: object, arc_features: str | None = None, arc_label: str | None = None
) -> dict[str, Any]:
    """The content of a graph of another library, as arguments of ``import_arrays``.

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
    found = next((package for package in packages if package in _LIBRARIES), None)
    if found is None:
        raise UserError(
            f"a {type(graph).__module__}.{type(graph).__name__} is no graph that is known",
            f"known are those of {', '.join(_LIBRARIES)}; gcnmpi.graph.from_arrays takes arrays",
        )
    content = _LIBRARIES[found](graph)
    weights, table = content.arc_data(arc_features, arc_label)
    names = ("edge_index", "n", "ids", "undirected")
    arrays = {name: getattr(content, name) for name in names} | {"edge_weight": weights}
    given = {k: host_array(v) for k, v in content.fields.items() if v is not None}
    arrays |= {"features": given.pop("x", None), "arc_data": table}
    if "y" in given:
        kind, values = classes.classes_or_targets(given.pop("y"))
        arrays[kind] = values
    masks = {name.removesuffix("_mask"): mask.astype(bool) for name, mask in given.items()}
    arrays["masks"] = masks or None
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
            data = _arrays(graph.edges[key].data)[0].items()
            named = {"edge_weight" if name in DGL_WEIGHTS else name: a for name, a in data}
            arcs[key] = {"edge_index": ends} | named
    else:
        return None
    where = f"the {type(graph).__name__}"
    return checked(typed_source_of(vertices, arcs, where, "arrays", counts), where)


def _arrays(fields: Mapping[str, object]) -> tuple[dict[str, np.ndarray], int | None]:
    """The attributes that are arrays or tensors, and of how many vertices a matrix of arcs is."""
    array_like = ("detach", "sparse_sizes")
    found = {
        name: host_array(value)
        for name, value in fields.items()
        if isinstance(value, np.ndarray) or any(hasattr(value, of) for of in array_like)
    }
    return npz.with_dense(found, "the graph")


def _networkx(graph: Any) -> _LibraryGraph:
    number = {vertex: i for i, vertex in enumerate(graph.nodes)}
    ends = [(number[edge[0]], number[edge[1]]) for edge in graph.edges()]
    of_edges = [found for *_, found in graph.edges(data=True)]
    of_vertices = [found for _, found in graph.nodes(data=True)]
    names = dict.fromkeys(str(name) for found in of_edges for name in found)
    edges = {name: [found.get(name) for found in of_edges] for name in names}
    fields = {name: [found.get(name) for found in of_vertices] for name in _OF_VERTICES}
    return _of_lists(list(number), ends, graph.is_directed(), edges, fields)


def _igraph(graph: Any) -> _LibraryGraph:
    names = graph.vs.attributes()
    vertices = graph.vs["name"] if "name" in names else list(range(graph.vcount()))
    fields = {name: graph.vs[name] for name in _OF_VERTICES if name in names}
    edges = {name: graph.es[name] for name in graph.es.attributes()}
    return _of_lists(vertices, graph.get_edgelist(), graph.is_directed(), edges, fields)


def _of_lists(
    vertices: list[object],
    ends: Iterable[tuple[int, int]],
    directed: bool,
    edges: Mapping[str, list[object]],
    fields: Mapping[str, list[object]],
) -> _LibraryGraph:
    """A graph that is kept as objects, one for each vertex and each edge.

    Vertices are called by integers, or else texts; not at all where they are 0..n−1.
    """
    edge_index = np.array(list(ends), np.int64).reshape(-1, 2).T
    if not directed:  # an edge is the same whichever end comes first
        edge_index = np.sort(edge_index, axis=0)
    if all(type(vertex) is int and abs(vertex) < 2**63 for vertex in vertices):
        ids = np.array(vertices, np.int64)
    else:
        ids = np.array([str(vertex) for vertex in vertices])
        check_ids(ids, "the graph")
    same = ids.dtype.kind == "i" and bool((ids == np.arange(len(ids))).all())
    columns = {name: _column(name, "vertices", values) for name, values in fields.items()}
    undirected = None if directed else True
    return _LibraryGraph(
        edge_index, len(vertices), None if same else ids, undirected, columns, edges
    )


def _column(name: str, of: str, values: Any) -> np.ndarray | None:
    """An attribute of all vertices or edges, from a list or an array; None where none has it."""
    if not isinstance(values, list):
        return host_array(values)
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
    there = {k: v for k, v in dense.items() if k.startswith("edge_") and v is not None}
    edges = {name: host_array(v) for name, v in there.items() if name != "edge_index"}
    weight = npz.weights_name(edges)
    edges = {k: array for k, array in edges.items() if k == weight or array.shape[:1] == count}
    n = n if data.num_nodes is None else int(data.num_nodes)
    weights = [] if weight is None else [weight]
    return _LibraryGraph(
        dense["edge_index"], n, fields=_of_vertices(dense), edges=edges, weights=weights
    )


def _of_vertices(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in _OF_VERTICES if name in fields}


def _dgl(graph: Any) -> _LibraryGraph:
    ends = np.stack([host_array(end) for end in graph.edges(order="eid")])
    fields, weights = _of_vertices(_renamed(graph.ndata)), DGL_WEIGHTS
    return _LibraryGraph(
        ends, int(graph.num_nodes()), fields=fields, edges=dict(graph.edata), weights=weights
    )


def _renamed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of vertices of DGL under the names of PyTorch Geometric."""
    return {DGL_NAMES.get(name, name): values for name, values in data.items()}


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
    edges = {k: frame.iloc[:, i].to_numpy() for i, k in enumerate(names) if i not in places}
    weights = [names[roles["weight"]]] if "weight" in roles else []
    return _LibraryGraph(
        np.stack([source, target]), n, ids, edges=edges, weights=weights, known=False
    )


# The package of a class → the content of its objects.
_LIBRARIES: Mapping[str, Callable[[Any], _LibraryGraph]] = {
    "networkx": _networkx,
    "igraph": _igraph,
    "torch_geometric": _pyg,
    "dgl": _dgl,
    "pandas": _pandas,
    "scipy": _LibraryGraph,
}


def read_networkx(path: Path, layout: Layout) -> Source:
    """Read a file as NetworkX does; attributes are those of :func:`gcnmpi.graph.from_object`.

    Vertices are called as in the file, in its order; edges without a direction become two arcs. A
    UserError if NetworkX is not installed, or cannot read the file.
    """
    networkx = _library("networkx", "pip install networkx", f"{path}: ")
    check_memory(_OBJECT_BYTES * path.stat().st_size, f"{path}: a graph of objects")
    with files.open_unpacked(path) as file:
        begin = file.read(1 << 12).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    form, reader = _FORMS.get(begin, _FORMS[b""])
    with files.open_unpacked(path) as file:
        try:
            graph = reader(networkx, file)
        except (networkx.NetworkXException, SyntaxError, ValueError, KeyError, TypeError) as error:
            reason = shortened(" ".join(f"{error}".split()), 200)
            raise UserError(f"{path} is not read as {form}: {reason}") from error
    if not len(graph):
        raise UserError(f"{path} holds a graph without vertices")
    content = _networkx(graph)
    weights, table = content.arc_data(layout.arc_features, layout.arc_label)
    fields = {"edge_index": content.edge_index, "edge_weight": weights, **content.fields}
    fields = {name: array for name, array in fields.items() if array is not None}
    source = npz.source_of(fields, str(path), form, Layout(), {}, content.n)
    symmetric = not graph.is_directed()
    return replace(source, ids=content.ids, symmetric=symmetric, arc_data=table)


def _graphml(networkx: Any, file: IO[bytes]) -> Any:
    return networkx.read_graphml(file)


def _gml(networkx: Any, file: IO[bytes]) -> Any:
    lines = file.read().decode("utf-8").splitlines()
    try:
        return networkx.parse_gml(lines)
    except networkx.NetworkXError as error:
        if "label" not in str(error):
            raise
        return networkx.parse_gml(lines, label="id")


def _node_link(networkx: Any, file: IO[bytes]) -> Any:
    facts = json.load(file)
    links = next((key for key in ("links", "edges") if isinstance(facts.get(key), list)), None)
    if links is None or not isinstance(facts.get("nodes"), list):
        raise ValueError("it has no lists 'nodes' and 'links' or 'edges'")
    called = inspect.signature(networkx.node_link_graph).parameters
    return networkx.node_link_graph(facts, **{"edges" if "edges" in called else "link": links})


# The first sign of a file → the form, and what reads it.
_FORMS = {
    b"<": ("graphml", _graphml),
    b"{": ("node-link", _node_link),
    b"[": ("node-link", _node_link),
    b"": ("gml", _gml),
}


def is_dataset(source: Path) -> bool:
    """Whether a source is a data set of a library, and no file of that name."""
    return str(source).partition(":")[0] in _LOADERS and not source.exists()


@contextlib.contextmanager
def local_file(source: Path) -> Iterator[Path]:
    """The file or folder that a source is: itself, or that of a data set while the block lasts.

    A UserError if the library is not installed, does not know the data set, or cannot load it.
    """
    if not is_dataset(source):
        yield source
        return
    library, _, name = str(source).partition(":")
    with tempfile.TemporaryDirectory(prefix="gcnmpi-") as folder:
        with contextlib.redirect_stdout(sys.stderr):  # libraries tell how far they are
            file = _LOADERS[library](name, Path(folder))
        yield file


def _load_pyg(name: str, folder: Path) -> Path:
    torch, known = _library("torch", _PYG), _library("torch_geometric.datasets", _PYG)
    data = _only("pyg", name, known)
    fields = data.to_dict() if hasattr(data, "to_dict") else {}
    if not {"_global_store", "edge_index"} & fields.keys():  # the former of several types
        raise UserError(f"pyg:{name} holds no graph")
    if "edge_index" in fields:
        tensors = {key: value for key, value in fields.items() if isinstance(value, torch.Tensor)}
        fields = {**tensors, "num_nodes": int(data.num_nodes)}
    torch.save(fields, folder / "data.pt")
    return folder / "data.pt"


def _load_dgl(name: str, folder: Path) -> Path:
    dgl = _library("dgl", "pip install dgl")
    graph = _only("dgl", name, _library("dgl.data", "pip install dgl"))
    dgl.save_graphs(str(folder / "graph.bin"), [graph])
    return folder / "graph.bin"


def _load_ogb(name: str, folder: Path) -> Path:
    if not name.startswith("ogbn-"):
        raise UserError(f"{name!r} is no node property data set of OGB", "ogb:ogbn-arxiv is one")
    found = _cache("ogb") / name.replace("-", "_")
    if not (found / "raw").is_dir():
        known = _library("ogb.nodeproppred", "pip install ogb")
        made = _made("ogb", name, lambda: known.NodePropPredDataset(name, root=str(found.parent)))
        found = Path(made.root)
    return found


_LOADERS: dict[str, Callable[[str, Path], Path]] = {
    "pyg": _load_pyg,
    "ogb": _load_ogb,
    "dgl": _load_dgl,
}
_PYG = "pip install torch torch_geometric"


def _only(library: str, name: str, known: Any) -> Any:
    """The only graph of a data set, ``CLASS/ARGUMENT/…``."""
    called, *arguments = name.split("/")
    make = getattr(known, called, None)
    if not inspect.isclass(make):
        known_classes = [each for each in dir(known) if inspect.isclass(getattr(known, each))]
        raise unknown_name(f"data set of {library}", called, known_classes)
    names = [each for each in inspect.signature(make).parameters if each != "root"]
    given: dict[str, str] = dict(zip(names, arguments, strict=False))
    if "root" in inspect.signature(make).parameters:
        given["root"] = str(_cache(library) / called)
    dataset = _made(library, name, lambda: make(**given))
    if len(dataset) != 1:
        raise UserError(
            f"{library}:{name} has {len(dataset)} graphs, and one is imported",
            "gcnmpi.torch.open(list(dataset)) takes many",
        )
    return dataset[0]


def _made(library: str, name: str, make: Callable[[], object]) -> Any:
    try:
        return make()
    except Exception as error:
        reason = shortened(" ".join(f"{type(error).__name__}: {error}".split()), 200)
        raise UserError(
            f"the library cannot load {library}:{name}: {reason}",
            "it downloads data sets when they are first asked for: is there a network here?",
        ) from error


def _library(module: str, command: str, where: str = "") -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = error.name or module
        raise UserError(f"{where}this needs the Python package {package}", command) from error


def _cache(library: str) -> Path:
    """Where data sets stay, for the next time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gcnmpi" / library
