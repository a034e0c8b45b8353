"""Files of weights: an ``.npz`` that says which network its arrays are of, or another program's.

The arrays have PyTorch Geometric's names and shapes, see :mod:`gcnmpi.nn.state`. The comment of
the archive says, as JSON, which network it is, and how the matrix M was made that it was trained
on: programs that read the arrays do not notice it. Files of other programs lack it, and may be in
any format of :mod:`partition.tensor_files`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place
from gcnmpi.layout.writing import write_rows
from gcnmpi.mpi.comm import from_root
from gcnmpi.nn.decoders import TABLE
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.model import Model
from gcnmpi.nn.network import Network
from gcnmpi.nn.spellings import fitted, has_split_towers, spelled
from gcnmpi.nn.state import ends_of, from_gcn, in_file, stored_shapes, to_parameters, to_state
from gcnmpi.nn.tasks.interface import OF_EXAMPLES, task_of
from gcnmpi.options.config import Config, from_table, keys, table_of, value_of
from gcnmpi.options.frames import OF_FRAMES, ROLLOUT
from gcnmpi.options.model import NETWORKS, ConvolutionOptions, ModelConfig
from gcnmpi.options.requests import NETWORK, features_path
from gcnmpi.options.settings import chosen
from gcnmpi.options.task import TASKS, TaskConfig
from gcnmpi.options.user_network import is_user_network, same_network
from gcnmpi.run.classes import class_names, shown
from gcnmpi.run.problem import Problem
from gcnmpi.run.weights_file import FORMAT, VERSION, read_arrays, read_facts, write_weights
from partition.errors import UserError
from partition.graph.relations import NO_SCHEMA, Relation, Schema
from partition.graph.store import StoredGraph
from partition.records import Count, Positive

_OTHER_NETWORK = (
    "describe the network that they are of: --set model.name=NAME --set model.hidden=64,64, or a "
    "TOML file for --network; NAME may be sage, gat, gatv2, gin, gine, pna, transformer, gatedgcn "
    "or mgn; or gcn, with norms, residuals or linear layers"
)
# How a network is trained and computed, not what it computes.
_NOT_OF_A_NETWORK = ("dropout", "input_dropout", "attention_dropout", "order", "cache_input")


@dataclass(frozen=True)
class Weights:
    """The content of a file of weights."""

    path: Path
    # By the names and with the shapes of the network's parameters
    parameters: Mapping[str, np.ndarray]
    widths: tuple[int, ...]  # columns of H⁰ … Hᴸ
    arc_features: int  # columns of the features of arcs that the network reads
    schema: Schema  # of the relations that it tells apart, and types with features of their own
    # Keys of the configuration: "model.name", "graph.normalize", "task.name" … Of a file of another
    # program only those that its arrays show
    network: Mapping[str, Any]
    described: bool  # whether the file says which network it is of
    pairs: str | None = None  # the set whose held-out arcs M was without, where the file says so
    samples: str | None = None  # the set that it was trained on
    # Arrays of the examples that it was trained on: scales of samples
    examples: Mapping[str, np.ndarray] = field(default_factory=dict)
    classes: tuple[str, ...] = ()  # what the columns of logits are called, where the file says so
    relations: tuple[str, ...] = ()  # those of pairs, in the order of the decoder's rows


def save_weights(
    path: str | os.PathLike, problem: Problem, model: Model, flat: Array, **facts: object
) -> None:
    """Write weights under PyTorch Geometric's names, on rank 0, with what they are weights of.

    Features that were trained are written beside them, (n, width), by all ranks together.

    Parameters
    ----------
    flat : array
        The weights, in the layout of ``model.parameters.flat``.
    **facts
        What else the file is to say: ``epoch``, ``loss``.
    """
    if problem.config.model.train_features:
        write_features(problem, model, flat, features_path(path))
    arrays = task_of(problem.config.task).arrays(problem.source.stored)
    state = {**to_state(problem.network, model.whole(flat)), **arrays}
    described = describe(problem) | facts
    from_root(problem.runtime.everyone, lambda: write_weights(path, state, described))


def write_features(problem: Problem, model: Model, flat: Array, path: Path) -> None:
    """Write trained features (or their moments), (n, width), by all ranks together."""
    rows = problem.scheme.original(Place(0), model.features(flat), model.widths[0])
    write_rows(problem.runtime.comm, path, rows, problem.source.stored.manifest.n)


def describe(problem: Problem) -> dict[str, object]:
    """The description of a problem's network that its weights carry."""
    config, manifest = problem.config, problem.source.stored.manifest
    sections = table_of(config)
    model = {
        name: value for name, value in sections["model"].items() if name not in _NOT_OF_A_NETWORK
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": model,
        "widths": list(problem.network.widths),
        "arc_features": problem.network.arc_features,
        "vertex_types": list(manifest.vertex_types) if problem.network.is_typed else (),
        "relations": manifest.relations if problem.network.is_typed else (),
        "type_features": {} if manifest.features else manifest.type_features,
        "graph": sections["graph"] | {"direction": problem.source.direction},
        "task": {name: getattr(config.task, name) for name in _of_task(config.task)},
        "pairs": problem.source.stored.pairs and problem.source.stored.pairs.name,
        "samples": problem.source.stored.samples and problem.source.stored.samples.name,
        "class_names": class_names(manifest, config.task),
        "pair_relations": task_of(config.task).relation_names(problem.source.stored, config.task),
        "graph_name": manifest.name,
        "graph_id": manifest.id,
    }


def read_weights(
    path: str | os.PathLike,
    config: Config,
    given: Container[str] = (),
    features: int = 0,
    schema: Schema = NO_SCHEMA,
) -> Weights:
    """Read a file of weights, of this program or of another one.

    Parameters
    ----------
    config : Config
        Names the model that a file is taken for that does not say it.
    given : container of str
        Keys of the configuration that the user gave: with ``model.hidden``, the network has the
        layers that it says, and not those that a stack of GCNConv layers shows.
    features : int
        Columns of the graph's features, which decide where the arrays of another program do not
        agree; 0: not known.
    schema : Schema
        That of the graph, of which the arrays of another program are.

    Raises
    ------
    UserError
        If it cannot be read, or is not all the weights of one network that there is here.
    """
    path = Path(path)
    arrays = read_arrays(path)
    examples = {name: array for name, array in arrays.items() if name.startswith(OF_EXAMPLES)}
    state = {name: array for name, array in arrays.items() if name not in examples}
    facts = read_facts(path) if path.suffix == ".npz" else None
    with _of_file(path):
        if facts is None:
            shown_by, said = _shown_by(state, config, given, features, schema), None
        else:
            said = _said(facts)
            shown_by = _described(path, facts, said, state, config, given)
    widths = shown_by.widths
    own: dict[str, dict[str, Any]] = {"model": {}, "graph": {}, "task": {}}
    for key, value in shown_by.keys.items():
        section, name = key.split(".")
        own[section][name] = value
    model = chosen(ModelConfig, NETWORKS, own["model"])
    task = chosen(TaskConfig, TASKS, vars(config.task) | own["task"])
    known = shown_by.schema
    network = network_of(model, widths[0], widths[-1], shown_by.arc_features, task, known)
    known = known if network.is_typed else Schema(features=known.features)
    if network.widths != widths:
        raise UserError(f"{path} is damaged: its arrays are not of the widths that it names")
    with _of_file(path):
        parameters = to_parameters(network, shown_by.arrays, shown_by.called)
        for name, array in parameters.items():
            # As the run computes: what float64 holds may be infinite in float32.
            with np.errstate(over="ignore"):
                finite = np.isfinite(array.astype(config.dtype)).all()
            if not finite:
                called = in_file(name, shown_by.called)
                raise UserError(f"{called} is not all finite numbers of {config.dtype}")
    of = path, parameters, widths, shown_by.arc_features, known, shown_by.keys
    if said is None:
        return Weights(*of, False, examples=examples)
    names = said.class_names, said.pair_relations
    return Weights(*of, True, said.pairs, said.samples, examples, *names)


def as_trained(weights: Weights, config: Config, given: Container[str], direction: str) -> Config:
    """The configuration with the network, the matrix and the task that the weights belong to.

    Parameters
    ----------
    given : container of str
        Keys that the user gave: they have to agree with the weights. Others are taken from there.
    direction : {"in", "out"}
        What ``graph.direction = "auto"`` stands for here.

    Raises
    ------
    UserError
        If what the user gave contradicts the weights.
    """
    table: dict[str, dict[str, Any]] = {"graph": {}, "model": {}, "task": {}}
    for key, stored in weights.network.items():
        section, name = key.split(".")
        wanted = value_of(config, key)
        wanted = direction if wanted == "auto" else wanted
        if key in given and key == ROLLOUT:  # it changes how often a network runs, and no weight
            stored = wanted
        if key in given and wanted != stored:
            raise UserError(
                f"{key} = {_shown(wanted)} here, and {weights.path} holds weights of a network "
                f"with {_shown(stored)}",
                f"leave {key} out: infer takes it from the weights",
            )
        table[section][name] = stored
    return dataclasses.replace(
        config,
        graph=dataclasses.replace(config.graph, **table["graph"]),
        model=chosen(ModelConfig, NETWORKS, vars(config.model) | table["model"]),
        task=chosen(TaskConfig, TASKS, vars(config.task) | table["task"]),
    )


def of_relations(weights: Weights, stored: StoredGraph, task: TaskConfig) -> Weights:
    """The weights with the decoder's rows of relations in the order of a graph's.

    A UserError if the graph has a relation that the weights do not know.
    """
    known, there = weights.relations, task_of(task).relation_names(stored, task)
    if not known or not there or there == known:
        return weights
    others = [name for name in there if name not in known]
    if others:
        raise UserError(
            f"{stored.path} has relations that {weights.path} does not know: {shown(others)}",
            f"it knows {shown(known)}",
        )
    order = [known.index(name) for name in (*there, *(n for n in known if n not in there))]
    table = weights.parameters[TABLE][order]
    return dataclasses.replace(weights, parameters={**weights.parameters, TABLE: table})


def check_parameters(weights: Weights, network: Network) -> None:
    """Raise a UserError unless the arrays are those of a network, all of them and no others."""
    expected = {name: parameter.shape for name, parameter in network.parameters.items()}
    found = {name: array.shape for name, array in weights.parameters.items()}
    for name in expected.keys() | found.keys():
        if expected.get(name) != found.get(name):
            raise UserError(
                f"{weights.path}: {name} is {found.get(name, 'missing')}, the network's is "
                f"{expected.get(name, 'missing')}"
            )


@dataclass(frozen=True)
class _Shown:
    """A network as a file shows it."""

    keys: dict[str, Any]  # of the configuration, and values
    widths: tuple[int, ...]
    arrays: Mapping[str, np.ndarray]
    called: Mapping[str, str]  # the name in the file of each array
    arc_features: int
    schema: Schema


@dataclass(frozen=True)
class _Said:
    """The facts of a file of weights besides keys of the configuration; earlier ones say less."""

    widths: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=2)]
    arc_features: Count = 0
    vertex_types: tuple[str, ...] = ()
    relations: tuple[tuple[str, str, str], ...] = ()
    type_features: dict[str, Count] = field(default_factory=dict)
    pairs: str | None = None
    samples: str | None = None
    class_names: tuple[str, ...] = ()
    pair_relations: tuple[str, ...] = ()


def _said(facts: Mapping[str, Any]) -> _Said:
    try:
        said = msgspec.convert(facts, _Said)
    except msgspec.ValidationError as error:
        raise UserError(f"is damaged: {error}") from error
    for names, count in ((said.class_names, said.widths[-1]), (said.pair_relations, 0)):
        if len(set(names)) < len(names) or (names and count and len(names) != count):
            raise UserError(f"is damaged: its names are not those of its columns: {shown(names)}")
    return said


def _described(
    path: Path,
    facts: Mapping[str, Any],
    said: _Said,
    state: Mapping[str, np.ndarray],
    config: Config,
    given: Container[str],
) -> _Shown:
    """A network that the file describes; keys are checked as those of a configuration file are."""
    sections = {name: facts.get(name) for name in ("model", "graph")}
    stored = from_table(sections | {"task": facts.get("task", {})})
    here = value_of(stored, "model.activation")
    activation = facts.get("activation", here)
    if activation != here:
        raise UserError(
            f"these are weights of a {stored.model.name} with activation {activation}, here it is "
            f"{here}"
        )
    described = {
        name: value_of(stored, name)
        for name in keys()
        if name.startswith(("model.", "graph.")) and name.split(".")[1] not in _NOT_OF_A_NETWORK
    }
    task = facts.get("task")  # of which files of earlier versions say less, or nothing
    names = [name for name in _of_task(stored.task) if isinstance(task, dict) and name in task]
    described |= {f"task.{name}": getattr(stored.task, name) for name in names}
    if is_user_network(described["model.name"]):
        wanted = config.model.name if "model.name" in given else None
        described["model.name"] = _own_network(path, described["model.name"], wanted)
    relations = tuple(Relation(*one) for one in said.relations)
    schema = Schema(said.vertex_types, relations, tuple(said.type_features.items()))
    return _Shown(described, said.widths, state, {}, said.arc_features, schema)


def _of_task(task: TaskConfig) -> list[str]:
    """The keys of a task that its network depends on: a decoder's last bias on the objective."""
    known = [entry.name for entry in dataclasses.fields(task)]
    which = "name", "on", "width", "objective", *OF_FRAMES
    return [name for name in known if name in which or name.startswith("decoder")]


def _own_network(path: Path, stored: str, wanted: str | None) -> str:
    """The user's name of the network that a file of weights names: no file is run on its word.

    The wanted name is the user's, with its hash.
    """
    file = stored.rpartition("@")[0]
    if wanted is None:
        kept = path.parent / NETWORK
        where = "wherever that is; from Python, model="
        if kept.is_file():  # in the folder of a run
            file = f"{kept}:{file.rpartition(':')[2]}"
            where = f"from Python model={file!r}"
        raise UserError(
            f"these are weights of {stored}, a network of a file, which has to be given",
            f"if you trust it, --set model.name={file}, {where}",
        )
    if not same_network(wanted, stored):
        raise UserError(
            f"these are weights of {stored}, and {wanted} is another network, or has changed",
            "the folder of a run keeps the network that was trained, in network.py",
        )
    return wanted


def _shown_by(
    state: Mapping[str, np.ndarray],
    config: Config,
    given: Container[str],
    features: int,
    schema: Schema,
) -> _Shown:
    """A network as arrays of another program show it.

    Of a plain stack of GCNConv layers that is all there is; of another network, the widths of its
    features and logits: for the rest, the file has to be of the network that is configured.
    """
    found, model = spelled(state), config.model
    if has_split_towers(found.arrays, features):
        raise UserError(
            "these are weights of PNAConv(divide_input=True), whose towers read columns of their "
            "own",
            "towers of model.name = pna read all columns: train it with divide_input=False",
        )
    usual = ConvolutionOptions()
    plain = all(getattr(model, key, None) == getattr(usual, key) for key in _OF_NO_PLAIN_STACK)
    if not plain or "model.hidden" in given:
        build = functools.partial(network_of, model, task=config.task, relations=schema)
        ends = ends_of(build, found.arrays)
        if ends is None:
            missing = [name for name in stored_shapes(build(1, 1, 1)) if name not in found.arrays]
            what = f": {in_file(missing[0], found.called)} is missing" if missing else ""
            message = f"the weights are not those of the configured {model.name}{what}"
            raise UserError(message, _OTHER_NETWORK)
        network = build(*ends)
        fits = fitted(found, stored_shapes(network))
        if features and not _fits(fits.arrays, network):  # the graph's are the right ones
            network = build(features, *ends[1:])
            fits = fitted(found, stored_shapes(network))
        keys = [key[6:] for key in NETWORKS.keys(model.name) if key.startswith("model.")]
        of_it = [key for key in (*keys, "name", "bias") if key not in _NOT_OF_A_NETWORK]
        described = {f"model.{key}": getattr(model, key) for key in of_it}
        return _Shown(described, network.widths, fits.arrays, fits.called, ends[2], schema)
    try:
        arrays = from_gcn(found.arrays, found.called)
    except UserError as error:
        hint = f"a gcn has convs.0.lin.weight, convs.0.bias …; or {_OTHER_NETWORK}"
        raise UserError(error.message, hint) from error
    shapes = [array.shape for name, array in arrays.items() if name.endswith("lin.weight")]
    widths = (shapes[0][1], *(shape[0] for shape in shapes))
    described = {"model.hidden": widths[1:-1], "model.bias": "convs.0.bias" in arrays}
    return _Shown(described, widths, arrays, found.called, 0, schema)


def _fits(arrays: Mapping[str, np.ndarray], network: Network) -> bool:
    """Whether all arrays of a network are there, in its shapes."""
    shapes = stored_shapes(network)
    return all(name in arrays and arrays[name].shape == shape for name, shape in shapes.items())


@contextlib.contextmanager
def _of_file(path: Path) -> Iterator[None]:
    """Mistakes with the name of the file in front."""
    try:
        yield
    except UserError as error:
        between = " " if error.message.startswith("is damaged") else ": "
        raise UserError(f"{path}{between}{error.message}", error.hint) from error


def _shown(value: object) -> str:
    return json.dumps(value)


# Keys that make a network another one than a stack of GCNConv layers with nothing between them.
_OF_NO_PLAIN_STACK = ("name", "residual", "norm", "jk", "linear_before", "linear_after")
