"""A compiled program, told in words and numbers: for people, for scripts, and for comparisons.

:func:`describe` alone knows of which objects a program is made. Its description tells of every
value, step, parameter and buffer in words that do not depend on these objects: two programs with
the same description compute, send and keep the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

from rich import box
from rich.table import Table

from gcnmpi.core.precision import row_bytes
from gcnmpi.core.volume import NOTHING
from gcnmpi.layout.place import Place, Space
from gcnmpi.nn.compile.loops import by_blocks
from gcnmpi.nn.program import Program, Step, products
from gcnmpi.planner.case import Case
from gcnmpi.schemes.operations import EXCHANGES, OF_ROWS, Operation, Product
from partition.terminal import print_wide

SPACES = {
    Space.OWN: None,
    Space.WHOLE: "whole",
    Space.ENTRIES: "arcs",
    Space.GROUPS: "groups",
    Space.OF_TYPE: "vertices of a type",
    Space.TURNED: "columns",
}
PASSES = ("constants", "forward", "backward", "evaluation")
Entry = dict[str, Any]


def describe(program: Program) -> Entry:
    """A program as data: lists of values, steps, parameters and buffers; and a few facts.

    A place is H2 for H², and MH1 for M·H¹. Its space is that of the rows of vertices unless it is
    told: "whole", these with the neighbours of other ranks, "arcs" and so on. Products are those of
    the scheme, with what their volume depends on; ``sums`` are the numbers of each sum over ranks
    besides that of the gradients.
    """
    return {
        "orders": list(program.orders),
        "logits": program.logits,
        "logits_gradient": program.logits_grad,
        "outputs": list(program.outputs),
        "trained_features": program.trained_features,
        "values": [_value(program, number) for number in range(len(program.values))],
        **{name: [_step(program, step) for step in getattr(program, name)] for name in PASSES},
        "parameters": [_parameter(program, name) for name in program.parameters],
        "buffers": [
            {
                "buffer": number,
                "place": _place(buffer.place),
                "space": _space(buffer.place),
                "width": buffer.width,
                "exchanged": buffer.exchanged,
                "a_block": (buffer.sliced and not buffer.place.space.of_arcs) or None,
                "first_rows": buffer.first or None,
            }
            for number, buffer in enumerate(program.buffers)
        ],
    }


def listing(description: Mapping[str, object]) -> str:
    """A description as text, an entry a line, for comparisons."""
    lines = []
    for name, what in description.items():
        lines.append(name if _is_table(what) else f"{name} {_cell(what)}".rstrip())
        for entry in what if _is_table(what) else ():
            lines.append(f"  {_line(entry)}")
    return "\n".join(lines) + "\n"


def print_program(
    case: Case, batch: Program | None, facts: Mapping[str, object], *, as_json: bool
) -> None:
    """Print the program of a run, with the bytes that its busiest rank sends and receives.

    ``case`` is of all vertices, ``batch`` of a mini-batch, where these are configured: its bytes
    depend on the vertices that are drawn. ``facts`` describe the run.
    """
    program = describe(case.program)
    for name in PASSES if batch is None else ("constants", "evaluation"):
        for entry, step in zip(program[name], getattr(case.program, name), strict=True):
            entry.update(_figures(case, step))
    facts = {**facts, "reduced_bytes": case.reduced_bytes(case.forecast.ranks()[0])}
    drawn = None if batch is None else describe(batch)
    if as_json:
        print(json.dumps({**facts, "program": program, "batch": drawn}))
        return
    print(_line(facts))
    if drawn is not None:
        del program["forward"], program["backward"]
        _print("a mini-batch", {name: what for name, what in drawn.items() if name != "evaluation"})
    _print("all vertices", program)


def _print(title: str, description: Mapping[str, Any]) -> None:
    facts = {name: what for name, what in description.items() if not _is_table(what)}
    print(f"\n{title}: {_line(facts)}\n")
    named = [
        f"{v['value']} {' '.join(filter(None, (v['place'], v['space'])))}×{v['width']}"
        for v in description["values"]
    ]
    for name in (name for name in description if name not in facts):
        entries = description[name]
        if name in PASSES:
            entries = [_with_values(entry, named) for entry in entries]
        rows = [{key: cell for key, what in e.items() if (cell := _cell(what))} for e in entries]
        every = dict.fromkeys(key for entry in entries for key in entry)
        columns = [key for key in every if any(key in row for row in rows)]
        table = Table(*columns, title=name, title_justify="left", box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*(row.get(key, "") for key in columns))
        print_wide(table)


def _with_values(step: Entry, named: Sequence[str]) -> Entry:
    """A step whose values are told with their place and width."""
    writes = None if step["writes"] is None else named[step["writes"]]
    return {**step, "reads": [named[value] for value in step["reads"]], "writes": writes}


def _line(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {cell}" for name, what in facts.items() if (cell := _cell(what)))


def _is_table(what: object) -> TypeGuard[list[Entry]]:
    return isinstance(what, list) and any(isinstance(entry, dict) for entry in what)


def _cell(what: object) -> str:
    """Empty for what is not so, or not there."""
    if isinstance(what, (list, tuple)):
        return "; ".join(map(str, what))
    return "yes" if what is True else "" if what is None or what is False else str(what)


def _figures(case: Case, step: Step) -> Entry:
    """Rows, bytes and messages of the rank that receives most in a step, if anything moves."""
    found = []
    for rank in case.forecast.ranks():
        made = products(case.program, [step], partial(case.rows, rank))
        volumes = [case.forecast.volume(rank, *product) for product in made]
        found.append((sum(volumes, NOTHING), made, volumes))
    most, made, volumes = max(found, key=lambda one: (one[0].received, one[0].sent))
    if most == NOTHING:
        return {}
    precision, itemsize = case.work.config.comm.precision, case.work.itemsize
    rows = sum(
        volume.received // row_bytes(precision, sizes[0], itemsize)
        for (name, _, *sizes), volume in zip(made, volumes, strict=True)
        if name in EXCHANGES and case.forecast.whole_rows
    )
    figures = {"rows": rows or None, "received": most.received, "sent": most.sent}
    return figures | {"messages": most.messages}


def _value(program: Program, number: int) -> Entry:
    value = program.values[number]
    operator = program.operators[number] if number < len(program.operators) else None
    return {
        "value": number,
        "operator": "gradient" if operator is None else operator.words,
        "inputs": [] if operator is None else list(operator.inputs),
        "layer": None if operator is None else operator.layer,
        "place": _place(value.place),
        "space": _space(value.place),
        "width": value.width,
        "exchanged": value.exchanged,
        "sparse": number in program.sparse,
        "kept": number in program.kept,
        "residence": _residence(program, number),
        "training_buffer": program.training_buffers.get(number),
        "evaluation_buffer": program.evaluation_buffers.get(number),
    }


def _residence(program: Program, number: int) -> str | None:
    """Where the backward pass finds a value that is not kept for it."""
    left = program.residences
    return "file" if number in left.written else "made again" if number in left.again else None


def _step(program: Program, step: Step) -> Entry:
    """Also the gradient of which input of its operator it gives, if not of the first.

    Steps with the same number of ``blocks`` run one after the other for each block of rows.
    """
    return {
        "step": step.name,
        "operator": step.operator.words,
        "of": step.number,
        "input": step.part or None,
        "layer": step.k,
        "reads": list(step.reads),
        "writes": step.writes,
        "fused": _fused(step),
        "blocks": (by_blocks(step, program.values) and step.loop) or None,
        "products": [_product(one) for one in products(program, [step], lambda place: 1)],
        "sums": list(step.instruction.summed(step)),
    }


def _fused(step: Step) -> list[str]:
    """The other operations that a step does in the same pass, in its order."""
    found = [] if step.onto is None else [f"onto {step.onto}"]
    if step.also is not None:
        also = step.also
        reads = _cell(list(also.reads))
        found.append(f"plus {also.name} {also.operator.words} of {also.number} reads {reads}")
    found += [] if step.plus is None else [f"plus {step.plus}"]
    found += [step.finish.words] if step.finish else []
    if step.finish_gradient is not None:
        finish, output = step.finish_gradient
        at = "" if output is None else f" at {output}"
        found.append(f"gradient of {finish.words}{at}")
    return found + ([f"sums for {step.sums}"] if step.sums else [])


def _parameter(program: Program, name: str) -> Entry:
    parameter = program.parameters[name]
    drawn = f"{parameter.init} {parameter.fan_in} {parameter.fan_out} stream {parameter.stream}"
    return {
        "parameter": parameter.name,
        "shape": _by(parameter.shape),
        "layer": parameter.layer,
        "products_layer": program.weight_layers.get(name),
        "initially": drawn if parameter.init in ("glorot", "uniform") else parameter.init,
        "stored": None if parameter.stored is None else _by(parameter.stored),
        "part_of": parameter.part_of,
        "running": not parameter.trained,
    }


def _product(product: Product) -> str:
    """A product of the scheme; sizes that are rows are those of one row."""
    name, k, *sizes = product
    if name is Operation.MOVE:
        width, *places = sizes
        before, after = Place(places[0], bool(places[1])), Place(places[2], bool(places[3]))
        return f"move {width} from {_place(before)} to {_place(after)}"
    each = " a row" if name in OF_ROWS else ""
    return f"{name} {_by(sizes)}{each} layer {k}"


def _place(place: Place) -> str:
    return f"MH{place.layer - 1}" if place.aggregated else f"H{place.layer}"


def _space(place: Place) -> str | None:
    return SPACES[place.space]


def _by(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))
