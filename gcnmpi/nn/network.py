"""The builder, with which networks are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gcnmpi.core.functions import AVERAGES, REDUCTIONS
from gcnmpi.layout.entries import GROUP, OF_RELATIONS, PART, RELATION, SHARE, TYPE, WHOLE_TYPE
from gcnmpi.layout.place import Space
from gcnmpi.nn.operator import Parameter
from gcnmpi.nn.operators.arcs import ArcInput, EndDots, Softmax, WeighedSum
from gcnmpi.nn.operators.degrees import ScaleByDegree
from gcnmpi.nn.operators.dense import Linear
from gcnmpi.nn.operators.neighbours import Aggregate, AggregateT, Attend, AttendV2, MaxAggregate
from gcnmpi.nn.operators.relations import LinearBy, MeanOf, ScaleBy
from gcnmpi.nn.operators.spaces import Expand, Pick, Reduce, Source, Spread, Target
from gcnmpi.nn.operators.triples import RowBy
from gcnmpi.nn.rowwise import RowWise
from gcnmpi.nn.structure import OTHER_WEIGHTS, Network
from partition.errors import UserError, check_name
from partition.graph.relations import needs_relations

__all__ = ["ATTENTION_STREAM", "OTHER_WEIGHTS", "Builder", "Network"]

ATTENTION_STREAM = 1 << 20
"""Offset of the stream of dropout of attention, so that it has its own for every layer."""


class Builder(RowWise):
    """Writes a network; what its methods take and give are numbers of operators."""

    def linear(
        self,
        x: int,
        width: int,
        name: str,
        *,
        bias: bool = False,
        init: str = "uniform",
        layer: int | None = None,
    ) -> int:
        """x·W, then + b: parameters ``name.weight``, stored transposed, and ``name.bias``.

        Parameters
        ----------
        init : {"uniform", "glorot"}
            "uniform" as PyTorch's ``Linear``, the bias too; with "glorot" the bias starts at 0.
        layer : int, optional
            Whose weight it is (``train.weight_decay_layers``); that of x unless given.
        """
        own = max(1, self.layer(x)) if layer is None else layer
        shape = (self.width(x), width)
        weight = self._random(f"{name}.weight", shape, own, init, *shape, stored=shape[::-1])
        y = self._append(Linear((x,), width, self.layer(x), weight))
        fan_in = shape[0] if init == "uniform" else 0
        return self.bias(y, f"{name}.bias", layer=own, fan_in=fan_in) if bias else y

    def linear_of_all(
        self,
        parts: Sequence[int],
        width: int,
        name: str,
        *,
        bias: bool = False,
        layer: int | None = None,
        taps: bool = False,
    ) -> int:
        """[x₁ | x₂ | …]·W as x₁·W₁ + x₂·W₂ + …, then + b.

        No matrix holds all columns, which schemes that cut columns could not place. A file has the
        parameters ``name.weight.0`` … as one array ``name.weight``, (width, columns); ``taps``, of
        a convolution over parts of one width, (width, columns of a part, 1, parts).
        """
        columns = sum(map(self.width, parts))
        own = max(1, *map(self.layer, parts)) if layer is None else layer
        products = []
        for number, x in enumerate(parts):
            shape = (self.width(x), width)
            parameter = f"{name}.weight.{number}"
            fans, stored = (columns, width), (*shape[::-1], *((1, 1) if taps else ()))
            self._random(parameter, shape, own, "uniform", *fans, stored, part_of=f"{name}.weight")
            products.append(self._append(Linear((x,), width, self.layer(x), parameter)))
        # The ends of arcs first: one step takes both.
        products.sort(key=lambda i: not isinstance(self._made_of(i), Source | Target))
        y = self.sum(products)
        return self.bias(y, f"{name}.bias", layer=own, fan_in=columns) if bias else y

    def product(
        self, x: int, width: int, name: str, layer: int, stored: tuple[int, ...] | None = None
    ) -> int:
        """x·W with a W that is stored as it is, not transposed, or in another shape."""
        shape = (self.width(x), width)
        self._random(name, shape, layer, "glorot", *shape, stored)
        return self._append(Linear((x,), width, self.layer(x), name))

    def linear_by_kind(
        self,
        x: int,
        width: int,
        name: str,
        layer: int,
        *,
        bias: bool = False,
        init: str = "glorot",
        bases: int = 0,
        blocks: int = 1,
    ) -> int:
        """Each row times the weight of its kind, then + the bias of its kind.

        The kind of a vertex is its type, that of an arc or group of arcs its relation.
        ``name.weight`` is stored (kinds, columns of x, width), ``name.bias`` (kinds, width). With
        ``bases``, weights are sums of so many matrices, (bases, columns of x, width), mixed by
        ``name.comp`` (kinds, bases). With ``blocks``, each has so many on its diagonal and zeros
        elsewhere: (kinds, blocks, columns of x / blocks, width / blocks). ``init`` as of
        :meth:`linear`.
        """
        (of_rows, kinds), inner, mix = self._kinds(x), self.width(x), ""
        if inner % blocks or width % blocks:
            raise UserError(
                f"{blocks} blocks do not divide weights of {inner} × {width} columns",
                "model.blocks divides the widths of features, hidden layers and logits",
            )
        shape = (bases or kinds) * inner, width // blocks
        fans = inner // blocks, width // blocks
        stored = (bases or kinds, *((blocks,) if blocks > 1 else ()), *fans)
        weight = self._random(f"{name}.weight", shape, layer, init, *fans, stored=stored)
        if bases:
            shape = kinds, bases
            mix = self._random(f"{name}.comp", shape, layer, "glorot", *shape)
        facts = width, self.layer(x), kinds, weight, mix, blocks
        y = self._append(LinearBy((of_rows, x), *facts))
        if not bias:
            return y
        fan = inner if init == "uniform" else 0
        return self.add(y, self.row_by_kind(y, width, f"{name}.bias", layer, fan_in=fan))

    def linear_again(self, made: int, x: int) -> int:
        """x times the weight by kind that another value is ``made`` with; of rows of any space."""
        linear, (of_rows, kinds) = self._operators[made], self._kinds(x)
        assert isinstance(linear, LinearBy)
        assert linear.kinds == kinds
        return self._append(replace(linear, inputs=(of_rows, x), layer=self.layer(x)))

    def row_by_kind(
        self, like: int, width: int, name: str, layer: int, value: str = "0", fan_in: int = 0
    ) -> int:
        """For each row of ``like``, the row of its kind of a trained table (kinds, width).

        It is ``value`` in the beginning, which may be "glorot", or uniform in ±1/√fan_in where that
        is given.
        """
        of_rows, kinds = self._kinds(like)
        shape = kinds, width
        if fan_in:
            self._random(name, shape, layer, "uniform", fan_in, width)
        elif value == "glorot":
            self._random(name, shape, layer, value, *shape)
        else:
            self._new(Parameter(name, shape, layer, value))
        return self._append(RowBy((of_rows,), width, self.layer(like), kinds, name))

    def row_times(self, made: int, like: int, width: int, name: str, layer: int) -> int:
        """The same for rows of ``like``, of the table that another value is ``made`` of, times W.

        W is a trained matrix (columns of that table, width): it multiplies kinds, not rows.
        """
        rows, (of_rows, kinds) = self._operators[made], self._kinds(like)
        assert isinstance(rows, RowBy)
        assert rows.kinds == kinds
        shape = rows.width, width
        self._random(name, shape, layer, "glorot", *shape)
        facts = kinds, rows.table, (*rows.maps, name)
        return self._append(RowBy((of_rows,), width, self.layer(like), *facts))

    def scale_by_kind(self, x: int, factors: Sequence[float]) -> int:
        """Each row times the number of its kind, which is not trained."""
        of_rows, kinds = self._kinds(x)
        assert len(factors) == kinds
        facts = self.width(x), self.layer(x), tuple(factors)
        return self._append(ScaleBy((of_rows, x), *facts))

    def _kinds(self, x: int) -> tuple[int, int]:
        """The kinds of the rows of a value, and how many there are."""
        space = self._spaces[x]
        if space.of_arcs:
            given = GROUP if space is Space.GROUPS else RELATION
            return self._of_arcs(given), len(self.schema)
        types = WHOLE_TYPE if space is Space.WHOLE else TYPE
        return self._of_arcs(types), len(self.schema.types)

    def mean_by_relation(self, x: int) -> int:
        """For each group of arcs, of one relation into a vertex, the mean of neighbours' rows."""
        return self.weighed_sum(self._of_arcs(SHARE), x, Space.GROUPS)

    def weight_of_groups(self) -> int:
        """For each group what :meth:`mean_by_relation` multiplies rows with, added up.

        That is 1, and in a mini-batch what the factors of its arcs make of it.
        """
        return self.reduce(self._of_arcs(SHARE), "sum", to=Space.GROUPS)

    def mean_by_direction(self, x: int, turned: bool) -> int:
        """For each vertex the mean over arcs of x of their group, along relations or reverses.

        Of the groups of relations that are reverses of others by their name, if they are
        ``turned``, or of all other ones; 0 where there are none.
        """
        parts, of_kinds = self._of_arcs(PART), self.schema.turned
        if not all(one is turned for one in of_kinds):
            parts = self.scale_by_kind(parts, [float(one is turned) for one in of_kinds])
        return self.reduce(self.scale_heads(parts, x), "sum")

    def mean_of(self, x: int, which: Sequence[int], type: int | None = None) -> int:
        """For each vertex the mean of neighbours' rows by each relation of ``which``, added up.

        With ``type``, for the vertices of the type of that number only.
        """
        x = x if self._spaces[x] is Space.WHOLE else self.expand(x)
        to = Space.OWN if type is None else Space.OF_TYPE
        of = tuple(which), len(needs_relations(self.schema)), to, type
        return self._append(MeanOf((x,), self.width(x), self.layer(x), *of))

    def pick(self, x: int, type: int) -> int:
        """The rows of x of the vertices of the type of that number."""
        return self._append(Pick((x,), self.width(x), self.layer(x), type))

    def spread(self, x: int, type: int) -> int:
        """Rows of all vertices: x for those of the type of that number, 0 for others."""
        return self._append(Spread((x,), self.width(x), self.layer(x), type))

    def aggregate(self, x: int) -> int:
        """M·x: the beginning of a layer."""
        return self._append(Aggregate((x,), self.width(x), self.layer(x) + 1))

    def aggregate_t(self, x: int) -> int:
        """Mᵀ·x: the sum over those that a vertex is a neighbour of."""
        return self._append(AggregateT((x,), self.width(x), self.layer(x) + 1))

    def max_aggregate(self, x: int) -> int:
        """The entry-wise maximum over neighbours."""
        return self._append(MaxAggregate((x,), self.width(x), self.layer(x) + 1))

    def attend(self, x: int, name: str, heads: int, slope: float = 0.2, p: float = 0.0) -> int:
        """Attention: parameters ``name.att_src`` and ``name.att_dst``, stored (1, heads, …)."""
        layer, width = self.layer(x) + 1, self.width(x)
        names = f"{name}.att_src", f"{name}.att_dst"
        stored = (1, heads, width // heads)
        for vector in names:
            # PyTorch Geometric's glorot takes the last two axes.
            self._random(vector, (width,), layer, "glorot", heads, width // heads, stored=stored)
        stream = ATTENTION_STREAM + layer
        return self._append(Attend((x,), width, layer, heads, slope, p, stream, *names))

    def attend_v2(
        self, source: int, target: int, name: str, heads: int, slope: float = 0.2, p: float = 0.0
    ) -> int:
        """GATv2's attention: parameter ``name.att``, stored (1, heads, columns)."""
        layer, width = self.layer(source) + 1, self.width(source)
        stored = (1, heads, width // heads)
        vector = f"{name}.att"
        self._random(vector, (width,), layer, "glorot", heads, width // heads, stored=stored)
        stream = ATTENTION_STREAM + layer
        inputs = (source, target)
        return self._append(AttendV2(inputs, width, layer, heads, slope, p, stream, vector))

    def arc_features(self, loops: str = "zero") -> int:
        """The features of arcs, rows of arcs; a UserError if the graph has none.

        Parameters
        ----------
        loops : {"zero", "mean"}
            The row of a self-loop that M has beside the graph's arcs: zeros; or "mean", which all
            self-loops have then: the mean of the other arcs into their vertex. A vertex has one
            self-loop then, however many the graph has, unless the logits are of arcs.
        """
        if not self.arc_width:
            raise UserError(
                "this network reads features of arcs, and the graph has none",
                "gcn-partition attach G.graph --arc-features FILE.npy",
            )
        return self._of_arcs(loops, self.arc_width)

    def expand(self, x: int) -> int:
        """x with the rows of neighbours on other ranks: the only move that sends something.

        Asked for again, it is the same one.
        """
        if x not in self._expanded:
            self._expanded[x] = self._append(Expand((x,), self.width(x), self.layer(x) + 1))
        return self._expanded[x]

    def source(self, x: int) -> int:
        """For each arc the row of x of the vertex that it comes from."""
        x = x if self._spaces[x] is Space.WHOLE else self.expand(x)
        return self._append(Source((x,), self.width(x), self.layer(x)))

    def target(self, x: int, to: Space = Space.ENTRIES) -> int:
        """For each arc, or group of arcs, the row of x of the vertex or group that it is into."""
        return self._append(Target((x,), self.width(x), self.layer(x), to))

    def reduce(self, x: int, *kinds: str, to: Space = Space.OWN) -> int:
        """For each vertex, or group, functions of the rows of its arcs or groups, side by side.

        ``kinds`` are "sum", "mean", "max", "min" or "std": the columns of the first one, then those
        of the next.
        """
        for kind in kinds:
            check_name("function of arcs", kind, REDUCTIONS)
        return self._append(Reduce((x,), len(kinds) * self.width(x), self.layer(x), kinds, to))

    def softmax(self, x: int, within: Space = Space.OWN) -> int:
        """Each column's softmax over the arcs into a vertex, or of a group."""
        return self._append(Softmax((x,), self.width(x), self.layer(x), within))

    def weighed_sum(self, values: int, x: int, to: Space = Space.OWN) -> int:
        """For each vertex, or group, the sum of neighbours' rows of x, times numbers of the arcs.

        ``values`` have a column for each head.
        """
        x = x if self._spaces[x] is Space.WHOLE else self.expand(x)
        return self._append(WeighedSum((values, x), self.width(x), self.layer(x), to))

    def end_dots(self, target: int, source: int, heads: int) -> int:
        """For each arc and head the dot product of a row of ``target`` and one of ``source``."""
        source = source if self._spaces[source] is Space.WHOLE else self.expand(source)
        return self._append(EndDots((target, source), heads, self.layer(source)))

    def scale_by_degree(self, x: int, kind: str, name: str) -> int:
        """Rows of vertices times a function of their degree, of ``SCALERS``; x for "identity".

        Means over all vertices are kept as ``name.avg_deg_lin`` and ``name.avg_deg_log``, (1,).
        """
        means = f"{name}.avg_deg_lin", f"{name}.avg_deg_log"
        if kind == "identity":
            for mean in means:
                self.unread(mean, 1)
            return x
        for mean, average in zip(means, AVERAGES, strict=True):
            if mean not in self._parameters:
                self._constant(mean, 1, max(1, self.layer(x)), average, trained=False)
        return self._append(ScaleByDegree((x,), self.width(x), self.layer(x), kind, *means))

    def _of_arcs(self, given: str, width: int = 1) -> int:
        """An input of arcs, once; a UserError if it is of relations, and there are none."""
        if given in OF_RELATIONS:
            needs_relations(self.schema)
        if given not in self._arc_inputs:
            relations = len(self.schema) if given in OF_RELATIONS else 0
            self._arc_inputs[given] = self._append(ArcInput((), width, 0, given, relations))
        return self._arc_inputs[given]
