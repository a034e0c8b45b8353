"""Memory of one evaluation of a network, by the same moments as it is run by."""

from __future__ import annotations

from functools import partial

from gcnmpi.layout.place import Place
from gcnmpi.nn.compile.lifetimes import Moment, gathers_features, lifetimes
from gcnmpi.nn.operators.dense import BLOCK_NUMBERS
from gcnmpi.nn.program import INPUT, products
from gcnmpi.planner.case import Case, parameter_numbers
from gcnmpi.planner.memory import (
    arcs_of,
    features_memory,
    input_memory,
    loading_memory,
    matrix_memory,
)
from gcnmpi.schemes.operations import Operation

RESULT_BUFFERS = 3  # what is picked, sent and received of a result, of a buffer's size each


def evaluation_memory(case: Case, depth: int) -> int:
    """Peak bytes of the rank that needs most, up to the output of layer ``depth``.

    It is the sum of the process itself, its share of the part vector of the node, and the largest
    of these: its arcs while they are loaded; M and the features while they are received; M and the
    matrices that live in the step that needs most; M, the result and buffers to write it.

    Parameters
    ----------
    case : Case
        Whose program was compiled without training.
    """
    node_share = 4 * case.work.n // min(case.size, case.ranks_per_node)
    worst = max(_memory(case, rank, depth) for rank in case.forecast.ranks())
    return int(case.machine.process_bytes) + node_share + worst


def _memory(case: Case, rank: int, depth: int) -> int:
    matrix = matrix_memory(case, rank)
    running = _running_memory(case, rank, depth)
    return max(loading_memory(case, rank), matrix + max(features_memory(case, rank), running))


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
        peak = live[INPUT] * (1 + gathers_features(moments))  # copied to where halos fit
    whole: set[int] = set()  # values whose halos are written; before, these take no memory
    for moment in moments:
        step = moment.step
        if step.instruction.gathers and step.reads[0] not in whole:
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
        peak = max(peak, sum(live.values()) + _taken(case, rank, moment))
        for value in moment.ended:
            live.pop(value, None)
    limit = int(case.work.config.loading.max_buffer_mb * 2**20)
    result = live.get(program.outputs[depth - 1], live.get(INPUT, 0))
    peak = max(peak, result + RESULT_BUFFERS * min(limit, result))
    return peak + parameter_numbers(case, rank) * itemsize


def _taken(case: Case, rank: int, moment: Moment) -> int:
    """What a step takes beside its matrices, and gives back."""
    step, itemsize = moment.step, case.work.itemsize
    taken = step.kept(*arcs_of(case, rank)) * itemsize
    for product in products(case.program, [step], partial(case.rows, rank)):
        if product[0] is not Operation.EXPAND:  # whose buffers belong to the matrix
            taken += case.forecast.buffers(rank, *product)
        taken += case.forecast.reduction_scratch(rank, *product)
    if step.instruction.operation is Operation.COMBINE and case.forecast.whole_rows:
        rows, columns = case.forecast.shape(rank, Place(step.k), step.operator.width)
        taken += min(BLOCK_NUMBERS, rows * columns) * itemsize
    return taken
