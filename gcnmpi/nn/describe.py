"""The network and the aggregation matrix that a configuration asks for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from inspect import signature

from gcnmpi.layout.place import Space
from gcnmpi.nn.network import Network
from gcnmpi.nn.rollout import rolled_out
from gcnmpi.nn.tape import ROWS_OF
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config, GraphConfig
from gcnmpi.options.frames import Frames
from gcnmpi.options.model import MATRICES, NETWORKS, ModelConfig
from gcnmpi.options.task import ClassOptions, TaskConfig
from gcnmpi.options.user_network import called, is_user_network
from partition.errors import UserError
from partition.graph.aggregation import NORMALIZATIONS
from partition.graph.graph import ARCS, VERTICES
from partition.graph.relations import Schema

SPACES = {VERTICES: Space.OWN, ARCS: Space.ENTRIES}
"""The rows of logits, by ``task.on``."""

HINTS = {
    VERTICES: "set task.on=arcs",
    ARCS: "model.name=mgn has those of arcs, as a network of your own that ends with rows of arcs",
}


def network_of(
    model: ModelConfig,
    features: int,
    classes: int,
    arcs: int = 0,
    task: TaskConfig = ClassOptions(),  # noqa: B008 (it is frozen)
    relations: Schema | int = 0,
    frames: Frames | None = None,
) -> Network:
    """The network of that name, for features and classes of a graph, and what its arcs have.

    ``arcs`` are the columns of their features; ``relations``, those that they are of, with the
    types of vertices. Of links, with a decoder; of samples, whose columns are resolved, or with
    ``frames``, of which a builder that has a parameter of that name is told: else the features are
    one. A builder is told of as
    much of the rest as it takes. A UserError if it cannot be built of what ``model`` says, or its
    logits are not those of vertices or arcs, as wanted.
    """
    asked = task_of(task)
    frames = asked.frames(task, features) or frames
    if frames is not None:
        features, classes = frames.step.features, frames.step.outputs
    build, on = NETWORKS.get(model.name), task.on
    known = list(signature(build).parameters)
    if "frames" in known:
        known.remove("frames")
        of_step = Frames(0, features, classes) if frames is None else frames.step
        build = partial(build, frames=of_step)
    facts = (features, classes, arcs, on, relations)[: max(2, len(known) - 1)]
    own = is_user_network(model.name)
    made = called(model.name, lambda: build(model, *facts)) if own else build(model, *facts)
    if not isinstance(made, Network):
        raise UserError(
            f"{model.name} gives a {type(made).__name__}, not a network",
            "its last line is return b.build(), or return stack(…)",
        )
    if made.space is not SPACES[on]:
        raise UserError(
            f"model {model.name!r} gives logits of {ROWS_OF[made.space]}, and task.on = {on}",
            HINTS[on],
        )
    if frames is not None:
        made = rolled_out(made, frames)
    return asked.network(made, task)


def matrix_of(model: ModelConfig) -> tuple[str, bool] | None:
    """``graph.normalize`` and ``graph.self_loops`` that the network is defined with, if any.

    A UserError if a user's function gives something else.
    """
    if is_user_network(model.name):
        fixed = getattr(NETWORKS.get(model.name), "matrix", None)
        if fixed is None:
            return None
        found = called(model.name, lambda: fixed(model))
        is_pair = isinstance(found, tuple) and len(found) == 2
        if is_pair and found[0] in NORMALIZATIONS and isinstance(found[1], bool):
            return found
        raise UserError(
            f"{model.name}: its matrix gives {found!r}, not how M is made",
            f"such as return 'none', True: one of {', '.join(NORMALIZATIONS)}, and self_loops",
        )
    return MATRICES.get(model.name)(model) if model.name in MATRICES else None


def graph_of(config: Config) -> GraphConfig:
    """``[graph]`` with what the network fixes of it."""
    fixed = matrix_of(config.model)
    if fixed is None:
        return config.graph
    return replace(config.graph, normalize=fixed[0], self_loops=fixed[1])
