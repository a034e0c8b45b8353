"""Diffusion convolutional recurrent network (Li et al. 2018).

In files: ``recurrent.conv_x_z.weight`` (2, K, d + e, e), not transposed, and ``.bias``, and the
same of ``conv_x_r``, ``conv_x_h``; ``linear.…``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.networks.recurrent import Cell, recurrent
from gcnmpi.options.frames import Frames
from gcnmpi.options.model import FilterOptions


def build(model: FilterOptions, features: int, classes: int, frames: Frames) -> Network:
    """Layers with the names of PyTorch Geometric Temporal's ``DCRNN``.

    z = σ([x | h] ∗ Wz), r = σ([x | h] ∗ Wr), c = tanh([x | r ⊙ h] ∗ Wh), and the next state is
    z ⊙ h + (1 − z) ⊙ c. The convolution is the diffusion of the paper (equation 2), of K terms each
    way: Σ (D_O⁻¹·W)ᵏ·x·θ₀ₖ + (D_I⁻¹·Wᵀ)ᵏ·x·θ₁ₖ, where W has the weights of arcs in the row of
    their source (Mᵀ, unless ``graph.direction`` is out), and a row of a sum of 0 stays 0.
    """
    size = model.filter_size

    @cache
    def ways(b: Builder) -> list[tuple[Callable[[int], int], int]]:
        """The product with W and that with its transpose, and one over the sums of its rows."""
        ones = b.fill(b.input, 1.0)
        return [(way, b.reciprocal(way(ones))) for way in (b.aggregate_t, b.aggregate)]

    def diffusion(b: Builder, x: int) -> list[int]:
        """The K terms of x out of a vertex; then those into it."""
        found = []
        for multiply, shares in ways(b):
            found.append(x)
            for _ in range(1, size):
                found.append(b.scale_heads(shares, multiply(found[-1])))
        return found

    def recur(b: Builder, of_x: list[int], h: int | None, cell: Cell) -> int:
        columns, width = b.width(of_x[0]) + cell.width, cell.width

        def beside(h: int | None) -> int:
            """All terms of [x | h], in the order of the weights."""
            of_h = diffusion(b, h) if h is not None else [b.fill(b.input, 0.0, width)] * len(of_x)
            return b.join([part for both in zip(of_x, of_h, strict=True) for part in both])

        def gate(which: str, terms: int, kind: str) -> int:
            name = f"{cell.name}.conv_x_{which}"
            y = b.product(terms, width, f"{name}.weight", cell.k, (2, size, columns, width))
            return b.activate(b.bias(y, f"{name}.bias", cell.k) if model.bias else y, kind)

        terms = beside(h)
        z = gate("z", terms, "sigmoid")
        if h is None:
            b.unread(f"{cell.name}.conv_x_r.weight", 2, size, columns, width)
            if model.bias:
                b.unread(f"{cell.name}.conv_x_r.bias", width)
            candidate = gate("h", terms, "tanh")
            return b.add(candidate, b.scale(b.multiply(z, candidate), -1.0))
        r = gate("r", terms, "sigmoid")
        return b.mix(z, h, gate("h", beside(b.multiply(r, h)), "tanh"))

    return recurrent(model, frames, classes, diffusion, recur)
