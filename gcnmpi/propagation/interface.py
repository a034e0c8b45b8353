"""What a method is: its options, the matrix that it multiplies with, and what it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gcnmpi.core.outputs import RESULTS
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
    """What a method computed.

    Attributes
    ----------
    rows : (own,) or (own, width) array
        A row for each own vertex, as ``Space.vertices`` has them.
    name : str
        Of the array in an ``.npz``.
    column : str
        Of the one column of a table, where there is one.
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


# Keys of the configuration that some methods read and others do not: of features and of masks.
OF_FEATURES, OF_MASKS = "graph.feature_norm", "train.split"
OPTIONAL = (OF_FEATURES, OF_MASKS)


@dataclass(frozen=True)
class Method:
    """An entry of the table of methods.

    Attributes
    ----------
    options : frozen dataclass
        Whose fields are made by :func:`gcnmpi.core.settings.key`.
    matrix : Matrix
    run : callable
        ``run(space, options)`` is called by all ranks together and gives the :class:`Outcome`.
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
    check: Callable[[StoredGraph, Any], None] = lambda stored, options: None
    dtype: str = "float32"
    suffixes: tuple[str, ...] = RESULTS
    rows: bool = False
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class NoOptions:
    """Of methods that have none."""
