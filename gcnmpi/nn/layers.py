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

from collections.abc import Sequence
from typing import Any

from gcnmpi.core.config import ModelConfig
from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.layout.place import Place
from gcnmpi.mpi.comm import slice_of
from partition.errors import UserError

Product = tuple[
    str, int, *tuple[int, ...]
]  # name of a scheme's product, layer, widths: what volume() takes


class Workspace:
    """Matrices that hold something only for a moment, shared by all layers.

    There is one for each role, layout and width.

    Parameters
    ----------
    scheme : scheme
        Makes the matrices.
    """

    def __init__(self, scheme: Any) -> None:
        self._scheme = scheme
        self._matrices: dict[tuple, Any] = {}

    def __call__(self, role: str, place: Place, width: int) -> Any:
        """The matrix of a role: "product" (H·W, later dL/dZ) or "aside" (S, or G·Wᵀ)."""
        key = (role, self._scheme.layout(place), width)
        if key not in self._matrices:
            self._matrices[key] = self._scheme.empty(place, width, exchanged=True)
        return self._matrices[key]


class GraphConvolution:
    """Z = M·H·W, what follows it, and the backward pass.

    Parameters
    ----------
    scheme : scheme
    k : int
        Number of the layer, from 1.
    d_in, d_out : int
        Widths of H and Z.
    order : {"combine", "aggregate", "given"}
        See the table in the module's docstring.
    workspace : Workspace
    """

    def __init__(
        self, scheme: Any, k: int, d_in: int, d_out: int, order: str, workspace: Any
    ) -> None:
        self.k, self.d_in, self.d_out, self.order = k, d_in, d_out, order
        self._scheme, self._workspace = scheme, workspace
        self._aggregated = None
        if order == "aggregate":
            self._aggregated = scheme.empty(Place(k, aggregated=True), d_in)

    def forward(self, h: Any, weight: Any, then: Epilogue | None, out: Any) -> None:
        """out = then(M·H·W), of which the bias is a part; what ``backward`` needs is kept."""
        scheme, k = self._scheme, self.k
        if self.order == "combine":
            product = self._workspace("product", Place(k), self.d_out)
            scheme.combine(k, h, weight, product)
            scheme.aggregate(k, product, out, then)
        else:
            aggregated = h
            if self.order == "aggregate":
                aggregated = self._aggregated
                scheme.aggregate(k, h, aggregated)
            scheme.combine(k, aggregated, weight, out, then)

    def backward(
        self,
        h: Any,
        grad: Any,
        weight: Any,
        weight_grad: Any,
        bias_grad: Any,
        then: Epilogue | None,
        out: Any,
    ) -> None:
        """From G = ``grad``: this rank's share of dW and db, and out = then(dH) unless None."""
        scheme, k = self._scheme, self.k
        if self.order == "combine":
            if bias_grad is not None:
                scheme.column_sum(k, grad, bias_grad)
            turned = self._workspace("aside", Place(k), self.d_out)
            scheme.aggregate_t(k, grad, turned)
            scheme.weight_grad(k, h, turned, weight_grad)
            if out is not None:
                scheme.combine_t(k, turned, weight, out, then)
            return
        aggregated = h if self.order == "given" else self._aggregated
        scheme.weight_grad(k, aggregated, grad, weight_grad, bias_grad)
        if out is not None:
            turned = self._workspace("aside", Place(k, aggregated=True), self.d_in)
            scheme.combine_t(k, grad, weight, turned)
            scheme.aggregate_t(k, turned, out, then)


def aggregate_input(scheme: Any, kernel: Any, features: Any, width: int) -> Any:
    """M·H⁰, which is made once; wide features are overwritten with it where it has their shape.

    Some columns at a time, so that what the product takes beside its result (halos, partial sums,
    buffers of MPI) is small against it.

    Parameters
    ----------
    features : array
        This rank's piece of H⁰.
    width : int
        Columns of H⁰ on all ranks.
    """
    pieces, place = input_pieces(width), Place(1, aggregated=True)
    if pieces == 1:
        result = scheme.empty(place, width)
        scheme.aggregate(1, features, result)
        scheme.release()
        return result
    rows, columns = len(scheme.block(place, width).rows), features.shape[1]
    result = features if rows == len(features) else kernel.empty(rows, columns)
    for number in range(pieces):
        some = slice_of(columns, number, pieces)
        count = some.stop - some.start
        x, out = kernel.empty(len(features), count), kernel.empty(rows, count)
        kernel.copy(features[:, some], x)
        scheme.aggregate(1, x, out)
        scheme.release()
        kernel.copy(out, result[:, some])
    return result


def input_pieces(width: int) -> int:
    """In how many pieces of columns M·H⁰ is made: at most 16, of at least 64 columns."""
    return max(1, min(16, width // 64))


def choose_orders(
    model: ModelConfig, widths: Sequence[int], possible: tuple[str, ...]
) -> tuple[str, ...]:
    """The order of products of each layer of a network: see :func:`choose_order`.

    Parameters
    ----------
    widths : sequence of int
        Widths of H⁰ … Hᴸ.
    possible : tuple of str
        ``orders`` of the scheme.
    """
    return tuple(
        choose_order(
            k,
            widths[k - 1],
            widths[k],
            wanted=model.order,
            possible=possible,
            constant_input=k == 1 and not (model.input_dropout or model.train_features),
            input_grad=k > 1 or model.train_features,
            keep_aggregate=model.cache_input,
        )
        for k in range(1, len(widths))
    )


def network_products(
    model: ModelConfig, widths: Sequence[int], orders: Sequence[str], backward: bool
) -> list[Product]:
    """The scheme's products of one training (``backward``) or evaluation pass of a network.

    Parameters
    ----------
    widths : sequence of int
        Widths of H⁰ … Hᴸ.
    orders : sequence of str
        Order of the products of each layer, from :func:`choose_orders`.
    """
    trained = model.train_features
    products: list[Product] = []
    for k, order in enumerate(orders, start=1):
        arguments = (k, widths[k - 1], widths[k])
        products += layer_products(order, *arguments, backward, input_grad=k > 1 or trained)
    if trained:
        products.append(("expand_input", 1, widths[0]))
    return products


def layer_products(
    order: str, k: int, d_in: int, d_out: int, backward: bool, input_grad: bool = True
) -> list[Product]:
    """The scheme's products of one pass of a layer: the table in the module's docstring.

    Parameters
    ----------
    backward : bool
        Whether there is a backward pass.
    input_grad : bool
        Whether that gives dH.
    """
    widths = (d_in, d_out)
    combine: Product = ("combine", k, *widths)
    weight_grad: Product = ("weight_grad", k, *widths)
    before: list[Product] = []
    if order == "combine":
        if input_grad:
            before = [("combine_t", k, *widths)]
        forward = [combine, ("aggregate", k, d_out)]
        back = [("aggregate_t", k, d_out), weight_grad, *before]
    else:
        aggregate: list[Product] = [("aggregate", k, d_in)]
        if input_grad:
            before = [("combine_t", k, *widths), ("aggregate_t", k, d_in)]
        forward = [*(aggregate if order == "aggregate" else []), combine]
        back = [weight_grad, *before]
    return [*forward, *back] if backward else forward


def choose_order(
    k: int,
    d_in: int,
    d_out: int,
    *,
    wanted: str,
    possible: tuple[str, ...],
    constant_input: bool,
    input_grad: bool,
    keep_aggregate: bool,
) -> str:
    """The order of a layer's products: the one that moves fewer columns in an epoch.

    Parameters
    ----------
    wanted : {"auto", "combine", "aggregate"}
        ``model.order``.
    possible : tuple of str
        What the scheme can do.
    constant_input : bool
        Whether H is the same in every epoch (the first layer without input dropout).
    input_grad : bool
        Whether dH is asked for: not of features that are given.
    keep_aggregate : bool
        Whether M·H of a constant input may be kept (``model.cache_input``).

    Raises
    ------
    UserError
        If the scheme cannot do what is wanted.

    Notes
    -----
    Combining first exchanges d_out columns forward and backward; aggregating first d_in, and
    only forward where the input has no gradient.
    """
    check_order(wanted, possible)
    if constant_input and keep_aggregate and wanted != "combine":
        return "given"
    if wanted != "auto":
        return wanted
    if len(possible) == 1:
        return possible[0]
    return "aggregate" if d_in * (2 if input_grad else 1) < 2 * d_out else "combine"


def check_order(wanted: str, possible: tuple[str, ...]) -> None:
    """Raise a UserError if a scheme whose ``orders`` are given cannot do ``model.order``."""
    if wanted not in ("auto", *possible):
        raise UserError(
            f"model.order = {wanted!r}: this scheme {possible[0]}s first", "leave it at 'auto'"
        )
