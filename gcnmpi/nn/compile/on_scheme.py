"""A network on the scheme of a configuration, before anything is loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gcnmpi.layout.place import Space
from gcnmpi.layout.runtime import Demand, Source
from gcnmpi.nn.compile import Target, compile_network
from gcnmpi.nn.network import Network
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.operators import rule_of
from gcnmpi.nn.operators.inserted import Move
from gcnmpi.nn.operators.neighbours import Aggregate, MaxAggregate
from gcnmpi.nn.operators.norms import BatchNorm
from gcnmpi.nn.program import Program
from gcnmpi.nn.slices import in_blocks
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config
from gcnmpi.options.model import ModelConfig
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.train import Residences, batches_of, sampler_of
from gcnmpi.schemes.forecast import make_facts
from gcnmpi.schemes.interface import Entry
from partition.errors import UserError
from partition.graph.relations import Relation
from partition.graph.sampling import Sampler
from partition.graph.store import StoredGraph, read_partition


def batch_program(network: Network, config: Config, sparse: bool) -> Program:
    """The program of a network on batches; of samplers of neighbours, layers have their own.

    With ``sparse``, the features are a sparse matrix.
    """
    # A sampler of neighbours leaves every row one of them; but that of layers may leave none.
    drawn, loops = batches_of(config.train), config.graph.self_loops
    means = (MaxAggregate,) if loops and drawn and drawn.sampler == "neighbor" else ()
    orders, narrows = ("combine", "aggregate"), drawn is None or drawn.layered
    target = Target(
        orders, lambda place: place.layer if narrows else None, narrows=narrows, means=means
    )
    return compile_network(network, target, config.model, sparse=sparse)


def of_steps(config: Config) -> Config:
    """The configuration of a training, which keeps no M·H⁰ where steps have an M or H⁰."""
    steps = task_of(config.task).steps(config.task)
    if batches_of(config.train) is None and not steps.matrix and not steps.samples:
        return config
    return replace(config, model=replace(config.model, cache_input=False))


def decoder_program(network: Network) -> Program:
    """The program of a network's decoder, on pairs for arcs.

    Rows of pairs are made again for the backward pass: there is a slice of them, but for gradients
    of the rows of sources, which are added up once all are there.
    """
    assert network.decoder is not None, "a network of another task"
    again = Residences(every=sys.maxsize)
    target = Target(("combine", "aggregate"), lambda place: None, residences=again)
    return compile_network(network.decoder, target, ModelConfig(train_features=True))


def hops_of(program: Program) -> int:
    """In how many layers a program looks at neighbours."""
    return max((v.place.layer for v in program.values if v.place.aggregated), default=0)


def check_batches(config: Config, fanouts: Sequence[int], program: Program) -> None:
    """A UserError if the configuration asks for what mini-batches cannot do.

    ``fanouts`` are those of the sampler, empty if it has none; ``program`` is that of a batch.
    """
    hops = hops_of(program)
    moved = zip(program.operators, program.values, strict=False)
    if any(isinstance(one, Move) and value.place.space is not Space.OWN for one, value in moved):
        raise UserError(
            "train.batches: each layer of a batch has arcs of its own, and this network reads "
            "those of one in another",
            "use train.batches = vertex or cluster, or all vertices at once",
        )
    if fanouts and not hops:
        raise UserError(
            f"train.batches: model {config.model.name!r} looks at no neighbours",
            "use train.batches = vertex,1024",
        )
    if fanouts and len(fanouts) != hops:
        raise UserError(
            f"train.batches has {len(fanouts)} fan-outs, the network looks at neighbours "
            f"{hops} times",
            "give one number of neighbours for each layer, that of the seeds first",
        )
    if config.train.cache_mb:
        if not fanouts:
            raise UserError(
                "train.cache_mb: rows are kept for batches of seeds",
                "use train.batches = neighbor,1024,10,5, or leave train.cache_mb out",
            )
        if any(isinstance(program.operators[i], BatchNorm) for i in _of_inputs(program)):
            raise UserError(
                "train.cache_mb: a batch norm before neighbours are looked at takes the moments "
                "of rows that several ranks would keep",
                "use another model.norm, or leave train.cache_mb out",
            )
    if config.model.train_features:
        raise UserError("train.batches: features that are trained need all vertices at once")
    task_of(config.task).check_batches(config.task)


def program_of_batches(
    config: Config, stored: StoredGraph, network: Network, program: Program
) -> Program | None:
    """The program of a batch, checked by what the folder says; None: all vertices train at once.

    ``program`` is the one of :func:`program_on`. A UserError if the configuration asks for what
    mini-batches cannot do.
    """
    batches = batches_of(config.train)
    if batches is None:
        return None
    clusters = None
    if batches.clusters:
        finer = read_partition(stored.path, batches.clusters, parts=False)
        clusters = np.arange(finer.k)  # a vertex each: the sampler looks at their number
    n, relations = stored.manifest.n, told_apart(network, stored)
    sampler = sampler_of(config.train, n, n, clusters, relations)
    return batched(config, sampler, network, program)


def told_apart(network: Network, stored: StoredGraph) -> Sequence[Relation]:
    """The relations that a network tells apart; none, if it does not look at them."""
    return stored.manifest.schema.relations if network.relations else ()


def batched(config: Config, sampler: Sampler, network: Network, program: Program) -> Program:
    """The program of a batch, checked to be one that mini-batches can do."""
    found = program
    if sampler.layered:
        found = batch_program(network, config, bool(program.sparse))
    check_batches(config, sampler.fanouts, found)
    return found


def means_of(source: Source, config: Config) -> tuple[type[Operator], ...]:
    """Aggregations that make a column of equal numbers of one: see :class:`Target`.

    As far as is known before the graph is loaded: where every vertex is among its own neighbours,
    and no weights are there that might add up to 0. A batch has a part of the neighbours.
    """
    if not config.graph.self_loops:
        return ()
    whole = config.graph.normalize == "row" and not source.stored.manifest.valued
    return (MaxAggregate, Aggregate) if whole and not batches_of(config.train) else (MaxAggregate,)


def _of_inputs(program: Program) -> list[int]:
    """Operators whose values have the rows of H⁰, with those that are kept."""
    places = [program.values[number].place for number in range(len(program.operators))]
    return [i for i, place in enumerate(places) if place.layer == 0 and not place.aggregated]


def _check_cuts(config: Config, entry: Entry) -> None:
    """A UserError if the batches that are configured cannot be cut on a scheme."""
    scheme, drawn = config.scheme.name, batches_of(config.train)
    if not entry.cuts_batches:
        able = [name for name in SCHEMES if SCHEMES.get(name).cuts_batches]
        raise UserError(
            f"train.batches: scheme {scheme!r} does not train on mini-batches",
            f"use scheme.name = {', '.join(able[:-1])} or {able[-1]}",
        )
    if drawn is not None and drawn.layered and not entry.asks_for_rows:
        able = [name for name in SCHEMES if SCHEMES.get(name).asks_for_rows]
        raise UserError(
            f"train.batches: scheme {scheme!r} draws no neighbours: its ranks have tiles, and no "
            "whole rows",
            f"use train.batches = vertex or cluster, or scheme.name = {' or '.join(able)}",
        )


def _regroups(network: Network) -> Operator | None:
    """An operator whose columns are made of other columns of its inputs, where no weight is."""
    for operator in network.operators:
        widths = {network.operators[i].width for i in operator.inputs} | {operator.width}
        if rule_of(operator.as_finish()).regroups and len(widths) > 1:
            return operator
    return None


def program_on(
    network: Network, source: Source, config: Config, size: int, trains: bool = True
) -> tuple[Program, Demand]:
    """The program of a network on ``size`` ranks of a scheme, and what that asks of the scheme.

    With ``trains``, it has a backward pass. A UserError if the scheme cannot run the network.
    """
    if network.relations and config.graph.self_loops:
        raise UserError(
            "a self-loop that M has beside the graph's arcs is of no relation, and this network "
            "tells relations apart",
            "set graph.self_loops = false; of a function of your own, give it a matrix",
        )
    if network.type is not None and source.direction == "out":
        raise UserError(
            f"model {config.model.name!r} follows relations from source to target",
            "set graph.direction = in; relations the other way are made by --reverse",
        )
    entry = SCHEMES.get(config.scheme.name)
    forecast = entry.forecast(config.scheme, size, make_facts(source, config, Demand()))
    means = means_of(source, config)
    layout = forecast.layout_of
    # As little as can be, as long as no forecast has been made.
    left = Residences.told(config.train.memory) or Residences(every=sys.maxsize)
    task = task_of(config.task)
    steps = task.steps(config.task)
    batches = trains and (batches_of(config.train) is not None or steps.matrix)
    samples = steps.samples > 0  # of which groups of arcs are not in the order of rows
    # A device is busy with all rows at once only; keys of rows of samples are made for each step.
    blocks = forecast.whole_rows and not (batches or samples) and config.kernel != "cupy"
    blocks = blocks and in_blocks(source.stored.manifest.n // size)
    target = Target(
        forecast.orders, layout, forecast.whole_rows, means=means,
        sums_groups=entry.sums_groups and not (batches or samples), residences=left,
        stays=samples, turns=forecast.turns, blocks=blocks,
        loss_over_logits=steps.over_logits and not batches,
    )  # fmt: skip
    sparse = source.stored.manifest.feature_entries > 0 and not samples
    program = compile_network(network, target, config.model, trains, sparse)
    if program.needs_halo and not entry.gives_rows:
        able = [name for name in SCHEMES if SCHEMES.get(name).gives_rows]
        raise UserError(
            f"model {config.model.name!r} looks at whole rows of neighbours, which scheme "
            f"{config.scheme.name!r} does not bring together",
            f"use scheme.name = {', '.join(able[:-1])} or {able[-1]}",
        )
    if not forecast.whole_rows and (regrouping := _regroups(network)) is not None:
        raise UserError(
            f"model {config.model.name!r} takes columns apart ({regrouping.words}), which scheme "
            f"{config.scheme.name!r} cuts over ranks",
            "use scheme.name = p2p, bcast or replicated",
        )
    task.check(config, entry, program)
    if batches:
        _check_cuts(config, entry)
    if batches and program.type is not None:
        raise UserError(
            f"train.batches: model {config.model.name!r} has means of all vertices, made once",
            "leave train.batches out",
        )
    other = program.needs_products or network.arc_features or not program.needs_groups
    if batches and program.needs_entries and other:
        raise UserError(
            f"train.batches: model {config.model.name!r} has rows of arcs, which mini-batches "
            "bring to networks that do nothing but tell their relations apart",
            "leave train.batches out, or use model.name = rgcn, rgat, compgcn, hetero or hgt",
        )
    groups = program.needs_groups
    entries = program.needs_entries or groups or program.type is not None
    of_arcs = entries, groups, program.type, program.sums_groups
    transposed = trains or program.transposes
    needs = program.needs_products, program.needs_halo, transposed, *of_arcs
    return program, Demand(program.depth, *needs, batches=batches, one_loop=network.one_loop)
