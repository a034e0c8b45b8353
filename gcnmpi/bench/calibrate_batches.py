"""The constants of mini-batches, measured: batches of a random graph are drawn and computed.

Each rank draws batches of its own, of a graph that it has alone; the rows that ranks ask of each
other are priced by the constants of messages.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from gcnmpi.bench.rounds import fitted, median_seconds, only
from gcnmpi.core.timing import Phases, Traffic
from gcnmpi.halo.matrix import Matrix
from gcnmpi.halo.plan import plan_of
from gcnmpi.kernels.interface.kernel import Kernel
from gcnmpi.kernels.interface.kinds import kinds_of
from gcnmpi.kernels.rows import entry_rows
from gcnmpi.layout.entries import EntryRows, Groups
from gcnmpi.layout.loading import OwnRows
from gcnmpi.layout.place import Incidence, Place
from gcnmpi.layout.runtime import Runtime
from gcnmpi.mpi.ahead import done_now
from gcnmpi.mpi.comm import Comm
from gcnmpi.nn.compile.on_scheme import batch_program
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.model import Passes
from gcnmpi.nn.optim import Parameters
from gcnmpi.nn.shards import shapes_of
from gcnmpi.options.config import Config
from gcnmpi.options.model import NETWORKS, ModelConfig
from gcnmpi.options.settings import chosen
from gcnmpi.options.train import sampler_of
from gcnmpi.planner.machine import DRAWING, Machine
from gcnmpi.schemes.forecast import Facts
from gcnmpi.schemes.row_scheme import Laid
from gcnmpi.schemes.sampled import Batch, BatchScheme, Cutter, Memory

ROWS, DEGREE, WIDTH = 100_000, 16, 8
# Batches that are drawn: of seeds and neighbours of two layers; of vertices.
BATCHES = (
    "neighbor,16,10,5", "neighbor,512,10,5", "neighbor,2048,10,5", "labor,16,10,5",
    "labor,512,10,5", "labor,2048,10,5", "vertex,100", "vertex,5000",
)  # fmt: skip
# And of arcs of relations, with few and with many of a group.
OF_RELATIONS = ("neighbor,16,1,1", "neighbor,512,1,1", "neighbor,512,5,3", "neighbor,2048,-1,-1")
RELATIONS = 4
SMALLEST = BATCHES[0]  # takes what the steps of a program take, however small
REPEATS = 5


def batch_constants(comm: Comm, config: Config, kernel: Kernel) -> dict[str, float]:
    """``machine.DRAWING`` and ``batch_step`` of this rank; all ranks call it together."""
    graph = _Graph(comm.Split(comm.rank), config, kernel)  # type: ignore[arg-type]
    rows, times = list[list[float]](), list[float]()
    for batches in (*BATCHES, *OF_RELATIONS):
        seconds, sizes = graph.drawing(batches, len(rows) >= len(BATCHES))
        # Time is linear in the constants: a column is what one of them alone would give.
        alone = (Machine(**only(DRAWING, name)) for name in DRAWING)
        rows.append([sum(one.drawing_seconds(*layer) for layer in sizes) for one in alone])
        times.append(seconds)
    constants, _ = fitted(DRAWING, np.array(rows), np.array(times))
    return constants | {"batch_step": graph.seconds_per_step()}


class _Graph:
    """A random graph on one rank, cut into batches as a run does."""

    def __init__(self, alone: Comm, config: Config, kernel: Kernel) -> None:
        self._comm, self._kernel = alone, kernel
        values = vars(config.model) | {"name": "sage", "hidden": (WIDTH,)}
        self._config = replace(config, model=chosen(ModelConfig, NETWORKS, values))
        random = np.random.default_rng(0)
        # As in most graphs, a few vertices have many neighbours.
        degrees = random.geometric(1 / DEGREE, ROWS)
        indptr = np.concatenate(([0], np.cumsum(degrees)))
        columns = (ROWS * random.random(indptr[-1]) ** 2).astype(np.int32)
        matrix = sp.csr_array((np.ones(len(columns), kernel.dtype), columns, indptr))
        matrix.resize(ROWS, ROWS)
        matrix.sum_duplicates()
        own, none = np.arange(ROWS), np.empty(0, np.int64)
        plan = plan_of(own, none, none, none, np.zeros(1, np.int64))
        facts = Facts(ROWS, matrix.nnz, False, True, 2, kernel.dtype.itemsize)
        parts = np.zeros(ROWS, np.int32)
        self._laid = Laid(facts, OwnRows(parts, own), plan, matrix, None, degrees)
        self._sizes = np.diff(matrix.indptr)
        arcs = _arcs_of_relations(matrix, random.integers(0, RELATIONS, matrix.nnz))
        self._cutters = [Cutter(alone, self._laid, 2, float(2**24), each) for each in (None, arcs)]
        self._memory = Memory(kernel)

    def drawing(self, batches: str, by_relation: bool) -> tuple[float, list]:
        """Seconds to draw a batch and to bring it into order, and its sizes, layer by layer."""
        sampler = sampler_of(replace(self._config.train, batches=batches), ROWS, ROWS)
        of, cutter = sampler.batch_of(1, self._laid.plan.own), self._cutters[by_relation]
        times, sizes = [], []
        for number in range(REPEATS + 1):  # the first one sorts rows
            rows = np.flatnonzero(of == number % sampler.batches)
            began = time.perf_counter()
            batch = done_now(cutter.cut(sampler, rows, 1, number % sampler.batches))
            self._put_in_order(batch)
            times.append(time.perf_counter() - began)
            computed = batch.counts if batch.layered else batch.counts[:1]
            sizes.append(
                [
                    (
                        layer.matrix.nnz,
                        int(self._sizes[batch.rows[: computed[hop]]].sum()),
                        sampler.rule((1, 0, hop)),
                        None if layer.groups is None else len(layer.groups.relations),
                    )
                    for hop, layer in enumerate(batch.layers)
                ]
            )
        middle = int(np.argsort(times[1:])[REPEATS // 2]) + 1
        return times[middle], sizes[middle]

    def _put_in_order(self, batch: Batch) -> None:
        """As products want entries; of relations, as the means of groups and the sums of these."""
        scheme, hops = self._scheme(batch), len(batch.layers) if batch.layered else 1
        for k in range(1, hops + 1):
            groups = batch.layers[batch.number(k)].groups
            if groups is None:
                x, out = scheme.empty(Place(k - 1), 1), scheme.empty(Place(k), 1)
                scheme.aggregate(k, x, out.array)
                scheme.aggregate_t(k, Matrix(out.place, out.array), x.array)
                continue
            halo = scheme.halo_of(k)
            assert halo is not None
            for incidence in (Incidence.GROUPED, Incidence.GROUPS):
                halo.patterns.of(incidence)
            kinds_of(groups.relations, RELATIONS, self._kernel.resident)

    def seconds_per_step(self) -> float:
        """Of the steps of a program that is made ready for a batch, and run on it."""
        config, kernel = self._config, self._kernel
        sampler = sampler_of(replace(config.train, batches=SMALLEST), ROWS, ROWS)
        rows = np.flatnonzero(sampler.contains(1, 0, self._laid.plan.own))
        batch = done_now(self._cutters[False].cut(sampler, rows, 1, 0))
        network = network_of(config.model, WIDTH, WIDTH)
        program = batch_program(network, config, False)
        scheme = self._scheme(batch)
        shapes = shapes_of(scheme, network, program)
        parameters, gradients = Parameters(kernel, *shapes), Parameters(kernel, *shapes)
        parameters.flat.fill(0)
        features = kernel.zeros(len(batch.rows), WIDTH)

        def run() -> None:
            self._memory.rewind()
            made = Passes(
                scheme, kernel, program, 0,
                lambda place: batch.counts[batch.number(place.layer)],
                features, parameters, gradients, ("training",),
            )  # fmt: skip
            made.forward(1)
            made.output_grad.fill(0)
            made.backward(1)
            kernel.finish()

        seconds = median_seconds(run, 4 * REPEATS)
        return seconds / (len(program.forward) + len(program.backward))

    def _scheme(self, batch: Batch) -> BatchScheme:
        runtime = Runtime(self._comm, self._kernel, Phases(), Traffic())
        facts, by_relation = self._laid.facts, batch.layers[0].groups is not None
        return BatchScheme(runtime, self._config, facts, batch, self._memory, by_relation)


def _arcs_of_relations(matrix: sp.csr_array, relations: np.ndarray) -> EntryRows:
    """The entries of the rows of a matrix as arcs of relations, (nnz,) integers each."""
    row = entry_rows(matrix.indptr)
    order = np.lexsort((relations, row))
    column, relation = matrix.indices[order], relations[order]
    begins = np.append(True, (row[1:] != row[:-1]) | (relation[1:] != relation[:-1]))
    starts = np.append(np.flatnonzero(begins), len(row))
    first = starts[:-1]
    groups = Groups(row[first], relation[first], starts, len(first), np.ones(len(first)))
    facts = np.arange(matrix.shape[1]), matrix.indptr.astype(np.int64), column
    return EntryRows(*facts, np.zeros_like(row), groups)
