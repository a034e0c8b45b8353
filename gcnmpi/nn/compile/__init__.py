"""From a network to a program: a few passes, each a pure function in a file of its own.

:mod:`~gcnmpi.nn.compile.rewrite` chooses orders of products and merges what may follow one,
:mod:`~gcnmpi.nn.compile.turned` takes chains of products to columns,
:mod:`~gcnmpi.nn.compile.places` lays values out,
:mod:`~gcnmpi.nn.compile.shifts` leaves out biases that a batch norm takes off,
a :class:`~gcnmpi.nn.tape.Tape` differentiates,
:mod:`~gcnmpi.nn.compile.attach` joins products with what follows,
:mod:`~gcnmpi.nn.compile.loops` brings steps on slices of arcs, or blocks of rows, together,
:mod:`~gcnmpi.nn.compile.residency` decides what is kept (``train.memory``), and
:mod:`~gcnmpi.nn.compile.buffers` assigns memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from gcnmpi.layout.place import Place, Space
from gcnmpi.nn.compile import rewrite
from gcnmpi.nn.compile.attach import accumulate, add_along, attach, join_ends, pair
from gcnmpi.nn.compile.buffers import Pool, mark_exchanged
from gcnmpi.nn.compile.loops import last_loop, with_blocks, with_loops
from gcnmpi.nn.compile.places import narrow, place
from gcnmpi.nn.compile.residency import costless, read_ahead, with_residences
from gcnmpi.nn.compile.shifts import without_shifts
from gcnmpi.nn.compile.sparse import sparse_values, with_sparse_steps
from gcnmpi.nn.compile.turned import turn
from gcnmpi.nn.network import Network
from gcnmpi.nn.operator import Finish, Operator, without_unread
from gcnmpi.nn.operators import rule_of
from gcnmpi.nn.operators.dense import Linear
from gcnmpi.nn.operators.neighbours import Aggregate
from gcnmpi.nn.program import Instruction, Program, Step, Value
from gcnmpi.nn.slices import at_once
from gcnmpi.nn.tape import NO_GRADIENT, Tape
from gcnmpi.options.config import ModelConfig
from gcnmpi.options.train import Residences
from partition.errors import UserError

KEPT = Residences()
"""All values are kept."""

LOSS = Instruction("loss", lambda operator, binding, step: lambda epoch: None)
"""Stands for the loss, which is no operator, where lifetimes of values are looked at."""

LOSS_OVER = replace(LOSS, in_place=True)
"""The same where the gradient may take the place of the logits."""


@dataclass(frozen=True)
class Target:
    """The facts of a scheme that the compiler has to know."""

    orders: tuple[str, ...]  # which product may come first: "combine", "aggregate"
    layout: Callable[[Place], Hashable]  # ``Scheme.layout``
    whole_rows: bool = True  # whether dense products are local
    # Whether an aggregate has fewer rows than its operand, as in a batch
    narrows: bool = False
    # Aggregations that make a column of equal numbers of such a column
    means: tuple[type[Operator], ...] = ()
    # Means by relation may be products of the scheme
    sums_groups: bool = False
    # Chains of products are made on columns of all rows
    turns: bool = False
    # Each pass is with the same M, even where that on features is not kept
    stays: bool = False
    # Steps on rows of vertices run block by block
    blocks: bool = False
    # Nobody reads the logits after the loss, which may write their gradient over them
    loss_over_logits: bool = False
    residences: Residences = KEPT  # of values that the backward pass reads


def compile_network(
    network: Network,
    target: Target,
    model: ModelConfig,
    trains: bool = True,
    sparse: bool = False,
) -> Program:
    """The program of a network on a scheme.

    Parameters
    ----------
    model : ModelConfig
        Its ``order``, ``cache_input`` and ``train_features``.
    trains : bool
        Without it there is one evaluation and nothing else: no gradients, no buffers, and nothing
        is kept for a second time.
    sparse : bool
        Whether features are kept as a sparse matrix. They are one in the program too if rows are
        whole and the network multiplies them with weights only: M·(H⁰·W), as M·H⁰ is dense.

    Raises
    ------
    UserError
        If the scheme cannot multiply in the order that is wanted.
    """
    sparse = sparse and target.whole_rows and "combine" in target.orders
    if sparse and not model.train_features and model.order != "aggregate":
        program = _compile(network, target, model, trains, sparse=True)
        if program.sparse:
            return program
    return _compile(network, target, model, trains, sparse=False)


def _compile(
    network: Network, target: Target, model: ModelConfig, trains: bool, sparse: bool
) -> Program:
    operators = [operator.as_finish() for operator in network.operators]
    outputs = list(network.outputs)
    if sparse or not trains:
        model = replace(model, cache_input=False)
    if target.sums_groups:
        operators = rewrite.multiply_groups(operators, outputs[-1])
    fixed = rewrite.constants(operators, model, target.stays)
    operators = rewrite.multiply_vertices(operators, outputs, fixed)
    fixed = rewrite.constants(operators, model, target.stays)
    wanted = rewrite.differentiated(operators, model, trains)
    options = model, target.orders, sparse, target.narrows
    operators = rewrite.choose_orders(operators, outputs, fixed, wanted, *options)
    operators = rewrite.merge_finishes(operators, outputs)
    operators, new = without_unread(operators, outputs[-1])
    outputs = [new[i] for i in outputs if i in new]
    if target.turns:
        operators, new = turn(operators, outputs)
        outputs = [new[i] for i in outputs]
    if target.narrows:
        operators, places, new = narrow(operators, sparse_values(operators) if sparse else ())
    else:
        operators, places, new = place(operators, target.layout)
    outputs = [new[i] for i in outputs]
    logits = outputs[-1]
    fixed = rewrite.constants(operators, model, target.stays)
    wanted = rewrite.differentiated(operators, model, trains)

    values = [Value(at, op.width) for op, at in zip(operators, places, strict=True)]
    every = [
        Step(rule_of(op).forward, op, at.layer, op.inputs, number, number)
        for number, (op, at) in enumerate(zip(operators, places, strict=True))
    ]
    training = [step for step in every if not fixed[step.number]]
    matrices = sparse_values(operators) if sparse else ()
    unshifted = without_shifts(operators, logits, target.means)
    tape = Tape(operators, values, wanted, unshifted)
    gradient = _differentiate(tape, logits)
    backward = tape.steps
    evaluation, alias = _without_dropout(training)
    seen = alias.get(logits, logits)

    pinned = {*outputs, gradient}
    # A value that the backward pass reads has to stay as it is: nothing is added onto it.
    lasting = pinned | {value for step in backward for value in step.values}
    seen_outputs = {alias.get(i, i) for i in outputs}
    training, backward = join_ends(training, lasting), join_ends(backward, pinned)
    evaluation = join_ends(evaluation, seen_outputs)
    of_arcs = {i for i, value in enumerate(values) if value.place.space.of_arcs}
    if target.whole_rows:
        training = accumulate(training, lasting, of_arcs)
        backward = accumulate(backward, pinned, of_arcs)
        evaluation = accumulate(evaluation, seen_outputs, of_arcs)
        evaluation = add_along(evaluation, seen_outputs, products=False)
        training, backward = add_along(training, lasting), add_along(backward, pinned)
    training, backward = attach(training, lasting), attach(backward, pinned, of_arcs)
    evaluation = attach(evaluation, seen_outputs)
    if matrices:
        training, backward, evaluation = (
            with_sparse_steps(steps, matrices) for steps in (training, backward, evaluation)
        )
    training, backward = pair(training), pair(backward)
    if trains and target.whole_rows and not target.narrows:
        training, evaluation = with_loops(training, values), with_loops(evaluation, values)
        backward = with_loops(backward, values, 1 + last_loop(training))
    if trains and target.blocks:
        last = 1 + last_loop((*training, *backward, *evaluation))
        evaluation, training = (with_blocks(s, values, last) for s in (evaluation, training))
        backward = with_blocks(backward, values, max(last, 1 + last_loop(training)))
    left = target.residences if of_arcs else replace(target.residences, every=0)
    if trains and target.blocks:
        free = costless(training, backward, values, {logits, gradient})
        left = replace(left, again=left.again | free)
    repeated: dict[int, int] = {}
    if trains and left != KEPT:
        steps, stay = (training, backward, evaluation), pinned.union(matrices)
        training, backward, evaluation, made = with_residences(operators, steps, values, stay, left)
        # First rows stay of what was asked for, not of what takes no time to make again, nor of a
        # product that is added onto another: its memory is that of the other, which is gone.
        added = {step.writes for step in training if step.onto is not None}
        again = target.residences.again - added if target.residences.first else ()
        repeated = {new: value for new, value in made.items() if value in again}
    loss = Step(
        LOSS_OVER if target.loss_over_logits else LOSS,
        operators[logits],
        places[logits].layer,
        (logits,),
        gradient,
        logits,
    )
    whole = [*training, loss, *backward]
    if trains and target.residences.written:
        whole = read_ahead(whole, len(training) + 1, values)
        backward = whole[len(training) + 1 :]
    whole = whole if trains else []
    read = {value for step in (*whole, *evaluation) for value in step.values}
    kept = tuple(
        i for i, constant in enumerate(fixed) if constant and i in read and i not in matrices
    )
    stored = tuple(i for i in sorted(target.residences.written) if trains and fixed[i])
    once = [step for step in every if fixed[step.number] and step.operator.inputs]
    # A batch's matrices live for a moment: an exchange of their own would not pay.
    values = mark_exchanged(values, [*whole, *evaluation], products=not target.narrows)
    block = at_once(Space.OWN)
    first = -(-target.residences.first // block) * block
    pool = Pool(values, target.layout, repeated, first)
    memory = pool.assign(whole, (*kept, *matrices), ()) if trains else {}
    evaluated = pool.assign(evaluation, (*kept, *matrices), (seen,))
    return Program(
        operators=tuple(operators),
        values=tuple(values),
        constants=tuple(once),
        kept=kept,
        forward=tuple(training) if trains else (),
        backward=tuple(backward),
        evaluation=tuple(evaluation),
        logits=logits,
        logits_grad=gradient,
        outputs=tuple(alias.get(i, i) for i in outputs),
        parameters=network.parameters,
        weight_layers=_weight_layers(network, operators, places, target) | _of_decoder(network),
        buffers=tuple(pool.buffers),
        training_buffers=memory,
        evaluation_buffers=evaluated,
        trained_features=model.train_features,
        sparse=matrices,
        orders=tuple(_orders(operators, fixed)),
        stored=stored,
        residences=target.residences,
        repeated={new: value for new, value in repeated.items() if memory[new] == memory[value]},
    )


def _differentiate(tape: Tape, logits: int) -> int:
    """Write the steps of the backward pass; the number of the gradient of the logits."""
    first = tape.gradients[logits] = tape.like(logits)
    for number, operator in reversed([*enumerate(tape.operators)]):
        if number in tape.gradients and tape.wanted[number]:
            rule_of(operator).gradient(tape, number, tape.gradients[number])
        elif operator.parameters and tape.wanted[number]:
            tape.of_parameters(NO_GRADIENT, number, ())
    return first


def _without_dropout(steps: Sequence[Step]) -> tuple[list[Step], dict[int, int]]:
    """The steps of an evaluation, and which value stands for one that is not computed in it."""
    found: list[Step] = []
    alias: dict[int, int] = {}
    for step in steps:
        reads = tuple(alias.get(i, i) for i in step.reads)
        if isinstance(step.operator, Finish) and step.operator.only_drops:
            alias[step.number] = reads[0]
            continue
        operator = step.operator.without_dropout()
        if operator is not step.operator or reads != step.reads:
            step = replace(step, operator=operator, reads=reads)
        found.append(step)
    return found, alias


def _weight_layers(
    network: Network, operators: Sequence[Operator], places: Sequence[Place], target: Target
) -> dict[str, int]:
    """The number by which the scheme knows each weight's products.

    A UserError if a weight is cut over ranks in another way where it is read again.
    """
    found: dict[str, int] = {}
    layouts: dict[str, Hashable] = {}
    for number, operator in enumerate(operators):
        for name in operator.parameters:
            if not network.parameters[name].is_weight:
                continue
            found[name], layout = places[number].layer, target.layout(places[number])
            if layouts.setdefault(name, layout) != layout and not target.whole_rows:
                raise UserError(
                    f"{name} is read in several layers, and this scheme cuts weights by layers",
                    "use scheme.name = p2p",
                )
    return found


def _of_decoder(network: Network) -> dict[str, int]:
    """The same of a decoder, which runs on schemes that have all weights on every rank."""
    decoder = network.decoder
    return {} if decoder is None else {n: 1 for n, p in decoder.parameters.items() if p.is_weight}


def _orders(operators: Sequence[Operator], fixed: Sequence[bool]) -> list[str]:
    """Which product comes first in each layer."""
    found: dict[int, str] = {}
    for number, operator in enumerate(operators):
        if isinstance(operator, Aggregate):
            combined = isinstance(operators[operator.inputs[0]], Linear)
            order = "given" if fixed[number] else "combine" if combined else "aggregate"
            found.setdefault(operator.layer, order)
    return [found[layer] for layer in sorted(found)]
