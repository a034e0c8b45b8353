"""Folders of named arrays and facts about them, in JSON: graphs, and sets of pairs or samples.

The manifest of a graph folder has facts about its graph, an id and checksums. An id is a hash of
all bytes in their order, so one process has to read them all. A checksum is a sum over all words of
a file, so each of many can read a part of it, and any number of them finds the same.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from partition import records
from partition.errors import UserError, require, system_errors, unknown_name
from partition.graph import graph as graphs
from partition.graph.graph import AGAIN, MASKS, ArcData, Graph, SparseRows, slices
from partition.graph.hashing import AT_ONCE, MASK64, key, mixed
from partition.graph.relations import STORED_NAME, Relation, Schema, VertexTypes, schema_fault
from partition.locks import folder_inside, folder_lock
from partition.records import Count, Positive, atomic_file, one_of
from partition.resident import forget_pages

REPLACING = "gcn-partition import --force"  # the purpose of the lock on a folder that is replaced
WAIT = 60.0  # seconds, for others that hold a lock while they write
_MAX_JSON = 1 << 28  # bytes of a file that is read whole
T = TypeVar("T")


def check_target(path: Path, overwrite: bool = False) -> None:
    """Refuse a path that :func:`partition.graph.store.write_graph` could not write to."""
    require(path.suffix == ".graph", f"a graph folder's name ends in .graph, not {path.name!r}")
    if path.exists() and not overwrite:
        hint = "choose another name, or replace it: --force, in Python overwrite=True"
        raise UserError(f"{path} is there already", hint)
    is_graph = not path.exists() or (path / "manifest.json").exists()
    require(is_graph, f"{path} is not a graph folder and is not replaced")
    parent = _parent(path)
    able = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    require(able, f"cannot write {path}: {parent} is not a folder that you may write to")
    if path.exists():
        with folder_lock(path, REPLACING):
            pass


def save_arrays(folder: Path, arrays: Mapping[str, np.ndarray], target: Path | None = None) -> None:
    """Write arrays into a new folder, by the names of their files.

    A UserError if the disk of ``target``, which the folder will become, has no room for them.
    """
    nbytes = sum(array.nbytes for array in arrays.values())
    free = shutil.disk_usage(_parent(target or folder)).free
    if nbytes > free:
        mebibytes = f"it takes {nbytes / 2**20:,.0f} MiB, {free / 2**20:,.0f} are free"
        raise UserError(f"cannot write {target or folder}: {mebibytes}")
    for name, array in arrays.items():
        file = folder / f"{name}.npy"
        file.parent.mkdir(exist_ok=True)
        with records.atomic_file(file) as out:
            np.save(out, array, allow_pickle=False)
        forget_pages(array)


def map_array(file: Path, kinds: str, *shapes: tuple[int, ...], again: str = AGAIN) -> np.ndarray:
    """An array of one of some kinds of dtypes, as NumPy calls them, and of one of some shapes.

    It is mapped read-only; ``again`` is the hint of how to make the file again. A UserError if the
    file is missing, damaged or holds something else.
    """
    if not file.exists():
        raise UserError(f"{file} is missing", again)
    try:
        array = records.map_npy(file, kinds=records.NUMBERS + records.TEXTS)
    except UserError as error:
        raise UserError(f"{file} is damaged or truncated: {error.message}", again) from None
    if array.shape not in shapes or array.dtype.kind not in kinds:
        wanted = f"the manifest asks for {shapes[0]}"
        raise UserError(f"{file} holds {array.dtype} {array.shape}, {wanted}", again)
    return array


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of anybody's.

    A UserError if it cannot be read, is too long, or holds something else.
    """
    long = f"{file} is damaged: it is longer than {_MAX_JSON >> 20} MiB"
    try:
        with system_errors(f"cannot read {file}"), records.open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            require(size <= _MAX_JSON, long)
            facts = msgspec.json.decode(stream.read(size), type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged: {error}") from error
    return dict(records.printable(facts))


def dump_json(stream: IO[str], facts: Mapping[str, object]) -> None:
    """The form that JSON files of a graph folder have."""
    json.dump(facts, stream, indent=1, default=records.to_json)
    stream.write("\n")


def checked(file: Path, facts: object, kind: type[T]) -> T:
    """An object of a type, as ``file`` has its facts; a UserError says which is of another type."""
    if is_dataclass(kind) and isinstance(facts, dict):
        unknown = facts.keys() - {entry.name for entry in fields(kind)}
        if unknown:
            raise UserError(f"{file} is damaged: it has an unknown field {min(unknown)[:100]!r}")
    try:
        return msgspec.convert(facts, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{file} is damaged: {error}") from None


def check_stored_name(kind: str, name: str) -> str:
    """The name, if a thing in a graph folder may be called so; ``kind`` says what it is."""
    if not STORED_NAME.fullmatch(name):
        hint = "use at most 200 letters, digits and any of _ . + = -"
        raise UserError(f"{name!r} is not a valid name for {kind}", hint)
    return name


@dataclass(frozen=True)
class Sets(Generic[T]):
    """The sets of a kind in graph folders: folders ``KIND/NAME/``, each described in ``KIND.json``.

    Attributes
    ----------
    kind : str
        "pairs" or "samples".
    description : type
        A dataclass T of what is in such a file.
    hint : str
        How to make a set where there is none, with {path} and {name} for those of it.
    """

    kind: str
    description: type[T]
    hint: str

    @property
    def again(self) -> str:
        """The hint for a set that is damaged."""
        return f"make the {self.kind} again with gcn-partition {self.kind} --force"

    def folder(self, path: str | os.PathLike[str], name: str) -> Path:
        """The folder of a set; a UserError if none could be called so."""
        return folder_inside(folder_inside(path, self.kind), check_stored_name(self.kind, name))

    def names(self, path: str | os.PathLike[str]) -> list[str]:
        """The names of the sets of a graph folder, sorted."""
        found = folder_inside(path, self.kind).glob(f"[!.]*/{self.kind}.json")
        return sorted(file.parent.name for file in found)

    def has(self, path: str | os.PathLike[str], name: str) -> bool:
        """Whether there is a set of that name; a UserError if none could be called so."""
        return (self.folder(path, name) / f"{self.kind}.json").exists()

    def described(self, path: str | os.PathLike[str], name: str) -> T:
        """The description of a set, checked; a UserError if there is no such set."""
        if not self.has(path, name):
            if names := self.names(path):
                raise unknown_name(f"set of {self.kind} of {path}", name, names)
            hint = self.hint.format(path=path, name=name)
            raise UserError(f"{path} has no {self.kind} {name!r}, nor any others", hint)
        file = self.folder(path, name) / f"{self.kind}.json"
        return checked(file, read_json(file), self.description)

    def remove(self, path: str | os.PathLike[str], name: str) -> None:
        """Delete a set at once: who has it open keeps its arrays."""
        if not self.has(path, name):
            raise unknown_name(f"set of {self.kind} of {path}", name, self.names(path))
        folder = self.folder(path, name)
        with self._alone(Path(path), "gcn-partition remove"):
            aside = records.temporary_name(folder)
            with system_errors(f"cannot remove {folder}"):
                os.rename(folder, aside)
            shutil.rmtree(aside, ignore_errors=True)

    def keep(self, old: Path, new: Path, **facts: object) -> list[str]:
        """Bring those sets of one graph folder along into another that have these facts.

        Returns the names of those that are left behind: they do not fit, or are damaged.
        """
        left = self.names(old)
        for name in self.names(old):
            with contextlib.suppress(UserError):
                if facts.items() <= vars(self.described(old, name)).items():
                    folders = self.folder(old, name), self.folder(new, name)
                    shutil.copytree(*folders, copy_function=_linked)
                    left.remove(name)
        return left

    def describe(self, folder: Path, facts: T) -> None:
        """Write the description of a set into the folder of :meth:`writing`."""
        with records.atomic_file(folder / f"{self.kind}.json", "w") as file:
            dump_json(file, vars(facts))

    @contextlib.contextmanager
    def writing(self, path: Path, name: str, force: bool) -> Iterator[Path]:
        """A folder that becomes that of a set; a UserError if there is one, without ``force``."""
        folder = self.folder(path, name)
        with self._alone(path, f"gcn-partition {self.kind} {name}"):
            if folder.exists() and not force:
                hint = "give --name or --force, or remove them first"
                raise UserError(f"{path} has {self.kind} {name!r} already", hint)
            with records.atomic_folder(folder, overwrite=force) as temporary:
                yield temporary

    @contextlib.contextmanager
    def _alone(self, path: Path, purpose: str) -> Iterator[None]:
        """Keep others from replacing the graph, and from writing or removing sets in it."""
        folder = folder_inside(path, self.kind)
        with folder_lock(path, purpose, exclusive=False):
            with system_errors(f"cannot write {folder}"):
                folder.mkdir(exist_ok=True)
            with folder_lock(folder, purpose, name=".write.lock", patience=WAIT):
                records.sweep(folder)
                yield


def _linked(source: str, target: str) -> None:
    """A second name for a file, or a copy of it where its file system has no such names."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _parent(path: Path) -> Path:
    """The innermost folder around ``path`` that exists."""
    return next(folder for folder in path.absolute().parents if folder.exists())


ARC_FILES = ("indptr", "indices", "weights")
ARC_FEATURES = ("arc_features",)
_DATA_FILES = ("features", "labels", "targets", "ids")  # of vertices

ARC_TYPE = "arc_type"
_OPENED = (*ARC_FILES, "labels", "targets", ARC_TYPE)  # read when a folder is opened
FEATURE_FILES = ("features", *graphs.SPARSE_FILES)
TYPE_FEATURES = "features/"  # begins the names of files of one type of vertices
_ALPHA, BETA = key(0, 0x5355), key(0, 0x4D53)  # keys of their own
_STRIDE = 0xD1342543DE82EF95  # odd: makes one number of two


def content_id(graph: Graph) -> str:
    """Hash of the structure of a graph: n, indptr, indices and weights; 32 hex digits."""
    return _digest(graph.n, graph.indptr, graph.indices, graph.weights)


def data_id(graph: Graph) -> str:
    """Hash of the data of vertices and arcs: features, labels, targets, masks, ids; 32 hex digits.

    Which of them there are counts too, with their types and shapes, and the names of the classes;
    of a heterogeneous graph, types of vertices and the relation of each arc.
    """
    names: dict[str, object] = {"class_names": list(graph.class_names or ())}
    if graph.arc_data.class_names:
        names["arc_class_names"] = list(graph.arc_data.class_names)
    if graph.vertex_types is not None:
        names["vertex_types"] = [f"{n} {name}" for name, n in graph.vertex_types.counts.items()]
        names["relations"] = [list(one) for one in graph.relations]
    return named_id(graph.n, _data_arrays(graph), names)


def named_id(
    number: int, arrays: Mapping[str, np.ndarray | SparseRows], facts: Mapping[str, object]
) -> str:
    """Hash of a number, of named arrays with their types and shapes, and of facts about them."""
    forms = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    head = np.frombuffer(json.dumps({**forms, **facts}).encode(), np.uint8)
    return _digest(number, head, *arrays.values())


def parts_id(k: int, parts: np.ndarray) -> str:
    """Hash of a partition: k and the part of each vertex, int32; 32 hex digits."""
    return _digest(k, parts)


def file_arrays(graph: Graph) -> dict[str, np.ndarray]:
    """The arrays of a graph as a folder keeps them, by the names of their files."""
    arcs = {name: getattr(graph, name) for name in ARC_FILES}
    data = _data_arrays(graph)
    if isinstance(graph.features, SparseRows):
        of_arcs = {name: data.pop(name) for name in [*data] if name.startswith("arc_")}
        data = data | graph.features.files() | of_arcs
        del data["features"]
    return {name: np.ascontiguousarray(a) for name, a in (arcs | data).items() if a is not None}


def _data_arrays(graph: Graph) -> dict[str, Any]:
    """The data of vertices and of arcs, by the names of their files.

    Features that are kept as CSR read like the array that they stand for.
    """
    named = {name: getattr(graph, name) for name in _DATA_FILES}
    if not graph.classes:
        named["labels"] = None
    named |= {f"{name}_mask": graph.masks.get(name) for name in MASKS}
    named |= {TYPE_FEATURES + name: array for name, array in graph.type_features.items()}
    named |= {**graph.arc_data.columns(), ARC_TYPE: graph.arc_type}
    return {
        name: a if isinstance(a, SparseRows) else np.ascontiguousarray(a)
        for name, a in named.items()
        if a is not None
    }


class Known(NamedTuple):
    """Facts about the arrays of a graph that many have looked at together.

    Attributes
    ----------
    symmetric : (bool, bool)
        See :func:`partition.graph.graph.symmetry`.
    sums : mapping of str to str
        Those of some of the files: see :func:`sums_of`.
    """

    symmetric: tuple[bool, bool]
    sums: Mapping[str, str]


def sums_of(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Type and checksum of each array, as a manifest has them."""
    return {name: described_sum(a, part_of_sum(a, 0, len(a))) for name, a in arrays.items()}


def described_sum(array: np.ndarray, total: int) -> str:
    """The type of an array and its checksum as text: ``<f4 0123456789abcdef``."""
    return f"{array.dtype.str} {total & MASK64:016x}"


def part_of_sum(array: np.ndarray, first: int, last: int) -> int:
    """The share of the rows first … last − 1 in the checksum of an array, a sum mod 2⁶⁴.

    Words of at most 32 bits, each times an odd number of 64 bits that depends on its place: a word
    that changes always changes the sum; any other change does but for one in 2³² or fewer (the
    multilinear hashes of Lemire and Kaser 2014). It tells accidents from data, not forgeries. The
    array is in C order; if it is mapped, a piece at a time is read.
    """
    rows = array[first:last].reshape(-1)
    if not rows.size:
        return 0
    width = rows.dtype.itemsize
    words = rows.view(np.uint32 if width % 4 == 0 else f"u{width}")
    begin = first * (len(words) // (last - first))
    places = min(AT_ONCE, begin % AT_ONCE + len(words))
    within = mixed(np.arange(places), _ALPHA) | np.uint64(1)
    total, product = 0, np.empty(AT_ONCE, np.uint64)
    for block in range(begin // AT_ONCE, -(-(begin + len(words)) // AT_ONCE)):
        start, stop = block * AT_ONCE - begin, (block + 1) * AT_ONCE - begin
        skipped = max(0, -start)
        piece = words[start + skipped : stop]
        weighed = product[: len(piece)]
        np.multiply(piece, within[skipped : skipped + len(piece)], out=weighed)
        total += (key(BETA, block) | 1) * int(weighed.sum())
    return total & MASK64


def reverse_excess(row: np.ndarray, column: np.ndarray, weight: np.ndarray | None) -> int:
    """A sum mod 2⁶⁴ over entries of a matrix, which is 0 over all of a symmetric one.

    Each entry (i, j) with i < j adds a hash of (i, j, weight), each (j, i) subtracts the same: so
    entries without a reverse of equal weight remain. Of others it is 0 once in 2⁶⁴. Without weights
    it is the sum of the pattern.
    """
    total = 0
    for piece in slices(len(row), AT_ONCE):
        i, j = row[piece], column[piece]
        ends = np.minimum(i, j).astype(np.uint64) * np.uint64(_STRIDE)
        ends += np.maximum(i, j).astype(np.uint64)
        hashes = mixed(ends, _ALPHA)
        if weight is not None:
            # −0.0 and 0.0 are equal, and have other bits.
            hashes ^= (weight[piece] + 0.0).view(np.uint64)
            hashes = mixed(hashes, BETA)
        sign = (i < j).astype(np.uint64)
        sign -= i > j
        total += int(np.dot(hashes, sign))
    return total & MASK64


def check_sums(path: Path, found: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """A UserError if a file that was read from the folder ``path`` has another sum than expected.

    The expected sums are the manifest's, of all files; empty where it knows none.
    """
    for name, text in found.items():
        if expected.get(name, text) != text:
            raise _damaged(path, f"{name}.npy does not hold what the manifest says")


def check_symmetry(path: Path, excess: int) -> None:
    """A UserError if a sum of :func:`reverse_excess` is not that of a symmetric matrix."""
    if excess & MASK64:
        what = "the manifest says that its arcs are symmetric, but one or more have no reverse"
        raise _damaged(path, f"{what} of equal weight")


def _damaged(path: Path, what: str) -> UserError:
    hint = f"import the graph again; gcn-partition check {path} looks at everything in it"
    return UserError(f"{path} is damaged: {what}", hint)


def excess_of(graph: Graph, values: bool) -> int:
    """The sum of :func:`reverse_excess` over all arcs of a graph; in bounded memory."""
    total = 0
    for first, last, row, column in graphs.arc_pieces(graph):
        place = slice(graph.indptr[first], graph.indptr[last])
        weight = graph.weights[place] if values and graph.weights is not None else None
        total += reverse_excess(row, column, weight)
        forget_pages(graph.indices)
    return total & MASK64


def _digest(number: int, *arrays: np.ndarray | SparseRows | None) -> str:
    digest = hashlib.blake2b(np.int64(number).tobytes(), digest_size=16)
    for array in arrays:
        if array is None or not array.size:
            continue
        step = max(1, (1 << 24) // (array.nbytes // len(array)))
        for start in range(0, len(array), step):
            digest.update(array[start : start + step].tobytes())
            if isinstance(array, np.ndarray):
                forget_pages(array)
    return digest.hexdigest()


_FORMAT = "gcnmpi-graph"
_VERSION, _TYPED_VERSION = 5, 6  # the latter of heterogeneous graphs, and of these alone
_TYPED = ("vertex_types", "relations", "type_features")  # fields that homogeneous graphs lack
# Version 1 has no data_id; 2 no targets, one split only, dense features; 3 no sums; 4 no data of
# arcs, and none that are parallel; 5 no types. Fields that a file lacks are the defaults.
_READABLE = (1, 2, 3, 4, _VERSION, _TYPED_VERSION)
# Types of fields, with the values that a file may have.
Direction = Annotated[str, one_of(graphs.DIRECTIONS)]
_Masks = tuple[Annotated[str, one_of(MASKS)], ...]


@dataclass(frozen=True)
class Manifest:
    """The description of a graph folder, as its file ``manifest.json`` has it.

    Attributes
    ----------
    directed : bool
        Whether the pattern of A differs from that of its transpose.
    id : str
        Content id of the structure: a hash of n, indptr, indices and weights. A partition
        carries the id of its graph.
    data_id : str
        Content id of the data of vertices and arcs: see :func:`partition.graph.manifest.data_id`.
        Empty where it is not known, in folders of format version 1.
    sums : mapping of str to str
        Of each file of arrays, its type and checksum: see :func:`partition.graph.manifest.sums_of`.
        Empty where they are not known, in folders of format versions 1 to 3.
    symmetric_pattern, symmetric_values : bool
        Whether A equals its transpose, as a pattern and with its values.
    direction : {"in", "out"}
        The direction that partitioning and training use unless they are told otherwise.
    features, classes : int
        Width of the feature rows and number of classes; 0 where there are none.
    feature_entries : int
        Entries of the features where they are kept as CSR; 0: they are a dense array.
    masks : tuple of str
        Which of "train", "val", "test" there are.
    class_names : tuple of str
        Names of the classes; empty where they are their numbers.
    targets : int
        Columns of the targets; 0 where there are none.
    splits : int
        How many splits the masks are of.
    parallel : bool
        Whether several arcs from one vertex to another may be stored.
    arc_features, arc_classes, arc_targets : int
        Columns of the features of arcs, their number of classes, or columns of numbers to be
        learned; 0 where there are none.
    arc_masks, arc_class_names : tuple of str
        As ``masks`` and ``class_names``, of arcs.
    vertex_types : mapping of str to int
        Of a heterogeneous graph, the types of vertices and how many there are, in their order.
    relations : tuple of Relation
        In the order of their numbers.
    type_features : mapping of str to int
        Columns of the features of types that have some of their own.
    source : mapping
        Where the graph came from: see :func:`partition.importing.assemble.import_graph`.
    """

    id: str
    name: str
    n: Count
    nnz: Count
    directed: bool
    symmetric_pattern: bool
    symmetric_values: bool
    weighted: bool
    direction: Direction
    features: Count
    classes: Count
    masks: _Masks
    source: Mapping[str, object]
    class_names: tuple[str, ...] = ()
    data_id: str = ""
    targets: Count = 0
    splits: Positive = 1
    feature_entries: Count = 0
    parallel: bool = False
    arc_features: Count = 0
    arc_classes: Count = 0
    arc_targets: Count = 0
    arc_masks: _Masks = ()
    arc_class_names: tuple[str, ...] = ()
    sums: Mapping[str, str] = field(default_factory=dict)
    vertex_types: Mapping[str, Count] = field(default_factory=dict)
    relations: tuple[Relation, ...] = ()
    type_features: Mapping[str, Count] = field(default_factory=dict)
    format: str = _FORMAT
    version: int = _VERSION

    @property
    def schema(self) -> Schema:
        """The types of vertices and relations."""
        of_types = {} if self.features else self.type_features
        return Schema(tuple(self.vertex_types), self.relations, tuple(of_types.items()))

    @property
    def inputs(self) -> int:
        """Columns of the rows that a network takes: see :func:`partition.graph.graph.inputs_of`."""
        return self.features or sum(self.type_features.values())

    @property
    def valued(self) -> bool:
        """Whether entries of A may differ from 1: arcs have weights, or parallel ones are added."""
        return self.weighted or self.parallel


def write_arrays(
    folder: Path, graph: Graph, known: Known | None, target: Path, **said: Any
) -> Manifest:
    """Write the arrays of a graph that are not in a new folder yet, and the manifest.

    ``said`` are its name, direction and source; facts that are ``known`` are not found out again.
    The folder will become ``target``.
    """
    arrays, types = file_arrays(graph), graph.vertex_types
    pattern, values = known.symmetric if known else graphs.symmetry(graph)
    sums = dict(known.sums) if known else {}
    sums |= sums_of({name: array for name, array in arrays.items() if name not in sums})
    facts: dict[str, Any] = {}
    for of, on, features in (
        ("", graphs.VERTICES, graph.features),
        ("arc_", graphs.ARCS, graph.arc_data.features),
    ):
        rows = graphs.examples_of(graph, on)
        facts[f"{of}features"] = 0 if features is None else int(features.shape[1])
        facts[f"{of}targets"] = 0 if rows.targets is None else int(rows.targets.shape[1])
        facts[f"{of}classes"], facts[f"{of}class_names"] = rows.classes, rows.class_names or ()
        facts[f"{of}masks"] = tuple(mask for mask in MASKS if mask in rows.masks)
    for fact in ("n", "nnz", "splits", "parallel", "relations"):
        facts[fact] = getattr(graph, fact)
    manifest = Manifest(
        id=content_id(graph),
        directed=not pattern,
        symmetric_pattern=pattern,
        symmetric_values=values,
        weighted=graph.weights is not None,
        data_id=data_id(graph),
        feature_entries=graph.features.entries if isinstance(graph.features, SparseRows) else 0,
        sums={name: sums[name] for name in arrays},
        vertex_types={} if types is None else types.counts,
        type_features={name: int(x.shape[1]) for name, x in graph.type_features.items()},
        version=_VERSION if types is None else _TYPED_VERSION,
        **said,
        **facts,
    )
    missing = {name: a for name, a in arrays.items() if not (folder / f"{name}.npy").exists()}
    save_arrays(folder, missing, target)
    hidden = () if types else _TYPED
    with atomic_file(folder / "manifest.json", "w") as file:
        dump_json(file, {name: v for name, v in vars(manifest).items() if name not in hidden})
    return manifest


def read_graph(path: Path, check: bool) -> tuple[Manifest, Graph]:
    """The manifest of a graph folder, and its graph, whose arrays are mapped.

    See :func:`partition.graph.store.open_graph`.
    """
    manifest = read_manifest(path)
    arrays = _map_arrays(path, manifest)
    graph = _graph_of(manifest, arrays)
    if check:
        try:
            graphs.check_arcs(graph)
            graphs.check_ends(graph)
            graphs.check_targets(graph, manifest.classes)
        except UserError as error:
            raise UserError(f"{path} is damaged: {error.message}", error.hint) from None
        if manifest.sums:
            read = {name: array for name, array in arrays.items() if name in _OPENED}
            check_sums(path, sums_of(read), manifest.sums)
        if manifest.symmetric_pattern:
            check_symmetry(path, excess_of(graph, manifest.symmetric_values))
    return manifest, graph


def _map_arrays(path: Path, manifest: Manifest) -> dict[str, np.ndarray]:
    """The arrays by the names of their files, mapped, as the manifest says.

    A UserError if one is missing, damaged, or of another shape or kind.
    """
    m, entries, n, nnz = manifest, manifest.feature_entries, manifest.n, manifest.nnz
    splits = [(n, m.splits)] if m.splits > 1 else []
    table: list[tuple[Any, ...]] = [  # name, whether, kinds, shapes
        ("indptr", True, "i", (n + 1,)),
        ("indices", True, "i", (nnz,)),
        ("weights", m.weighted, "f", (nnz,)),
        ("features", m.features and not entries, "f", (n, m.features)),
        ("features_indptr", entries, "i", (n + 1,)),
        ("features_indices", entries, "i", (entries,)),
        ("features_data", entries, "f", (entries,)),
        ("labels", m.classes, "i", (n,)),
        ("targets", m.targets, "f", (n, m.targets)),
        ("ids", (path / "ids.npy").exists(), "iU", (n,)),
        ("arc_features", m.arc_features, "f", (nnz, m.arc_features)),
        ("arc_labels", m.arc_classes, "i", (nnz,)),
        ("arc_labels", m.arc_targets, "f", (nnz, m.arc_targets)),
        ("arc_ids", (path / "arc_ids.npy").exists(), "i", (nnz,)),
        ("arc_type", m.vertex_types, "u", (nnz,)),
        *((f"arc_{name}_mask", True, "b", (nnz,)) for name in m.arc_masks),
        *((f"{name}_mask", True, "b", (n,), *splits) for name in m.masks),
        *((TYPE_FEATURES + name, True, "f", (m.vertex_types[name], width))
          for name, width in m.type_features.items()),
    ]  # fmt: skip
    arrays = {
        name: map_array(path / f"{name}.npy", kinds, *shapes)
        for name, there, kinds, *shapes in table
        if there
    }
    for name, last in (("indptr", nnz), ("features_indptr", entries)):
        if name in arrays and (arrays[name][0], arrays[name][-1]) != (0, last):
            found = f"{path}/{name}.npy goes from {arrays[name][0]} to {arrays[name][-1]}"
            raise UserError(f"{found}, the manifest says 0 to {last}", AGAIN)
    if m.sums and m.sums.keys() != arrays.keys():
        one = f"{min(m.sums.keys() ^ arrays.keys())}.npy"
        what = f"{path}/manifest.json is damaged: it contradicts itself about {one}"
        raise UserError(what, AGAIN)
    return arrays


def _graph_of(manifest: Manifest, arrays: Mapping[str, np.ndarray]) -> Graph:
    """The graph of a folder with these arrays."""
    m, get = manifest, arrays.get
    facts: dict[str, Any] = {name: get(name) for name in (*ARC_FILES, *_DATA_FILES, ARC_TYPE)}
    if m.feature_entries:
        indptr, indices, data = (arrays[name] for name in graphs.SPARSE_FILES)
        facts["features"] = SparseRows(indptr, indices, data, m.features)
    masks, of_arcs = (
        {name: arrays[f"{of}{name}_mask"] for name in names}
        for of, names in (("", m.masks), ("arc_", m.arc_masks))
    )
    names = m.arc_class_names or None
    columns = get("arc_features"), get("arc_labels")
    facts["arc_data"] = ArcData(*columns, of_arcs, get("arc_ids"), names)
    facts["vertex_types"] = VertexTypes.of_counts(m.vertex_types) if m.vertex_types else None
    facts["type_features"] = {name: arrays[TYPE_FEATURES + name] for name in m.type_features}
    facts |= {"parallel": m.parallel, "relations": m.relations}
    return Graph(masks=masks, class_names=m.class_names or None, **facts)


def read_manifest(path: Path) -> Manifest:
    """The manifest of the graph folder ``path``.

    A UserError if there is none, it is damaged, or of a version that is not known.
    """
    file = path / "manifest.json"
    if not path.exists():
        raise UserError(f"there is no graph folder {path}", "gcn-partition import SOURCE OUT.graph")
    if not file.exists():
        hint = f"gcn-partition import {path} OUT.graph makes one of a file"
        what = f"{path} is not a graph folder: it has no manifest.json"
        raise UserError(what, hint if path.is_file() else None)
    facts = read_json(file)
    require(facts.get("format") == _FORMAT, f"{file} does not describe a graph")
    if facts.get("version") not in _READABLE:
        found, known = facts.get("version"), ", ".join(map(str, _READABLE))
        raise UserError(f"{path} has format version {found!r}, this program reads {known}", AGAIN)
    manifest = checked(file, facts, Manifest)
    if fault := _fault_of(manifest):
        raise UserError(f"{file} is damaged: {fault}", AGAIN)
    return manifest


def _fault_of(manifest: Manifest) -> str | None:
    """The first contradiction between fields of a manifest, or None."""
    m, symmetric = manifest, manifest.symmetric_pattern
    if m.directed == symmetric or (m.symmetric_values and not symmetric):
        return "directed and symmetric_… contradict each other"
    for of, names, classes, masks in (
        ("", m.class_names, m.classes, m.masks),
        ("arc_", m.arc_class_names, m.arc_classes, m.arc_masks),
    ):
        if names and len(names) != classes:
            return f"{of}class_names are not those of {classes} classes"
        if len(set(masks)) < len(masks):
            return f"{of}masks has a mask twice"
    if m.arc_classes and m.arc_targets:
        return "labels of arcs are classes or numbers, not both"
    return schema_fault(m.n, m.vertex_types, m.relations, m.type_features)
