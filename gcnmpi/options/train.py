"""The section ``[train]`` of the configuration: optimizer, learning rate, and when it ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gcnmpi.options.settings import Options, key
from partition.commands import parse_bytes
from partition.errors import UserError
from partition.graph.relations import Relation
from partition.graph.sampling import (
    SAMPLERS,
    TRAINING,
    Sampler,
    by_relation,
    make_sampler,
    stream_seed,
)
from partition.registry import Registry

_FULL = "full"  # all vertices in one batch: as without batches

OPTIMIZERS = Registry(
    "optimizer",
    {
        "adam": "gcnmpi.nn.optim:Adam",
        "adamw": "gcnmpi.nn.optim:AdamW",
        "sgd": "gcnmpi.nn.optim:SGD",
    },
    options={
        "adam": ("train.betas", "train.eps"),
        "adamw": ("train.betas", "train.eps"),
        "sgd": ("train.momentum",),
    },
)


SCHEDULES = Registry(
    "schedule",
    {
        "constant": "gcnmpi.nn.schedules:Constant",
        "cosine": "gcnmpi.nn.schedules:Cosine",
        "step": "gcnmpi.nn.schedules:Steps",
        "plateau": "gcnmpi.nn.schedules:Plateau",
    },
    options={
        "cosine": ("train.period", "train.min_lr"),
        "step": ("train.step_epochs", "train.decay"),
        "plateau": ("train.plateau_patience", "train.decay", "train.min_lr"),
    },
)


class TrainConfig(Options, section="train"):
    """``[train]``: how weights are optimised, and for how long.

    Attributes
    ----------
    epochs
        number of epochs
    seed
        seed of initial weights and dropout
    split
        which split of the masks, where the graph has several, docs/tasks.md#splits
    optimizer
        optimizer; its parameters mean the same as in PyTorch
    lr
        learning rate
    schedule
        learning rate over the epochs: cosine: from train.lr to train.min_lr in train.period epochs,
        then up again, and so on; step: times train.decay after every train.step_epochs; plateau:
        times train.decay, not below train.min_lr, after more than train.plateau_patience
        evaluations without a validation metric that is better by 0.01 %; constant
    warmup
        epochs W in which the learning rate is train.lr·epoch/W; the schedule begins after them
    clip_norm
        the gradient of all weights together is shortened to this length, before weight decay, as by
        clip_grad_norm_; 0: any length
    weight_decay
        L2 penalty, added to the gradient; adamw: taken off the weights
    weight_decay_layers
        layers that decay: all, or the first only, as in Kipf's GCN
    weight_decay_convs
        L2 penalty of the parameters convs.…, as of GCNII; 0: train.weight_decay
    batches
        mini-batches, docs/mini-batches.md: sampler,size[,fan-outs], such as neighbor,1024,10,5;
        empty: all vertices at once
    step_batches
        mini-batches of a step, whose gradients are averaged; train.groups share them:
        docs/mini-batches.md#on-grids
    fanouts
        fan-outs of single relations, name=numbers; name=…:
        docs/mini-batches.md#networks-of-relations
    draw_ahead
        a thread draws the next mini-batch meanwhile; auto: where a rank has a core more than
        threads
    cache_mb
        MB of input rows of others that a rank keeps for neighbor and labor,
        docs/mini-batches.md#rows-that-are-kept
    memory
        memory that a rank may take, such as 8GB, docs/memory.md: where keeping values takes more,
        they are made again for the backward pass, or written to a file; auto: what its node has
        free; all: they are kept; states:2: only states of arcs after every second layer; least:
        none
    scratch
        folder of a local disk, where values may be written until the backward pass,
        docs/memory.md#values-in-a-file; empty: none are
    groups
        groups of ranks, docs/samples.md#groups-of-ranks: each has the graph, and its share of a
        step's samples or mini-batches
    eval_every
        epochs between evaluations, which are also made after the last epoch; 0: none
    patience
        epochs without a better validation metric after which training ends; 0: none
    checkpoint_every
        epochs between checkpoints; 0: none by epochs
    checkpoint_minutes
        minutes after which the next checkpoint is written; 0: none by time
    momentum
        momentum
    betas
        decay rates of the two moments
    eps
        added to the denominator, which avoids division by zero
    decay
        factor of the learning rate
    min_lr
        lowest learning rate
    period
        epochs to the lowest learning rate, before it rises; 0: all after the warm-up, fixed at the
        start
    step_epochs
        epochs after which the learning rate falls
    plateau_patience
        evaluations without a better validation metric before the rate falls
    """

    epochs: int = key(200, low=1)
    seed: int = key(0, low=0, below=2**63)
    split: int = key(0, low=0)
    optimizer: str = key("adam", choices=OPTIMIZERS)
    lr: float = key(0.01, low=0)
    schedule: str = key("constant", choices=SCHEDULES)
    warmup: int = key(0, low=0)
    clip_norm: float = key(0.0, low=0, example=1.0)
    weight_decay: float = key(0.0, low=0, example=5e-4)
    weight_decay_layers: str = key("all", choices=("all", "first"))
    weight_decay_convs: float = key(0.0, low=0)
    batches: str = key("", example="neighbor,1024,10,5")
    step_batches: int = key(1, low=1, below=2**20)
    fanouts: str = key("", example="writes=10,5; cites=3")
    draw_ahead: str = key("auto", choices=("auto", "yes", "no"))
    cache_mb: float = key(0.0, low=0)
    memory: str = key("auto", example="8GB")
    scratch: str = key("", example="/scratch")
    groups: int = key(1, low=1, below=2**20)
    eval_every: int = key(1, low=0)
    patience: int = key(0, low=0)
    checkpoint_every: int = key(0, low=0)
    checkpoint_minutes: float = key(15.0, low=0)
    momentum: float = key(0.0, low=0, example=0.9)
    betas: tuple[float, ...] = key((0.9, 0.999), low=0)
    eps: float = key(1e-8, low=0)
    decay: float = key(0.1, low=0, below=1)
    min_lr: float = key(0.0, low=0, example=1e-5)
    period: int = key(0, low=0, example=100)
    step_epochs: int = key(100, low=1)
    plateau_patience: int = key(10, low=0)


@dataclass(frozen=True)
class Batches:
    """Mini-batches, as ``train.batches`` describes them.

    Attributes
    ----------
    sampler : str
    size, fanouts : str
        As :func:`partition.graph.sampling.make_sampler` takes them.
    clusters : str
        The partition whose parts the sampler "cluster" draws.
    """

    sampler: str
    size: str
    fanouts: str = ""
    clusters: str = ""

    @property
    def layered(self) -> bool:
        """Whether seeds are drawn, among the training vertices."""
        return bool(SAMPLERS.get(self.sampler).layered)


def ranks_of_group(size: int, train: TrainConfig) -> int:
    """The ranks that hold the graph together, of so many; a UserError if groups do not divide."""
    groups = train.groups
    if size % groups:
        raise UserError(
            f"train.groups = {groups} does not divide {size} ranks",
            f"start {groups} ranks for each part of the partition",
        )
    return size // groups


def batches_of(train: TrainConfig) -> Batches | None:
    """The mini-batches of ``train.batches``; None where all vertices train at once.

    A UserError if there is no such sampler, or something is missing.
    """
    name, *rest = train.batches.replace(" ", "").split(",")
    if name in ("", _FULL):
        return None
    SAMPLERS.get(name)
    clusters = rest.pop(0) if name == "cluster" and rest else ""
    if not rest:
        example = "cluster,hp-64,4" if name == "cluster" else "neighbor,1024,10,5"
        raise UserError(f"train.batches = {train.batches!r} gives no size", f"such as {example}")
    return Batches(name, rest[0], ",".join(rest[1:]), clusters)


def sampler_of(
    train: TrainConfig,
    n: int,
    seeds: int,
    clusters: np.ndarray | None = None,
    relations: Sequence[Relation] = (),
) -> Sampler:
    """The sampler that is configured.

    ``n``, ``seeds``: vertices of the graph, and those that train. Samplers of neighbours draw among
    the latter, of which they take as many as there are. ``clusters``, (n,) integers: as
    :func:`partition.graph.sampling.make_sampler` takes them. ``relations``: those that the network
    tells apart. A UserError if ``train.fanouts`` names none of them.
    """
    found = batches_of(train)
    assert found is not None
    many = seeds if found.layered else n
    size = str(min(int(found.size), many)) if found.size.isdecimal() else found.size
    seed = stream_seed(train.seed, TRAINING)
    sampler = make_sampler(found.sampler, many, size, seed, found.fanouts, clusters)
    if train.fanouts and not relations:
        raise UserError(
            "train.fanouts: this network does not tell relations apart",
            "leave it out, or use model.name = rgcn, rgat, compgcn, hetero or hgt",
        )
    return by_relation(sampler, n, relations, train.fanouts, "train.fanouts")


def check_train(train: TrainConfig) -> None:
    """A UserError if the values do not go together."""
    batches = batches_of(train)
    if batches is None and train.cache_mb:
        raise UserError(
            "train.cache_mb: rows are kept for mini-batches",
            "set train.batches, such as neighbor,1024,10,5, or leave train.cache_mb out",
        )
    if batches is None and train.step_batches > 1:
        raise UserError(
            "train.step_batches: there are no mini-batches",
            "set train.batches, such as vertex,1024, or leave train.step_batches out",
        )
    if train.fanouts and (batches is None or not batches.layered):
        raise UserError(
            "train.fanouts: neighbours are drawn by train.batches = neighbor or labor",
            "set train.batches, such as neighbor,1024,10,5, or leave train.fanouts out",
        )
    told = Residences.told(train.memory)
    if train.memory != "auto" and told is None:
        parse_bytes(train.memory, "train.memory")
    if told is not None and told.written and not train.scratch:
        raise UserError(
            f"train.memory = {train.memory}: there is no folder to write values to",
            "set train.scratch=FOLDER",
        )
    if train.scratch and batches is not None:
        raise UserError(
            "train.scratch: values of mini-batches are kept in memory",
            "leave train.scratch out, or train on all vertices at once",
        )
    if len(train.betas) != 2 or max(train.betas) >= 1:
        raise UserError("train.betas takes two numbers below 1", "such as 0.9,0.999")
    if not train.eval_every:
        for what in decided_by_evaluations(train):
            raise UserError(f"{what} needs evaluations", "set train.eval_every to 1 or more")


def decided_by_evaluations(train: TrainConfig) -> list[str]:
    """The keys that let the validation metric decide how a run goes on."""
    patience = ["train.patience"] if train.patience > 0 else []
    return patience + ["train.schedule = plateau"] * (train.schedule == "plateau")


KEPT, _STATES, LEAST = "all", "states:", "least"
"""Words of ``train.memory``; a number follows the second one."""
_ALAYER = re.compile(r"states:([1-9]\d*)")
FIRST = re.compile(r"first:([1-9]\d*)")
LISTED = {name: re.compile(rf"{name}:(\d+(?:,\d+)*)") for name in ("again", "written")}


@dataclass(frozen=True)
class Residences:
    """The values of a program that are not kept, by their numbers in ``gcnmpi info --program``.

    Attributes
    ----------
    every : int
        Rows of arcs are made again, and states of arcs kept after so many layers each; 0: kept.
    again : frozenset of int
        Values that are made again.
    written : frozenset of int
        Values that are written to a file.
    first : int
        Rows of a rank that are kept nevertheless, the first ones, of values that are made again
        block by block.
    """

    every: int = 0
    again: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    first: int = 0

    @classmethod
    def told(cls, memory: str) -> Residences | None:
        """The residences that a value of ``train.memory`` says; None: it needs a forecast.

        >>> Residences.told("least again:4,7 written:1").written
        frozenset({1})
        >>> Residences.told("8GB") is None
        True
        """
        found = cls()
        for word in memory.split():
            lists = {name: match for name in LISTED if (match := LISTED[name].fullmatch(word))}
            if layers := _ALAYER.fullmatch(word):
                found = replace(found, every=int(layers[1]))
            elif word == LEAST:
                found = replace(found, every=sys.maxsize)
            elif rows := FIRST.fullmatch(word):
                found = replace(found, first=int(rows[1]))
            elif "again" in lists:
                found = replace(found, again=_numbers(lists["again"][1]))
            elif "written" in lists:
                found = replace(found, written=_numbers(lists["written"][1]))
            elif word != KEPT:
                return None
        return found if memory.split() else None

    def __str__(self) -> str:
        """The same as a value of ``train.memory``.

        >>> str(Residences(2, frozenset({7, 4}), first=65536))
        'states:2 again:4,7 first:65536'
        """
        words = []
        if self.every:
            words.append(LEAST if self.every == sys.maxsize else f"{_STATES}{self.every}")
        for name in LISTED:
            if values := getattr(self, name):
                words.append(f"{name}:{_joined(values)}")
        words += [f"first:{self.first}"] if self.first else []
        return " ".join(words) or KEPT


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


def _joined(values: Iterable[int]) -> str:
    return ",".join(map(str, sorted(values)))
