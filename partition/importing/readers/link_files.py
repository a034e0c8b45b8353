"""Files with pairs for link prediction: splits of OGB, graphs of ``RandomLinkSplit``, tables.

Everything is read by the readers of graphs: torch's files and pickles as data, tables by Arrow.
Ids are as in the files. Arrays of a mask are called "positives" (m, 2), "negatives" (q, 2),
"candidates" (m, C) for the second end, or "both" for each end, and "relations" (m,).
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.graph.graph import MASKS
from partition.graph.relations import number_relations
from partition.importing.readers import LISTS, RELATION, files, guess_format
from partition.importing.readers.arc_columns import ends_of, ids_array
from partition.importing.readers.arc_lists import ArcList, find_arcs, given_roles
from partition.importing.readers.names import MASK_OF
from partition.importing.readers.numbering import number_vertices
from partition.importing.readers.pyg import CACHES, CLASSES, attributes_of
from partition.importing.readers.source import Layout, Reading, Source
from partition.importing.readers.typed_tables import ENTITY, TypedSource, checked, grouped
from partition.importing.readers.vertex_tables import read_ids
from partition.records import NUMBERS, TEXTS, map_npy, npz_names, read_npz
from partition.tensor_files import arrays
from partition.tensor_files.pickles import Meant
from partition.tensor_files.torch_zip import TorchFile, is_tensor, open_torch, read_old_torch

Arrays = dict[str, np.ndarray]
TORCH = (".pt", ".pth")
SUFFIXES = (
    *TORCH, ".npy", ".parquet",
    *(text + packed for text in (".csv", ".tsv", ".txt") for packed in ("", *files.COMPRESSED)),
)  # fmt: skip
MEANT = Meant(
    "pairs of vertices in a file of torch",
    "torch.save({'edge': pairs, 'edge_neg': negatives}, FILE), tensors of shape (m, 2)",
)
NAMES = CACHES | arrays.NAMES
TYPES = "head_type"
# Arrays that are read, by their names in OGB and PyTorch Geometric.
KNOWN = {
    "edge", "edge_neg", "source_node", "target_node", "source_node_neg", "target_node_neg",
    "head", "tail", "head_neg", "tail_neg", RELATION, "edge_label_index", "edge_label",
    "pos_edge_label_index", "neg_edge_label_index", "pos_edge_label",
}  # fmt: skip


@dataclass(frozen=True)
class PairList:
    """The pairs of a mask in a file.

    Attributes
    ----------
    arrays : dict of str to array
        "positives" and so on: see above.
    listed : ArcList, optional
        The table that they stand in, with the types that its columns are called as.
    """

    arrays: Arrays
    listed: ArcList | None = None


def read_masks(path: Path, layout: Layout) -> tuple[dict[str, PairList], list[str]]:
    """The arrays of all masks in one file or folder, and lines about what is not read.

    A folder holds ``train``, ``valid`` (or ``val``) and ``test``, each with one of the suffixes
    that are known, or ``split_dict.pt``; or it has one such folder in ``split/``. ``layout`` as of
    :func:`read_list`.

    A UserError if something is missing, damaged, or of a form that is not known.
    """
    if path.is_dir():
        inner = path / "split"
        if inner.is_dir():
            return read_masks(_only_folder(inner), layout)
        if (path / "split_dict.pt").is_file():
            return read_masks(path / "split_dict.pt", layout)
        found, unread = dict[str, PairList](), set[str]()
        for file in _files_of_masks(path):
            mask = MASK_OF[file.name.split(".")[0]]
            if file.suffix in TORCH:
                (arrays,), more = _torch(file, 1)
                found[mask] = PairList(arrays)
                unread |= more
            else:
                found[mask] = read_list(file, layout)
        return found, _unread(path, unread)
    files.check_file(path)
    if path.suffix in TORCH:
        parts, unread = _torch(path, len(MASKS))
        return dict(zip(MASKS, map(PairList, parts), strict=True)), _unread(path, unread)
    if path.suffix == ".npz":
        return _npz(path)
    raise UserError(
        f"{path} does not hold pairs of all masks",
        "a folder of train, valid and test, an .npz or a .pt does; or give --train, --val, --test",
    )


def read_list(path: Path, layout: Layout) -> PairList:
    """The positives in a list of pairs, with relations if there is a column of them.

    Of a file of torch, which may hold a dict, all arrays of its mask. Of ``layout`` the columns,
    the header, comments, types and ``string_ids`` are used.
    """
    if path.suffix in TORCH:
        return PairList(_torch(path, 1)[0][0])
    format = guess_format(path)
    if format not in LISTS:
        raise UserError(
            f"{path} has the format {format}, which is no list of pairs",
            f"lists of pairs are {', '.join(LISTS)} and .pt; --from takes an .npz of all masks",
        )
    if format == "npy":
        return PairList(_npy(path, layout.columns))
    with files.read_errors(path):
        listed = find_arcs(path, layout, parquet=format == "parquet")
        # A line that is no header has ids that somebody may look up.
        certain = listed if listed.header else replace(listed, doubtful=())
        return PairList(_joined(certain, {}), certain)


def read_array(path: Path) -> np.ndarray:
    """An array of ids in an ``.npy``: candidates, a row for each positive."""
    files.check_file(path)
    return map_npy(path, kinds=NUMBERS + TEXTS)


def labelled_pairs(fields: Mapping[str, np.ndarray], where: str) -> Arrays:
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
    found = {"positives": _columns_of(positive, where)}
    if negative is not None and negative.size:
        found["negatives"] = _columns_of(negative, where)
    if label is not None and len(label) and label.max() > 1:
        found["relations"] = label.reshape(-1).astype(np.int64) - 1
    return found


def _columns_of(index: np.ndarray, where: str) -> np.ndarray:
    return np.column_stack(ends_of(index, where, "(2, m)"))


def _named_pairs(fields: Mapping[str, np.ndarray], where: str) -> Arrays:
    """The arrays of a mask out of those of a file, by their names."""
    if {"edge_label_index", "pos_edge_label_index"} & fields.keys():
        return labelled_pairs(fields, where)
    for first, second in (("source_node", "target_node"), ("head", "tail")):
        if {first, second} <= fields.keys():
            positives = _stacked(fields[first], fields[second], where)
            break
    else:
        if "edge" not in fields:
            raise UserError(f"{where} holds no pairs that are known", MEANT.hint)
        first = second = "edge"
        positives = _rows_of_pairs(fields["edge"], where)
    found = {"positives": positives}
    if RELATION in fields:
        found["relations"] = fields[RELATION].reshape(-1)
    if "edge_neg" in fields and first == "edge":
        found["negatives"] = _rows_of_pairs(fields["edge_neg"], where)
    elif {f"{first}_neg", f"{second}_neg"} <= fields.keys():
        found["both"] = np.column_stack([fields[f"{second}_neg"], fields[f"{first}_neg"]])
    elif f"{second}_neg" in fields:
        found["candidates"] = fields[f"{second}_neg"]
    return found


def _stacked(first: np.ndarray, second: np.ndarray, where: str) -> np.ndarray:
    if first.ndim != 1 or first.shape != second.shape:
        raise UserError(f"{where}: the two ends of its pairs are {first.shape} and {second.shape}")
    return np.column_stack([first, second])


def _rows_of_pairs(array: np.ndarray, where: str) -> np.ndarray:
    """(m, 2) ids; (2, m) is turned round, if it can be nothing else."""
    if array.ndim == 2 and array.shape[1] != 2 == len(array):
        array = array.T
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iuU":
        raise UserError(
            f"{where}: pairs are ids in the shape (m, 2), not {array.dtype} {array.shape}"
        )
    return array


def _torch(path: Path, masks: int) -> tuple[list[Arrays], set[str]]:
    """The arrays of so many masks in a file of torch, and the names of those that are not read."""
    files.check_file(path)
    if not zipfile.is_zipfile(path):
        content = read_old_torch(path, CLASSES, MEANT, NAMES)
        return _parts(content, None, path, masks)
    with open_torch(path, CLASSES, MEANT, NAMES) as file:
        return _parts(file.content, file, path, masks)


def _parts(
    content: object, file: TorchFile | None, path: Path, masks: int
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
        for name, value in attributes_of(part, path).items():
            if name == TYPES:
                raise UserError(
                    f"{path} has vertices of several types, such as ogbl-biokg",
                    "number all vertices together, and give tables of pairs",
                )
            tensor = is_tensor(value)
            if name not in KNOWN:
                unread |= {name} if tensor or arrays.is_numpy_array(value) else set()
            elif tensor and file is None:
                raise UserError(
                    f"{path} has tensors in a form older than torch 1.6",
                    "load it with torch.load and save it with torch.save again",
                )
            elif tensor and file is not None:
                fields[name] = file.array(name, value)
            else:
                fields[name] = arrays.numpy_array(value, f"{path}: {name}")
        found.append(_named_pairs(fields, str(path)))
    return found, unread


def _npz(path: Path) -> tuple[dict[str, PairList], list[str]]:
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
            array = _rows_of_pairs(array, f"{path}: {name}")
        found[MASK_OF[mask]][kind] = array
    return {mask: PairList(arrays) for mask, arrays in found.items()}, _unread(path, unread)


def _npy(path: Path, columns: str | None) -> Arrays:
    """An array of pairs, or of triples whose columns are said."""
    array = map_npy(path, kinds=NUMBERS + TEXTS)
    if columns is None:
        return {"positives": _rows_of_pairs(array, str(path))}
    roles, width = given_roles(columns), columns.count(",") + 1
    if array.ndim != 2 or array.shape[1] != width:
        raise UserError(f"{path} has the shape {array.shape}, --columns {columns} names others")
    ends = [roles["source"], roles["target"]]
    found = {"positives": _rows_of_pairs(array[:, ends], str(path))}
    return found | ({"relations": array[:, roles[RELATION]]} if RELATION in roles else {})


def _joined(listed: ArcList, notes: dict[str, object]) -> Arrays:
    """All pairs of a table, and their relations if there is a column of them."""
    pieces = list(listed.pieces(Reading(whole=True), notes))
    columns = [[p.source for p in pieces], [p.target for p in pieces]]
    first, second = (np.concatenate(list(map(ids_array, some))) for some in columns)
    found = {"positives": np.column_stack([first, second])}
    if RELATION in listed.roles:
        found["relations"] = np.concatenate([ids_array(p.data[RELATION]) for p in pieces])
    return found


def _files_of_masks(folder: Path) -> list[Path]:
    found = [
        file
        for file in sorted(folder.iterdir())
        if file.name.split(".")[0] in MASK_OF and file.name.endswith(SUFFIXES)
    ]
    masks = [MASK_OF[file.name.split(".")[0]] for file in found]
    if sorted(masks) != sorted(MASKS):
        names = ", ".join(file.name for file in found) or "nothing"
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
    return [f"{path}: not read: {', '.join(map(files.quoted, sorted(names)))}"] if names else []


def read_arrays(path: Path) -> TypedSource | None:
    """Read an ``.npz`` of (m,) integers ``row``, ``column``, ``relation``; None without these.

    Perhaps with ``labels``, (n,) integers, −1 for none, and numbers of vertices in ``train``,
    ``val``, ``test``. A UserError if an array does not fit the others.
    """
    if not {"row", "column", RELATION} <= npz_names(path):
        return None
    arrays = read_npz(path)
    row, column, relation = (arrays[name].reshape(-1) for name in ("row", "column", RELATION))
    ends = ends_of(np.stack([row, column]), str(path), "(m,) each")
    if len(relation) != len(row) or relation.dtype.kind not in "iu":
        raise UserError(f"{path}: there are {len(row)} arcs, and {len(relation)} relations")
    labels = arrays.get("labels")
    n = int(max(end.max(initial=-1) for end in ends)) + 1 if labels is None else len(labels)
    given, number = np.unique(relation, return_inverse=True)
    arcs = Source(n, *ends, format="triples")
    masks = {}
    for name in MASKS:
        if name in arrays:
            files.check_inside(arrays[name], n, f"{path}, {name}")
            masks[name] = {ENTITY: np.isin(np.arange(n), arrays[name])}
    found = grouped(arcs, number, list(map(str, given.tolist())))
    of_labels = {} if labels is None else {ENTITY: labels}
    return checked(replace(found, labels=of_labels, masks=masks), str(path))


def read_triples(path: Path, layout: Layout) -> TypedSource:
    """Read a table of triples in text, Parquet or ``.npy``; ids are integers or texts.

    ``layout.columns`` says where sources, relations and targets stand. A UserError if the file
    holds none, or an id is not among those announced.
    """
    notes: dict[str, object] = {}
    if (format := guess_format(path)) == "npy":
        found = _npy(path, layout.columns)
    else:
        found = _joined(find_arcs(path, layout, parquet=format == "parquet"), notes)
    pairs, relation = found["positives"], found.get("relations")
    if relation is None or not len(pairs):
        raise UserError(f"{path} holds no triples")
    text = pairs.dtype.kind == "U"
    ids = None if layout.ids is None else read_ids(layout.ids, text=text, comments=layout.comments)
    names = None
    if text:
        names, places = np.unique(pairs, return_inverse=True)
        pairs = places.reshape(-1, 2)
    n, source, target, ids = number_vertices(
        pairs[:, 0], pairs[:, 1], str(path), names=names, vertices=layout.vertices, ids=ids
    )
    numbers, called = number_relations({"": relation}, str(path))
    number = numbers[""]
    if not called:
        given, number = np.unique(number, return_inverse=True)
        called = tuple(map(str, given.tolist()))
    kept = {key: value for key, value in notes.items() if key == "comments"}
    return grouped(Source(n, source, target, ids=ids, format="triples", notes=kept), number, called)
