"""``gcnmpi verify``: the proof that a distributed run equals one serial process on a graph.

Trains a few epochs with the real trainer and, on rank 0, with :mod:`gcnmpi.proof.oracle`, and holds
one against the other; checks the scheme's products by themselves, the gradient by finite
differences, and the bytes and messages that were counted against those that were predicted.
Rank 0 holds the whole graph and every dense matrix of a serial pass; this is for graphs that fit.

Two checks need no serial run: the gradient is held against differences of the loss, and the steps
of an optimizer on a kernel against those of the oracle. In a run of float32, rounding errors of the
gradient would hide a small error of a step. So the gradients of steps are given, and the parameters
begin at 0: they are the sum of the steps.

Where ``comm.precision`` rounds messages, such a run is beside the exact one. Everything else is
checked with exact messages, as tightly as ever.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike

from gcnmpi.core import rng
from gcnmpi.core.precision import EXACT, FORMATS
from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.layout.place import Place, Space
from gcnmpi.mpi.comm import Comm, maximum, redistribute, reduce_in_place, rest_until_all
from gcnmpi.nn.model import Model, input_pieces
from gcnmpi.nn.optim import Parameters, make_optimizer
from gcnmpi.nn.tasks.interface import task_of
from gcnmpi.options.config import Config, TrainConfig, table_of
from gcnmpi.options.train import batches_of
from gcnmpi.proof.links import training_graph
from gcnmpi.proof.oracle import FEATURES, Curve, Serial
from gcnmpi.proof.oracle import train as serial_run
from gcnmpi.proof.passes import ArcRows
from gcnmpi.proof.updates import UPDATES, Weights
from gcnmpi.run.opening import kernel_of_rank
from gcnmpi.run.problem import Problem, open_problem
from gcnmpi.run.record import End
from gcnmpi.run.step import Step
from gcnmpi.run.trainer import Result, train
from gcnmpi.schemes.operations import SUMS
from gcnmpi.schemes.stacked import StackedScheme
from partition.errors import UserError
from partition.graph.graph import Graph, merged
from partition.graph.metrics import Metrics, measure, measure_mixed
from partition.graph.store import open_graph, read_partition
from partition.registry import resolved

STEPS = 50  # that an optimizer makes by itself
STEPS_TOLERANCES = {"float64": 1e-12, "float32": 2e-6}
_NAME, _SHAPE = "1.weight", (64, 5)
# Each predicted number, and the field of the record that counts it.
_COUNTED = {
    "bytes": "bytes_sent",
    "received": "bytes_received",
    "messages": "messages_sent",
    "shared": "shared_bytes",
}
EPOCHS = 20  # trained at most
DIRECTIONS = 4  # of finite differences


@dataclass(frozen=True)
class Check:
    """One check: it passes if ``measured`` ≤ ``tolerance``, so never as NaN."""

    name: str
    measured: float
    tolerance: float
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the check passes."""
        return bool(self.measured <= self.tolerance)


@dataclass(frozen=True)
class Verified:
    """The facts of a run, as ``gcnmpi verify --json`` gives them, and its checks.

    On other ranks than 0 the facts are empty.
    """

    facts: Mapping[str, Any]
    checks: list[Check]

    @property
    def ok(self) -> bool:
        """Whether every check passes."""
        return all(check.ok for check in self.checks)


@dataclass(frozen=True)
class _Rounding:
    """How far a rounded run may be from the exact one, relative to its size.

    Wide enough for graphs of some dozen vertices, on which the errors of few rows do not cancel.
    """

    gradient: float
    loss: float


_ROUNDED = {
    "bf16": _Rounding(0.05, 0.01),
    "fp16": _Rounding(0.01, 0.002),
    "int8": _Rounding(0.1, 0.03),
}


@dataclass(frozen=True)
class _Tolerances:
    """How far a run of a dtype may be from the serial run in float64, relative to its size."""

    curve: float  # losses
    gradient: float
    product: float  # entries of a product, and the dot test
    # Logits, too: Adam divides by gradients, which makes rounding errors of small ones larger.
    weights: float
    difference: float  # finite differences; 0: not tried, because the dtype is too coarse for them


TOLERANCES = {
    "float64": _Tolerances(1e-10, 1e-10, 1e-12, 1e-9, 1e-5),
    "float32": _Tolerances(1e-4, 1e-4, 1e-5, 1e-3, 0.0),
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
        rounded = _rounding_checks(comm, graph, partition, asked, result, gradient)
    checks: list[Check] = []
    if comm.rank == 0:
        checks = [*_checks(problem, result, weights, run), *rounded]
    rest_until_all(comm, moved)
    return Verified(_facts_of(problem, result) if comm.rank == 0 else {}, comm.bcast(checks))


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
        difference = _finite_differences(problem, step, tolerances.difference, DIRECTIONS)
    plans = problem.runtime.comm.gather(_plan_figures(problem)) or []
    steps = _optimizer_steps(problem)
    return _Measured(logits, classes, gradient, flat, products, gathered, difference, plans, steps)


def _tolerances(problem: Problem) -> _Tolerances:
    return TOLERANCES[problem.config.dtype]


def _checks(
    problem: Problem, result: Result, weights: Weights, run: _Measured | None
) -> Iterator[Check]:
    """The checks against a serial run, which rank 0 makes."""
    within, source, config = _tolerances(problem), problem.source, problem.config
    make: Callable[..., Serial] = resolved(task_of(config.task).serial)
    serial = make(source.stored, source.direction, config)
    expected = serial_run(serial, len(result.epochs))
    yield _loss_curve(result, expected.losses, within.curve)
    if run is not None:
        yield _of_each("first gradient", run.gradient, expected.gradient, within.gradient)
    yield _of_each("final weights", weights, expected.weights, within.weights)
    if run is not None:
        yield Check("logits", _distance(run.logits, expected.logits), within.weights)
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
    yield from _traffic_checks(result.end)
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
    return maximum(problem.runtime.comm, max(_distance(whole, expected), apart))


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
    missed = int(np.count_nonzero(~(chosen >= logits.max(axis=1) - tolerance * _size(logits))))
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
    return Check("metrics", _worst(errors), 1e-12, ", ".join(notes))


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
    forward = [_distance(p.mx, matrix @ p.x) for p in products]
    backward = [_distance(p.mty, matrix.T @ p.y) for p in products]
    dots = []
    for p in products:
        scale = np.linalg.norm(p.mx) * np.linalg.norm(p.y) or 1.0
        dots.append(abs(p.mx_dot_y - p.x_dot_mty) / scale)
    yield Check("M·x", _worst(forward), tolerance, widths)
    yield Check("Mᵀ·y", _worst(backward), tolerance, widths)
    yield Check("⟨M·x, y⟩ = ⟨x, Mᵀ·y⟩", _worst(dots), tolerance, widths)


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


# Of curves, numbers and rounding.


def _traffic_checks(end: End, run: str = "") -> Iterator[Check]:
    """Counted against predicted: the largest difference of a rank, from a run's last record.

    ``run`` is the name of the run in those of the checks.
    """
    for purpose, prefix in (("training", ""), ("evaluation", "eval_")):
        for what, counted in _COUNTED.items():
            sent, predicted = end[f"{prefix}{counted}"], end[f"{prefix}{what}_predicted"]
            errors = [abs(s - p) for s, p in zip(sent, predicted, strict=True)]
            yield Check(f"{run}{purpose} {what}", max(errors), 0, f"{sum(sent):,} by all ranks")


def _rounding_checks(
    comm: Comm,
    graph: str | os.PathLike,
    partition: str | None,
    config: Config,
    exact: Result,
    gradient: np.ndarray | None,
) -> list[Check]:
    """Train on all ranks with the precision of ``config``, which rounds messages.

    ``exact`` is the result of the same training with exact messages, and ``gradient`` this rank's
    flat gradient in the first epoch of that, if it is to be compared.
    """
    problem = open_problem(comm, graph, partition, config)
    result, name, found = train(problem), config.comm.precision, []
    how, tolerances = FORMATS[name], _ROUNDED[name]
    if gradient is not None:
        step = Step(problem)
        with problem.runtime.traffic.during("train", epoch=1):
            rounded = problem.runtime.kernel.to_host(step.gradient(1)[1]).astype(np.float64)
        squares = np.array([np.square(rounded - gradient).sum(), np.square(gradient).sum()])
        reduce_in_place(comm, squares)
        changed, size = squares.tolist()
        apart = (changed / (size or 1.0)) ** 0.5
        found.append(Check("rounded gradient", apart, tolerances.gradient))
    measured = [(e.error, how.error(e.width)) for e in result.end.rounding or []]
    error, bound = max(measured, key=lambda one: one[0] / one[1], default=(0.0, 0.0))
    exchanges = f"{name}, {len(measured)} exchanges of the first and the last epoch"
    found.append(Check("rounded rows", error, bound, exchanges))
    loss, expected = (run.epochs[-1].loss for run in (result, exact))
    note = f"{loss:.6g} after {len(result.epochs)} epochs, exact {expected:.6g}"
    apart = abs(loss - expected) / abs(expected or 1.0)
    found.append(Check("rounded loss", apart, tolerances.loss, note))
    return [*found, *_traffic_checks(result.end, "rounded ")]


def _loss_curve(result: Result, expected: Sequence[float], tolerance: float) -> Check:
    """The losses of a run beside those of the serial one."""
    losses = [epoch.loss for epoch in result.epochs]
    errors = [_distance(a, b) for a, b in zip(losses, expected, strict=True)]
    note = f"{len(losses)} epochs, {losses[0]:.6g} to {losses[-1]:.6g}"
    return Check("loss curve", _worst(errors), tolerance, note)


def _of_each(
    name: str, got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], tolerance: float
) -> Check:
    """Each array relative to its own size, but for one that is nothing but rounding errors."""
    floor = 1e-5 * max(_size(array) for array in expected.values())
    errors = {key: _distance(got[key], expected[key], floor) for key in expected}
    note = f"largest in {max(errors, key=lambda key: errors[key])}"
    return Check(name, _worst(errors.values()), tolerance, note)


def _facts_of(problem: Problem, result: Result) -> dict[str, object]:
    """The facts of a run that is verified: on what, and with what."""
    config = problem.config
    return {
        "graph": problem.source.stored.manifest.name,
        "graph_id": problem.source.stored.manifest.id,
        "partition": None if problem.source.partition is None else problem.source.partition.name,
        "ranks": problem.runtime.everyone.size,
        "scheme": problem.scheme.describe(),
        "kernel": problem.runtime.kernel.name,
        "dtype": config.dtype,
        "direction": problem.source.direction,
        "orders": result.end.orders,
        "config": table_of(config),
        "warnings": list(problem.warnings),
        "machine": list(problem.machine),
    }


def _distance(got: ArrayLike, expected: ArrayLike, floor: float = 0.0) -> float:
    """Largest difference, relative to the largest entry expected; NaN if a NaN is among them."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    if got.shape != expected.shape:
        return math.inf
    return _size(got - expected) / (max(_size(expected), floor) or 1.0)


def _size(array: np.ndarray) -> float:
    """The largest of the absolute numbers."""
    return float(np.max(np.abs(array), initial=0.0))


def _worst(errors: Iterable[float | np.floating]) -> float:
    """The largest error; 0 without any."""
    return float(np.max(list(errors), initial=0.0))


def _finite_differences(
    problem: Problem,
    step: Step,
    tolerance: float,
    directions: int = 4,
    tries: int = 12,
    h: float = 1e-7,
) -> float:
    """Largest relative error of the gradient along a few directions in the space of weights.

    Central differences of the loss of epoch 1 at the initial weights plus noise (where biases are
    0, vertices without neighbours would sit exactly on the kink of ReLU). A direction is the
    gradient with random positive factors, so that what is to be measured stands out from
    rounding errors, plus as much of a random vector, as long as the weights themselves.

    The loss is smooth but where an activation changes its sign. A direction along which the
    differences at h and h/2 disagree has met such a kink and is replaced; infinity is returned
    if too many do.
    """
    model, generator = step.model, np.random.default_rng(1)
    initial = model.whole(model.parameters.flat)
    names, sizes = list(initial), [array.size for array in initial.values()]
    parameters = model.network.parameters
    trained = np.repeat(
        [name not in parameters or parameters[name].trained for name in names], sizes
    )

    def at(point: np.ndarray) -> tuple[float, np.ndarray]:
        pieces = np.split(point, np.cumsum(sizes)[:-1])
        state = {n: p.reshape(initial[n].shape) for n, p in zip(names, pieces, strict=True)}
        model.load_state(state)
        loss, flat = step.gradient(1)
        # All ranks decide on the very same number.
        return problem.runtime.comm.bcast(float(loss)), _flat(model.whole(flat))

    start = _flat(initial)
    start = start + trained * 0.1 * np.sqrt(np.mean(start**2)) * generator.standard_normal(
        len(start)
    )
    _, gradient = at(start)
    worst, found = 0.0, 0
    for _ in range(tries):
        ascent = gradient * generator.uniform(0, 2, len(start))
        noise = trained * generator.standard_normal(len(start))
        towards = _unit(ascent) + _unit(noise)
        towards *= np.linalg.norm(start) / np.linalg.norm(towards)
        slopes = [
            (at(start + s * towards)[0] - at(start - s * towards)[0]) / (2 * s) for s in (h, h / 2)
        ]
        expected = float(gradient @ towards)
        scale = abs(expected) + np.finfo(float).tiny
        # Tighter than what passes, so that a kink is not taken for an error.
        if abs(slopes[0] - slopes[1]) > 0.5 * tolerance * scale:
            continue
        worst, found = max(worst, float(abs(slopes[1] - expected) / scale)), found + 1
        if found == directions:
            return worst
    return math.inf


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / (np.linalg.norm(vector) or 1.0)


def _flat(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays.values()])


def steps_apart(kernel: Kernel, config: TrainConfig) -> float:
    """How far the parameters are from the oracle's after 50 steps, relative to the largest one.

    Infinity, or NaN, where a parameter is no number but the oracle's are.
    """
    config = replace(config, weight_decay_layers="all", weight_decay_convs=0.0)
    parameters = Parameters(kernel, {}, {_NAME: _SHAPE})
    step = make_optimizer(kernel, parameters, {_NAME: config.weight_decay}, config).step
    update = UPDATES[config.optimizer](config)
    expected = {_NAME: np.zeros(_SHAPE)}
    for gradient in _gradients(kernel.dtype):
        mine = kernel.empty(gradient.size)
        kernel.copy(kernel.from_host(gradient.ravel()), mine)
        step(mine, config.lr)
        expected = update(expected, {_NAME: gradient}, config.lr)
    found = np.asarray(kernel.to_host(parameters[_NAME]), np.float64)
    size = np.abs(expected[_NAME]).max()
    return float(np.abs(found - expected[_NAME]).max() / (size or 1.0))


def _gradients(dtype: DTypeLike) -> np.ndarray:
    """Of sizes that differ from entry to entry and fall from step to step, exact in ``dtype``."""
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.uniform(-4, 0, _SHAPE) * 0.98 ** np.arange(STEPS)[:, None, None]
    return (sizes * (random.standard_normal((STEPS, *_SHAPE)) + 0.5)).astype(dtype).astype(float)
