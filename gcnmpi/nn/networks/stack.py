"""The networks share layers on top of each other, and the operators that stand between them.

A layer is, as in "Classic GNNs are strong baselines" (Luo, Shi and Wu 2024):
y = convolution(x) + residual(x); x = dropout(activation(norm(y))). The one that gives the logits
is bare, a convolution and its residual; but with jumping knowledge or a linear layer at the end
all are hidden ones, and the linear layer ``lin`` gives the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gcnmpi.nn.network import Builder, Network
from gcnmpi.options.model import ConvolutionOptions, ModelConfig, NormOptions, ResidualOptions
from partition.errors import UserError
from partition.graph.relations import Schema

# Streams of dropout: 0 for the features, k for the output of layer k, and these.
BEFORE_STREAM = 1 << 21
BRANCH_STREAM = 1 << 22


@dataclass(frozen=True)
class Layer:
    """A layer, as the function that adds its convolution is told of it."""

    k: int  # its number, from 1
    width: int  # columns of its output
    last: bool  # whether that is the logits

    @property
    def name(self) -> str:
        """The beginning of the names of its parameters."""
        return f"convs.{self.k - 1}"


Convolve = Callable[[Builder, int, Layer], int]


def stack(
    model: ConvolutionOptions,
    features: int,
    classes: int,
    convolve: Convolve,
    arcs: int = 0,
    schema: Schema | int = 0,
) -> Network:
    """A network of layers with one kind of convolution.

    Parameters
    ----------
    convolve : function
        ``convolve(builder, x, layer)`` adds a convolution of x and returns its output.
    arcs : int
        Width of the features of arcs; 0: there are none.
    schema : Schema or int
        Types of vertices, and relations that arcs are of; 0: there are none.
    """
    b = Builder(features, arcs, schema)
    x = b.drop(b.input, model.input_dropout, 0)
    if model.linear_before:
        if not model.hidden:
            raise UserError("model.linear_before: there is no hidden layer", "give model.hidden")
        x = b.linear(x, model.hidden[0], "lin_in", bias=model.bias)
        x = b.drop(x, model.dropout, BEFORE_STREAM)
    after = "lin" if model.linear_after else ""
    b.output(layers(b, x, model, classes, convolve, model.jk, after))
    return b.build()


def layers(
    b: Builder,
    x: int,
    model: ResidualOptions,
    classes: int,
    convolve: Convolve,
    jk: str = "none",
    after: str = "",
) -> int:
    """The logits: all layers on x, and the linear layer ``after`` them if it has a name.

    ``jk`` is ``model.jk`` of networks that have it.
    """
    if jk != "none":
        after = after or "lin"
    if after and not model.hidden:
        raise UserError("a linear layer at the end needs hidden layers", "give model.hidden")
    widths = model.hidden if after else (*model.hidden, classes)
    hidden: list[int] = []
    equal = False
    for k, width in enumerate(widths, start=1):
        last = not after and k == len(widths)
        y = convolve(b, x, Layer(k, width, last))
        equal = equal or b.width(x) == width
        x = _residual(b, model, x, y, k)
        if last:
            break
        x = between(b, model, x, k)
        b.output(x)
        hidden.append(x)
    if model.residual == "identity" and not equal:
        raise UserError(
            "model.residual = identity: no layer is as wide as its input",
            "--set model.residual=linear, or equal widths in model.hidden",
        )
    return _jump(b, model, jk, hidden, classes, after) if after else x


def between(b: Builder, model: NormOptions, x: int, k: int, stream: int | None = None) -> int:
    """Norm, activation and dropout of the output of layer k."""
    x = normalized(b, model.norm, x, f"norms.{k - 1}")
    x = b.activate(x, model.activation, f"acts.{k - 1}.weight")
    return b.drop(x, model.dropout, k if stream is None else stream)


def normalized(b: Builder, norm: str, x: int, name: str) -> int:
    """x after ``model.norm``, with the names of PyTorch Geometric's layers."""
    if norm == "layer":
        return b.layer_norm(x, name)
    if norm == "batch":
        return b.batch_norm(x, f"{name}.module")
    return b.normalize(x) if norm == "l2" else x


def _residual(b: Builder, model: ResidualOptions, x: int, y: int, k: int) -> int:
    if model.residual == "linear":
        name = f"residuals.{k - 1}"
        return b.add(y, b.linear(x, b.width(y), name, bias=model.bias, layer=k))
    if model.residual == "identity" and b.width(x) == b.width(y):
        return b.add(y, x)
    return y


def _jump(
    b: Builder, model: ModelConfig, jk: str, hidden: Sequence[int], classes: int, name: str
) -> int:
    """Jumping knowledge (Xu et al. 2018) over the outputs of the hidden layers, and the logits."""
    if jk == "cat":
        return b.linear_of_all(hidden, classes, name, bias=model.bias)
    if jk != "none" and len({b.width(x) for x in hidden}) > 1:
        raise UserError(
            f"model.jk = {jk} needs hidden layers of one width",
            "--set model.jk=cat, or equal widths in model.hidden",
        )
    joined = {"none": lambda: hidden[-1], "sum": lambda: b.sum(hidden)}
    x = joined.get(jk, lambda: b.maximum(hidden))()
    return b.linear(x, classes, name, bias=model.bias)
