"""Chebyshev convolutions (Defferrard, Bresson and Vandergheynst 2016): Σ Tₖ(L̂)·x·Wₖ + b.

L̂ = 2·L/λ − I with L = I − D^-1/2·A·D^-1/2 and λ = 2, so that it is −D^-1/2·A·D^-1/2: PyTorch
Geometric's ``ChebConv`` with its default normalisation, of graphs without self-loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from gcnmpi.nn.network import Builder
from gcnmpi.options.model import ModelConfig


def matrix(model: ModelConfig) -> tuple[str, bool]:
    """The negative of L̂."""
    return "sym", False


def polynomials(b: Builder, x: int, size: int) -> list[int]:
    """T₀ = x, T₁ = L̂·x, Tₖ = 2·L̂·Tₖ₋₁ − Tₖ₋₂: so many."""
    found = [x]
    for k in range(1, size):
        once = b.scale(b.aggregate(found[-1]), -1.0 if k == 1 else -2.0)
        found.append(once if k == 1 else b.add(once, b.scale(found[-2], -1.0)))
    return found


def convolution(
    b: Builder, terms: Sequence[int], width: int, name: str, layer: int, bias: bool
) -> int:
    """The sum of ``terms``, each times a weight of its own, with the names of ``ChebConv``."""
    products = [
        b.linear(term, width, f"{name}.lins.{k}", init="glorot", layer=layer)
        for k, term in enumerate(terms)
    ]
    y = b.sum(products)
    return b.bias(y, f"{name}.bias", layer) if bias else y
