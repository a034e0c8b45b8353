"""Random examples: a graph, its partition, and a value for every key of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Random = np.random.Generator


@dataclass
class Example:
    """A graph as lists: (source, target, weight) of each arc, and the data of its vertices."""

    n: int
    arcs: list[tuple[int, int, float]]
    features: np.ndarray
    labels: np.ndarray
    masks: dict[str, np.ndarray]
    weighted: bool

    def training(self) -> np.ndarray:
        """Which vertices train, (n,) bool."""
        labelled = self.labels >= 0
        return labelled & self.masks["train"] if "train" in self.masks else labelled


def draw_example(rng: Random) -> Example:
    """A graph of 1 to 300 vertices, many of them degenerate in one way or another."""
    n = int(rng.choice([rng.integers(1, 9), rng.integers(1, 60), rng.integers(60, 301)]))
    pairs = sorted(_SHAPES[rng.choice(list(_SHAPES))](rng, n))
    if rng.random() < 0.3:
        pairs = sorted({*pairs, *((t, s) for s, t in pairs)})
    kind = rng.choice(["none", "positive", "signed", "zeros"], p=[0.4, 0.3, 0.2, 0.1])
    draw = _WEIGHTS[kind]
    weights = draw(rng, len(pairs)).tolist()
    arcs = [(s, t, w) for (s, t), w in zip(pairs, weights, strict=True)]
    width, classes = int(rng.integers(1, 12)), int(rng.integers(1, 7))
    features = rng.standard_normal((n, width)).astype(np.float32)
    if rng.random() < 0.1:
        features[rng.random(n) < 0.5] = 0
    labels = rng.integers(0, classes, n).astype(np.int32)
    if rng.random() < 0.3:
        labels[rng.random(n) < 0.5] = -1
    masks = {}
    if rng.random() < 0.8:
        part = rng.choice(3, n, p=[0.5, 0.3, 0.2])
        masks = {name: part == i for i, name in enumerate(("train", "val", "test"))}
        for name in ("val", "test"):
            if rng.random() < 0.15:
                del masks[name]
    return Example(n, arcs, features, labels, masks, kind != "none")


def _some(rng: Random, n: int, among: Callable[[int, int], bool] = lambda s, t: True) -> set:
    count = int(rng.integers(0, 6 * n))
    pairs = {(int(s), int(t)) for s, t in rng.integers(0, n, (count, 2))}
    return {(s, t) for s, t in pairs if among(s, t)}


_SHAPES: dict[str, Callable[[Random, int], set]] = {
    "empty": lambda rng, n: set(),
    "random": _some,
    "no loops": lambda rng, n: _some(rng, n, lambda s, t: s != t),
    "loops only": lambda rng, n: {(i, i) for i in range(n) if rng.random() < 0.7},
    "star in": lambda rng, n: {(i, 0) for i in range(1, n)},
    "star out": lambda rng, n: {(n - 1, i) for i in range(n - 1)},
    "complete": lambda rng, n: {(s, t) for s in range(min(n, 25)) for t in range(min(n, 25))},
    "path": lambda rng, n: {(i, i + 1) for i in range(n - 1)},
    "bipartite": lambda rng, n: _some(rng, n, lambda s, t: s < n // 2 <= t),
    "two components": lambda rng, n: _some(rng, n, lambda s, t: (s < n // 2) == (t < n // 2)),
    "mostly isolated": lambda rng, n: _some(rng, n, lambda s, t: s % 7 == 0 and t % 5 == 0),
}
# Signed ones are multiples of 1/4, so that sums are exact and those that cancel are 0.
_WEIGHTS: dict[str, Callable[[Random, int], np.ndarray]] = {
    "none": lambda rng, count: np.ones(count),
    "positive": lambda rng, count: rng.uniform(0.1, 2, count),
    "signed": lambda rng, count: rng.integers(-6, 7, count) / 4,
    "zeros": lambda rng, count: rng.integers(0, 3, count).astype(float),
}


def draw_settings(rng: Random, nranks: int) -> dict[str, Any]:
    """A value for every key that the drawn scheme, optimizer and kernel have."""

    def one_of(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    settings = {
        "dtype": str(rng.choice(["float64", "float32"], p=[0.8, 0.2])),
        "kernel": one_of("auto", "native", "graphblas", "scipy"),
        "threads": one_of(1, 1, 2),
        "graph.normalize": one_of("sym", "row", "none"),
        "graph.direction": one_of("in", "out"),
        "graph.self_loops": one_of(True, True, False),
        "graph.feature_norm": one_of("none", "none", "row"),
        "model.hidden": [int(d) for d in rng.integers(1, 10, rng.integers(0, 4))],
        "model.dropout": one_of(0.0, 0.3, 0.7),
        "model.input_dropout": one_of(0.0, 0.0, 0.2),
        "model.bias": one_of(True, True, False),
        "model.cache_input": one_of(True, False),
        "model.train_features": one_of(False, False, False, True),
        "train.epochs": int(rng.integers(1, 7)),
        "train.seed": int(rng.integers(0, 2**40)),
        "train.optimizer": one_of("adam", "sgd"),
        "train.lr": one_of(0.01, 0.1, 0.3),
        "train.weight_decay": one_of(0.0, 5e-4, 0.05),
        "train.weight_decay_layers": one_of("all", "first"),
        "train.eval_every": one_of(1, 1, 2, 3),
        "train.memory": one_of("auto", "all", "least"),
        "loading.max_buffer_mb": one_of(64.0, 0.001),
        "comm.timeout": one_of(0.0, 60.0),
        "scheme.name": one_of(
            "p2p", "p2p", "bcast", "replicated", "summa", "split3d", "tensor3d", "columns"
        ),
    }
    if settings["train.optimizer"] == "sgd":
        settings["train.momentum"] = one_of(0.0, 0.9)
    else:
        settings["train.betas"] = one_of([0.9, 0.999], [0.5, 0.9], [0.0, 0.99999999])
        settings["train.eps"] = one_of(1e-8, 1e-3)
    scheme = settings["scheme.name"]
    if scheme != "tensor3d":  # it always aggregates first
        settings["model.order"] = one_of("auto", "combine", "aggregate")
    settings |= _SCHEME_KEYS[scheme](one_of, nranks)
    return settings


def _order(one_of: Callable) -> dict[str, Any]:
    return {"loading.order": one_of("auto", "none", "rcm", "degree")}


def _rows(one_of: Callable, nranks: int) -> dict[str, Any]:
    transports = ("persistent", "isend", "neighbor", "alltoallv", "onesided", "shared")
    transport = one_of(*transports)
    exchanges = ("auto", "rows") if transport == "shared" else ("auto", "rows", "mixed")
    return {
        "scheme.backward": one_of("auto", "fold", "expand"),
        "scheme.exchange": one_of(*exchanges),
        "scheme.transport": transport,
        "scheme.progress_chunks": one_of(1, 4, 7),
        **_order(one_of),
    }


def _replicated(one_of: Callable, nranks: int) -> dict[str, Any]:
    copies = one_of(*(c for c in range(1, nranks + 1) if nranks % c == 0))
    if one_of(True, False):
        return {"scheme.replication": copies, "scheme.sparse": True, **_rows(one_of, nranks)}
    whole = {"scheme.sparse": False, "scheme.overlap": one_of(True, False)}
    return {"scheme.replication": copies, **whole, **_order(one_of)}


def _grid(one_of: Callable, nranks: int, axes: int) -> str:
    sizes, left = [], nranks
    for _ in range(axes - 1):
        size = one_of(*(d for d in range(1, left + 1) if left % d == 0))
        sizes.append(size)
        left //= size
    return "x".join(map(str, [*sizes, left]))


_SCHEME_KEYS: dict[str, Callable] = {
    "p2p": _rows,
    "bcast": lambda one_of, nranks: {"scheme.overlap": one_of(True, False), **_order(one_of)},
    "columns": lambda one_of, nranks: _order(one_of),
    "replicated": _replicated,
    "summa": lambda one_of, nranks: {
        "scheme.grid": _grid(one_of, nranks, 2),
        "scheme.block": one_of(0, 0, 2),
    },
    "split3d": lambda one_of, nranks: {
        "scheme.grid": _grid(one_of, nranks, 3),
        "scheme.block": one_of(0, 0, 3),
    },
    "tensor3d": lambda one_of, nranks: {
        "scheme.grid": _grid(one_of, nranks, 3),
        "scheme.chunks": one_of(1, 1, 3),
        "scheme.transpose_grad": one_of(False, True),
    },
}


def draw_parts(
    rng: Random, n: int, nranks: int, settings: dict[str, Any]
) -> tuple[np.ndarray, int] | None:
    """The part of each vertex, (n,) int32, uneven and with empty parts, and how many; or None."""
    scheme = settings["scheme.name"]
    k = nranks
    if scheme == "replicated":
        k = nranks // settings["scheme.replication"]
    elif scheme != "p2p":
        if rng.random() < 0.5:
            return None
        whole = scheme in ("bcast", "columns")  # a rank has as many parts as any other
        k = nranks * int(rng.integers(1, 4)) if whole else int(rng.integers(1, 13))
    if scheme in ("p2p", "replicated") and k == 1 and rng.random() < 0.5:
        return None
    shares = rng.random(k) + 0.05
    shares[rng.random(k) < 0.15] = 0
    shares = shares if shares.any() else np.ones(k)
    return rng.choice(k, n, p=shares / shares.sum()).astype(np.int32), k
