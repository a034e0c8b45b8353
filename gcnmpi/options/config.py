"""The configuration: TOML and ``--set key=value`` into frozen dataclasses.

Every key, its default and what it means stand once, in frozen dataclasses. The sections
``[scheme]``, ``[model]`` and ``[task]`` choose an entry of a registry by ``name``: each entry names
a class, which adds its options to the keys that all have, and the configuration holds one of the
chosen class.
So an option that the entry does not have is not there, and a function says by the type of its
argument whose options it reads. Files, records and ``--set`` are flat: full names and values of all
keys, of which :func:`chosen` takes those that the entry has; :func:`value_of` gives the default
for the others. The other sections are of no registry or of two (an optimizer and a schedule, a
scheme and a kernel): registries name the keys that only some entries read.

An unknown key, a value of the wrong type or out of range is a :class:`UserError` that names the
key and shows how it is spelled.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from gcnmpi.core.precision import EXACT, PRECISIONS
from gcnmpi.options.kernel import AUTO, KERNELS
from gcnmpi.options.model import NETWORKS, ConvolutionOptions, HiddenOptions, ModelConfig
from gcnmpi.options.scheme import ROW_ORDERS, SCHEMES, ExchangeOptions, SchemeConfig
from gcnmpi.options.settings import (
    Key,
    Options,
    checked,
    chosen,
    in_settings,
    key,
    keys_of,
    parsed,
    read_toml,
    spelled,
)
from gcnmpi.options.task import TASKS, ClassOptions, TaskConfig, check_task
from gcnmpi.options.train import OPTIMIZERS, SCHEDULES, TrainConfig, check_train
from gcnmpi.options.user_network import is_user_network, keys_read, pinned
from partition.errors import UserError
from partition.graph.aggregation import NORMALIZATIONS
from partition.graph.graph import ARCS, DIRECTIONS


class GraphConfig(Options, section="graph"):
    """``[graph]``: how the aggregation matrix M is made from the graph.

    Attributes
    ----------
    direction
        whether a vertex sums over arcs that enter it (in) or leave it (out); auto: as imported
    feature_norm
        row: divide each row of features by its sum
    normalize
        weights of M: sym: D^-1/2·Ã·D^-1/2, row: the mean over neighbours, none: the sum
    self_loops
        put a 1 on the diagonal of A where nothing is there
    """

    direction: str = key("auto", choices=("auto", *DIRECTIONS))
    feature_norm: str = key("none", choices=("none", "row"))
    normalize: str = key("sym", choices=NORMALIZATIONS)
    self_loops: bool = True


class LoadingConfig(Options, section="loading"):
    """``[loading]``: how the graph is distributed to its owners.

    Attributes
    ----------
    max_buffer_mb
        largest send buffer while the graph is distributed, MiB per rank
    order
        order of a rank's rows in memory, docs/performance.md#the-order-of-rows; auto: rcm if
        neighbours have distant numbers, none in infer
    """

    max_buffer_mb: float = key(64.0, positive=True)
    order: str = key("auto", choices=ROW_ORDERS)

    @property
    def max_bytes(self) -> float:
        """The same in bytes, as functions that send take it."""
        return self.max_buffer_mb * 2**20


class _CommConfig(Options, section="comm"):
    """``[comm]``: time-out of the job, and how messages are sent.

    Attributes
    ----------
    timeout
        seconds without progress of a rank after which the job is ended; 0: never
    precision
        numbers in messages, docs/schemes.md#precision-of-messages; fp32: as computed, in dtype;
        others: rounded
    cuda_aware
        messages from the memory of the device (yes; the run crashes if MPI does not support it) or
        through the host (no); auto: yes if the library says so (MPIX_Query_cuda_support of Open
        MPI), or MPICH_GPU_SUPPORT_ENABLED=1 or MV2_USE_CUDA=1 is set
    nccl
        NCCL sums gradients on the devices (yes: an error where ranks share a device, or CuPy has no
        NCCL) or MPI on the host (no); auto: NCCL where it is possible, with more than one rank;
        docs/gpu.md#what-is-where
    """

    timeout: float = key(0.0, low=0)
    precision: str = key(EXACT, choices=PRECISIONS, needs=("scheme.sparse", True))
    cuda_aware: str = key("auto", choices=("auto", "yes", "no"))
    nccl: str = key("auto", choices=("auto", "yes", "no"))


class _GpuConfig(Options, section="gpu"):
    """``[gpu]``: the libraries that compute on devices, and how.

    Attributes
    ----------
    spmm
        sparse products: our own, docs/gpu.md#by-pieces, or cusparse: its deterministic algorithm,
        for less than 2^31 - 128 entries a rank
    graph
        on one rank, an epoch is a CUDA graph (yes), docs/gpu.md#cuda-graphs, or launched kernel by
        kernel (no); auto: where it can be one
    """

    spmm: str = key("own", choices=("own", "cusparse"))
    graph: str = key("no", choices=("no", "auto", "yes"))


@dataclass(frozen=True)
class Config:
    """The whole configuration; the top-level keys are not in any table.

    Attributes
    ----------
    kernel
        local arithmetic: native (compiled), graphblas, scipy (the reference, one thread) or cupy (a
        GPU a rank, docs/gpu.md); auto: native where it was built, with OpenMP for several threads,
        else graphblas, or scipy without it
    dtype
        floating-point type
    threads
        threads per rank; 0: its share of the cores that it may run on, at most its share of the
        quotas of control groups and SLURM_CPUS_PER_TASK
    """

    kernel: str = key(AUTO, choices=KERNELS, also=(AUTO,))
    dtype: str = key("float32", choices=("float32", "float64"))
    threads: int = key(0, low=0)
    graph: GraphConfig = field(default_factory=GraphConfig)
    model: ModelConfig = field(default_factory=ConvolutionOptions)
    task: TaskConfig = field(default_factory=ClassOptions)
    train: TrainConfig = field(default_factory=TrainConfig)
    scheme: SchemeConfig = field(default_factory=ExchangeOptions)
    loading: LoadingConfig = field(default_factory=LoadingConfig)
    comm: _CommConfig = field(default_factory=_CommConfig)
    gpu: _GpuConfig = field(default_factory=_GpuConfig)


# The keys that choose an entry of a registry.
SELECTORS = {
    "scheme.name": SCHEMES,
    "task.name": TASKS,
    "train.optimizer": OPTIMIZERS,
    "train.schedule": SCHEDULES,
    "model.name": NETWORKS,
    "kernel": KERNELS,
}


def load_config(
    path: str | os.PathLike | None = None,
    settings: Iterable[str] = (),
    over: Iterable[str] = (),
) -> Config:
    """Read a TOML file, then apply ``key=value`` settings over it.

    Parameters
    ----------
    path : path, optional
        TOML file, or the name of a configuration that comes along; without it, the defaults.
    settings : iterable of str
        ``"train.epochs=20"``; the value is TOML, or a bare word, or a list without brackets.
    over : iterable of str
        More settings, which replace those of the same key.

    Raises
    ------
    UserError
        If the file is missing or no TOML, a key or value is not one there is, a key is given twice,
        or the chosen scheme, task, optimizer, schedule, model or kernel does not read it.
    """
    return read_config(path, settings, over)[0]


def read_config(
    path: str | os.PathLike | None = None,
    settings: Iterable[str] = (),
    over: Iterable[str] = (),
    *,
    schemes: Iterable[str] = (),
    network: str | os.PathLike | None = None,
    values: Mapping[str, object] | None = None,
    under: Mapping[str, object] | None = None,
) -> tuple[Config, dict[str, object]]:
    """:func:`load_config`, and the keys that the files and the settings give, with their values.

    Parameters
    ----------
    network : path, optional
        Another TOML file, whose ``[model]``, ``[graph]`` and ``[task]`` are taken and stand in
        ``path`` no more; other tables, such as those of a whole configuration, are not looked at.
    values : mapping of str to value, optional
        Full names of keys and what they are set to, over everything else.
    under : mapping of str to value, optional
        The same, in place of defaults: they do not count as given.
    schemes : iterable of str
        The schemes that will be tried, where it is not ``scheme.name`` alone: a key is refused
        that none of them reads.
    """
    table = {} if path is None else read_toml(path)
    if network is not None:
        described = _network_of(network)
        for section in described:
            if section in table:
                raise UserError(f"{path} and {network} both have a table [{section}]")
        table |= described
    given = _read_table(table) | _read_settings(settings) | _read_settings(over) | _read(values)
    config = _completed(_made(_read(under) | given))
    if is_user_network(config.model.name):
        model = dataclasses.replace(config.model, name=pinned(config.model.name))
        config = dataclasses.replace(config, model=model)
    _check_owners(given, config, list(schemes))
    return config, given


def _network_of(path: str | os.PathLike) -> dict[str, object]:
    """The tables of a file that describe a network."""
    sections = ("model", "graph", "task")
    table = {name: value for name, value in read_toml(path).items() if name in sections}
    if "model" not in table:
        raise UserError(f"{path} has no table [model]", 'such as [model], then name = "sage"')
    return table


def from_table(table: Mapping[str, object]) -> Config:
    """A checked :class:`Config` from nested mappings (parsed TOML, or a record's config)."""
    return _completed(_made(_read_table(table)))


def readers(name: str) -> str:
    """The entries that read a key, where not all of its registry do.

    >>> [readers(name) for name in ("model.beta", "model.dropout", "scheme.overlap", "train.lr")]
    ['transformer', 'all but sgc', 'bcast, replicated with scheme.sparse = false', '']
    """
    found = ((registry, registry.owners(name)) for registry in SELECTORS.values())
    registry, owners = next(((one, some) for one, some in found if some), (KERNELS, []))
    others = [entry for entry in registry if entry not in owners]
    few = owners and 2 * len(others) < len(owners)
    which = f"all but {', '.join(others)}" if few else ", ".join(owners)
    other, value = keys()[name].limits.get("needs", ("", None))
    return which + (f" with {other} = {json.dumps(value)}" if other else "")


def value_of(config: Config, name: str) -> Any:
    """The value of a key, given its full name; its default where the chosen entry has no such."""
    section, _, last = name.rpartition(".")
    found = getattr(config, section) if section else config
    return getattr(found, last) if hasattr(found, last) else keys()[name].default


def table_of(config: Config) -> dict[str, Any]:
    """The values of all keys, those of a section in a table: what records keep."""
    table: dict[str, Any] = {}
    for name in keys():
        section, _, last = name.rpartition(".")
        (table.setdefault(section, {}) if section else table)[last] = value_of(config, name)
    return table


@functools.cache
def keys() -> Mapping[str, Key]:
    """Every key by its full name: those of a section, then those of entries."""
    found = dict(keys_of(Config))
    for section, base in _sections().items():
        registry = SELECTORS.get(f"{section}.name")
        every = [] if registry is None else [kind for n in registry for kind in registry.kinds(n)]
        for kind in (base, *(kind for kind in every if not isinstance(kind, str))):
            found = {**found, **keys_of(kind, section), **found}
    return found


@functools.cache
def _sections() -> Mapping[str, Any]:
    """The class of each section: of one that chooses an entry, what all entries have."""
    hints = get_type_hints(Config)
    return {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}


def _read_settings(settings: Iterable[str]) -> dict[str, Any]:
    return checked(keys(), parsed(keys(), settings), in_settings)


def _read(values: Mapping[str, object] | None) -> dict[str, Any]:
    return checked(keys(), (values or {}).items(), lambda key: None)


def _read_table(table: Mapping[str, object]) -> dict[str, Any]:
    def in_file(key: Key) -> str:
        return f"such as {key.name.rpartition('.')[2]} = {json.dumps(key.example)}"

    flat: list[tuple[str, object]] = []
    for name, value in table.items():
        if name in _sections() and isinstance(value, Mapping):
            flat += [(f"{name}.{last}", one) for last, one in value.items()]
        else:
            flat.append((name, value))
    return checked(keys(), flat, in_file)


def _made(values: Mapping[str, Any]) -> Config:
    """The configuration of checked values by full names; the defaults of others."""
    top: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    for section, kind in _sections().items():
        start = f"{section}."
        own = {name.removeprefix(start): v for name, v in values.items() if name.startswith(start)}
        registry = SELECTORS.get(f"{section}.name")
        top[section] = kind(**own) if registry is None else chosen(kind, registry, own)
    return Config(**top)


def _completed(config: Config) -> Config:
    """The configuration with the widths of all hidden layers, if its values go together."""
    check_train(config.train)
    check_task(config.task)
    train, model = config.train, config.model
    if config.task.on == ARCS and train.split:
        raise UserError(
            f"train.split = {train.split}, and masks of arcs have one split",
            "leave train.split out with task.on = arcs",
        )
    if train.schedule == "cosine" and not train.period:
        # Known from now on: a run that is given more epochs must not change those that it had.
        train = dataclasses.replace(train, period=max(1, train.epochs - train.warmup))
        config = dataclasses.replace(config, train=train)
    if not isinstance(model, HiddenOptions) or not model.layers:
        return config
    hidden, layers = model.hidden, model.layers
    if not 0 < len(hidden) <= layers:
        raise UserError(
            f"model.layers = {layers}, and model.hidden gives {len(hidden)} widths",
            "give one width, or leave model.layers out",
        )
    hidden += hidden[-1:] * (layers - len(hidden))
    return dataclasses.replace(config, model=dataclasses.replace(model, hidden=hidden))


def _check_owners(given: Collection[str], config: Config, schemes: list[str]) -> None:
    """Refuse keys that were given and that what is chosen does not read."""
    for selector, registry in SELECTORS.items():
        several = schemes if selector == "scheme.name" else []
        taken = several or [value_of(config, selector)]
        if is_user_network(taken[0]):
            _check_read(given, config)
            continue
        for name in given:
            owners = registry.owners(name)
            if owners and not set(owners) & set(taken):
                raise UserError(
                    f"{name} is an option of {_any_of(registry.kind, owners)}, "
                    f"not of {_any_of(registry.kind, taken)}",
                    f"--set {selector}={owners[0]}, or leave {name} out",
                )
            other, value = keys()[name].limits.get("needs", ("", None))
            reads = owners and not several and taken[0] in registry.owners(other)
            if reads and value_of(config, other) != value:
                raise UserError(
                    f"{name} has no effect with {other} = {spelled(value_of(config, other))}",
                    f"--set {other}={spelled(value)}, or leave {name} out",
                )


def _check_read(given: Iterable[str], config: Config) -> None:
    """Refuse keys that were given and that a network of the user's does not read."""
    read = keys_read(config.model.name, config.model)
    for name in sorted(name for name in given if NETWORKS.owners(name)):
        if read is not None and name not in read:
            raise UserError(
                f"{name} is no option of {config.model.name}, which does not read it",
                f"leave {name} out",
            )


def _any_of(kind: str, names: list[str]) -> str:
    """ "scheme p2p", "schemes p2p, bcast"."""
    return f"{kind}{'s' * (len(names) > 1)} {', '.join(names)}"
