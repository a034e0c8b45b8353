"""Networks of recurrent layers, which read one frame after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gcnmpi.nn.network import Builder, Network
from gcnmpi.options.frames import Frames
from gcnmpi.options.model import HiddenOptions
from partition.errors import UserError

A_FRAME = 1 << 24
"""Streams of dropout of a network, before those of the next frame that it reads."""


@dataclass(frozen=True)
class Cell:
    """A recurrent layer, as the function that writes it is told of it."""

    k: int  # its number, from 1
    name: str  # the beginning of the names of its parameters
    width: int  # columns of its state


Spread = Callable[[Builder, int], list[int]]
Recur = Callable[[Builder, list[int], int | None, Cell], int]


def recurrent(
    model: HiddenOptions, frames: Frames, classes: int, spread: Spread, recur: Recur
) -> Network:
    """A recurrent layer for each of ``model.hidden`` over all frames, and a linear one at the end.

    ``spread(builder, x)`` gives sums over neighbours of x, column by column; those of all frames
    are made at once. ``recur(builder, terms, h, cell)`` gives the next state of a layer, from those
    of its input and its state h, which is None, for zeros, in the first frame. As the examples of
    PyTorch Geometric Temporal: the last state of the last layer, activated, is what the layer
    ``linear`` takes.
    """
    if not model.hidden:
        raise UserError("a recurrent network has hidden layers", "such as model.hidden = 32")
    b = Builder(frames.features)
    every = spread(b, b.drop(b.input, model.input_dropout, 0))
    cut = {x: frames_of(b, x, frames) for x in every}
    inputs = [[cut[x][time] for x in every] for time in range(frames.history)]
    for k, width in enumerate(model.hidden, start=1):
        name = "recurrent" if len(model.hidden) == 1 else f"recurrent.{k - 1}"
        cell, h, found = Cell(k, name, width), None, list[int]()
        with b.shared():
            for time, terms in enumerate(inputs):
                h = recur(b, terms, h, cell)
                found.append(b.drop(h, model.dropout, k + time * A_FRAME))
            inputs = [spread(b, x) for x in found] if k < len(model.hidden) else []
        b.output(found[-1])
    x = b.activate(found[-1], model.activation, "act.weight")
    b.output(b.linear(x, classes, "linear", bias=model.bias))
    return b.build()


def frames_of(b: Builder, x: int, frames: Frames) -> list[int]:
    """The frames in x, from the first one, each behind the static columns."""
    static = [b.columns(x, 0, frames.static)] if frames.static else []
    starts = (frames.static + time * frames.columns for time in range(frames.history))
    return [b.join([*static, b.columns(x, first, frames.columns)]) for first in starts]
