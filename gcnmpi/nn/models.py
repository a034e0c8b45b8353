"""Networks: a stack of layers with parameters, forward and backward."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from gcnmpi.core import rng
from gcnmpi.core.config import Config
from gcnmpi.kernels.epilogues import Activation, Epilogue, ReluBackward
from gcnmpi.layout.place import Place
from gcnmpi.nn.layers import (
    GraphConvolution,
    Product,
    Workspace,
    aggregate_input,
    choose_orders,
    network_products,
)
from gcnmpi.nn.optim import Parameters
from partition.errors import UserError

FEATURES = "0.features"


class GCN:
    """Graph convolutional network (Kipf and Welling 2017): convolutions with ReLU and dropout.

    Parameters
    ----------
    scheme, kernel : scheme and kernel
    config : Config
    features : array
        This rank's piece of H⁰, as given by ``scheme.load``; its share where it is trained. It
        belongs to the model, which may put something else there.
    widths : sequence of int
        Widths of H⁰ … Hᴸ: features, hidden layers, classes.

    Attributes
    ----------
    parameters, gradients : Parameters
        Weights, and this rank's contribution to their gradients after ``backward``.
    activation : str
        What follows each layer but the last.
    """

    activation = "relu"

    def __init__(
        self, scheme: Any, kernel: Any, config: Config, features: Any, widths: tuple[int, ...]
    ) -> None:
        self._scheme, self._kernel, self._config = scheme, kernel, config
        self.widths, self.depth = widths, len(widths) - 1
        model = config.model
        own, whole = self._shapes(features)
        self.parameters = Parameters(kernel, own, whole)
        self.gradients = Parameters(kernel, own, whole)
        self._initialise(config.train.seed)
        if model.train_features:
            kernel.copy(features, self.parameters[FEATURES])

        self._workspace = workspace = Workspace(scheme)
        self.layers = []
        orders = choose_orders(model, widths, scheme.orders)
        for k, order in enumerate(orders, start=1):
            arguments = (k, widths[k - 1], widths[k], order, workspace)
            self.layers.append(GraphConvolution(scheme, *arguments))

        exchanged = orders[0] == "aggregate"
        self._input = features
        self._dropped = None
        if orders[0] == "given":
            self._input = aggregate_input(scheme, kernel, features, widths[0])
        elif exchanged or model.train_features:
            self._input = scheme.empty(Place(0), widths[0], exchanged)
            if not model.train_features:
                kernel.copy(features, self._input)
        if model.input_dropout:
            self._dropped = scheme.empty(Place(0), widths[0], exchanged)
        following = [*orders[1:], ""]
        self._outputs = [
            scheme.empty(Place(k), widths[k], exchanged=following[k - 1] == "aggregate")
            for k in range(1, self.depth + 1)
        ]
        self._blocks = [scheme.block(Place(k), width) for k, width in enumerate(widths)]
        self._columns = [
            rng.column_keys(np.arange(block.columns.start, block.columns.stop))
            for block in self._blocks
        ]
        self.output_grad = workspace("product", Place(self.depth), widths[-1])

    def forward(self, epoch: int | None = None, depth: int | None = None) -> Any:
        """Logits (rows, classes), or the output of layer ``depth``.

        Parameters
        ----------
        epoch : int, optional
            Training pass of that epoch, with its dropout; without it, an evaluation pass.
        """
        model = self._config.model
        h = self._input
        if model.train_features:
            self._scheme.expand_input(self.parameters[FEATURES], h)
        if epoch is not None and model.input_dropout:
            self._drop(h, epoch, 0, model.input_dropout, self._dropped)
            h = self._dropped
        for layer, out in zip(self.layers[:depth], self._outputs, strict=False):
            k = layer.k
            layer.forward(h, self._weight(k), self._epilogue(epoch, k), out)
            h = out
        return h

    def backward(self, epoch: int) -> None:
        """Gradients of the loss from its gradient in ``output_grad``, after ``forward(epoch)``."""
        model = self._config.model
        inputs = [self._input if self._dropped is None else self._dropped, *self._outputs]
        grad = self.output_grad
        for layer in reversed(self.layers):
            k, before, then = layer.k, None, None
            if k > 1 or model.train_features:
                before = self._workspace("product", Place(k - 1), layer.d_in)
            if k > 1:
                then = ReluBackward(inputs[k - 1], 1 / (1 - model.dropout))
            weight_grad = self.gradients[f"{k}.weight"]
            bias_grad = self.gradients[f"{k}.bias"] if model.bias else None
            gradients = weight_grad, bias_grad
            layer.backward(inputs[k - 1], grad, self._weight(k), *gradients, then, before)
            grad = before
        if model.train_features:
            if model.input_dropout:
                self._drop(grad, epoch, 0, model.input_dropout, grad)
            self._scheme.share_input(grad, self.gradients[FEATURES])

    def products(self, backward: bool) -> list[Product]:
        """The scheme's products of one training (``backward``) or evaluation pass."""
        orders = [layer.order for layer in self.layers]
        return network_products(self._config.model, self.widths, orders, backward)

    def decays(self) -> dict[str, bool]:
        """Whether weight decay applies to each parameter."""
        first_only = self._config.train.weight_decay_layers == "first"
        return {
            name: name.startswith("1.") or not first_only for name, _ in self.parameters.items()
        }

    def whole(self, flat: Any) -> dict[str, np.ndarray]:
        """Whole weights and biases, or their gradients or moments, on every rank.

        Parameters
        ----------
        flat : array
            In the layout of ``parameters.flat``.

        Returns
        -------
        dict of arrays
            "1.weight" (d_in, d_out), "1.bias" (d_out,), "2.weight" …; trained features are not
            among them: see :meth:`features`.
        """
        flat = self._kernel.to_host(flat)
        pieces = {name: flat[part] for name, part in self.parameters.slices.items()}
        found = {}
        for k in range(1, self.depth + 1):
            widths = self.widths[k - 1 : k + 1]
            piece = pieces[f"{k}.weight"].reshape(self.parameters[f"{k}.weight"].shape)
            found[f"{k}.weight"] = self._scheme.unshard(k, piece, *widths)
            if self._config.model.bias:
                found[f"{k}.bias"] = pieces[f"{k}.bias"]
        return found

    def features(self, flat: Any) -> np.ndarray:
        """This rank's piece of H⁰ (or of its gradient or moments), of trained features."""
        share = flat[self.parameters.slices[FEATURES]].reshape(self.parameters[FEATURES].shape)
        piece = self._scheme.empty(Place(0), self.widths[0])
        self._scheme.expand_input(share, piece)
        return self._kernel.to_host(piece)

    def state(self) -> dict[str, np.ndarray]:
        """Whole weights under PyTorch Geometric's names and shapes: see :func:`to_state`."""
        return to_state(self.whole(self.parameters.flat))

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Set weights and biases from :func:`from_state`'s arrays."""
        self.fill(self.parameters.flat, state)

    def fill(self, flat: Any, whole: Mapping[str, np.ndarray]) -> None:
        """The inverse of :meth:`whole`: weights and biases, or their moments, into ``flat``."""
        for name, view in self.parameters.items():
            if name != FEATURES:
                piece = whole[name]
                if name.endswith("weight"):
                    piece = self._scheme.shard(_layer(name), piece)
                target = flat[self.parameters.slices[name]].reshape(view.shape)
                self._kernel.copy(self._kernel.from_host(piece), target)

    def fill_features(self, flat: Any, piece: np.ndarray) -> None:
        """The inverse of :meth:`features`."""
        share = flat[self.parameters.slices[FEATURES]].reshape(self.parameters[FEATURES].shape)
        self._scheme.share_input(self._kernel.from_host(piece), share)

    def _shapes(self, features: Any) -> tuple[dict, dict]:
        """Shapes of what this rank has a piece of, and of what it has whole."""
        weights = {
            f"{k}.weight": self._scheme.weight_shape(k, self.widths[k - 1], self.widths[k])
            for k in range(1, self.depth + 1)
        }
        own: dict[str, tuple[int, ...]] = {}
        if self._config.model.train_features:
            own[FEATURES] = features.shape
        whole: dict[str, tuple[int, ...]] = {}
        (own if self._scheme.sharded else whole).update(weights)
        if self._config.model.bias:
            whole |= {f"{k}.bias": (self.widths[k],) for k in range(1, self.depth + 1)}
        return own, whole

    def _initialise(self, seed: int) -> None:
        for k in range(1, self.depth + 1):
            whole = rng.glorot(seed, k, self.widths[k - 1], self.widths[k])
            piece = self._kernel.from_host(self._scheme.shard(k, whole))
            self._kernel.copy(piece, self._weight(k))

    def _drop(self, x: Any, epoch: int, k: int, p: float, out: Any) -> None:
        self._kernel.dropout(x, self._row_keys(epoch, k), self._columns[k], p, out)

    def _epilogue(self, epoch: int | None, k: int) -> Epilogue | None:
        """What follows M·H·W in layer k."""
        p, bias = self._config.model.dropout, self._bias(k)
        if bias is not None:
            bias = bias[self._blocks[k].columns]  # whole on every rank
        if k == self.depth:
            return None if bias is None else Activation(bias, relu=False)
        keys = self._row_keys(epoch, k) if epoch is not None and p else None
        return Activation(bias, True, keys, self._columns[k], p)

    def _row_keys(self, epoch: int, k: int) -> Any:
        return self._kernel.row_keys(self._config.train.seed, epoch, k, self._blocks[k].rows)

    def _weight(self, k: int) -> Any:
        return self.parameters[f"{k}.weight"]

    def _bias(self, k: int) -> Any:
        return self.parameters[f"{k}.bias"] if self._config.model.bias else None


def to_state(parameters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Names and shapes of PyTorch Geometric's ``GCN``: ``convs.0.lin.weight`` is (d_out, d_in).

    Parameters of other names than weight and bias keep them, and their shapes.
    """
    state = {}
    for name, array in parameters.items():
        kind = name.partition(".")[2]
        turned, kind = (array.T, "lin.weight") if kind == "weight" else (array, kind)
        state[f"convs.{_layer(name) - 1}.{kind}"] = np.array(turned, order="C")
    return state


def to_parameters(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of :func:`to_state`, for any network.

    Raises
    ------
    UserError
        If a name is not one that :func:`to_state` gives.
    """
    parameters = {}
    for name, array in state.items():
        match = re.fullmatch(r"convs\.(0|[1-9]\d{0,8})\.(\S+)", name)
        if not match or (match[2] == "lin.weight" and array.ndim != 2):
            raise UserError(f"{name!r} is not a parameter of a layer")
        turned, kind = (array.T, "weight") if match[2] == "lin.weight" else (array, match[2])
        parameters[f"{int(match[1]) + 1}.{kind}"] = np.ascontiguousarray(turned)
    return parameters


def from_state(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of :func:`to_state` for a :class:`GCN`, of this program or of another one.

    Accepts what a ``state_dict`` of GCNConv layers holds and nothing else: for each layer
    ``NAMEk.lin.weight`` and, for all or none, ``NAMEk.bias``, with one NAME (such as ``convs.`` or
    ``conv``) and numbers k that leave none out.

    Raises
    ------
    UserError
        If a name or shape does not fit a stack of GCNConv layers, or one is missing.
    """
    found: dict[int, dict[str, np.ndarray]] = {}
    stacks = set()
    for name, array in state.items():
        match = re.fullmatch(r"(\D*)(0|[1-9]\d{0,8})\.(?:lin\.(weight)|(bias))", name)
        kind = (match[3] or match[4]) if match else ""
        if not match or array.ndim != (2 if kind == "weight" else 1) or array.dtype.kind != "f":
            raise UserError(
                f"{name!r} is not a weight of a GCNConv layer",
                "expected are convs.0.lin.weight (d_out, d_in), convs.0.bias (d_out) and so on: "
                "weights of other networks do not fit",
            )
        stacks.add(match[1])
        found.setdefault(int(match[2]), {})[kind] = array
    if len(stacks) > 1:
        first, second, *_ = sorted(stacks)
        raise UserError(f"the weights are of two stacks of layers: {first!r} and {second!r}")
    parameters: dict[str, np.ndarray] = {}
    width = None
    first = 0 if 0 in found else 1
    for k, number in enumerate(range(first, first + len(found)), start=1):
        layer = found.get(number, {})
        if "weight" not in layer:
            what = "has a bias but no weight" if layer else "is missing"
            raise UserError(f"layer {number} of the weights {what}")
        d_out, d_in = layer["weight"].shape
        bias = layer.get("bias")
        if width not in (None, d_in) or (bias is not None and bias.shape != (d_out,)):
            raise UserError(f"the shapes of layer {number} of the weights do not fit")
        parameters[f"{k}.weight"] = np.ascontiguousarray(layer["weight"].T)
        if "bias" in layer:
            parameters[f"{k}.bias"] = layer["bias"]
        width = d_out
    if not parameters or len({f"{k}.bias" in parameters for k in range(1, len(found) + 1)}) > 1:
        raise UserError("the weights hold no GCNConv layers, or only some have a bias")
    return parameters


def _layer(name: str) -> int:
    return int(name.split(".")[0])
