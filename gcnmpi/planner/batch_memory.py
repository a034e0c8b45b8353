"""The memory of a rank that trains on mini-batches: part of the cost model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gcnmpi.layout.place import Incidence, Place, Space
from gcnmpi.nn.program import INPUT, Program, Value
from gcnmpi.planner import memory
from gcnmpi.planner.case import Case
from gcnmpi.schemes.sampled_forecast import BatchForecast, BatchSizes
from gcnmpi.schemes.sampling import BY_ID_AT_ONCE, draws_by_id
from partition.graph.metrics import row_bytes, rows_within
from partition.graph.sampling import Sampler

INDEX_BYTES = 4  # of a column's number in M as batches are cut from it, and in a batch
# Bytes for each own row (its id, its number in a batch, its seed and its batch of the epoch) and
# for each row of others (id, number, owner, number there).
OWN_ROW, HALO_ROW = 8 + 4 + 8 + 8, 8 + 4 + 8 + 8
DRAWN_ARC = 4 + 8 + 8  # bytes of an arc's number, id and factor, as arcs are drawn by a rule
KEPT_ARC = 8 + 8 + 4  # of an arc of a batch: which one it is, the row of its group, its relation
SORTED_ENTRY = 40  # bytes of an entry while entries are sorted by id
HASHED_ENTRY = 100  # bytes of an entry while places of columns in a permutation are computed
AT_ONCE = 2  # batches that are in memory: the one before ends when the next is there


def batch_memory(case: Case, cases: Sequence[Case], sampler: Sampler) -> int:
    """Peak bytes of the rank that needs most; of a case of full batches, and one of each batch.

    It is the sum of the process itself, its share of the part vector of the node, and the largest
    of these three: the rank's arcs as they are loaded; M, and features while they are received; M
    as batches are cut from it, the features, the matrices of an evaluation on all vertices, the
    state of the optimizer, and the largest batch.
    """

    def needs(rank: int) -> int:
        trains = _cut_from(case, rank, cases[0], sampler)
        trains += _evaluation(case, rank) + memory.state_memory(case, rank)
        trains += _kept(case, rank) + max(_batch(one, rank, sampler) for one in cases)
        kept = memory.matrix_memory(case, rank) + max(memory.features_memory(case, rank), trains)
        return max(memory.loading_memory(case, rank), kept)

    return cases[0].peak(needs)


def sizes_of(case: Case) -> BatchSizes:
    """The sizes of the batch that a case is one of."""
    assert isinstance(case.forecast, BatchForecast)
    return case.forecast.sizes


def _cut_from(case: Case, rank: int, batch: Case, sampler: Sampler) -> int:
    """M as batches are cut from it, beside that of the products, and numbers of its rows."""
    one, facts = INDEX_BYTES + case.work.itemsize, batch.forecast.facts
    if not isinstance(batch.forecast, BatchForecast):
        return OWN_ROW * case.forecast.sides(rank) + one * case.forecast.entries(rank)
    own, columns, entries = case.arcs(rank)
    held = OWN_ROW * own + HALO_ROW * (columns - own)
    if case.size > 1:  # products have own columns and those of others apart
        held += entries * one * (1 if facts.folds or facts.one_tile else 2)
    rules = [sampler.rule((1, 0, hop)) for hop in range(len(sampler.fanouts))]
    if case.program.needs_groups:
        return held + entries * (one + INDEX_BYTES + 1 + DRAWN_ARC * bool(rules))
    if any(map(draws_by_id, rules)):
        held += entries * one + SORTED_ENTRY * min(entries, BY_ID_AT_ONCE)
    return held


def _kept(case: Case, rank: int) -> int:
    """Input rows of others."""
    train, work, itemsize = case.work.config.train, case.work, case.work.itemsize
    sizes = case.program.values[INPUT].width, work.feature_entries, work.n, itemsize
    own, columns, _ = case.arcs(rank)
    return int(min(rows_within(train.cache_mb, *sizes), columns - own) * row_bytes(*sizes))


def _evaluation(case: Case, rank: int) -> int:
    """H⁰, and the matrices of an evaluation."""
    program = case.program
    return memory.passes_memory(case, rank, program.evaluation, evaluation_held(program))


def _batch(case: Case, rank: int, sampler: Sampler) -> int:
    """Matrices of the passes, and of all layers with those that were cut before."""
    itemsize, held = case.work.itemsize, training_held(case.program)
    matrices = memory.passes_memory(case, rank, case.steps, held) + memory.loss_memory(case, rank)
    one = INDEX_BYTES + itemsize
    if not isinstance(case.forecast, BatchForecast):
        return matrices + (AT_ONCE + 1) * case.forecast.entries(rank) * one
    sizes = sizes_of(case)
    entries = sum(layer.nnz[rank] for layer in sizes.layers)
    copies = AT_ONCE + 1 + (case.size > 1)  # and transposed, and own columns apart
    hashed = sizes.looked_at[0][rank] if sampler.rule((1, 0, 0)) is None else 0
    return (
        matrices
        + copies * entries * one
        + HASHED_ENTRY * hashed
        + sum(_arcs(case, rank, k) for k in range(1, 1 + len(sizes.groups)))
    )


def _arcs(case: Case, rank: int, k: int) -> int:
    """The arcs of a layer, and the patterns of these and of their groups."""
    spaces = Space.OWN, Space.WHOLE, Space.ENTRIES, Space.GROUPS
    own, whole, arcs, groups = (case.rows(rank, Place(k, space=space)) for space in spaces)
    patterns = {
        Incidence.ARCS: (own, whole, arcs),
        Incidence.GROUPED: (groups, whole, arcs),
        Incidence.GROUPS: (own, groups, groups),
    }
    indices = memory.pattern_indices(case.program, case.work.config, arcs)
    made = sum(memory.pattern_memory(*patterns[one], indices) for one in case.program.incidences)
    return made + AT_ONCE * KEPT_ARC * arcs


def evaluation_held(program: Program) -> list[Value]:
    """Matrices that evaluations alone keep."""
    return [*_constants(program), *_used(program, program.evaluation_buffers.values())]


def training_held(program: Program) -> list[Value]:
    """Matrices that forward and backward passes alone keep."""
    return [*_constants(program), *_used(program, program.training_buffers.values())]


def _constants(program: Program) -> list[Value]:
    """Values that never change. H⁰ comes twice where products bring it together with its halo."""
    first = program.values[INPUT]
    values = [program.values[i] for i in program.kept]
    again = [replace(first, exchanged=False)] * (0 in program.kept and first.exchanged)
    return values + again


def _used(program: Program, numbers: Iterable[int]) -> list[Value]:
    return [program.buffers[number] for number in sorted(set(numbers))]
