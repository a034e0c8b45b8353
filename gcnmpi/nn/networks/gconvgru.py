"""Chebyshev graph convolutional gated recurrent units (Seo et al. 2018).

In files: ``recurrent.conv_x_z.lins.0.weight`` (e, d) to ``lins.K−1``, ``recurrent.conv_h_z.…`` (e,
e), their ``.bias``, and the same of ``…_r`` and ``…_h``; ``linear.…``; of several layers,
``recurrent.0.…``.
"""

from __future__ import annotations

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.chebyshev import convolution, polynomials
from gcnmpi.nn.networks.recurrent import Cell, recurrent
from gcnmpi.options.frames import Frames
from gcnmpi.options.model import FilterOptions

GATES = "z", "r", "h"


def build(model: FilterOptions, features: int, classes: int, frames: Frames) -> Network:
    """Layers as PyTorch Geometric Temporal's ``GConvGRU``.

    z = σ(x ∗ Wxz + h ∗ Whz), r = σ(x ∗ Wxr + h ∗ Whr), c = tanh(x ∗ Wxh + (r ⊙ h) ∗ Whh), each
    with two biases, and the next state is z ⊙ h + (1 − z) ⊙ c.
    """
    size = model.filter_size

    def spread(b: Builder, x: int) -> list[int]:
        return polynomials(b, x, size)

    def recur(b: Builder, of_x: list[int], h: int | None, cell: Cell) -> int:
        of_h = [] if h is None else spread(b, h)

        def gate(which: str, terms: list[int]) -> int:
            names = (f"{cell.name}.conv_{of}_{which}" for of in "xh")
            facts = cell.k, model.bias
            y = convolution(b, of_x, cell.width, next(names), *facts)
            if terms:
                return b.add(y, convolution(b, terms, cell.width, next(names), *facts))
            return b.bias(y, f"{next(names)}.bias", cell.k) if model.bias else y

        for which in GATES:  # what one frame alone does not read
            for k in range(size):
                for of, width in (("x", b.width(of_x[0])), ("h", cell.width)):
                    b.unread(f"{cell.name}.conv_{of}_{which}.lins.{k}.weight", cell.width, width)
            for of in ("x", "h") if model.bias else ():
                b.unread(f"{cell.name}.conv_{of}_{which}.bias", cell.width)
        z = b.activate(gate("z", of_h), "sigmoid")
        if h is None:
            candidate = b.activate(gate("h", []), "tanh")
            return b.add(candidate, b.scale(b.multiply(z, candidate), -1.0))
        r = b.activate(gate("r", of_h), "sigmoid")
        candidate = b.activate(gate("h", spread(b, b.multiply(r, h))), "tanh")
        return b.mix(z, h, candidate)

    return recurrent(model, frames, classes, spread, recur)
