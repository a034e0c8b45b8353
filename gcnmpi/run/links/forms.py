"""Scores of decoders in closed form, for those of all pairs of two sets of rows at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gcnmpi.nn.decoders import OFFSET, TABLE
from gcnmpi.options.task import OF_RELATIONS, LinkOptions

DISTANCES = {1: "cityblock", 2: "euclidean"}


@dataclass(frozen=True)
class Form:
    """A score that is q·y + offset, or offset − ‖q − y‖ₚ, where q depends on the other row.

    Attributes
    ----------
    table : (relations, width) or (1, 1) array
        A row for each relation; one for all, where they are not told apart.
    offset : float
    p : int
        Of a distance, of rows of length 1; 0: a product.
    complex : bool
        Whether columns of rows are [real | imaginary]; then y is the conjugate of the second row.
    """

    table: np.ndarray
    offset: float = 0.0
    p: int = 0
    complex: bool = False

    def queries(
        self, rows: np.ndarray, relations: np.ndarray | None, turned: bool = False
    ) -> np.ndarray:
        """The rows q, (q, width), of the first vertices of pairs; ``turned``: of the second ones.

        ``relations`` are those of the pairs, (q,); None: there is one.
        """
        table = self.table if relations is None or len(self.table) == 1 else self.table[relations]
        found: np.ndarray
        if self.p:
            found = rows - table if turned else rows + table
        elif self.complex:
            half = rows.shape[1] // 2
            (a, b), (c, d) = ((x[:, :half], x[:, half:]) for x in (rows, table))
            d = -d if turned else d  # the conjugate of r
            found = np.hstack((a * c - b * d, b * c + a * d))
        else:
            found = rows * table
        return found

    def tile(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The scores of all pairs of (q, width) and (m, width) rows, (q, m)."""
        scores: np.ndarray
        if self.p:
            from scipy.spatial.distance import cdist  # takes 0.1 s, which most runs are spared

            apart = cdist(queries, others, DISTANCES[self.p]).astype(others.dtype)
            scores = others.dtype.type(self.offset) - apart
        else:
            scores = queries @ others.T
            scores = scores + scores.dtype.type(self.offset) if self.offset else scores
        return scores

    def each(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The score of each pair of (m, width) rows, (m,)."""
        found: np.ndarray
        if self.p:
            found = -np.linalg.norm(queries - others, ord=self.p, axis=1)
        else:
            found = np.einsum("ij,ij->i", queries, others)
        return found + found.dtype.type(self.offset)


def of_length_one(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their length, as a network divides them."""
    found: np.ndarray = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def form_of(
    task: LinkOptions, parameters: Mapping[str, object], host: Callable[..., np.ndarray]
) -> Form | None:
    """The closed form of a task's decoder; None: its score has none.

    ``host`` brings a parameter to memory of the host.
    """
    if task.decoder == "dot":
        return Form(np.ones((1, 1), np.float32))
    if task.decoder in OF_RELATIONS:
        table = host(parameters[TABLE])
        table = table.reshape(-1, table.shape[-1])
        offset = float(host(parameters[OFFSET])[0]) if OFFSET in parameters else 0.0
        p = task.decoder_p if task.decoder == "transe" else 0
        return Form(table, offset, p, task.decoder == "complex")
    if task.decoder == "hadamard" and not task.decoder_hidden:
        weight, bias = (f"decoder.lins.0.{name}" for name in ("weight", "bias"))
        offset = float(host(parameters[bias])[0]) if bias in parameters else 0.0
        return Form(host(parameters[weight]).reshape(1, -1), offset)
    return None
