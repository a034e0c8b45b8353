"""Masks that are drawn at random, at import and afterwards."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
from command_line import as_json, refused, run
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from small_graphs import from_arcs

from partition.graph.store import open_graph, write_graph
from partition.importing.splits import RandomSplit, draw_masks

N = 1000
LABELS = np.random.default_rng(0).integers(-1, 5, N).astype(np.int32)
GRAPH = replace(from_arcs(N, [(0, 1)]), labels=LABELS)
KNOWN = LABELS >= 0


def sizes(masks):
    return {name: np.count_nonzero(mask, axis=0).tolist() for name, mask in masks.items()}


def test_shares_of_the_vertices_with_labels():
    masks = draw_masks(GRAPH, RandomSplit("random:0.6,0.2,0.2", splits=3))
    n = int(KNOWN.sum())
    train, val = int(Fraction("0.6") * n), int(Fraction("0.2") * n)
    assert sizes(masks) == {"train": [train] * 3, "val": [val] * 3, "test": [n - train - val] * 3}
    together = sum(mask.astype(int) for mask in masks.values())
    np.testing.assert_array_equal(together, np.repeat(KNOWN[:, None], 3, axis=1))
    # Every split is another one, and each class has its share of about 60 %.
    shared = (masks["train"][:, 0] & masks["train"][:, 1]).sum() / train
    assert 0.5 < shared < 0.7
    for c in range(5):
        assert 0.45 < masks["train"][c == LABELS].mean() < 0.75


def test_some_of_each_class():
    labels = LABELS.copy()
    labels[np.flatnonzero(labels == 4)[7:]] = -1
    graph = replace(GRAPH, labels=labels)
    masks = draw_masks(graph, RandomSplit("per-class:20,100,300", splits=2, seed=3))
    for column in range(2):
        chosen = labels[masks["train"][:, column]]
        assert np.bincount(chosen).tolist() == [20, 20, 20, 20, 7]
    assert sizes(masks) == {"train": [87, 87], "val": [100, 100], "test": [300, 300]}
    assert not (sum(mask.astype(int) for mask in masks.values()) > 1).any()
    assert not masks["test"][labels < 0].any()


def test_it_depends_on_seed_split_and_id_only():
    rule = "random:0.5,0.25,0.25"
    masks = draw_masks(GRAPH, RandomSplit(rule, splits=5, seed=1))
    again = draw_masks(GRAPH, RandomSplit(rule, splits=2, seed=1))
    other = draw_masks(GRAPH, RandomSplit(rule, seed=2))
    for name, mask in masks.items():
        np.testing.assert_array_equal(mask[:, :2], again[name])
        assert (mask[:, 0] != other[name]).any()
    order = np.random.default_rng(5).permutation(N)
    for ids in (order, 7 * order + 3, np.char.zfill(order.astype(str), 4)):
        moved = replace(GRAPH, labels=LABELS[order], ids=ids)
        for name, mask in draw_masks(moved, RandomSplit(rule, splits=5, seed=1)).items():
            np.testing.assert_array_equal(mask, masks[name][order])


def test_targets_count_as_labels():
    targets = np.full((N, 2), np.nan, np.float32)
    targets[:10, 1] = 1
    graph = replace(GRAPH, labels=None, targets=targets)
    masks = draw_masks(graph, RandomSplit("random:0.5,0.3,0.2"))
    assert sizes(masks) == {"train": 5, "val": 3, "test": 2}
    assert not any(mask[10:].any() for mask in masks.values())
    refuses("needs a graph with classes", draw_masks, graph, RandomSplit("per-class:1,1,1"))


@given(
    n=st.integers(1, 60),
    shares=st.tuples(*[st.integers(1, 33)] * 3),
    splits=st.integers(1, 3),
    seed=st.integers(0, 2**64 - 1),
)
def test_masks_never_overlap(n, shares, splits, seed):
    labels = np.arange(n, dtype=np.int32) % 3
    graph = replace(from_arcs(n, []), labels=labels)
    split = RandomSplit("random:" + ",".join(f"0.{share:02}" for share in shares), splits, seed)
    if n * min(shares) < 100:
        refuses("no vertex is left for", draw_masks, graph, split)
        return
    masks = draw_masks(graph, split)
    assert list(sizes(masks).values()) == [
        n * share // 100 if splits == 1 else [n * share // 100] * splits for share in shares
    ]
    assert max(sum(mask.astype(int) for mask in masks.values()).ravel()) == 1


RULES = {
    **dict.fromkeys(("", "0.6,0.2,0.2", "random:0.6,0.2", "random:0.6,0.2,-0.2"), "is not a rule"),
    **dict.fromkeys(("random:1e999999999,0,0", "random:nan,0,0"), "is not a rule"),
    "per-class:0.5,1,1": "is not a rule",
    "random:0.6,0.3,0.2": "add up to 1.1",
    "random:0,0.5,0.5": "no vertex to train on",
    "per-class:0,10,10": "no vertex to train on",
}


def test_malformed_rules_are_refused():
    usual = "random:0.6,0.2,0.2"
    for rule, says in RULES.items():
        refuses(says, RandomSplit, rule)
    for splits, seed, says in ((0, 0, "0 splits"), (10**9, 0, "splits"), (1, -1, "seed -1")):
        refuses(says, RandomSplit, usual, splits, seed)
    many = RandomSplit("per-class:20,400,400")
    refuses("800 vertices are to validate and test, but", draw_masks, GRAPH, many)
    unlabelled = replace(GRAPH, labels=None)
    refuses("needs a graph with labels", draw_masks, unlabelled, RandomSplit(usual))


def test_drawn_masks_replace_those_of_files_and_the_other_way_round(tmp_path):
    folder = tmp_path / "g.graph"
    write_graph(folder, GRAPH, source={"file": "g.txt"})
    np.save(tmp_path / "train.npy", KNOWN)
    run("attach", folder, "--train-mask", tmp_path / "train.npy")
    words = ["--split", "per-class:20,100,300", "--splits", 2, "--seed", 4]
    facts = as_json("attach", folder, *words)
    split = {"rule": "per-class:20,100,300", "splits": 2, "seed": 4}
    assert facts["manifest"]["source"] == {"file": "g.txt", "split": split}
    assert facts["summary"]["masks"] == {"train": 100, "val": 100, "test": 300}
    stored = open_graph(folder).graph
    for name, mask in draw_masks(GRAPH, RandomSplit("per-class:20,100,300", 2, 4)).items():
        np.testing.assert_array_equal(stored.masks[name], mask)
    run("attach", folder, "--split", "random:0.6,0.2,0.2")
    assert open_graph(folder).graph.splits == 1
    said = refused("attach", folder, *words, "--train-mask", tmp_path / "train.npy")
    assert "does not go with files of masks" in said
    assert "but not how" in refused("attach", folder, "--splits", 2)
