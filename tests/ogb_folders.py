"""Folders as OGB publishes them, for tests."""

import gzip

import numpy as np


def rows(path, lines):
    """A gzip'd csv without a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, np.atleast_1d(line))) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()))


def write_split(root, masks, name="time"):
    for part, vertices in zip(("train", "valid", "test"), masks, strict=True):
        rows(root / "split" / name / f"{part}.csv.gz", vertices)


def write_text(root, n, ends, features=None, labels=None, masks=None):
    """``raw/*.csv.gz`` of a graph with n vertices and (E, 2) arcs."""
    lists = {"edge": ends, "num-node-list": [n], "num-edge-list": [len(ends)]}
    for name, lines in (lists | {"node-feat": features, "node-label": labels}).items():
        if lines is not None:
            rows(root / "raw" / f"{name}.csv.gz", lines)
    if masks is not None:
        write_split(root, masks)
    return root


def write_binary(root, n, ends, features=None, labels=None, masks=None):
    """``raw/data.npz`` of the same."""
    (root / "raw").mkdir(parents=True)
    arrays = {"num_nodes_list": np.array([n]), "num_edges_list": np.array([len(ends)])}
    arrays |= {} if features is None else {"node_feat": features}
    arrays |= {"edge_index": np.array(np.transpose(ends), order="C"), "node_year": np.zeros((n, 1))}
    np.savez_compressed(root / "raw" / "data.npz", **arrays)
    if labels is not None:
        np.savez_compressed(root / "raw" / "node-label.npz", node_label=labels)
    if masks is not None:
        write_split(root, masks)
    return root
