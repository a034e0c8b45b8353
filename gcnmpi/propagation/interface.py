"""A method: its options, the matrix that it multiplies with, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gcnmpi.layout.runtime import Demand
from gcnmpi.options.requests import RESULTS
from gcnmpi.propagation.space import Space
from partition.graph.store import StoredGraph


@dataclass(frozen=True)
class Matrix:
    """The matrix M of a method: keys of the configuration, which it may fix.

    Attributes
    ----------
    normalize : {"sym", "row", "none"}
    self_loops : bool
    fixed : bool
        Whether these two are part of what the method is; else they are its defaults.
    direction : {"auto", "in", "out"}
        What ``graph.direction = auto`` stands for; "auto": the graph's own.
    symmetric : bool
        Whether M has to equal its transpose.
    """

    normalize: str = "sym"
    self_loops: bool = True
    fixed: bool = False
    direction: str = "auto"
    symmetric: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of a method.

    Attributes
    ----------
    rows : (own,) or (own, width) array
        A row for each own vertex, as ``Space.vertices`` has them.
    name, column : str
        Of the array in an ``.npz``, and of the one column of a table, where there is one.
    arrays : mapping of str to array
        Further arrays of an ``.npz``, the same on all ranks.
    notes : tuple of str
        Lines for the user.
    """

    rows: np.ndarray
    name: str = "values"
    column: str = "value"
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Held:
    """The memory of a rank at a moment of a method, beside M: columns of its own rows.

    Attributes
    ----------
    doubles, numbers : int
        Columns in float64, and in the dtype of products.
    product : int
        Columns of the last product, whose operand is kept with the rows of neighbours; 0: there
        was none.
    file : (int, int), optional
        Columns of a file that is being read, and bytes of one of its numbers.
    arcs : bool
        Whether arcs are read: ``Space.column_sums``.
    """

    doubles: int = 0
    numbers: int = 0
    product: int = 0
    file: tuple[int, int] | None = None
    arcs: bool = False


@dataclass(frozen=True)
class Holds:
    """The memory of a method: see :mod:`gcnmpi.propagation.memory`.

    Attributes
    ----------
    columns : int
        Of its result.
    moments : tuple of Held
        Those among which is the one that takes most; the last is its end.
    itemsize : int
        Bytes of a number of the result; 0: of the dtype.
    """

    columns: int
    moments: tuple[Held, ...]
    itemsize: int = 0


# Keys of the configuration that some methods read and others do not: of features and of masks.
OF_FEATURES, OF_MASKS = "graph.feature_norm", "train.split"
OPTIONAL = (OF_FEATURES, OF_MASKS)


@dataclass(frozen=True)
class Method:
    """An entry of the table of methods.

    Attributes
    ----------
    options : frozen dataclass
        Whose fields are made by :func:`gcnmpi.options.settings.key`.
    run : callable
        ``run(space, options)`` is called by all ranks together and gives the :class:`Outcome`.
    holds : callable
        ``holds(stored, options)``, after ``check``: what a rank holds meanwhile.
    check : callable
        ``check(stored, options)`` on rank 0, before the graph is loaded: a UserError for what the
        method cannot do with this graph.
    dtype : {"float32", "float64"}
        Of products and result, unless the key ``dtype`` is given.
    suffixes : tuple of str
        Of the files that can be written.
    rows : bool
        Whether whole rows of neighbours are looked at.
    reads : tuple of str
        Which of ``OPTIONAL`` have an effect.
    """

    options: type
    matrix: Matrix
    run: Callable[[Space, Any], Outcome]
    holds: Callable[[StoredGraph, Any], Holds]
    check: Callable[[StoredGraph, Any], None] = lambda stored, options: None
    dtype: str = "float32"
    suffixes: tuple[str, ...] = RESULTS
    rows: bool = False
    reads: tuple[str, ...] = ()

    @property
    def demand(self) -> Demand:
        """Products, or whole rows, as the method asks a scheme for."""
        return Demand(products=not self.rows, rows=self.rows, transposed=False)


@dataclass(frozen=True)
class NoOptions:
    """The options of methods that have none."""
