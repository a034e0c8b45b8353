"""Scores of decoders in closed form, for those of all pairs of two sets of rows at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gcnmpi.nn.decoders import TABLE
from gcnmpi.options.task import LinkOptions


@dataclass(frozen=True)
class Form:
    """A score that is q·y + offset, where q depends on the other row and on the relation.

    Attributes
    ----------
    table : (relations, width) or (1, 1) array
        A row for each relation; one for all, where they are not told apart.
    offset : float
    """

    table: np.ndarray
    offset: float = 0.0

    def queries(
        self, rows: np.ndarray, relations: np.ndarray | None, turned: bool = False
    ) -> np.ndarray:
        """The rows q, (q, width), of the first vertices of pairs; ``turned``: of the second ones.

        ``relations`` are those of the pairs, (q,); None: there is one.
        """
        table = self.table if relations is None or len(self.table) == 1 else self.table[relations]
        found: np.ndarray = rows * table
        return found

    def tile(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The scores of all pairs of (q, width) and (m, width) rows, (q, m)."""
        scores: np.ndarray = queries @ others.T
        return scores + scores.dtype.type(self.offset) if self.offset else scores

    def each(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The score of each pair of (m, width) rows, (m,)."""
        found: np.ndarray = np.einsum("ij,ij->i", queries, others)
        return found + found.dtype.type(self.offset)


def form_of(
    task: LinkOptions, parameters: Mapping[str, object], host: Callable[..., np.ndarray]
) -> Form | None:
    """The closed form of a task's decoder; None: its score has none.

    ``host`` brings a parameter to memory of the host.
    """
    if task.decoder == "dot":
        return Form(np.ones((1, 1), np.float32))
    if task.decoder == "distmult":
        table = host(parameters[TABLE])
        return Form(table.reshape(-1, table.shape[-1]))
    if task.decoder == "hadamard" and not task.decoder_hidden:
        weight, bias = (f"decoder.lins.0.{name}" for name in ("weight", "bias"))
        offset = float(host(parameters[bias])[0]) if bias in parameters else 0.0
        return Form(host(parameters[weight]).reshape(1, -1), offset)
    return None
