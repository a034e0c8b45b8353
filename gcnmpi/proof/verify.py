"""``gcnmpi verify``: the proof that a distributed run equals one serial process on a graph.

Trains a few epochs with the real trainer and, on rank 0, with :mod:`gcnmpi.proof.oracle`, and holds
one against the other; checks the scheme's products by themselves, the gradient by finite
differences, and the bytes and messages that were counted against those that were predicted.
Rank 0 holds the whole graph and every dense matrix of a serial pass; this is for graphs that fit.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from gcnmpi.core import rng
from gcnmpi.core.precision import EXACT
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place, Space
from gcnmpi.mpi.comm import Comm, maximum, redistribute, rest_until_all
from gcnmpi.nn.model import Model, input_pieces
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config
from gcnmpi.options.train import batches_of
from gcnmpi.proof.checks import (
    STEPS,
    STEPS_TOLERANCES,
    Check,
    Verified,
    distance,
    facts_of,
    finite_differences,
    loss_curve,
    of_each,
    rounding_checks,
    size,
    steps_apart,
    traffic_checks,
    worst,
)
from gcnmpi.proof.links import training_graph
from gcnmpi.proof.oracle import FEATURES, Curve, Serial
from gcnmpi.proof.oracle import train as serial_run
from gcnmpi.proof.passes import ArcRows
from gcnmpi.proof.updates import Weights
from gcnmpi.run.opening import kernel_of_rank
from gcnmpi.run.problem import Problem, open_problem
from gcnmpi.run.step import Step
from gcnmpi.run.trainer import Result, train
from gcnmpi.schemes.operations import SUMS
from gcnmpi.schemes.stacked import StackedScheme
from partition.errors import UserError
from partition.graph.graph import Graph, merged
from partition.graph.metrics import Metrics, measure, measure_mixed
from partition.graph.store import open_graph, read_partition
from partition.registry import resolved

EPOCHS = 20  # trained at most
DIRECTIONS = 4  # of finite differences


@dataclass(frozen=True)
class Tolerances:
    """How far a run of a dtype may be from the serial run in float64, relative to its size."""

    curve: float  # losses
    gradient: float
    product: float  # entries of a product, and the dot test
    # Logits, too: Adam divides by gradients, which makes rounding errors of small ones larger.
    weights: float
    difference: float  # finite differences; 0: not tried, because the dtype is too coarse for them


TOLERANCES = {
    "float64": Tolerances(1e-10, 1e-10, 1e-12, 1e-9, 1e-5),
    "float32": Tolerances(1e-4, 1e-4, 1e-5, 1e-3, 0.0),
}


@dataclass(frozen=True)
class Products:
    """M·x and Mᵀ·y of random x and y of one width, whole on rank 0, and their dot products."""

    width: int
    x: np.ndarray
    y: np.ndarray
    mx: np.ndarray
    mty: np.ndarray
    mx_dot_y: float
    x_dot_mty: float


def verify(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    *,
    moved: Callable[[], None] = lambda: None,
) -> Verified:
    """Check everything; all ranks call it together, get the same checks and raise as in training.

    The configuration is obeyed, but for ``train.epochs``, at most 20 here, and
    ``train.eval_every``, never 0. With a ``comm.precision`` that rounds, a second run has it, which
    is held against the first. ``moved`` is called while a rank waits for rank 0, which works alone.
    """
    if batches_of(config.train):
        raise UserError(
            "verify compares training on all vertices with one serial process",
            "leave train.batches out",
        )
    epochs = min(config.train.epochs, EPOCHS)
    every = config.train.eval_every or epochs
    short = dataclasses.replace(config.train, epochs=epochs, eval_every=every)
    asked = dataclasses.replace(config, train=short)
    config = dataclasses.replace(asked, comm=dataclasses.replace(asked.comm, precision=EXACT))
    problem = open_problem(comm, graph, partition, config)
    result = train(problem)
    weights = _canonical(problem, result.model, result.model.parameters.flat)
    # Of several samples at once, only what comes out of training has a serial twin.
    alone = not isinstance(problem.scheme, StackedScheme)
    run = _measured(problem, result) if alone else None
    rounded = []
    if asked.comm.precision != EXACT:
        gradient = None if run is None else run.flat
        rounded = rounding_checks(comm, graph, partition, asked, result, gradient)
    checks: list[Check] = []
    if comm.rank == 0:
        checks = [*_checks(problem, result, weights, run), *rounded]
    rest_until_all(comm, moved)
    return Verified(facts_of(problem, result) if comm.rank == 0 else {}, comm.bcast(checks))


@dataclass(frozen=True)
class _Measured:
    """Results of a run besides its curve and weights; whole matrices are on rank 0."""

    logits: np.ndarray
    classes: np.ndarray
    gradient: Weights
    flat: np.ndarray  # the same, of this rank
    products: list[Products]
    gathered: float | None  # how far rows with their halo are from what they should be
    difference: float | None
    plans: list[dict[str, int] | None]
    steps: list[Check]


def _measured(problem: Problem, result: Result) -> _Measured:
    """Look at a run; all ranks together."""
    model, kernel, tolerances = result.model, problem.runtime.kernel, _tolerances(problem)
    last, width = model.place, model.widths[-1]
    logits = model.forward()
    classes = problem.scheme.row_argmax(last.layer, logits, width)
    logits = _whole(problem, last, kernel.to_host(logits), width)
    classes = _whole(problem, last, classes, width)
    step = Step(problem)
    loss, first = step.gradient(1)
    flat = np.array(kernel.to_host(first), np.float64)
    step.drop_noise(step.model.gradients.flat, loss)
    gradient = _canonical(problem, step.model, step.model.gradients.flat)
    products = [_products(problem, k, width) for k, width in _multiplied(problem, model)]
    sums_groups = model.program.sums_groups
    gathered = _gathered(problem) if model.program.needs_halo and not sums_groups else None
    difference = None
    if tolerances.difference:
        difference = finite_differences(problem, step, tolerances.difference, DIRECTIONS)
    plans = problem.runtime.comm.gather(_plan_figures(problem)) or []
    steps = _optimizer_steps(problem)
    return _Measured(logits, classes, gradient, flat, products, gathered, difference, plans, steps)


def _tolerances(problem: Problem) -> Tolerances:
    return TOLERANCES[problem.config.dtype]


def _checks(
    problem: Problem, result: Result, weights: Weights, run: _Measured | None
) -> Iterator[Check]:
    """The checks against a serial run, which rank 0 makes."""
    within, source, config = _tolerances(problem), problem.source, problem.config
    make: Callable[..., Serial] = resolved(task_of(config.task).serial)
    serial = make(source.stored, source.direction, config)
    expected = serial_run(serial, len(result.epochs))
    yield loss_curve(result, expected.losses, within.curve)
    if run is not None:
        yield of_each("first gradient", run.gradient, expected.gradient, within.gradient)
    yield of_each("final weights", weights, expected.weights, within.weights)
    if run is not None:
        yield Check("logits", distance(run.logits, expected.logits), within.weights)
        if serial.of_classes:
            yield _predictions(config, run.classes, expected.logits, within.weights)
    reported = result.epochs[-1].metrics
    if serial.exact:
        found = serial.metrics(weights, None if run is None else run.logits)
        yield _metrics_check((name, value, found.get(name)) for name, value in reported.items())
    else:
        for name, value in serial.metrics(expected.weights).items():
            apart = _apart(reported.get(name), value)
            yield Check(name, apart, within.weights)
    if run is not None:
        multiplied = _multiplies(problem, expected)
        yield from _product_checks(run.products, multiplied, within.product)
        if run.gathered is not None:
            note = "rows of neighbours there, and their gradients back"
            yield Check("halo dot test", run.gathered, within.product, note)
        if run.difference is not None:
            yield Check("finite differences", run.difference, within.difference)
        yield from run.steps
    yield from traffic_checks(result.end)
    if run is not None:
        yield from _metrics(problem, run.plans)


def _apart(found: float | None, value: float | None) -> float:
    if found is None or value is None:
        return 0.0 if found is value else math.nan
    return abs(found - value) / (abs(value) or 1.0)


# Done by all ranks together.


def _whole(problem: Problem, place: Place, piece: np.ndarray, width: int) -> np.ndarray:
    """All rows in the original order on rank 0, none elsewhere; those of groups by their keys."""
    groups = place.space is Space.GROUPS
    mine = piece if groups else problem.scheme.original(place, piece, width)
    keys = problem.scheme.block(place, width).rows if groups else np.arange(len(mine))
    tools = problem.runtime.comm, np.zeros(len(mine), int), [mine, keys]
    (whole, key), _ = redistribute(*tools, problem.config.loading.max_bytes)
    return whole[np.argsort(key)] if groups else whole


def _canonical(problem: Problem, model: Model, flat: Array) -> Weights:
    """Whole parameters, or their gradients, by name; trained features on rank 0 only."""
    found = {name: np.array(array, np.float64) for name, array in model.whole(flat).items()}
    if problem.config.model.train_features:
        piece = model.features(flat).astype(np.float64)
        found[FEATURES] = _whole(problem, Place(0), piece, model.widths[0])
    return found


def _multiplied(problem: Problem, model: Model) -> list[tuple[int, int]]:
    """Layers and widths of the products to look at: each layout of M once with each width.

    Products that are made once are among them, as wide as the pieces in which they are made.
    """
    asked = [p for p in model.products(backward=True) if p[0] in SUMS]
    places = [(k, sizes[0]) for _, k, *sizes in asked]
    for step in model.program.constants:
        if step.instruction.operation in SUMS:
            width = step.operator.width
            places.append((step.k, -(-width // input_pieces(width))))
    layouts = {(problem.scheme.layout(Place(k - 1)), width): (k, width) for k, width in places}
    return sorted(layouts.values())


def _products(problem: Problem, k: int, width: int) -> Products:
    """Both products on random matrices: one laid out for an exchange, one not."""
    scheme, kernel = problem.scheme, problem.runtime.kernel
    space = Space.GROUPS if problem.program.sums_groups else Space.OWN
    before, after = Place(k - 1), Place(k, True, space)
    x_block, y_block = scheme.block(before, width), scheme.block(after, width)
    x_mine = _random("x", x_block.rows, width, kernel.dtype)[:, x_block.columns]
    y_mine = _random("y", y_block.rows, width, kernel.dtype)[:, y_block.columns]
    x, my_mty = scheme.empty(before, width, exchanged=True), scheme.empty(before, width)
    y, my_mx = Matrix(after, kernel.from_host(y_mine)), scheme.empty(after, width)
    kernel.copy(kernel.from_host(x_mine), x.array)
    scheme.aggregate(k, x, my_mx.array)
    scheme.aggregate_t(k, y, my_mty.array)
    mx, mty = (kernel.to_host(m.array).astype(np.float64) for m in (my_mx, my_mty))
    dots = np.array(
        [
            np.sum(mx * y_mine) * y_block.counts_entries,
            np.sum(x_mine * mty) * x_block.counts_entries,
        ],
        np.float64,
    )
    scheme.reduce(dots)

    all_rows = np.arange(problem.source.stored.graph.n if problem.runtime.comm.rank == 0 else 0)
    whole_x = _random("x", all_rows, width, kernel.dtype)
    whole_y, mx = (_whole(problem, after, piece, width) for piece in (y_mine, mx))
    mty = _whole(problem, before, mty, width)
    return Products(width, whole_x, whole_y, mx, mty, float(dots[0]), float(dots[1]))


def _gathered(problem: Problem, width: int = 3) -> float:
    """Rows with their halo against what they should be, and ⟨E·x, y⟩ against ⟨x, Eᵀ·y⟩."""
    scheme, kernel, halo = problem.scheme, problem.runtime.kernel, problem.scheme.halo
    assert halo is not None, "the network needs one"
    block = scheme.block(Place(0), width)
    x = scheme.empty(Place(0), width, exchanged=True)
    kernel.copy(kernel.from_host(_random("x", block.rows, width, kernel.dtype)), x.array)
    expected = _random("x", halo.ids, width, kernel.dtype)
    whole = kernel.to_host(halo.expand(x)).astype(np.float64)
    # Different on every rank: a row's gradients of several ranks have to be added.
    y = _random("y", halo.ids + 1 + problem.runtime.comm.rank, width, kernel.dtype)
    gradient, out = halo.gradient(Place(0), width), scheme.empty(Place(0), width).array
    kernel.copy(kernel.from_host(y), gradient.whole)
    halo.fold(gradient, out)
    folded = kernel.to_host(out).astype(np.float64)
    mine = _random("x", block.rows, width, kernel.dtype)
    # Each copy of the rows has gathered them all.
    dots = np.array([np.sum(whole * y), np.sum(mine * folded), np.sum(np.abs(whole * y))])
    scheme.reduce(dots)
    apart = abs(dots[0] - dots[1]) / (dots[2] or 1.0)
    return maximum(problem.runtime.comm, max(distance(whole, expected), apart))


def _random(name: str, rows: np.ndarray, width: int, dtype: DTypeLike) -> np.ndarray:
    """Numbers in −1..1 that depend on their global place only, rounded to ``dtype``, float64."""
    hashes = np.empty((len(rows), width), np.uint32)
    keys = rng.row_keys(ord(name), 0, 0, rows)
    rng.hash_block(keys, rng.column_keys(np.arange(width)), hashes, np.empty_like(hashes))
    return (hashes / 2.0**31 - 1).astype(dtype).astype(np.float64)


def _optimizer_steps(problem: Problem) -> list[Check]:
    """The optimizer by itself in both types, whatever the run's: an error of float32 shows.

    Rank 0 takes the steps, which are the same on every rank.
    """
    optimizer, comm, checks = problem.config.train, problem.runtime.comm, []
    for dtype, tolerance in STEPS_TOLERANCES.items():
        config = dataclasses.replace(problem.config, dtype=dtype)
        kernel = kernel_of_rank(comm, config, problem.runtime.kernel.threads)
        note = f"{optimizer.optimizer}, {STEPS} steps"
        measured = steps_apart(kernel, optimizer) if comm.rank == 0 else 0.0
        checks.append(Check(f"optimizer in {dtype}", measured, tolerance, note))
    return checks


def _plan_figures(problem: Problem) -> dict[str, int] | None:
    """This rank's figures of ``partition.graph.metrics``, as its plan has them, if there is one."""
    plan = problem.scheme.plan
    if plan is None:
        return None
    return {
        "rows": plan.nown,
        "send_rows": plan.nsend,
        "recv_rows": plan.nhalo,
        "send_messages": len(plan.send_peers),
        "recv_messages": len(plan.recv_peers),
    }


# The checks that rank 0 makes of it.


def _predictions(
    config: Config, classes: np.ndarray, logits: np.ndarray, tolerance: float
) -> Check:
    """Rows whose class is not one of those with the largest logit, to within a tolerance."""
    chosen = np.take_along_axis(logits, classes[:, np.newaxis], axis=1)[:, 0]
    missed = int(np.count_nonzero(~(chosen >= logits.max(axis=1) - tolerance * size(logits))))
    return Check("predictions", missed, 0, f"{len(classes)} {config.task.on}")


def _metrics_check(found: Iterable[tuple[str, float | None, float | None]]) -> Check:
    """Of names, reported and expected values."""
    errors, notes = [0.0], []
    for name, value, expected in found:
        if value is None or expected is None:
            errors.append(0.0 if value is expected else math.nan)
            continue
        errors.append(abs(value - expected) / max(1.0, abs(expected)))
        notes.append(f"{name.replace('_', ' ', 1)} {expected:.4f}")
    return Check("metrics", worst(errors), 1e-12, ", ".join(notes))


def _multiplies(problem: Problem, expected: Curve) -> sp.csr_array:
    """M; or the matrix of means by relation, its rows by the keys of groups."""
    if not problem.program.sums_groups:
        return expected.matrix
    stored, direction = problem.source.stored, problem.source.direction
    graph = training_graph(stored.graph, stored.pairs)
    return ArcRows.of(graph, direction, False, relation=graph.arc_type).means


def _product_checks(
    products: list[Products], matrix: sp.csr_array, tolerance: float
) -> Iterator[Check]:
    if not products:  # of a network that makes none
        return
    widths = "width " + ", ".join(str(p.width) for p in products)
    forward = [distance(p.mx, matrix @ p.x) for p in products]
    backward = [distance(p.mty, matrix.T @ p.y) for p in products]
    dots = []
    for p in products:
        scale = np.linalg.norm(p.mx) * np.linalg.norm(p.y) or 1.0
        dots.append(abs(p.mx_dot_y - p.x_dot_mty) / scale)
    yield Check("M·x", worst(forward), tolerance, widths)
    yield Check("Mᵀ·y", worst(backward), tolerance, widths)
    yield Check("⟨M·x, y⟩ = ⟨x, Mᵀ·y⟩", worst(dots), tolerance, widths)


def _metrics(problem: Problem, plans: list[dict[str, int] | None]) -> Iterator[Check]:
    """The partition's recorded metrics, and the plan, against the graph itself."""
    partition, direction = problem.source.partition, problem.source.direction
    if partition is None:
        return
    parts = read_partition(problem.source.stored.path, partition.name).parts
    how, known, groups = measure, partition.metrics, False
    if problem.scheme.describe().get("exchange") == "mixed":
        groups = problem.program.sums_groups
        how = partial(measure_mixed, by_relation=groups)
        known = partition.by_relation if groups else partition.mixed

    def measured(graph: Graph) -> Metrics:
        return how(graph if groups else merged(graph), parts, partition.k, direction)

    # Training vertices are those of the first split, whichever one was trained.
    graph = open_graph(problem.source.stored.path, check=False).graph
    truth, recorded = asdict(metrics := measured(graph)), asdict(known[direction])
    wrong = [key for key in truth if recorded.get(key) != truth[key]]
    note = ", ".join(wrong) or f"volume {metrics.volume:,} rows"
    yield Check("recorded metrics", len(wrong), 0, note)
    if plans[0] is not None:
        truth = asdict(measured(training_graph(graph, problem.source.stored.pairs)))
        errors = [
            abs(figure - truth[key][rank])
            for rank, plan in enumerate(plans)
            for key, figure in (plan or {}).items()
        ]
        yield Check("plan = metrics", max(errors), 0, "on every rank")
