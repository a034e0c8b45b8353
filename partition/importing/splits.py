"""Masks that are drawn at random: which of the labelled vertices train, validate and test."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from partition.errors import UserError
from partition.graph.graph import MASKS, UNLABELLED, Graph, known_rows
from partition.graph.hashing import key, mixed

SHARES, PER_CLASS = "random", "per-class"
SPLIT_EXAMPLES = "random:0.6,0.2,0.2 or per-class:20,500,1000"
_AMOUNTS = {SHARES: r"[0-9]?\.?[0-9]{1,18}", PER_CLASS: r"[0-9]{1,10}"}
MAX_SPLITS = 10_000
# Purposes of hashes: the order of all labelled vertices, or of those that per-class leaves.
_ALL, _OTHERS = 1, 2


@dataclass(frozen=True)
class RandomSplit:
    """How masks are drawn.

    Attributes
    ----------
    rule : str
        "random:0.6,0.2,0.2": the shares of the labelled vertices that train, validate and test,
        rounded down; where they add up to 1, the last takes the rest.
        "per-class:20,500,1000": of each class 20 vertices train, or all that it has; of the
        labelled vertices left, whatever their class, 500 validate and 1000 test.
    splits : int
        How many splits are drawn. Each is the same, however many there are.
    seed : int

    Raises
    ------
    UserError
        If the rule is malformed, or a number is out of range.
    """

    rule: str
    splits: int = 1
    seed: int = 0
    kind: str = field(init=False, repr=False)
    amounts: tuple[Fraction, ...] = field(init=False, repr=False)  # of each of MASKS

    def __post_init__(self) -> None:
        kind, amounts = _parsed(self.rule)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "amounts", amounts)
        if not 1 <= self.splits <= MAX_SPLITS:
            raise UserError(f"{self.splits} splits are not 1 to {MAX_SPLITS}")
        if not 0 <= self.seed < 2**64:
            raise UserError(f"seed {self.seed} is outside 0..2^64-1")

    def facts(self) -> dict[str, object]:
        """The entry of the manifest on it."""
        return {"rule": self.rule, "splits": self.splits, "seed": self.seed}


def draw_masks(graph: Graph, split: RandomSplit) -> dict[str, np.ndarray]:
    """The masks of a random split, of vertices with a label (or a target that is known) only.

    They are those that the rule does not give 0: (n,) bool each, or (n, splits) bool of several
    splits. A vertex is put in order by a hash of the seed, the number of the split and its place
    among the ids in increasing order: so its mask does not depend on the order of the vertices.

    A UserError if the graph has no labels, no classes where the rule counts in each, or too few
    vertices with a label.
    """
    known = known_rows(graph)
    labels = None
    if split.kind == PER_CLASS:
        if not graph.classes:
            hint = "give --labels, or shares: --split random:0.6,0.2,0.2"
            raise UserError(f"--split {split.rule} needs a graph with classes", hint)
        labels = np.asarray(graph.labels)
        known = labels != UNLABELLED
    if known is None:
        hint = "give --labels or --targets too"
        raise UserError(f"--split {split.rule} needs a graph with labels", hint)
    vertices = np.flatnonzero(known)
    places = np.arange(graph.n)  # among the ids in increasing order
    if graph.ids is not None:
        places[np.argsort(graph.ids)] = np.arange(graph.n)
    numbers = places[vertices]
    classes = None if labels is None else labels[vertices]

    names = [name for name, amount in zip(MASKS, split.amounts, strict=True) if amount]
    masks = {name: np.zeros((graph.n, split.splits), bool) for name in names}
    for column in range(split.splits):
        drawn = dict(zip(MASKS, _drawn(split, column, numbers, classes), strict=True))
        for name in names:
            masks[name][vertices[drawn[name]], column] = True
    return {name: mask if split.splits > 1 else mask[:, 0] for name, mask in masks.items()}


def _drawn(
    split: RandomSplit, column: int, numbers: np.ndarray, classes: np.ndarray | None
) -> list[np.ndarray]:
    """Which of the labelled vertices are in each mask of one split, as places in ``numbers``."""

    def shuffled(places: np.ndarray, purpose: int) -> np.ndarray:
        hashes = mixed(numbers[places], key(split.seed, purpose, column))
        return places[np.argsort(hashes)]  # no two are equal: the hash is a permutation

    order = shuffled(np.arange(len(numbers)), _ALL)
    if classes is None:
        sizes = _shares(split, len(order))
    else:
        training = _first_of_each_class(classes[order], int(split.amounts[0]))
        # Their hashes say which classes are small: shuffled anew, by other ones.
        others = shuffled(order[~training], _OTHERS)
        order = np.concatenate([order[training], others])
        sizes = [int(training.sum()), int(split.amounts[1]), int(split.amounts[2])]
        if sizes[1] + sizes[2] > len(others):
            raise UserError(
                f"--split {split.rule}: {sizes[1] + sizes[2]} vertices are to validate and test, "
                f"but {len(others)} with a label do not train"
            )
    return np.split(order, np.cumsum(sizes))[: len(MASKS)]


def _shares(split: RandomSplit, n: int) -> list[int]:
    """The sizes of the masks from their shares of n vertices."""
    sizes = [int(share * n) for share in split.amounts]
    if sum(split.amounts) == 1:
        last = max(i for i, share in enumerate(split.amounts) if share)
        sizes[last] += n - sum(sizes)
    for name, share, size in zip(MASKS, split.amounts, sizes, strict=True):
        if share and not size:
            raise UserError(
                f"--split {split.rule}: no vertex is left for {name}, of {n} with a label"
            )
    return sizes


def _first_of_each_class(classes: np.ndarray, count: int) -> np.ndarray:
    """Which are among the first ``count`` of their class, bool."""
    by_class = np.argsort(classes, kind="stable")
    ordered = classes[by_class]
    place = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    first = np.empty(len(classes), bool)
    first[by_class] = place < count
    return first


def _parsed(rule: str) -> tuple[str, tuple[Fraction, ...]]:
    """Whether amounts are shares or counted in each class, and the amounts."""
    kind, _, text = rule.partition(":")
    fields = text.split(",")
    if len(fields) != len(MASKS) or not all(
        re.fullmatch(_AMOUNTS.get(kind, "(?!)"), value) for value in fields
    ):
        raise UserError(
            f"--split {rule!r} is not a rule for training, validation and test",
            f"such as {SPLIT_EXAMPLES}",
        )
    amounts = tuple(map(Fraction, fields))
    if not amounts[0]:
        raise UserError(f"--split {rule} leaves no vertex to train on")
    if kind == SHARES and sum(amounts) > 1:
        raise UserError(f"--split {rule}: the shares add up to {float(sum(amounts)):g}")
    return kind, amounts
