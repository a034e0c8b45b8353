"""Layers, written once against the scheme interface.

A graph convolution is Z = M·H·W + 1·bᵀ. It can be computed in two orders: **combine** first,
M·(H·W), or **aggregate** first, (M·H)·W. The exchange then has the width of the output or of the
input. Where the input never changes, M·H is computed once and **given** to the layer instead of H.

====================  ======================  =====================================
order                 forward                 backward, with G = dL/dZ
====================  ======================  =====================================
combine               X = H·W; Z = M·X        S = Mᵀ·G; dW = Hᵀ·S; dH = S·Wᵀ
aggregate             T = M·H; Z = T·W        dW = Tᵀ·G; dH = Mᵀ·(G·Wᵀ)
given                 Z = T·W                 dW = Tᵀ·G
====================  ======================  =====================================
"""

from __future__ import annotations

from typing import Any

Product = tuple[str, int, int]  # name of a scheme's product, layer, width of what travels


class Workspace:
    """Matrices that hold something only for a moment, shared by all layers, one a role and width.

    Parameters
    ----------
    scheme : scheme
        Makes the matrices.
    """

    def __init__(self, scheme: Any) -> None:
        self._scheme = scheme
        self._matrices: dict[tuple[str, int], Any] = {}

    def __call__(self, role: str, k: int, width: int) -> Any:
        """The matrix of a role: "product" (H·W, later dL/dZ) or "aside" (S, or G·Wᵀ)."""
        if (role, width) not in self._matrices:
            self._matrices[role, width] = self._scheme.empty(k, width, exchanged=True)
        return self._matrices[role, width]


class GraphConvolution:
    """Z = M·H·W + 1·bᵀ, forward and backward.

    Parameters
    ----------
    scheme, kernel : scheme and kernel
    k : int
        Number of the layer, from 1.
    d_in, d_out : int
        Widths of H and Z.
    order : {"combine", "aggregate", "given"}
        See the table in the module's docstring.
    workspace : Workspace
    """

    def __init__(
        self, scheme: Any, kernel: Any, k: int, d_in: int, d_out: int, order: str, workspace: Any
    ) -> None:
        self.k, self.d_in, self.d_out, self.order = k, d_in, d_out, order
        self._scheme, self._kernel, self._workspace = scheme, kernel, workspace
        self._aggregated = scheme.empty(k, d_in) if order == "aggregate" else None

    def forward(self, h: Any, weight: Any, bias: Any, out: Any) -> None:
        """out = Z; what ``backward`` needs is kept."""
        scheme, k = self._scheme, self.k
        if self.order == "combine":
            product = self._workspace("product", k, self.d_out)
            scheme.combine(k, h, weight, product)
            scheme.aggregate(k, product, out)
        else:
            aggregated = h
            if self.order == "aggregate":
                aggregated = self._aggregated
                scheme.aggregate(k, h, aggregated)
            scheme.combine(k, aggregated, weight, out)
        if bias is not None:
            self._kernel.add_bias(out, bias)

    def backward(
        self, h: Any, grad: Any, weight: Any, weight_grad: Any, bias_grad: Any, out: Any
    ) -> None:
        """From G = ``grad``: this rank's share of dW and db, and dH into ``out`` unless None."""
        scheme, k = self._scheme, self.k
        if bias_grad is not None:
            scheme.column_sum(k, grad, bias_grad)
        if self.order == "combine":
            turned = self._workspace("aside", k, self.d_out)
            scheme.aggregate_t(k, grad, turned)
            scheme.weight_grad(k, h, turned, weight_grad)
            if out is not None:
                scheme.combine_t(k, turned, weight, out)
            return
        scheme.weight_grad(k, h if self.order == "given" else self._aggregated, grad, weight_grad)
        if out is not None:
            turned = self._workspace("aside", k, self.d_in)
            scheme.combine_t(k, grad, weight, turned)
            scheme.aggregate_t(k, turned, out)

    def products(self, backward: bool) -> list[Product]:
        """The products of one pass that communicate, for the prediction of its volume."""
        if self.order == "given":
            return []
        width = self.d_out if self.order == "combine" else self.d_in
        forward: list[Product] = [("aggregate", self.k, width)]
        # The first layer's input has no gradient: with T kept, nothing flows back through M.
        if not backward or (self.order == "aggregate" and self.k == 1):
            return forward
        return [*forward, ("aggregate_t", self.k, width)]


def choose_order(
    k: int, d_in: int, d_out: int, *, wanted: str, constant_input: bool, keep_aggregate: bool
) -> str:
    """The order of a layer's products: the one that moves fewer columns in an epoch.

    Parameters
    ----------
    wanted : {"auto", "combine", "aggregate"}
        ``model.order``.
    constant_input : bool
        Whether H is the same in every epoch (the first layer without input dropout).
    keep_aggregate : bool
        Whether M·H of a constant input may be kept (``model.cache_input``).

    Notes
    -----
    Combining first exchanges d_out columns forward and backward; aggregating first d_in, and for
    the first layer only forward, because features have no gradient.
    """
    if constant_input and keep_aggregate and wanted != "combine":
        return "given"
    if wanted != "auto":
        return wanted
    return "aggregate" if d_in * (1 if k == 1 else 2) < 2 * d_out else "combine"
