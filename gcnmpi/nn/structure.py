"""A network: a static graph of operators and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gcnmpi.layout.place import Space
from gcnmpi.nn.operator import Operator, Parameter
from gcnmpi.nn.operators.arcs import ArcInput


@dataclass(frozen=True)
class Network:
    """The function that is trained, without a word on how or where it is computed.

    Attributes
    ----------
    operators : tuple of Operator
        In the order of evaluation; the first is :class:`Features`, the last gives the logits.
    parameters : mapping of str to Parameter
        In the order in which their operators read them.
    outputs : tuple of int
        Number of the operator that gives the output of layer 1, 2, …; the last are the logits.
    constants : mapping of str to float
        Numbers that belong in a file of weights, (1,) each, though they are not trained here.
    unread : mapping of str to tuple of int
        Shapes of arrays that PyTorch Geometric's layers have and do not read: zeros in a file.
    space : Space
        The rows of the logits.
    decoder : Network, optional
        It scores pairs of rows (:mod:`gcnmpi.nn.decoders`); its parameters are among these.
    """

    operators: tuple[Operator, ...]
    parameters: Mapping[str, Parameter]
    outputs: tuple[int, ...]
    constants: Mapping[str, float] = field(default_factory=dict)
    unread: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    space: Space = Space.OWN
    decoder: Network | None = None

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of the features and of the output of every layer."""
        return (self.operators[0].width, *(self.operators[i].width for i in self.outputs))

    @property
    def arc_features(self) -> int:
        """Columns of the features of arcs that it reads; 0 if it reads none."""
        return next((op.width for op in self._of_arcs if not op.relations), 0)

    @property
    def relations(self) -> int:
        """How many relations of arcs it tells apart; 0 if it reads none."""
        return max((op.relations for op in self._of_arcs), default=0)

    @property
    def _of_arcs(self) -> list[ArcInput]:
        return [operator for operator in self.operators if isinstance(operator, ArcInput)]

    @property
    def depth(self) -> int:
        """Number of aggregations on the longest way from features to logits; at least 1."""
        return max(1, *(operator.layer for operator in self.operators))
