"""Spatio-temporal graph convolutional network (Yu, Yin and Zhu 2018).

Over frames relu(P ⊙ σ(Q) + R), a convolution over time; a Chebyshev convolution of each frame; the
first again.

In files: ``blocks.0._temporal_conv1.conv_1.weight`` (e, d, 1, frames) to ``conv_3``,
``_graph_conv.lins.0.weight``, ``_graph_conv.bias``, ``_temporal_conv2.…``; ``norms.0.…``,
``output.conv_1.…``, ``linear.…``.
"""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.chebyshev import convolution, polynomials
from gcnmpi.nn.networks.recurrent import A_FRAME, frames_of
from gcnmpi.nn.networks.stack import normalized
from gcnmpi.options.frames import Frames
from gcnmpi.options.model import StgcnOptions
from partition.errors import UserError


def build(model: StgcnOptions, features: int, classes: int, frames: Frames) -> Network:
    """A block for each of ``model.hidden``, as PyTorch Geometric Temporal's ``STConv``.

    A block is a gated convolution over time, a Chebyshev convolution of each frame and another
    one over time, then the norm: ``model.norm``, in place of moments for each vertex, of which
    a file would have numbers. Each convolution over time leaves ``model.kernel_size`` − 1 frames
    less; one over all that are left and a linear layer give the result.
    """
    lost = 2 * (model.kernel_size - 1) * len(model.hidden)
    if not model.hidden:
        raise UserError("an stgcn has hidden layers", "such as model.hidden = 64,64")
    if frames.history <= lost:
        raise UserError(
            f"an stgcn of {len(model.hidden)} blocks with model.kernel_size = "
            f"{model.kernel_size} reads at least {lost + 1} frames, and there are {frames.history}",
            f"set task.history = {lost + 1}, or fewer widths in model.hidden",
        )
    b = Builder(frames.features)
    times = frames_of(b, b.drop(b.input, model.input_dropout, 0), frames)
    for k, width in enumerate(model.hidden, start=1):
        name = f"blocks.{k - 1}"
        times = _over_time(b, model, times, width, f"{name}._temporal_conv1", k)
        with b.shared():
            for time, x in enumerate(times):
                terms = polynomials(b, x, model.filter_size)
                y = convolution(b, terms, width, f"{name}._graph_conv", k, model.bias)
                times[time] = b.activate(y, model.activation, f"acts.{k - 1}.weight")
        times = _over_time(b, model, times, width, f"{name}._temporal_conv2", k)
        with b.shared():
            for time, x in enumerate(times):
                x = normalized(b, model.norm, x, f"norms.{k - 1}")
                times[time] = b.drop(x, model.dropout, k + time * A_FRAME)
        b.output(times[-1])
    (x,) = _over_time(b, model, times, model.hidden[-1], "output", len(model.hidden), len(times))
    b.output(b.linear(x, classes, "linear", bias=model.bias))
    return b.build()


def _over_time(
    b: Builder,
    model: StgcnOptions,
    times: Sequence[int],
    width: int,
    name: str,
    layer: int,
    size: int = 0,
) -> list[int]:
    """relu(P ⊙ σ(Q) + R) of three convolutions over ``size`` frames: ``TemporalConv``."""
    size, found = size or model.kernel_size, []
    with b.shared():
        for first in range(len(times) - size + 1):
            some = times[first : first + size]
            p, q, r = (
                b.linear_of_all(some, width, f"{name}.conv_{i}", bias=True, layer=layer, taps=True)
                for i in (1, 2, 3)
            )
            gated = b.multiply(p, b.activate(q, "sigmoid"))
            found.append(b.activate(b.add(gated, r), "relu"))
    return found
