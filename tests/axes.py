"""The axes along which runs differ, and covering arrays: cases in which every two values meet.

Networks, schemes, kernels, transports and their options are those of the registries: a new one is
tested without a line here, with default settings. The tables below say what registries do not know:
settings that show more of a network, the grids of a number of ranks, numbers worth trying.

A grid of all combinations grows with the product of its axes, while a fault shows itself with one
value, or with two that meet: a covering array has each pair once. Where GCNMPI_TESTS is "all", as
in scripts/nightly.sh, lists have every combination; every three values, where that is too many.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice, product
from math import prod

import pytest

from gcnmpi.options.config import keys, load_config
from gcnmpi.options.kernel import KERNELS as KERNEL_REGISTRY
from gcnmpi.options.model import NETWORKS as NETWORK_REGISTRY
from gcnmpi.options.scheme import SCHEMES
from partition.errors import UserError

ALL = os.environ.get("GCNMPI_TESTS") == "all"
MOST = 5000  # combinations
TRIED, COMPARED = 500, 100  # cases that may have two values, and those among which one is chosen

KERNELS = [name for name, missing in KERNEL_REGISTRY.available().items() if not missing]

DROPOUT = ("model.dropout=0.4", "model.input_dropout=0.2")
ATTENTION = ("model.heads=3", "model.out_heads=2", "model.attention_dropout=0.3")

# Networks that need features of arcs, relations or samples over time have tests of their own.
OF_ARCS = ("gine", "transformer", "gatedgcn", "pna", "mgn")
OF_RELATIONS = ("rgcn", "rgat", "compgcn", "hetero", "hgt", "sehgnn")
OVER_TIME = ("gconvgru", "dcrnn", "stgcn")
# One of each other network, with different norms, residuals and activations.
SHOWN = {
    "gcn": ("model.hidden=9,6", "model.norm=layer", "model.residual=linear"),
    "sage": ("model.hidden=7,5", "model.norm=batch"),
    "gin": ("model.hidden=6,6", "model.train_eps=true", "model.norm=batch"),
    "gat": ("model.hidden=6,9", "model.activation=elu", *ATTENTION),
    "gatv2": ("model.hidden=6,9", "model.residual=linear", *ATTENTION),
    "gcnii": ("model.hidden=6,6,6", "model.norm=layer", "train.weight_decay=1e-3",
              "train.weight_decay_convs=0.01"),
    "appnp": ("model.hidden=8", "model.hops=3"),
    "sgc": ("model.hops=3",),
    "sign": ("model.hidden=5", "model.hops=2"),
    "mlp": ("model.hidden=8,8", "model.norm=batch", "model.activation=prelu"),
}  # fmt: skip
NETWORKS = {
    name: (f"model.name={name}", *SHOWN.get(name, ["model.hidden=7,5"]))
    for name in NETWORK_REGISTRY
    if name not in (*OF_ARCS, *OF_RELATIONS, *OVER_TIME)
}
NETWORKS["sage-max"] = ("model.name=sage", "model.aggregation=max", "model.hidden=7,5")
VARIANTS = {
    "gcn-none": ("model.name=gcn", "model.hidden=[]"),
    "gcn-jk-sum": ("model.name=gcn", "model.hidden=8,8", "model.jk=sum", "model.norm=l2"),
    "gcn-jk-cat": ("model.name=gcn", "model.hidden=8,5", "model.jk=cat", "model.activation=gelu"),
    "gcn-jk-max": ("model.name=gcn", "model.hidden=8,8", "model.jk=max", "model.activation=none"),
    "gcn-linear": (
        "model.name=gcn", "model.hidden=8,8", "model.linear_before=true", "model.linear_after=true",
        "model.residual=identity", "model.activation=leaky_relu",
    ),
    "gcn-trained": ("model.name=gcn", "model.hidden=6", "model.train_features=true"),
    "sage-sum": (
        "model.name=sage", "model.aggregation=sum", "model.normalize_output=true",
        "model.root_weight=false", "model.hidden=7", "model.include_self=true",
    ),
    "gin-eps": ("model.name=gin", "model.hidden=7", "model.eps=0.3", "model.activation=elu"),
    "gat-mean": (
        "model.name=gat", "model.hidden=5", "model.concat=false", "model.heads=2",
        "model.norm=layer", "model.jk=cat",
    ),
    "appnp-row": (
        "model.name=appnp", "model.hops=2", "graph.normalize=row", "model.norm=batch",
    ),
}  # fmt: skip
WHOLE_ROWS = ("sage-max", "gat", "gatv2", "gat-mean")
"""Those that look at neighbours one by one, which schemes that cut rows refuse."""

# Scheme → ranks, and copies or the grid where it has them: a part with rows of nobody from three
# on, copies that divide the parts or do not, stages that are parts of blocks, many ranks.
COPIES = [(2, 2), (3, 3), (4, 2), (6, 3), (12, 3)]
GRIDS = {
    "summa": [(2, "1x2"), (3, "3x1"), (4, "2x2"), (6, "2x3"), (12, "3x4")],
    "split3d": [(2, "1x1x2"), (3, "1x1x3"), (4, "2x1x2"), (6, "1x2x3"), (12, "2x3x2")],
    "tensor3d": [(2, "auto"), (3, "1x3x1"), (4, "1x2x2"), (6, "3x1x2"), (12, "2x3x2")],
}
FEW = 4  # of one rank, and of more than so many, which share the cores, a scheme has one case
RANKS = (1, 2, 3, 4, 7)
SCHEME_KINDS = {
    **{name: (f"scheme.name={name}",) for name in SCHEMES},
    "copies of all": ("scheme.name=replicated", "scheme.sparse=false"),
}
NUMBERS = {"scheme.progress_chunks": (1, 4), "scheme.block": (0, 2), "scheme.chunks": (1, 3)}
# Options that are axes of their own, that need what is not here, or that round.
ELSEWHERE = ("scheme.grid", "scheme.replication", "scheme.sparse", "comm.precision")


def settings_of(network: str) -> list[str]:
    """All settings of a network: with dropout where there is something to drop."""
    own = {**NETWORKS, **VARIANTS}[network]
    return [*own, *(() if network in ("sgc", "gcn-none") else DROPOUT)]


def places(scheme: str) -> list[tuple[int, tuple[str, ...]]]:
    """Numbers of ranks, and how the scheme arranges them."""
    if scheme in GRIDS:
        return [(nranks, (f"scheme.grid={grid}",)) for nranks, grid in GRIDS[scheme]]
    if scheme == "replicated":
        return [(nranks, (f"scheme.replication={copies}",)) for nranks, copies in COPIES]
    return [(nranks, ()) for nranks in (*RANKS, 12)]


def options_of(scheme: str, given: tuple[str, ...]) -> list[list[str]]:
    """The settings of each option that a scheme has with those which are given.

    Without what only stands for another value, or needs a device for each rank.
    """
    found = {}
    for key in SCHEMES.keys(scheme):
        if key not in ELSEWHERE:
            booleans = ("true", "false") if keys()[key].hint is bool else ()
            values = booleans or NUMBERS.get(key) or tuple(keys()[key].choices)
            settings = [f"{key}={value}" for value in values if value not in ("auto", "nccl")]
            found[key] = [setting for setting in settings if is_taken(*given, setting)]
    return [settings for settings in found.values() if settings]


def is_taken(*settings: str) -> bool:
    """Whether the configuration takes them together."""
    try:
        load_config(None, settings)
    except UserError:
        return False
    return True


def daily(*cases: object) -> list:
    """The cases of a test, of which all but the first are nightly ones."""
    rest = (case if isinstance(case, tuple) else (case,) for case in cases[1:])
    return [cases[0], *(pytest.param(*case, marks=pytest.mark.nightly) for case in rest)]


def covering(
    *axes: Sequence,
    allowed: Callable[..., bool] = lambda *case: True,
    met: Sequence[tuple] = (),
    seed: int = 1,
) -> list[tuple]:
    """Allowed cases, one value of each axis, that together have every pair which is allowed.

    Or every pair that none of the cases ``met`` has, of which other arrays consist.
    """
    few = prod(map(len, axes)) <= MOST
    if len(axes) < 3 or (ALL and few):
        return [case for case in product(*axes) if allowed(*case)]
    drawn, together = random.Random(seed), 3 if ALL else 2
    missing = dict.fromkeys(
        group
        for places in combinations(range(len(axes)), together)
        for group in product(*([(i, value) for value in range(len(axes[i]))] for i in places))
        if not any(all(case[i] == axes[i][value] for i, value in group) for case in met)
    )

    def completed(group: tuple) -> Iterator[tuple[int, ...]]:
        """Allowed cases that have these values, and others by chance."""
        for _ in range(TRIED):
            values = {i: drawn.randrange(len(axis)) for i, axis in enumerate(axes)} | dict(group)
            if allowed(*(axis[values[i]] for i, axis in enumerate(axes))):
                yield tuple(values.values())

    chosen = []
    while missing:
        first = next(iter(missing))
        among = {
            case: [group for group in combinations(enumerate(case), together) if group in missing]
            for case in islice(completed(first), COMPARED)
        }
        if among:
            best = max(among, key=lambda case: len(among[case]))
            chosen.append(best)
        for group in among[best] if among else [first]:
            del missing[group]
    return [tuple(axis[i] for axis, i in zip(axes, case, strict=True)) for case in sorted(chosen)]
