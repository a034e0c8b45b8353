"""Pairs for link prediction out of files of other programs, and out of graphs of PyTorch Geometric.

One file or folder may hold all masks (the splits of OGB, an ``npz``, a tuple that ``torch.save``
wrote), or there is a file for each array (tables, ``npy``, Parquet). Everything is read by the
readers of graphs: torch's files and pickles as data, tables by Arrow.

_Arrays of a mask are called "positives" (m, 2), "negatives" (q, 2), "candidates" (m, C) for the
second end, or "both" for each end, and "relations" (m,).
"""

import itertools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partition import tensor_files
from partition.errors import UserError, require
from partition.graph.graph import MASKS, Graph
from partition.graph.relations import Relation, names_of, number_relations
from partition.graph.vertex_pairs import HELD_OUT, PairSet, Twin, identified, keys
from partition.importing.readers import LISTS, RELATION, arc_lists, guess_format, torch_files
from partition.importing.readers.arc_columns import ends_of
from partition.importing.readers.files import COMPRESSED, check_file, check_inside, quoted
from partition.importing.readers.names import MASK_OF
from partition.importing.readers.numbering import positions
from partition.importing.readers.source import Layout
from partition.records import NUMBERS, TEXTS, map_npy, read_npz

_Arrays = dict[str, np.ndarray]
_VERTICES = ("positives", "negatives", "candidates", "both")  # arrays that hold ids of vertices
_LAYOUT = Layout()  # nothing is said of it
_TORCH = (".pt", ".pth")
_SUFFIXES = (
    *_TORCH, ".npy", ".parquet",
    *(text + packed for text in (".csv", ".tsv", ".txt") for packed in ("", *COMPRESSED)),
)  # fmt: skip
_MEANT = tensor_files.Meant(
    "pairs of vertices in a file of torch",
    "torch.save({'edge': pairs, 'edge_neg': negatives}, FILE), tensors of shape (m, 2)",
)
_NAMES = torch_files.CACHES | tensor_files.ARRAY_NAMES
# _Arrays that are read, by their names in OGB and PyTorch Geometric.
_KNOWN = {
    "edge", "edge_neg", "source_node", "target_node", "source_node_neg", "target_node_neg",
    "head", "tail", "head_neg", "tail_neg", RELATION, "edge_label_index", "edge_label",
    "pos_edge_label_index", "neg_edge_label_index", "pos_edge_label",
}  # fmt: skip


def import_pairs(
    whole: Path | None,
    parts: Mapping[tuple[str, str], Path],
    graph: Graph,
    layout: Layout = _LAYOUT,
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
    whole : path, optional
        A file or a folder that has all masks: see :func:`read_masks`.
    parts : mapping of (mask, kind) to path
        Files of single arrays; a kind is "positives", "negatives" or "candidates".
    layout : Layout
        Meaning of the columns of tables of positives, "source,relation,target"; their header and
        comments.
    drop_held_out : bool
        Leave pairs that are also in "val" or "test" out of those to train on, and those of "test"
        out of "val".
    twins : mapping of Twin to share, optional
        Relations with the edges of others, as :func:`partition.graph.vertex_pairs.twins_of` found
        them.
        One that was recognised does not count where files have its edges to train on.

    Raises
    ------
    UserError
        If a file is missing, damaged or of no format that is known, or names a vertex that the
        graph does not have, or one of another type than the relation's; or a mask has no pairs.
    """
    found, notes = {mask: _Arrays() for mask in MASKS}, list[str]()
    if whole is not None:
        listed, unread = read_masks(whole, graph, layout)
        found |= {m: _in_graph(arrays, graph, f"{whole}, {m}") for m, arrays in listed.items()}
        named = ", ".join(map(quoted, sorted(unread)))
        notes += [f"{whole}: not read: {named}"] if unread else []
    for (mask, kind), path in parts.items():
        if kind == "candidates":
            arrays = {kind: map_npy(path, kinds=NUMBERS + TEXTS)}
        else:
            negative = kind == "negatives"
            arrays, _ = _read_list(
                path, graph, replace(layout, columns=None) if negative else layout
            )
            arrays = {kind: arrays["positives"]} if negative else arrays
        found[mask] |= _in_graph(arrays, graph, f"{path}, {mask}")
    made = f"from {Path(whole or next(iter(parts.values()))).name}"
    pairs, more = _pairs_from(found, graph_id, directed, name, made, graph.relations)
    notes += more
    for mask, numbers in pairs.relations.items():
        _check_types(pairs.positives[mask], numbers, graph, f"{pairs.made}, {mask}")
    if drop_held_out:
        total = 0
        for mask, later in (("train", HELD_OUT), ("val", ("test",))):
            held = np.concatenate([pairs.keys(other, graph.n) for other in later])
            keep = ~np.isin(pairs.keys(mask, graph.n), held)
            pairs, total = _of_mask(pairs, mask, keep), total + int((~keep).sum())
        pairs = identified(pairs)
        notes += [f"{total:,} pairs are also held out, or to test on: left out"] if total else []
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


def listed_pairs(
    path: Path, graph: Graph, columns: str | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The pairs in a list of them, (m, 2) vertices, in its order: a table, ``.npy`` or Parquet.

    And their relations, (m,) integers, where ``columns`` names them. A UserError if it cannot be
    read, or names a vertex or a relation that the graph does not have.
    """
    arrays = _in_graph(_read_list(path, graph, Layout(columns=columns))[0], graph, str(path))
    pairs, relations = arrays["positives"], arrays.get("relations")
    if relations is None:
        return pairs, None
    numbered = bool(graph.relations) or relations.dtype.kind in "iu"
    require(numbered, f"{path}: relations are numbers, as the graph has none with names")
    numbers = number_relations({"": relations}, str(path), graph.relations)[0][""]
    _check_types(pairs, numbers, graph, str(path))
    return pairs, numbers


def read_masks(
    path: Path, graph: Graph, layout: Layout = _LAYOUT
) -> tuple[dict[str, _Arrays], set[str]]:
    """The arrays of all masks in one file or folder, and the names of those that are not read.

    A folder holds ``train``, ``valid`` (or ``val``) and ``test``, each with one of the suffixes
    that are known, or ``split_dict.pt``; or it has one such folder in ``split/``. ``layout`` as of
    :func:`_read_list`.

    A UserError if something is missing, damaged, or of a form that is not known.
    """
    if (path / "split").is_dir():
        inner = sorted(each for each in (path / "split").iterdir() if each.is_dir())
        if len(inner) != 1:
            names = ", ".join(each.name for each in inner) or "nothing"
            told = f"{path / 'split'} holds {names}, not one split"
            raise UserError(told, f"such as --from {path / 'split'}/time")
        return read_masks(inner[0], graph, layout)
    if (path / "split_dict.pt").is_file():
        path = path / "split_dict.pt"
    if path.is_dir():
        found, unread = dict[str, _Arrays](), set[str]()
        for mask, file in _files_of_masks(path).items():
            found[mask], more = _read_list(file, graph, layout)
            unread |= more
        return found, unread
    check_file(path)
    if path.suffix in _TORCH:
        parts, unread = _torch(path, len(MASKS))
        return dict(zip(MASKS, parts, strict=True)), unread
    if path.suffix != ".npz":
        raise UserError(
            f"{path} does not hold pairs of all masks",
            "a folder of train, valid and test, an .npz or a .pt does; or give --train, --val, "
            "--test",
        )
    # _Arrays are called as the files of a set: train, val_negatives …
    found, unread = {mask: {} for mask in MASKS}, set()
    for name, array in read_npz(path, kinds=NUMBERS + TEXTS).items():
        theirs, _, kind = name.partition("_")
        if theirs not in MASK_OF or kind not in ("", "negatives", "candidates", "relations"):
            unread.add(name)
        else:
            rows = kind in ("", "negatives")
            array = arc_lists.rows_of_pairs(array, f"{path}: {name}") if rows else array
            found[MASK_OF[theirs]][kind or "positives"] = array
    return found, unread


def _files_of_masks(folder: Path) -> dict[str, Path]:
    files = [file for file in sorted(folder.iterdir()) if file.name.endswith(_SUFFIXES)]
    files = [file for file in files if file.name.split(".")[0] in MASK_OF]
    found = {MASK_OF[file.name.split(".")[0]]: file for file in files}
    if not len(found) == len(files) == len(MASKS):
        names = ", ".join(file.name for file in files) or "nothing"
        raise UserError(
            f"{folder} has {names}: it is not clear which files hold the pairs",
            "one file each called train, valid and test, such as train.pt, train.csv or train.npy",
        )
    return found


def _read_list(path: Path, graph: Graph, layout: Layout) -> tuple[_Arrays, set[str]]:
    """The positives in a list of pairs, with relations if there is a column of them.

    Of a file of torch, which may hold a dict, all arrays of its mask; and the names of those that
    are not read. Of ``layout`` the columns, the header and comments are used. Ids are those of the
    graph: also where tables of two types have their own.
    """
    if path.suffix in _TORCH:
        (arrays,), unread = _torch(path, 1)
        return arrays, unread
    if (format := guess_format(path)) not in LISTS:
        raise UserError(
            f"{path} has the format {format}, which is no list of pairs",
            f"lists of pairs are {', '.join(LISTS)} and .pt; --from takes an .npz of all masks",
        )
    types, text = graph.vertex_types, graph.ids is not None and graph.ids.dtype.kind == "U"
    pairs = tuple(itertools.product(types.names, types.names)) if types is not None else ()
    layout = replace(layout, string_ids=text, types=pairs if len(pairs) > 1 else ())
    arrays, listed, _ = arc_lists.read_pairs(path, layout, look_up=True)
    if listed is not None and listed.doubtful and graph.ids is not None:
        listed.refuse_doubt(bool(np.isin(listed.doubtful, graph.ids).all()))
    if listed is None or listed.types is None or types is None:
        return arrays, set()
    ends, ids = list(zip(listed.types, arrays["positives"].T, strict=True)), arrays["positives"]
    if graph.ids is None:
        for name, column in ends:
            check_inside(column, len(types.range(name)), f"{path}: {name}")
        ids = ids + np.array([types.range(name).start for name, _ in ends], ids.dtype)
    elif not np.isin(ids, graph.ids).all():
        ids = np.stack([np.char.add(f"{name}:", column) for name, column in ends], axis=1)
    return arrays | {"positives": ids}, set()


def _in_graph(arrays: _Arrays, graph: Graph, where: str) -> _Arrays:
    """The arrays with vertices of the graph in place of ids."""
    return {
        kind: vertices_of(array, graph, where) if kind in _VERTICES else array
        for kind, array in arrays.items()
    }


def _labelled_pairs(fields: Mapping[str, np.ndarray], where: str) -> _Arrays:
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
    found = {"positives": np.column_stack(ends_of(positive, where, "(2, m)"))}
    if negative is not None and negative.size:
        found["negatives"] = np.column_stack(ends_of(negative, where, "(2, m)"))
    if label is not None and len(label) and label.max() > 1:
        found["relations"] = label.reshape(-1).astype(np.int64) - 1
    return found


def _named_pairs(fields: Mapping[str, np.ndarray], where: str) -> _Arrays:
    """The arrays of a mask out of those of a file, by their names."""
    if {"edge_label_index", "pos_edge_label_index"} & fields.keys():
        return _labelled_pairs(fields, where)
    found = {"relations": fields[RELATION].reshape(-1)} if RELATION in fields else {}
    ends = [("source_node", "target_node"), ("head", "tail")]
    ends = [pair for pair in ends if {*pair} <= fields.keys()]
    if not ends:
        if "edge" not in fields:
            raise UserError(f"{where} holds no pairs that are known", _MEANT.hint)
        named = {"positives": "edge", "negatives": "edge_neg"}.items()
        of = {kind: fields[name] for kind, name in named if name in fields}
        return found | {kind: arc_lists.rows_of_pairs(rows, where) for kind, rows in of.items()}
    first, second = ends[0]
    one, two = fields[first], fields[second]
    same = one.ndim == 1 and one.shape == two.shape
    require(same, f"{where}: the two ends of its pairs are {one.shape} and {two.shape}")
    found["positives"] = np.column_stack([one, two])
    if {f"{first}_neg", f"{second}_neg"} <= fields.keys():
        found["both"] = np.column_stack([fields[f"{second}_neg"], fields[f"{first}_neg"]])
    elif f"{second}_neg" in fields:
        found["candidates"] = fields[f"{second}_neg"]
    return found


def _torch(path: Path, masks: int) -> tuple[list[_Arrays], set[str]]:
    """The arrays of so many masks in a file of torch, and the names of those that are not read."""
    check_file(path)
    read_as = torch_files.CLASSES, _MEANT, _NAMES
    if not zipfile.is_zipfile(path):
        return _parts(tensor_files.read_old_torch(path, *read_as), None, path, masks)
    with tensor_files.open_torch(path, *read_as) as file:
        return _parts(file.content, file, path, masks)


def _parts(
    content: object, file: tensor_files.TorchFile | None, path: Path, masks: int
) -> tuple[list[_Arrays], set[str]]:
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
        for name, value in torch_files.attributes_of(part, path).items():
            if name == "head_type":
                raise UserError(
                    f"{path} has vertices of several types, such as ogbl-biokg",
                    "number all vertices together, and give tables of pairs",
                )
            tensor = tensor_files.is_tensor(value)
            if name not in _KNOWN:
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
        held = np.concatenate([of(mask, twin.relation) for mask in HELD_OUT])
        both = train[:, ::-1] if twin.turned else train, held
        train, held = (keys(ends, graph.n, pairs.directed) for ends in both)
        count = np.count_nonzero(np.isin(train, held))
        if share is None or not count:
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
        names = [name for name in fields if "edge_label" in name]
        arrays = {name: torch_files.host_array(fields[name]) for name in names}
        found[mask] = _labelled_pairs(arrays, f"the graph of {mask}")
    return _pairs_from(found, graph_id, directed, name, "RandomLinkSplit")[0]


def _pairs_from(
    found: Mapping[str, _Arrays],
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
    kinds: dict[str, Any] = {
        kind: {} for kind in ("positives", "negatives", "candidates", "relations")
    }
    notes = []
    both = next((mask for mask, arrays in found.items() if "both" in arrays), None)
    for mask in MASKS:
        arrays = found.get(mask, {})
        if "positives" not in arrays:
            raise UserError(f"there are no pairs of {mask}", f"give --{mask} FILE, or --from all")
        mixed = both is not None and "candidates" in arrays
        require(not mixed, f"{made}: candidates are of both ends in {both}, of one in {mask}")
        for kind, array in arrays.items():
            kinds["candidates" if kind == "both" else kind][mask] = array
    every = len(kinds["relations"]) in (0, len(MASKS))
    require(every, f"{made}: relations are not in all of train, val and test")
    if kinds["relations"]:
        numbered = number_relations(kinds["relations"], made, known)
        kinds["relations"], kinds["relation_names"] = numbered
    train, negatives = kinds["positives"]["train"], kinds["negatives"]
    given, count = len(negatives.get("train", ())), len(train)
    if "train" in negatives and (not count or given % count):
        del negatives["train"]
        notes.append(f"{given:,} negatives to train on, for {count:,} pairs: left out")
    pairs = PairSet(
        name=name, graph_id=graph_id, id="", directed=directed, seed=None, made=made,
        replaced="both" if both else "second", **kinds,
    )  # fmt: skip
    keep = (train[:, 0] != train[:, 1]) | bool(kinds["relations"])
    if not keep.all():
        notes.append(f"{int((~keep).sum()):,} pairs to train on of a vertex with itself: left out")
        pairs = _of_mask(pairs, "train", keep)
    return identified(pairs), notes


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
