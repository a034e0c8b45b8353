"""Pairs for link prediction out of files of other programs, and out of graphs of PyTorch Geometric.

One file or folder may hold all masks (the splits of OGB, an ``npz``, a tuple that ``torch.save``
wrote), or there is a file for each array (tables, ``npy``, Parquet). Everything is read by the
readers of graphs: torch's files and pickles as data, tables by Arrow.

Arrays of a mask are called "positives" (m, 2), "negatives" (q, 2), "candidates" (m, C) for the
second end, or "both" for each end, and "relations" (m,).
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from partition import tensor_files
from partition.errors import UserError
from partition.graph.graph import MASKS, Graph
from partition.graph.links import HELD_OUT, PairSet, identified, keys
from partition.graph.relations import Relation, names_of, number_relations
from partition.graph.twins import Twin
from partition.importing.readers import LISTS, RELATION, arc_columns, arc_lists, guess_format, pyg
from partition.importing.readers.files import COMPRESSED, check_file, check_inside, quoted
from partition.importing.readers.names import MASK_OF
from partition.importing.readers.numbering import positions
from partition.importing.readers.source import Layout
from partition.importing.tensors import host_array
from partition.records import NUMBERS, TEXTS, map_npy, read_npz

VERTICES = ("positives", "negatives", "candidates", "both")  # arrays that hold ids of vertices


Arrays = dict[str, np.ndarray]
TORCH = (".pt", ".pth")
SUFFIXES = (
    *TORCH, ".npy", ".parquet",
    *(text + packed for text in (".csv", ".tsv", ".txt") for packed in ("", *COMPRESSED)),
)  # fmt: skip
MEANT = tensor_files.Meant(
    "pairs of vertices in a file of torch",
    "torch.save({'edge': pairs, 'edge_neg': negatives}, FILE), tensors of shape (m, 2)",
)
NAMES = pyg.CACHES | tensor_files.ARRAY_NAMES
TYPES = "head_type"
# Arrays that are read, by their names in OGB and PyTorch Geometric.
KNOWN = {
    "edge", "edge_neg", "source_node", "target_node", "source_node_neg", "target_node_neg",
    "head", "tail", "head_neg", "tail_neg", RELATION, "edge_label_index", "edge_label",
    "pos_edge_label_index", "neg_edge_label_index", "pos_edge_label",
}  # fmt: skip


@dataclass(frozen=True)
class _PairList:
    """The pairs of a mask in a file.

    Attributes
    ----------
    arrays : dict of str to array
        "positives" and so on: see above.
    listed : ArcList, optional
        The table that they stand in, with the types that its columns are called as.
    """

    arrays: Arrays
    listed: arc_lists.ArcList | None = None


def read_masks(path: Path, layout: Layout) -> tuple[dict[str, _PairList], list[str]]:
    """The arrays of all masks in one file or folder, and lines about what is not read.

    A folder holds ``train``, ``valid`` (or ``val``) and ``test``, each with one of the suffixes
    that are known, or ``split_dict.pt``; or it has one such folder in ``split/``. ``layout`` as of
    :func:`_read_list`.

    A UserError if something is missing, damaged, or of a form that is not known.
    """
    if path.is_dir():
        inner = path / "split"
        if inner.is_dir():
            return read_masks(_only_folder(inner), layout)
        if (path / "split_dict.pt").is_file():
            return read_masks(path / "split_dict.pt", layout)
        listed = {mask: _read_list(file, layout) for mask, file in _files_of_masks(path).items()}
        unread = set[str]().union(*(more for _, more in listed.values()))
        return {mask: found for mask, (found, _) in listed.items()}, _unread(path, unread)
    check_file(path)
    if path.suffix in TORCH:
        parts, unread = _torch(path, len(MASKS))
        return dict(zip(MASKS, map(_PairList, parts), strict=True)), _unread(path, unread)
    if path.suffix == ".npz":
        return _npz(path)
    raise UserError(
        f"{path} does not hold pairs of all masks",
        "a folder of train, valid and test, an .npz or a .pt does; or give --train, --val, --test",
    )


def _read_list(path: Path, layout: Layout) -> tuple[_PairList, set[str]]:
    """The positives in a list of pairs, with relations if there is a column of them.

    Of a file of torch, which may hold a dict, all arrays of its mask; and the names of those that
    are not read. Of ``layout`` the columns, the header, comments, types and ``string_ids`` are
    used.
    """
    if path.suffix in TORCH:
        (arrays,), unread = _torch(path, 1)
        return _PairList(arrays), unread
    if (format := guess_format(path)) not in LISTS:
        raise UserError(
            f"{path} has the format {format}, which is no list of pairs",
            f"lists of pairs are {', '.join(LISTS)} and .pt; --from takes an .npz of all masks",
        )
    arrays, listed, _ = arc_lists.read_pairs(path, layout, look_up=True)
    return _PairList(arrays, listed), set()


def _labelled_pairs(fields: Mapping[str, np.ndarray], where: str) -> Arrays:
    """The pairs of a graph of PyTorch Geometric that ``RandomLinkSplit`` has made.

    A label of 0 is a negative; labels above 1 are relations, counted from 1.
    """
    index, label = fields.get("edge_label_index"), fields.get("edge_label")
    positive, negative = (fields.get(f"{kind}_edge_label_index") for kind in ("pos", "neg"))
    if positive is None and index is not None:
        label = np.ones(index.shape[-1]) if label is None else label.reshape(-1)
        if index.ndim != 2 or len(label) != index.shape[1]:
            raise UserError(f"{where}: edge_label has {len(label)} entries for {index.shape}")
        positive, negative, label = index[:, label > 0], index[:, label == 0], label[label > 0]
    elif positive is not None:
        label = fields.get("pos_edge_label")
    else:
        raise UserError(
            f"{where} has no edge_label_index", "RandomLinkSplit(…)(data) makes graphs that have it"
        )
    found = {"positives": np.column_stack(arc_columns.ends_of(positive, where, "(2, m)"))}
    if negative is not None and negative.size:
        found["negatives"] = np.column_stack(arc_columns.ends_of(negative, where, "(2, m)"))
    if label is not None and len(label) and label.max() > 1:
        found["relations"] = label.reshape(-1).astype(np.int64) - 1
    return found


def _named_pairs(fields: Mapping[str, np.ndarray], where: str) -> Arrays:
    """The arrays of a mask out of those of a file, by their names."""
    if {"edge_label_index", "pos_edge_label_index"} & fields.keys():
        return _labelled_pairs(fields, where)
    for first, second in (("source_node", "target_node"), ("head", "tail")):
        if {first, second} <= fields.keys():
            one, two = fields[first], fields[second]
            if one.ndim != 1 or one.shape != two.shape:
                raise UserError(
                    f"{where}: the two ends of its pairs are {one.shape} and {two.shape}"
                )
            positives = np.column_stack([one, two])
            break
    else:
        if "edge" not in fields:
            raise UserError(f"{where} holds no pairs that are known", MEANT.hint)
        first = second = "edge"
        positives = arc_lists.rows_of_pairs(fields["edge"], where)
    found = {"positives": positives}
    if RELATION in fields:
        found["relations"] = fields[RELATION].reshape(-1)
    if "edge_neg" in fields and first == "edge":
        found["negatives"] = arc_lists.rows_of_pairs(fields["edge_neg"], where)
    elif {f"{first}_neg", f"{second}_neg"} <= fields.keys():
        found["both"] = np.column_stack([fields[f"{second}_neg"], fields[f"{first}_neg"]])
    elif f"{second}_neg" in fields:
        found["candidates"] = fields[f"{second}_neg"]
    return found


def _torch(path: Path, masks: int) -> tuple[list[Arrays], set[str]]:
    """The arrays of so many masks in a file of torch, and the names of those that are not read."""
    check_file(path)
    if not zipfile.is_zipfile(path):
        content = tensor_files.read_old_torch(path, pyg.CLASSES, MEANT, NAMES)
        return _parts(content, None, path, masks)
    with tensor_files.open_torch(path, pyg.CLASSES, MEANT, NAMES) as file:
        return _parts(file.content, file, path, masks)


def _parts(
    content: object, file: tensor_files.TorchFile | None, path: Path, masks: int
) -> tuple[list[Arrays], set[str]]:
    parts: list[object] = [content]
    if isinstance(content, dict) and {"train", "test"} <= content.keys():
        parts = [content.get("train"), content.get("valid", content.get("val")), content["test"]]
    elif isinstance(content, list | tuple):
        parts = list(content)
    if len(parts) != masks:
        raise UserError(
            f"{path} holds the pairs of {len(parts)} masks, not of {masks}",
            "torch.save((train, val, test), FILE) with --from, or --train, --val and --test with "
            "a file for each",
        )
    found, unread = [], set[str]()
    for part in parts:
        fields = {}
        for name, value in pyg.attributes_of(part, path).items():
            if name == TYPES:
                raise UserError(
                    f"{path} has vertices of several types, such as ogbl-biokg",
                    "number all vertices together, and give tables of pairs",
                )
            tensor = tensor_files.is_tensor(value)
            if name not in KNOWN:
                unread |= {name} if tensor or tensor_files.is_numpy_array(value) else set()
            elif tensor and file is None:
                raise UserError(
                    f"{path} has tensors in a form older than torch 1.6",
                    "load it with torch.load and save it with torch.save again",
                )
            elif tensor and file is not None:
                fields[name] = file.array(name, value)
            else:
                fields[name] = tensor_files.numpy_array(value, f"{path}: {name}")
        found.append(_named_pairs(fields, str(path)))
    return found, unread


def _npz(path: Path) -> tuple[dict[str, _PairList], list[str]]:
    """Arrays that are called as the files of a set: ``train``, ``val_negatives`` …"""
    found: dict[str, Arrays] = {mask: {} for mask in MASKS}
    unread = set()
    for name, array in read_npz(path, kinds=NUMBERS + TEXTS).items():
        mask, _, kind = name.partition("_")
        if mask not in MASK_OF or kind not in ("", "negatives", "candidates", "relations"):
            unread.add(name)
            continue
        kind = kind or "positives"
        if kind in ("positives", "negatives"):
            array = arc_lists.rows_of_pairs(array, f"{path}: {name}")
        found[MASK_OF[mask]][kind] = array
    return {mask: _PairList(arrays) for mask, arrays in found.items()}, _unread(path, unread)


def _files_of_masks(folder: Path) -> dict[str, Path]:
    files = [file for file in sorted(folder.iterdir()) if file.name.endswith(SUFFIXES)]
    files = [file for file in files if file.name.split(".")[0] in MASK_OF]
    found = {MASK_OF[file.name.split(".")[0]]: file for file in files}
    if not len(found) == len(files) == len(MASKS):
        names = ", ".join(file.name for file in files) or "nothing"
        raise UserError(
            f"{folder} has {names}: it is not clear which files hold the pairs",
            "one file each called train, valid and test, such as train.pt, train.csv or train.npy",
        )
    return found


def _only_folder(folder: Path) -> Path:
    inner = sorted(each for each in folder.iterdir() if each.is_dir())
    if len(inner) != 1:
        names = ", ".join(each.name for each in inner) or "nothing"
        raise UserError(f"{folder} holds {names}, not one split", f"such as --from {folder}/time")
    return inner[0]


def _unread(path: Path, names: set[str]) -> list[str]:
    return [f"{path}: not read: {', '.join(map(quoted, sorted(names)))}"] if names else []


@dataclass(frozen=True)
class LinkFiles:
    """The files of a set of pairs, and what the user says of them.

    Attributes
    ----------
    whole : path, optional
        A file or a folder that has all masks.
    parts : mapping of (mask, kind) to path
        Files of single arrays; a kind is "positives", "negatives" or "candidates".
    layout : Layout
        Meaning of the columns of tables of positives, "source,relation,target"; their header and
        comments.
    """

    whole: Path | None = None
    parts: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)


def import_pairs(
    files: LinkFiles,
    graph: Graph,
    *,
    graph_id: str,
    directed: bool,
    name: str = "links",
    drop_held_out: bool = False,
    twins: Mapping[Twin, float | None] | None = None,
) -> tuple[PairSet, list[str]]:
    """Read a set of pairs; with it, lines about what was not taken as it is in the files.

    Vertices are called as in the file that the graph was imported from: by its ids, if it has some.

    Parameters
    ----------
    drop_held_out : bool
        Leave pairs that are also in "val" or "test" out of those to train on, and those of "test"
        out of "val".
    twins : mapping of Twin to share, optional
        Relations with the edges of others, as :func:`partition.graph.twins.twins_of` found them.
        One that was recognised does not count where files have its edges to train on.

    Raises
    ------
    UserError
        If a file is missing, damaged or of no format that is known, or names a vertex that the
        graph does not have, or one of another type than the relation's; or a mask has no pairs.
    """
    layout = _as_in(graph, files.layout)
    listed: dict[str, _PairList] = {}
    notes: list[str] = []
    if files.whole is not None:
        listed, notes = read_masks(files.whole, layout)
    found: dict[str, Arrays] = {mask: {} for mask in MASKS}
    found |= {mask: _in_graph(p, graph, f"{files.whole}, {mask}") for mask, p in listed.items()}
    for (mask, kind), path in files.parts.items():
        where = f"{path}, {mask}"
        if kind == "candidates":
            one = _PairList({kind: map_npy(path, kinds=NUMBERS + TEXTS)})
        elif kind == "negatives":
            one, _ = _read_list(path, replace(layout, columns=None))
            one = replace(one, arrays={kind: one.arrays["positives"]})
        else:
            one, _ = _read_list(path, layout)
        found[mask] = found[mask] | _in_graph(one, graph, where)
    made = Path(files.whole or next(iter(files.parts.values()))).name
    pairs, more = _pairs_from(found, graph_id, directed, name, f"from {made}", graph.relations)
    notes += more
    for mask, numbers in pairs.relations.items():
        _check_types(pairs.positives[mask], numbers, graph, f"{pairs.made}, {mask}")
    if drop_held_out:
        pairs, count = _without_held_out(pairs, graph.n)
        notes += [f"{count:,} pairs are also held out, or to test on: left out"] if count else []
    twice = np.isin(pairs.keys("val", graph.n), pairs.keys("test", graph.n))
    if count := int(np.count_nonzero(twice)):
        drop = "--drop-held-out leaves them out of val"
        notes.append(f"{count:,} pairs to validate on are also in test: {drop}")
    notes += [
        f"{count:,} pairs of {mask} join a vertex to itself"
        for mask, ends in pairs.positives.items()
        if (count := int(np.count_nonzero(ends[:, 0] == ends[:, 1])))
    ]
    if twins is not None:
        pairs, more = _with_twins(pairs, graph, twins)
        notes += more
    return pairs, notes


def _with_twins(
    pairs: PairSet, graph: Graph, twins: Mapping[Twin, float | None]
) -> tuple[PairSet, list[str]]:
    """The set with those twins whose edges it does not have to train on, and what is said."""
    kept, notes, none = [], [], np.zeros(0, np.int32)
    names = names_of(graph.relations) or ("the graph",)

    def of(mask: str, relation: int) -> np.ndarray:
        ends, kinds = np.asarray(pairs.positives[mask], np.int64), pairs.relations.get(mask, none)
        return ends[kinds == relation] if pairs.relations else ends

    for twin, share in twins.items():
        train = of("train", twin.other)
        train = train[:, ::-1] if twin.turned else train
        held = np.concatenate([of(mask, twin.relation) for mask in HELD_OUT])
        train, held = (keys(ends, graph.n, pairs.directed) for ends in (train, held))
        there = np.isin(train, held)
        count = np.count_nonzero(there) if share is not None else 0
        if not count:
            kept.append(twin)
            continue
        flag = "--reverse-of" if twin.turned else "--copy-of"
        turned = " turned round" if twin.turned else ""
        notes.append(
            f"{names[twin.other]} has {count:,} held-out pairs of {names[twin.relation]}{turned} "
            f"to train on, as in the files: they stay in the graph; {flag} "
            f"{names[twin.other]}={names[twin.relation]} takes them out"
        )
    return identified(replace(pairs, twins=tuple(kept))), notes


def listed_pairs(
    path: Path, graph: Graph, columns: str | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The pairs in a list of them, (m, 2) vertices, in its order: a table, ``.npy`` or Parquet.

    And their relations, (m,) integers, where ``columns`` names them. A UserError if it cannot be
    read, or names a vertex or a relation that the graph does not have.
    """
    layout = _as_in(graph, Layout(columns=columns))
    arrays = _in_graph(_read_list(path, layout)[0], graph, str(path))
    pairs, relations = arrays["positives"], arrays.get("relations")
    if relations is None:
        return pairs, None
    if not graph.relations and relations.dtype.kind not in "iu":
        raise UserError(f"{path}: relations are numbers, as the graph has none with names")
    numbers = number_relations({"": relations}, str(path), graph.relations)[0][""]
    _check_types(pairs, numbers, graph, str(path))
    return pairs, numbers


def _as_in(graph: Graph, layout: Layout) -> Layout:
    """The layout of tables with ids of the kind that the graph has, and names of its types."""
    types = () if graph.vertex_types is None else graph.vertex_types.names
    text = graph.ids is not None and graph.ids.dtype.kind == "U"
    pairs = tuple(itertools.product(types, types)) if len(types) > 1 else ()
    return replace(layout, string_ids=text, types=pairs)


def _in_graph(pairs: _PairList, graph: Graph, where: str) -> Arrays:
    """The arrays of a list with vertices of the graph in place of ids."""
    ends = None
    if pairs.listed is not None:
        ends = pairs.listed.types
        if pairs.listed.doubtful and graph.ids is not None:
            pairs.listed.refuse_doubt(bool(np.isin(pairs.listed.doubtful, graph.ids).all()))
    return {
        kind: vertices_of(_prefixed(array, ends, graph, where), graph, where)
        if kind in VERTICES
        else array
        for kind, array in pairs.arrays.items()
    }


def _prefixed(
    ids: np.ndarray, ends: tuple[str, str] | None, graph: Graph, where: str
) -> np.ndarray:
    """Pairs of ids that tables of two types have, as the graph calls these vertices."""
    types = graph.vertex_types
    if ends is None or types is None or ids.ndim != 2:
        return ids
    if graph.ids is None:
        for name, column in zip(ends, ids.T, strict=True):
            check_inside(column, len(types.range(name)), f"{where}: {name}")
        return ids + np.array([types.range(name).start for name in ends], ids.dtype)
    if np.isin(ids, graph.ids).all():
        return ids
    return np.stack(
        [np.char.add(f"{name}:", column) for name, column in zip(ends, ids.T, strict=True)], axis=1
    )


def _check_types(pairs: np.ndarray, relations: np.ndarray, graph: Graph, where: str) -> None:
    """A UserError unless the ends of pairs are of the types that their relations join."""
    types = graph.vertex_types
    if types is None or not graph.relations or not len(pairs):
        return
    ends = np.array([[types.names.index(r.source), types.names.index(r.target)]
                     for r in graph.relations])  # fmt: skip
    wrong = types.of(pairs) != ends[relations]
    if wrong.any():
        row, side = np.argwhere(wrong)[0]
        vertex, relation = int(pairs[row, side]), graph.relations[relations[row]]
        called = vertex if graph.ids is None else graph.ids[vertex]
        raise UserError(
            f"{where}: the vertex {called} is no {(relation.source, relation.target)[side]}",
            f"{relation.name} leads from {relation.source} to {relation.target}",
        )


def pairs_of(
    train: object,
    val: object,
    test: object,
    *,
    graph_id: str,
    directed: bool,
    name: str = "links",
) -> PairSet:
    """The pairs of three graphs of PyTorch Geometric, as ``RandomLinkSplit`` makes them.

    ``edge_label_index`` with ``edge_label`` (0: a negative), or ``pos_edge_label_index`` and
    ``neg_edge_label_index``. Vertices are numbers of rows. The negatives to train on are taken
    if each pair has as many. A UserError if one of the graphs has no such pairs.
    """
    found = {}
    for mask, data in zip(MASKS, (train, val, test), strict=True):
        fields: Mapping[str, object] = data.to_dict() if hasattr(data, "to_dict") else {}
        arrays = {
            key: host_array(value) for key, value in fields.items() if key.count("edge_label")
        }
        found[mask] = _labelled_pairs(arrays, f"the graph of {mask}")
    return _pairs_from(found, graph_id, directed, name, "RandomLinkSplit")[0]


def _pairs_from(
    found: Mapping[str, Arrays],
    graph_id: str,
    directed: bool,
    name: str,
    made: str,
    known: Sequence[Relation] = (),
) -> tuple[PairSet, list[str]]:
    """A set of the arrays of each mask, with lines about what is left out.

    Pairs to train on that join a vertex to itself are left out, unless they have relations, and
    negatives to train on that do not belong to a pair each. Relations are numbered as those of the
    graph, ``known``: see :func:`partition.graph.relations.number_relations`.
    """
    kinds: dict[str, dict[str, np.ndarray]] = {
        kind: {} for kind in ("positives", "negatives", "candidates", "relations")
    }
    notes = []
    both = [mask for mask, arrays in found.items() if "both" in arrays]
    for mask in MASKS:
        arrays = found.get(mask, {})
        if "positives" not in arrays:
            raise UserError(f"there are no pairs of {mask}", f"give --{mask} FILE, or --from all")
        if both and "candidates" in arrays:
            raise UserError(f"{made}: candidates are of both ends in {both[0]}, of one in {mask}")
        for kind, array in arrays.items():
            kinds["candidates" if kind == "both" else kind][mask] = array
    relations: Mapping[str, np.ndarray] = kinds["relations"]
    names: tuple[str, ...] = ()
    if len(relations) not in (0, len(MASKS)):
        raise UserError(f"{made}: relations are not in all of train, val and test")
    if relations:
        relations, names = number_relations(relations, made, known)
    given = kinds["negatives"].get("train")
    count = len(kinds["positives"]["train"])
    if given is not None and (not count or len(given) % count):
        del kinds["negatives"]["train"]
        notes.append(f"{len(given):,} negatives to train on, for {count:,} pairs: left out")
    pairs = PairSet(
        name=name, graph_id=graph_id, id="", directed=directed, seed=None, made=made,
        positives=kinds["positives"], negatives=kinds["negatives"], candidates=kinds["candidates"],
        replaced="both" if both else "second", relations=relations, relation_names=names,
    )  # fmt: skip
    train = kinds["positives"]["train"]
    keep = (train[:, 0] != train[:, 1]) | bool(relations)
    if not keep.all():
        notes.append(f"{int((~keep).sum()):,} pairs to train on of a vertex with itself: left out")
        pairs = _of_mask(pairs, "train", keep)
    return identified(pairs), notes


def _without_held_out(pairs: PairSet, n: int) -> tuple[PairSet, int]:
    """The set without pairs that a later mask has too, and how many these are."""
    total = 0
    for mask, later in (("train", HELD_OUT), ("val", ("test",))):
        held = np.concatenate([pairs.keys(other, n) for other in later])
        keep = ~np.isin(pairs.keys(mask, n), held)
        pairs, total = _of_mask(pairs, mask, keep), total + int((~keep).sum())
    return identified(pairs), total


def vertices_of(ids: np.ndarray, graph: Graph, where: str) -> np.ndarray:
    """The vertices that are called so in the source of a graph, of any shape.

    A UserError, which begins with ``where``, if one is not there.
    """
    if graph.ids is None:
        if ids.dtype.kind not in "iu":
            raise UserError(f"{where}: vertices are 0..{graph.n - 1}, not {ids.dtype}")
        check_inside(ids.reshape(-1), graph.n, where)
        return ids
    known = np.asarray(graph.ids)
    if (known.dtype.kind == "U") != (ids.dtype.kind == "U"):
        raise UserError(f"{where}: vertices are {ids.dtype}, the ids of the graph {known.dtype}")
    before, after = f"{where} names the vertex", ", which the graph does not have"
    return positions(known, ids.reshape(-1), before, after).reshape(ids.shape)


def _of_mask(pairs: PairSet, mask: str, keep: np.ndarray) -> PairSet:
    """The set with those pairs of a mask, (m,) bool, and what belongs to each of them."""
    kept: dict[str, Any] = {}
    for kind in ("positives", "candidates", "relations", "negatives"):
        arrays = kept[kind] = dict(getattr(pairs, kind))
        if mask in arrays and kind != "negatives":
            arrays[mask] = arrays[mask][keep]
        elif mask in arrays and mask == "train":
            arrays[mask] = arrays[mask].reshape(len(keep), -1, 2)[keep].reshape(-1, 2)
    return replace(pairs, **kept)
