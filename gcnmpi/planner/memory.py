"""The memory of a rank that trains under a scheme, or evaluates once: part of the cost model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from gcnmpi.layout.loading import ENTRY_ON_ITS_WAY
from gcnmpi.layout.place import Incidence, Place, Space
from gcnmpi.mpi.collectives import reduction_scratch
from gcnmpi.nn.compile.buffers import gives_whole
from gcnmpi.nn.compile.lifetimes import Moment, gathers_features, lifetimes
from gcnmpi.nn.model import input_pieces
from gcnmpi.nn.operators.arcs import ArcInput
from gcnmpi.nn.operators.dense import BLOCK_NUMBERS
from gcnmpi.nn.program import INPUT, Program, Step, Value, products
from gcnmpi.nn.slices import at_once
from gcnmpi.options.config import Config
from gcnmpi.options.kernel import ONE_PASS, resolve
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.options.train import OPTIMIZERS, batches_of
from gcnmpi.planner.case import ARC_ROWS, GROUP_ROWS, Case, sparse_work
from gcnmpi.planner.loading import (
    PATTERN_INDEX,
    arriving_arcs,
    arriving_rows,
    placed_arcs,
    placed_tiles,
)
from gcnmpi.schemes.forecast import Forecast, halo_bytes
from gcnmpi.schemes.operations import EXCHANGES, SUMS, Operation, Product
from partition.graph.graph import index_dtype

# Bytes of a column's number in a kernel's sparse matrix; of a row's beginning.
INDEX_BYTES = {"native": 4, "scipy": 4, "cupy": 4}
WIDE_INDEX = 8
LABEL_BYTES = 4
ROW_BYTES = 8  # of a row of arcs: its column, and its place in the order of arrival
KEY_BYTES = 8  # of its key, if there is dropout
PARALLEL_BYTES = 4  # of a number among parallel arcs
FEATURE_BYTES = 4  # of a number of the features, as it is stored
ENTRY_INDEX = 4  # bytes of a column's number in a sparse matrix of features
RESULT_BUFFERS = 3  # picked, sent and received rows of a result, of a buffer's size each
TURNING = 24  # bytes of an entry of that, beside the matrix, while its transpose is made


def memory(case: Case, trains: Callable[[Case, int], int] | None = None) -> int:
    """Peak bytes of the rank that needs most, of which ``trains`` may give those of training.

    It is the sum of the process itself, its share of the part vector of the node, and the largest
    of these four:

    * the rank's arcs until they are in their places, or several times, and buffers;
    * M and Mᵀ, features while they are received, and the buffers for that; then those of arcs;
    * M and Mᵀ, and the product with fixed features while it is computed;
    * M and Mᵀ, and training: dense matrices, buffers, weights, moments, and MPI's own memory for
      the largest of the reductions.
    """
    kept = (features_memory, arcs_memory, _first_memory, trains or _training_memory)

    def needs(rank: int) -> int:
        held = matrix_memory(case, rank) + max(memory_of(case, rank) for memory_of in kept)
        return max(loading_memory(case, rank), held)

    return case.peak(needs)


def matrices(program: Program) -> list[Value]:
    """Dense matrices that a network keeps on a scheme: constants, and buffers of the passes."""
    return [*(program.values[i] for i in program.kept), *program.buffers]


def matrix_memory(case: Case, rank: int) -> int:
    """Bytes of a rank's tiles of M and Mᵀ, and of M's pattern where its entries are visited."""
    held = 0
    if case.program.needs_products or not case.program.needs_halo:
        held += tiles_memory(case.forecast, rank, case.work.config)
    program, (own, columns, entries) = case.program, case.arcs(rank)
    index = np.dtype(index_dtype(case.work.n)).itemsize
    groups = case.rows(rank, GROUP_ROWS) if program.needs_groups else 0
    patterns = {
        Incidence.ARCS: (own, columns, entries),
        Incidence.GROUPED: (groups, columns, entries),
        Incidence.GROUPS: (own, groups, groups),
    }
    indices = pattern_indices(program, case.work.config, entries)
    held += sum(pattern_memory(*patterns[one], indices) for one in program.incidences)
    if program.needs_entries or groups:
        facts = case.forecast.facts
        each = ROW_BYTES + PARALLEL_BYTES * (facts.arcs > facts.entries)
        held += entries * (each + KEY_BYTES * program.drops_entries)
    if groups:
        # Their rows, relations and starts; and what patterns are made of beside columns.
        held += groups * (2 * index + WIDE_INDEX) + entries
    return held


def tiles_memory(forecast: Forecast, rank: int, config: Config) -> int:
    """Bytes of a rank's tiles of M and Mᵀ, as the kernel keeps them."""
    tiles = [t for t in sparse_work(forecast, rank, Operation.AGGREGATE) if not t.received]
    index = INDEX_BYTES.get(resolve(config.kernel)[0], WIDE_INDEX)
    # Rows begin in the tiles of M and in those of Mᵀ, which may be the same.
    starts = 2 * WIDE_INDEX * sum(tile.rows for tile in tiles)
    return forecast.matrix_bytes(rank, index) + starts


def pattern_indices(program: Program, config: Config, entries: int) -> int:
    """Numbers that the pattern of M has for each entry, by rows and by columns; it has no values.

    On a device, where entries are has 64 bits and is always there; elsewhere it is looked up from
    one of both sides where a step asks for that.
    """
    if resolve(config.kernel)[0] == "cupy":
        return 4
    steps = (*program.forward, *program.backward, *program.evaluation)
    places = any(step.instruction.places(step, entries) for step in steps)
    return 2 + places + any(step.instruction.by_columns for step in steps)


def pattern_memory(rows: int, columns: int, entries: int, indices: int = 3) -> int:
    """Bytes of the pattern of M: own rows, rows with the halo, entries."""
    return indices * PATTERN_INDEX * entries + WIDE_INDEX * (rows + columns)


def loading_memory(case: Case, rank: int) -> int:
    """The rank's arcs on their way, and the buffers for reading and sending them."""
    config = case.work.config
    if SCHEMES.get(config.scheme.name).loads_by_rows:
        batches = batches_of(config.train) is not None
        return placed_arcs(case.forecast, rank, config, case.program.needs_products or batches)
    return placed_tiles(case.forecast.loaded(rank), config)


def features_memory(case: Case, rank: int) -> int:
    """H⁰ as it arrives; then brought in order, a part of its columns at a time, and converted.

    If some columns of a file are sent, its whole rows are in memory.
    """
    if case.program.sparse:
        held, entries = input_memory(case, rank, 1, transposed=False), case.input_entries(rank)
        limit = int(case.work.config.loading.max_bytes)
        arriving = min(limit, ENTRY_ON_ITS_WAY * entries)
        return held + max(arriving, TURNING * entries if case.program.backward else 0)
    width = case.program.values[INPUT].width
    shape = case.forecast.shape(rank, Place(0), width)
    normalised = case.work.config.graph.feature_norm == "row"
    return arriving_rows(*shape, width, FEATURE_BYTES, case.work.config, normalised)


def input_memory(case: Case, rank: int, matrices: int, transposed: bool) -> int:
    """Bytes of sparse features, and of others of their pattern, which they share.

    With the transpose, and where the entries of that come from; those that dropout writes.
    """
    entries, width = case.input_entries(rank), case.program.values[INPUT].width
    values = entries * case.work.itemsize * (1 + transposed)
    pattern = entries * ENTRY_INDEX * (1 + 2 * transposed)
    starts = WIDE_INDEX * (case.rows(rank, Place(0)) + width * transposed)
    return matrices * values + pattern + starts


def arcs_memory(case: Case, rank: int) -> int:
    """Features of arcs as they arrive and in order, and H⁰, which is there before them."""
    given = arc_inputs(case.program).values()
    if not given:
        return 0
    rows, width = case.rows(rank, ARC_ROWS), max(operator.width for operator in given)
    first = case.program.values[INPUT]
    held = case.work.itemsize * case.piece_numbers(rank, first.place, first.width)
    return held + arriving_arcs(rows, width, FEATURE_BYTES, case.work.config)


def arc_inputs(program: Program) -> dict[int, ArcInput]:
    """The operators of a program whose values are given with the arcs, by number."""
    found = enumerate(program.operators)
    return {number: operator for number, operator in found if isinstance(operator, ArcInput)}


def _training_memory(case: Case, rank: int) -> int:
    dense = passes_memory(case, rank, case.steps, matrices(case.program))
    rest = loss_memory(case, rank) + state_memory(case, rank) + samples_memory(case, rank)
    return dense + rest


def samples_memory(case: Case, rank: int) -> int:
    """Bytes of the samples that a rank reads: of this step and the next one, and their frames.

    0 where there are none.
    """
    frames = case.work.frames
    if frames is None:
        return 0
    count = case.forecast.samples
    rows = case.rows(rank, Place(0))  # of all samples
    of_step = frames.features - frames.static + case.work.network.widths[-1]
    kept = (frames.history + frames.leads) * frames.columns  # of each sample, at most
    # The labels are there once more for the loss; one frame is read into memory of its own.
    numbers = rows * (3 * of_step + 2 * kept) + rows // count * frames.columns
    return numbers * case.work.itemsize


def passes_memory(case: Case, rank: int, steps: Sequence[Step], held: Sequence[Value]) -> int:
    """Bytes of dense matrices (``held``) and sparse ones, of what steps keep, and of buffers."""
    forecast, work, program = case.forecast, case.work, case.program
    dense = sum(_numbers(case, rank, value) for value in held)
    sparse = 0
    if program.sparse:
        sparse = input_memory(case, rank, len(program.sparse), transposed=True)
    # A step that is made again writes where it did before.
    dense += sum({(step.number, step.name): case.kept(rank, step) for step in steps}.values())
    # Buffers of one product and width serve all layers.
    whole = Counter(value.width for value in held if value.place.space is Space.WHOLE)
    made = products(program, steps, partial(case.rows, rank))
    made += [(Operation.EXPAND, 1, width) for width in whole]
    distinct = _distinct(made)
    buffers = sum(forecast.buffers(rank, *product) for product in distinct.values())
    counted = Counter(sizes[0] for name, *sizes in distinct if name in EXCHANGES)
    for width, number in whole.items():
        # Their halos are rows of these matrices.
        buffers -= min(number, counted[width]) * _halo_memory(case, rank, width)
    if forecast.own_buffers:
        # Gradients of whole rows that are no value of the program have own rows before the halo.
        folded = {sizes[0] for name, *sizes in distinct if name is Operation.FOLD} - whole.keys()
        if not any(forecast.buffers(rank, Operation.FOLD, 1, width) for width in folded):
            folded &= {step.operator.width for step in steps if step.instruction.left}
        own = case.rows(rank, Place(0))
        buffers += sum(width * own * work.itemsize for width in folded)
        # Each matrix that is exchanged has a halo of its own.
        exchanged = Counter(value.width for value in held if value.exchanged)
        for width, number in exchanged.items():
            halo = halo_bytes(forecast, work.config, rank, width)
            buffers += max(0, number - counted[width]) * halo
    # Rows that are multiplied by numbers, and read later, are copied; one copy for each width.
    spent = program.spent()
    copied = {
        (step.instruction.operation, program.values[step.reads[0]].width)
        for step in steps
        if step.instruction.operation in SUMS and step.reads[0] not in spent
    }
    widths = {width: op for op, width in copied if forecast.scaled_bytes(rank, op, width)}
    scaled = sum(forecast.scaled_bytes(rank, op, width) for width, op in widths.items())
    return dense * work.itemsize + sparse + buffers + scaled


def _numbers(case: Case, rank: int, value: Value) -> int:
    """Numbers of a matrix, which may have rows of a slice of arcs, or of some blocks, only."""
    whole = case.piece_numbers(rank, value.place, value.width)
    slices = value.sliced and case.work.config.kernel != "cupy"
    rows = value.first + at_once(value.place.space)
    return min(whole, rows * value.width) if slices else whole


def _halo_memory(case: Case, rank: int, width: int) -> int:
    """Bytes of the halo of a matrix with whole rows of neighbours."""
    own, whole = (
        case.piece_numbers(rank, Place(0, space=s), width) for s in (Space.OWN, Space.WHOLE)
    )
    return (whole - own) * case.work.itemsize


def state_memory(case: Case, rank: int) -> int:
    """Weights, gradients and the moments of the optimizer; their sum over ranks, and products'."""
    train, reduced = case.work.config.train, case.reduced_bytes(rank)
    copies = 2 + OPTIMIZERS.get(train.optimizer).arrays(train)
    state = copies * case.parameter_numbers(rank) * case.work.itemsize + reduced
    distinct = _distinct(case.products(rank)).values()
    scratch = [case.forecast.reduction_scratch(rank, *product) for product in distinct]
    return state + max([reduction_scratch(reduced), *scratch])


def _distinct(made: Iterable[Product]) -> dict[tuple, Product]:
    """One product of each kind and width."""
    return {(product[0], *product[2:]): product for product in made}


def loss_memory(case: Case, rank: int) -> int:
    """Bytes that a loss holds: a softmax the logits of training vertices, and their gradient.

    In one pass it holds a label of each vertex in place of them. Where numbers are learned: those,
    and of training vertices a copy as precise as the output, and which of them are known.
    """
    work, logits = case.work, case.program.values[case.program.logits]
    rows, columns = case.forecast.shape(rank, logits.place, logits.width)
    trained, each = case.train_rows(rank) * columns, work.target_bytes
    if not each and case.forecast.whole_rows and resolve(work.config.kernel)[0] in ONE_PASS:
        return rows * LABEL_BYTES
    if not each:
        return 2 * trained * work.itemsize
    return rows * columns * each + trained * (max(each, work.itemsize) + 1)


def _first_memory(case: Case, rank: int) -> int:
    """H⁰ and values that never change, while they are made: ``_constants`` of ``nn.model``.

    At the moment that needs most; each is there from its step to the last that reads it, or stays.
    """
    program, itemsize = case.program, case.work.itemsize
    values, steps = program.values, program.constants
    stay = {*program.kept, *program.stored}
    if not steps:
        return 0
    last = {value: step for step in steps for value in step.values}
    live = {INPUT: _numbers(case, rank, values[INPUT]) * itemsize}
    peak = 0
    for step in steps:
        ended = [i for i in {*step.reads} if last[i] is step and i not in stay]
        made, taken = _numbers(case, rank, values[step.number]) * itemsize, 0
        if step.instruction.operation in SUMS:
            over, taken = _product_memory(case, rank, step)
            if over and step.reads[0] in ended:
                made, live[step.reads[0]] = live[step.reads[0]], 0
        else:
            taken = case.kept(rank, step) * itemsize
            if step.instruction.gathers:
                width = values[step.reads[0]].width
                buffers = case.forecast.buffers(rank, Operation.EXPAND, 1, width)
                if gives_whole(step, values):
                    made += buffers - _halo_memory(case, rank, width)
                else:  # a copy, to which rows of neighbours fit
                    taken += buffers + _numbers(case, rank, values[step.reads[0]]) * itemsize
        live[step.number] = made
        peak = max(peak, sum(live.values()) + taken)
        for value in ended:
            if value != INPUT:  # whoever gave it keeps it meanwhile
                live.pop(value, None)
    return peak + 2 * case.parameter_numbers(rank) * itemsize


def _product_memory(case: Case, rank: int, step: Step) -> tuple[bool, int]:
    """Whether a product that is made once may be written over its operand, and bytes that it takes.

    As ``aggregate_constant`` does it.
    """
    forecast, values, itemsize = case.forecast, case.program.values, case.work.itemsize
    before, after = values[step.reads[0]], values[step.number]
    pieces = input_pieces(after.width)
    (rows, columns), (result_rows, _) = (
        forecast.shape(rank, value.place, value.width) for value in (before, after)
    )
    assert step.instruction.operation is not None
    product = step.instruction.operation, 1, -(-after.width // pieces)
    taken = forecast.buffers(rank, *product) + forecast.reduction_scratch(rank, *product)
    if pieces == 1:
        return False, taken
    taken += (rows + result_rows) * -(-columns // pieces) * itemsize
    return rows == result_rows and not after.exchanged, taken


def evaluation_memory(case: Case, depth: int) -> int:
    """Peak bytes of the rank that needs most, up to the output of layer ``depth``.

    It is the sum of the process itself, its share of the part vector of the node, and the largest
    of these: its arcs while they are loaded; M and the features while they are received; M and the
    matrices that live in the step that needs most; M, the result and buffers to write it. The
    program of the case was compiled without training.
    """

    def needs(rank: int) -> int:
        loaded = max(features_memory(case, rank), arcs_memory(case, rank))
        running = max(loaded, _running_memory(case, rank, depth))
        return max(loading_memory(case, rank), matrix_memory(case, rank) + running)

    return case.peak(needs)


def _running_memory(case: Case, rank: int, depth: int) -> int:
    """Features, matrices between the layers, what steps take meanwhile, and writing the result."""
    program, forecast, itemsize = case.program, case.forecast, case.work.itemsize
    moments = lifetimes(program, depth, forecast.layout_of, forecast.whole_rows)

    def size(value: int) -> int:
        """Bytes of a value's matrix."""
        at, width = program.values[value].place, program.values[value].width
        rows, columns = forecast.shape(rank, at, width)
        return rows * columns * itemsize

    if program.sparse:
        live = {INPUT: input_memory(case, rank, 1, transposed=False)}
        peak = live[INPUT]
    else:
        live = {INPUT: size(INPUT)}
        # Copied to where halos fit.
        peak = live[INPUT] * (1 + gathers_features(program, moments))
    given = {number: size(number) for number in arc_inputs(program)}
    live |= given
    whole: set[int] = set()  # values whose halos are written; before, these take no memory
    for moment in moments:
        step = moment.step
        gathers = step.instruction.gathers and not gives_whole(step, program.values)
        if gathers and step.reads[0] not in whole:
            source = step.reads[0]
            whole.add(source)
            live[source] += forecast.buffers(
                rank, Operation.EXPAND, 1, program.values[source].width
            )
        if moment.over is not None:  # its memory is counted under the new number from now on
            live[moment.writes], live[moment.over] = live[moment.over], 0
            if moment.over in whole:
                whole.add(moment.writes)
        else:
            live[moment.writes] = size(moment.writes)
        if gives_whole(step, program.values):
            width = step.operator.width
            live[moment.writes] += forecast.buffers(rank, Operation.EXPAND, 1, width)
            live[moment.writes] -= _halo_memory(case, rank, width)
        peak = max(peak, sum(live.values()) + _taken(case, rank, moment))
        for value in moment.ended:
            if value not in given:  # whoever gave them keeps them
                live.pop(value, None)
    limit = int(case.work.config.loading.max_bytes)
    result = live.get(program.outputs[depth - 1], live.get(INPUT, 0))
    peak = max(peak, sum(given.values()) + result + RESULT_BUFFERS * min(limit, result))
    return peak + case.parameter_numbers(rank) * itemsize


def _taken(case: Case, rank: int, moment: Moment) -> int:
    """Bytes that a step takes beside its matrices, and gives back."""
    step, itemsize = moment.step, case.work.itemsize
    taken = case.kept(rank, step) * itemsize
    for product in products(case.program, [step], partial(case.rows, rank)):
        if product[0] is not Operation.EXPAND:  # whose buffers belong to the matrix
            taken += case.forecast.buffers(rank, *product)
        taken += case.forecast.reduction_scratch(rank, *product)
        if product[0] in SUMS and step.reads[0] not in case.program.spent(once=True):
            taken += case.forecast.scaled_bytes(rank, product[0], *product[2:])
    if step.instruction.operation is Operation.COMBINE and case.forecast.whole_rows:
        at = Place(step.k, space=case.program.values[step.number].place.space)
        taken += min(BLOCK_NUMBERS, case.piece_numbers(rank, at, step.operator.width)) * itemsize
    return taken
