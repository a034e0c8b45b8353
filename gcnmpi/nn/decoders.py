"""Decoders give the score of a pair of vertices, of the rows that a network gives them.

A decoder is a network too: the rows of vertices are its features, pairs of vertices its arcs, and
its logits, one a pair, are the scores. So it is compiled, differentiated, run slice by slice and
exchanged as any other (:mod:`gcnmpi.schemes.scored`). The target of a pair is its first vertex, the
source its second one; where the score is the same both ways, either may be either. The relation of
a pair is that of the arc.
"""

from __future__ import annotations

from dataclasses import replace

from gcnmpi.layout.entries import RELATION
from gcnmpi.nn.network import Builder, Network
from gcnmpi.nn.operators.triples import ComplexProduct, RowBy
from gcnmpi.options.task import DECODERS, LinkOptions, tells_relations
from partition.errors import UserError

DEEP = ("hadamard", "concat")  # decoders with hidden layers

ORDERED = ("concat", "transe", "complex")  # that tell the first vertex from the second

TABLE, OFFSET = "decoder.relation", "decoder.bias"
"""The rows of relations, and a number that is added to all scores."""

LAYER = 1 << 18
"""Of the decoder's first weight: no network is as deep, so no random number is drawn twice."""


class TripleBuilder(Builder):
    """Writes decoders that read the relation of a pair."""

    def __init__(self, task: LinkOptions, width: int) -> None:
        super().__init__(width, relations=max(1, task.decoder_relations))

    def relation(self, init: str = "glorot", numbers: int = 0) -> int:
        """The row of each pair's relation, of a trained table (relations, columns of a vertex).

        ``numbers``: columns that "glorot" counts; all unless given.
        """
        kinds, width = len(self.schema), self.width(self.input)
        shape = kinds, width
        fans = kinds, numbers or width
        table = self._random(TABLE, shape, LAYER, init, *fans)
        return self._append(RowBy((self._of_arcs(RELATION),), width, 0, kinds, table))

    def complex_product(self, x: int, y: int) -> int:
        """Entry by entry x·y, of rows whose columns are [real | imaginary]."""
        return self._append(ComplexProduct((x, y), self.width(x), 0))


def with_decoder(network: Network, task: LinkOptions) -> Network:
    """A network with the decoder that the task names; a UserError if it cannot be made."""
    if task.decoder_hidden and task.decoder not in DEEP:
        raise UserError(
            f"task.decoder = {task.decoder} has no hidden layers",
            f"set task.decoder={DEEP[0]}, or leave task.decoder_hidden out",
        )
    decoder: Network = DECODERS.get(task.decoder)(task, network.operators[-1].width)
    parameters = {**network.parameters, **decoder.parameters}
    return replace(network, parameters=parameters, decoder=decoder)


def dot(task: LinkOptions, width: int) -> Network:
    """x·y, the dot product of both rows."""
    b = Builder(width)
    return _scored(b, b.end_dots(b.input, b.input, 1))


def distmult(task: LinkOptions, width: int) -> Network:
    """Σ r ⊙ x ⊙ y with a trained row r for each relation (Yang et al. 2015)."""
    if not tells_relations(task):
        b = Builder(width)
        return _scored(b, _weighed_dot(b, TABLE))
    triples = TripleBuilder(task, width)
    first = triples.multiply(triples.target(triples.input), triples.relation())
    return _scored(triples, triples.row_dots(first, triples.source(triples.input), 1))


def transe(task: LinkOptions, width: int) -> Network:
    """−‖x + r − y‖ₚ of rows of length 1 (Bordes et al. 2013), then + a number if that matters."""
    b = TripleBuilder(task, width)
    rows = b.normalize(b.input)
    moved = b.add(b.target(rows), b.relation("unit"))
    apart = b.add(moved, b.scale(b.source(rows), -1.0))
    if task.decoder_p == 1:
        mean = b.mean_of_heads(b.maximum([apart, b.scale(apart, -1.0)]), width)
        x = b.scale(mean, -float(width))
    else:
        x = b.scale(b.row_dots(apart, b.normalize(apart), 1), -1.0)
    return _scored(b, b.bias(x, OFFSET, LAYER) if _shifts(task) else x)


def complex_(task: LinkOptions, width: int) -> Network:
    """Re Σ x ⊙ r ⊙ ȳ of complex rows (Trouillon et al. 2016): columns are [real | imaginary]."""
    if width % 2:
        raise UserError(
            f"task.decoder = complex: columns of rows are [real | imaginary], and {width} is odd",
            f"set task.width={width + 1}",
        )
    b = TripleBuilder(task, width)
    first = b.complex_product(b.target(b.input), b.relation(numbers=width // 2))
    return _scored(b, b.row_dots(first, b.source(b.input), 1))


def hadamard(task: LinkOptions, width: int) -> Network:
    """A perceptron of the entry-wise product x ⊙ y."""
    b = Builder(width)
    if not task.decoder_hidden:
        x = _weighed_dot(b, "decoder.lins.0.weight")
        if _shifts(task):
            x = b.bias(x, "decoder.lins.0.bias", LAYER, fan_in=width)
        return _scored(b, x)
    product = b.multiply(b.target(b.input), b.source(b.input))
    return _scored(b, _perceptron(b, product, task))


def concat(task: LinkOptions, width: int) -> Network:
    """A perceptron of both rows side by side, [x | y]: it tells the first from the second."""
    b = Builder(width)
    ends = b.target(b.input), b.source(b.input)
    if not task.decoder_hidden:
        return _scored(
            b, b.linear_of_all(ends, 1, "decoder.lins.0", bias=_shifts(task), layer=LAYER)
        )
    if task.decoder_residual:
        raise UserError(
            "task.decoder_residual: the rows of both vertices are wider than a hidden layer",
            "set task.decoder=hadamard, or leave task.decoder_residual out",
        )
    first, *others = task.decoder_hidden
    x = b.linear_of_all(ends, first, "decoder.lins.0", bias=True, layer=LAYER)
    x = _hidden(b, x, task, 0)
    return _scored(b, _perceptron(b, x, replace(task, decoder_hidden=tuple(others)), 1))


def symmetric(task: LinkOptions) -> bool:
    """Whether the score of (u, v) is that of (v, u)."""
    return task.decoder not in ORDERED


def _weighed_dot(b: Builder, name: str) -> int:
    """Σ w ⊙ x ⊙ y with a trained w: rows of vertices are multiplied, of which there are fewer."""
    return b.end_dots(b.head_dots(b.input, name, b.width(b.input), LAYER), b.input, 1)


def _perceptron(b: Builder, x: int, task: LinkOptions, first: int = 0) -> int:
    """Hidden layers, and the one that gives the score."""
    given = x
    for number, width in enumerate(task.decoder_hidden, start=first):
        x = b.linear(x, width, f"decoder.lins.{number}", bias=True, layer=LAYER + number)
        if task.decoder_residual:
            if width != b.width(given):
                raise UserError(
                    f"task.decoder_residual: a hidden layer of {width} columns, and the rows of "
                    f"vertices have {b.width(given)}",
                    "give task.decoder_hidden that width, or set task.width",
                )
            x = b.add(x, given)
        x = _hidden(b, x, task, number)
    last = first + len(task.decoder_hidden)
    return b.linear(x, 1, f"decoder.lins.{last}", bias=_shifts(task), layer=LAYER + last)


def _shifts(task: LinkOptions) -> bool:
    """Whether a number that is added to all scores has an effect: other losses compare scores."""
    return task.objective == "bce"


def _hidden(b: Builder, x: int, task: LinkOptions, number: int) -> int:
    """Norm, activation and dropout of a hidden layer."""
    if task.decoder_norm == "layer":
        x = b.layer_norm(x, f"decoder.norms.{number}")
    x = b.activate(x, task.decoder_activation)
    return b.drop(x, task.decoder_dropout, LAYER + number)


def _scored(b: Builder, x: int) -> Network:
    b.output(x)
    return b.build()
