"""The table of instructions: how each step of a program runs, and what it costs.

An instruction **binds** a step to arrays and returns what an epoch calls; nothing is looked up or
allocated then. Its **products** are the operations of the scheme that move something, by which
bytes and messages are predicted; its **passes** say how often it reads or writes the numbers of its
matrix beside products; **kept** is how many numbers it leaves for its gradient, or needs beside its
matrices, for so many own rows, rows with the halo, and entries of M.
**summed** is how many numbers each of its sums over ranks has in training, besides the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gcnmpi.layout.place import Place
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.instructions import dense, elementwise, neighbours, norms, sparse
from gcnmpi.nn.program import Product, Program, Step


@dataclass(frozen=True)
class Instruction:
    """One row of the table; see the module's docstring."""

    bind: Callable[[Binding, Step], Run]
    products: Callable[[Program, Step, int], list[Product]] = lambda program, step, rows: []
    passes: int = 0
    kept: Callable[[Step, int, int, int], int] = lambda step, rows, columns, entries: 0
    summed: Callable[[Step], tuple[int, ...]] = lambda step: ()


INSTRUCTIONS: Mapping[str, Instruction] = {
    "features": Instruction(dense.features, dense.features_products),
    "share_input": Instruction(dense.share_input),
    "combine": Instruction(dense.combine, dense.combine_products),
    "combine_t": Instruction(dense.combine_t, dense.combine_t_products),
    "weight_grad": Instruction(dense.weight_grad, dense.weight_grad_products),
    "sparse_combine": Instruction(sparse.combine),
    "sparse_weight_grad": Instruction(sparse.weight_grad),
    "sparse_drop": Instruction(sparse.drop),
    "column_sum": Instruction(dense.column_sum, passes=1),
    "no_effect": Instruction(dense.no_effect),
    "aggregate": Instruction(dense.aggregate, dense.aggregate_products),
    "aggregate_t": Instruction(dense.aggregate_t, dense.aggregate_t_products),
    "move": Instruction(dense.move, dense.move_products, 2),
    "finish": Instruction(elementwise.finish, passes=3),
    "finish_backward": Instruction(elementwise.finish_backward, passes=3),
    "add": Instruction(elementwise.add, passes=3),
    "scale": Instruction(elementwise.scale, passes=2),
    "scale_grad": Instruction(elementwise.scale_grad, passes=2),
    "maximum": Instruction(elementwise.maximum, passes=3),
    "maximum_backward": Instruction(elementwise.maximum_backward, passes=4),
    "activate": Instruction(elementwise.activate, passes=2),
    "activate_backward": Instruction(elementwise.activate_backward, passes=3),
    "mean_of_heads": Instruction(elementwise.mean_of_heads, passes=2),
    "mean_of_heads_backward": Instruction(elementwise.mean_of_heads_backward, passes=2),
    "layer_norm": Instruction(norms.layer_norm, norms.layer_norm_products, 4, norms.two_a_row),
    "layer_norm_backward": Instruction(
        norms.layer_norm_backward, norms.layer_norm_backward_products, 6
    ),
    "normalize": Instruction(norms.normalize, norms.normalize_products, 3),
    "normalize_backward": Instruction(norms.normalize_backward, norms.normalize_products, 5),
    "batch_norm": Instruction(norms.batch_norm, passes=3, summed=norms.batch_norm_sums),
    "batch_norm_backward": Instruction(
        norms.batch_norm_backward, passes=5, summed=norms.sum_of_columns
    ),
    "centred_scale_grad": Instruction(
        norms.centred_scale_grad, passes=2, summed=norms.sum_of_columns
    ),
    "max_aggregate": Instruction(
        neighbours.max_aggregate, neighbours.expand, 0, neighbours.max_kept
    ),
    "max_aggregate_backward": Instruction(neighbours.max_aggregate_backward, neighbours.fold),
    "attend": Instruction(neighbours.attend, neighbours.expand, 0, neighbours.scores_kept),
    "attend_backward": Instruction(
        neighbours.attend_backward, neighbours.fold, 0, neighbours.arcs_grad_kept
    ),
    "attend_v2": Instruction(neighbours.attend_v2, neighbours.expand, 0, neighbours.arcs_kept),
    "attend_v2_backward": Instruction(
        neighbours.attend_v2_backward, kept=neighbours.scores_grad_kept
    ),
    "attend_v2_source": Instruction(neighbours.attend_v2_source, neighbours.fold),
}


def products(
    program: Program, steps: Iterable[Step], rows: Callable[[Place], int]
) -> list[Product]:
    """The scheme's products of some steps, for a rank that has so many rows at a place."""
    found: list[Product] = []
    for step in steps:
        here = rows(program.values[step.number].place)
        found += INSTRUCTIONS[step.name].products(program, step, here)
    return found


def summed(steps: Iterable[Step]) -> list[int]:
    """Numbers of each sum over ranks that steps make in training: see the module's docstring."""
    return [numbers for step in steps for numbers in INSTRUCTIONS[step.name].summed(step)]


def kept(program: Program, step: Step, rows: int, columns: int, entries: int) -> int:
    """Numbers that a step keeps: see the module's docstring."""
    return INSTRUCTIONS[step.name].kept(step, rows, columns, entries)
