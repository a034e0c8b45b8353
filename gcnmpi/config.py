"""The configuration: TOML and ``--set key=value`` into frozen dataclasses.

Every key, its default and what it means stand once, in the classes below; an unknown key, a
value of the wrong type or out of range is a :class:`UserError` that names the key.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from gcnmpi.kernels import AUTO, KERNELS
from gcnmpi.schemes import SCHEMES, TRANSPORTS
from partition.errors import UserError, unknown_name
from partition.graph import DIRECTIONS, NORMALIZATIONS
from partition.registry import Registry

MODELS = Registry("model", {"gcn": "gcnmpi.models:GCN"})
OPTIMIZERS = Registry("optimizer", {"adam": "gcnmpi.optim:Adam", "sgd": "gcnmpi.optim:SGD"})
ROW_ORDERS = Registry(
    "order of rows",
    {
        "auto": "gcnmpi.row_order:by_need",
        "none": "gcnmpi.row_order:by_id",
        "rcm": "gcnmpi.row_order:by_bandwidth",
        "degree": "gcnmpi.row_order:by_degree",
    },
)


def key(
    default: Any,
    doc: str,
    *,
    choices: Iterable[str] = (),
    also: tuple[str, ...] = (),
    low: float | None = None,
    below: float | None = None,
    positive: bool = False,
) -> Any:
    """A configuration key: default, one-line meaning and the values it may take."""
    metadata = {
        "doc": doc,
        "choices": choices,  # a registry stays one: what is added to it later counts
        "also": also,  # further choices
        "low": low,
        "below": below,
        "positive": positive,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class GraphConfig:
    """``[graph]``: how the aggregation matrix M is made of the graph."""

    normalize: str = key("sym", "weights of M", choices=NORMALIZATIONS)
    direction: str = key(
        "auto", "row of M an arc belongs to; auto: as imported", choices=("auto", *DIRECTIONS)
    )
    self_loops: bool = key(True, "put a 1 on the diagonal of A where it is missing")
    feature_norm: str = key(
        "none", "row: divide each feature row by its sum", choices=("none", "row")
    )


@dataclass(frozen=True)
class ModelConfig:
    """``[model]``: the network."""

    name: str = key("gcn", "network", choices=MODELS)
    hidden: tuple[int, ...] = key((16,), "widths of the hidden layers", low=1)
    dropout: float = key(0.0, "dropout on the output of hidden layers", low=0, below=1)
    input_dropout: float = key(0.0, "dropout on the input features", low=0, below=1)
    bias: bool = key(True, "add a bias to each layer")
    order: str = key(
        "auto",
        "which product first: M(HW) or (MH)W; auto: the one that moves fewer bytes",
        choices=("auto", "combine", "aggregate"),
    )
    cache_input: bool = key(True, "keep M times the features where they never change")
    train_features: bool = key(False, "learn the input features too, from those of the graph")


@dataclass(frozen=True)
class TrainConfig:
    """``[train]``: the optimisation."""

    epochs: int = key(200, "number of epochs", low=1)
    seed: int = key(0, "seed of initial weights and dropout", low=0, below=2**63)
    optimizer: str = key("adam", "optimizer, with PyTorch's meaning", choices=OPTIMIZERS)
    lr: float = key(0.01, "learning rate", low=0)
    momentum: float = key(0.0, "momentum of sgd", low=0)
    betas: tuple[float, ...] = key((0.9, 0.999), "decay rates of adam's two moments", low=0)
    eps: float = key(1e-8, "adam's guard against division by zero", low=0)
    weight_decay: float = key(0.0, "L2 penalty, added to the gradient", low=0)
    weight_decay_layers: str = key(
        "all", "layers that decay: all, or the first as in Kipf's GCN", choices=("all", "first")
    )
    eval_every: int = key(1, "evaluate accuracies every so many epochs; 0: never", low=0)
    checkpoint_every: int = key(0, "checkpoint every so many epochs; 0: never", low=0)
    checkpoint_minutes: float = key(
        15.0, "checkpoint after so many minutes without one; 0: never", low=0
    )


@dataclass(frozen=True)
class SchemeConfig:
    """``[scheme]``: the distributed algorithm."""

    name: str = key("p2p", "distributed algorithm", choices=SCHEMES)
    backward: str = key(
        "auto",
        "exchange of the backward pass; auto: expand where the pattern is symmetric, else fold",
        choices=("auto", "expand", "fold"),
    )
    transport: str = key("persistent", "p2p, replicated: what carries the rows", choices=TRANSPORTS)
    progress_chunks: int = key(
        4, "p2p, replicated: row blocks of the own product, MPI looked after in between", low=1
    )
    grid: str = key(
        "auto", "ranks along the axes of a grid, such as 4x2; auto: the fastest by the cost model"
    )
    machine: str = key("", "file of 'gcnmpi calibrate' for grid = 'auto'; empty: usual constants")
    replication: int = key(2, "replicated: how often each part is stored", low=1)
    sparse: bool = key(True, "replicated: send only the rows that are needed")
    overlap: bool = key(
        True, "bcast, replicated: receive a block while the one before is multiplied"
    )
    block: int = key(0, "summa: columns that are broadcast at once in T·W; 0: all", low=0)
    permutation: str = key(
        "auto",
        "grids without a partition: order of the vertices; double: rows and columns differ",
        choices=("auto", "none", "single", "double"),
    )
    chunks: int = key(1, "tensor3d: row blocks whose all-reduce hides behind the next one", low=1)
    transpose_grad: bool = key(False, "tensor3d: compute Wᵀ's gradient as Gᵀ·T, not Tᵀ·G")


@dataclass(frozen=True)
class LoadingConfig:
    """``[loading]``: how the graph is brought to its owners."""

    max_buffer_mb: float = key(64.0, "send buffer of the redistribution, MiB a rank", positive=True)
    order: str = key(
        "auto",
        "order of a rank's rows in memory; auto: rcm if the graph's says little, then by length",
        choices=ROW_ORDERS,
    )


@dataclass(frozen=True)
class CommConfig:
    """``[comm]``: the life of the job, and how messages travel."""

    timeout: float = key(
        0.0, "end the job after so many seconds in which a rank has not moved; 0: never", low=0
    )
    cuda_aware: str = key(
        "auto",
        "kernel cupy: messages straight from the device; auto: if MPI says that it can",
        choices=("auto", "yes", "no"),
    )
    nccl: str = key(
        "auto",
        "kernel cupy: NCCL sums the gradients; auto: where each rank has a device of its own",
        choices=("auto", "yes", "no"),
    )


@dataclass(frozen=True)
class Config:
    """The whole configuration; the top-level keys are not in any table."""

    kernel: str = key(
        AUTO,
        "local arithmetic; auto: native where it was built, else graphblas",
        choices=KERNELS,
        also=(AUTO,),
    )
    dtype: str = key("float32", "floating-point type", choices=("float32", "float64"))
    threads: int = key(0, "threads a rank; 0: its share of the cores it may run on", low=0)
    graph: GraphConfig = field(default_factory=GraphConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    scheme: SchemeConfig = field(default_factory=SchemeConfig)
    loading: LoadingConfig = field(default_factory=LoadingConfig)
    comm: CommConfig = field(default_factory=CommConfig)


def load_config(path: str | os.PathLike | None = None, settings: Iterable[str] = ()) -> Config:
    """Read a TOML file, then apply ``key=value`` settings over it.

    Parameters
    ----------
    path : path, optional
        TOML file; without it, the defaults.
    settings : iterable of str
        ``"train.epochs=20"``; the value is TOML, or a bare word.

    Raises
    ------
    UserError
        If the file is missing or no TOML, or a key or value is not one there is.
    """
    return read_config(path, settings)[0]


def read_config(
    path: str | os.PathLike | None = None, settings: Iterable[str] = ()
) -> tuple[Config, frozenset[str]]:
    """:func:`load_config`, and the full names of the keys that the file and the settings give."""
    table: dict[str, Any] = {}
    if path is not None:
        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not valid TOML: {error}") from error
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set {setting!r} is not of the form key=value")
        _put(table, name.strip().split("."), _value(text.strip()))
    return from_table(table), frozenset(_names(table))


def _names(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _names(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def from_table(table: Mapping[str, Any]) -> Config:
    """A checked :class:`Config` from nested mappings (parsed TOML, or a record's config)."""
    config = _build(Config, table, "")
    if len(config.train.betas) != 2 or max(config.train.betas) >= 1:
        raise UserError("train.betas takes two numbers below 1")
    return config


def keys() -> Iterator[tuple[str, Any, str]]:
    """Every key with its default and its meaning, for help texts and documentation."""
    for entry in dataclasses.fields(Config):
        if entry.metadata:
            yield entry.name, entry.default, _meaning(entry)
    for section in dataclasses.fields(Config):
        if not section.metadata:
            for entry in dataclasses.fields(_class_of(section)):
                yield f"{section.name}.{entry.name}", entry.default, _meaning(entry)


def _meaning(entry: dataclasses.Field) -> str:
    choices = [*entry.metadata["also"], *entry.metadata["choices"]]
    return entry.metadata["doc"] + (f" ({', '.join(choices)})" if choices else "")


def _class_of(entry: dataclasses.Field) -> type:
    return get_type_hints(Config)[entry.name]


def _build(cls: type, table: Mapping[str, Any], prefix: str) -> Any:
    entries = {entry.name: entry for entry in dataclasses.fields(cls)}
    hints = get_type_hints(cls)
    values = {}
    for name, value in table.items():
        if name not in entries:
            raise unknown_name("config key", prefix + name, [full for full, _, _ in keys()])
        if entries[name].metadata:
            values[name] = _checked(prefix + name, value, hints[name], entries[name].metadata)
        elif isinstance(value, Mapping):
            values[name] = _build(hints[name], value, f"{prefix}{name}.")
        else:
            raise UserError(f"{prefix}{name} is a table of keys, not a value")
    return cls(**values)


def _checked(name: str, value: Any, hint: Any, limits: types.MappingProxyType) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{name} takes a list, not {value!r}")
        return tuple(_checked(name, item, get_args(hint)[0], limits) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1023 else math.inf
    if type(value) is not hint:
        raise UserError(f"{name} takes {_TYPE_NAMES[hint]}, not {value!r}")
    choices = [*limits["also"], *limits["choices"]]
    if choices and value not in choices:
        raise unknown_name(name, value, choices)
    if hint is float and not math.isfinite(value):
        raise UserError(f"{name} takes a finite number, not {value}")
    if limits["low"] is not None and not value >= limits["low"]:
        raise UserError(f"{name} is at least {limits['low']}, not {value}")
    if limits["below"] is not None and not value < limits["below"]:
        raise UserError(f"{name} is below {limits['below']}, not {value}")
    if limits["positive"] and not value > 0:
        raise UserError(f"{name} is more than 0, not {value}")
    return value


_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _put(table: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {'.'.join(path)}: {name} is a value, not a table of keys")
        table = inner
    table[path[-1]] = value
