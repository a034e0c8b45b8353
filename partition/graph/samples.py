"""Sets of samples: many states of one graph, or what was measured at its vertices at many times.

::

    G.graph/samples/NAME/
        samples.json
        states.npy    (steps, n, columns)
        [targets.npy  (steps, n, target columns)]
        moments.npy   (3, steps, columns and target columns), float64

Steps follow each other in time, but for the borders of ranges: see :class:`SampleSet`. A set is
written whole or not at all. It belongs to the vertices: where the folder is replaced by another
graph with as many, it stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from partition.errors import UserError, check_name, require
from partition.graph.graph import MASKS, slices
from partition.graph.manifest import Sets, map_array, read_manifest, save_arrays
from partition.records import Count, Positive, atomic_file, one_of

KIND = "samples"
_AT_ONCE = 1 << 24  # bytes that are looked at at once


Steps = Any
"""An array (steps, n, columns): in memory, mapped, or of another library with slices of steps."""


@dataclass(frozen=True, kw_only=True)
class _SampleFacts:
    """A set without its arrays: see :class:`SampleSet`."""

    name: str
    n: Count
    id: str
    made: str
    ranges: Mapping[Annotated[str, one_of(MASKS)], list[tuple[Count, Count]]]


@dataclass(frozen=True, kw_only=True)
class SampleSet(_SampleFacts):
    """States of all vertices at many steps; memory-mapped arrays.

    Attributes
    ----------
    folder : path
        It has ``states.npy``, and perhaps ``targets.npy``.
    n : int
        Vertices.
    id : str
        Content id: a hash of the arrays and of all that says what they mean.
    made : str
        How the set was made, for people.
    ranges : mapping of "train", "val", "test" to lists of (start, stop)
        The steps of each mask. No sample reaches from one range into another: they may be separate
        simulations as well as times of one.
    states : (steps, n, columns) floating-point numbers
        NaN where unknown.
    targets : (steps, n, columns) floating-point numbers, or None
        To be predicted from the states of the same step; None: later states are predicted.
    moments : (3, steps, columns and target columns) float64
        Of each step and column, over the vertices where it is known: how many these are, their
        mean, and the sum of squares about it.
    """

    folder: Path
    states: np.ndarray = field(repr=False)
    targets: np.ndarray | None = field(repr=False)
    moments: np.ndarray = field(repr=False)

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.states)

    @property
    def columns(self) -> int:
        """Numbers of a vertex in a state."""
        return int(self.states.shape[2])

    @property
    def target_columns(self) -> int:
        """Numbers of a vertex in a target; 0: there are none."""
        return 0 if self.targets is None else int(self.targets.shape[2])

    def anchors(self, mask: str, history: int, ahead: int) -> np.ndarray:
        """The steps of a mask that ``history`` steps lead to, and ``ahead`` steps follow, int64.

        All of them within one range; a step is the last one of its own history.
        """
        ranges = self.ranges.get(mask, ())
        found = [np.arange(start + history - 1, stop - ahead) for start, stop in ranges]
        return np.concatenate([np.empty(0, np.int64), *found])

    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each column over the training steps, float64.

        Of states, then of targets. The deviation of a column without any, or of equal numbers, is
        1: see Chan, Golub and LeVeque (1983) for how moments of parts are joined.
        """
        counts, means, squares = self.moments[:, self.anchors("train", 1, 0)]
        total = counts.sum(axis=0)
        known = np.maximum(total, 1)
        mean = (counts * means).sum(axis=0) / known
        variance = (squares + counts * (means - mean) ** 2).sum(axis=0) / known
        deviation = np.sqrt(variance)
        tiny = deviation <= 1e-12 * np.abs(mean)
        return mean, np.where(tiny | (deviation == 0), 1.0, deviation)


@dataclass(frozen=True, kw_only=True)
class _SampleFile(_SampleFacts):
    """The file ``samples.json``: of the arrays of a set it has the shapes."""

    steps: Positive
    columns: Positive
    target_columns: Count
    format: Literal["gcnmpi-samples"] = "gcnmpi-samples"
    version: Literal[1] = 1


SAMPLES = Sets(KIND, _SampleFile, "gcn-partition samples {path} --states FILE.npy --name {name}")
_AGAIN = SAMPLES.again
list_samples, remove_samples = SAMPLES.names, SAMPLES.remove


def write_samples(
    path: str | os.PathLike[str], name: str, states: Steps, targets: Steps | None,
    ranges: Mapping[str, _Ranges], *, made: str, force: bool = False,
    links: Mapping[str, Path] | None = None, report: Callable[[int], None] = lambda steps: None,
) -> SampleSet:  # fmt: skip
    """Put a set of samples into the graph folder ``path``, some steps at a time.

    Parameters
    ----------
    states, targets
        As :class:`SampleSet` has them. Whole numbers become float32.
    ranges : mapping
        As :class:`SampleSet` has them.
    links : mapping of "states" and "targets" to path
        Files that hold just these arrays and get a second name, where their file system has such
        names, instead of being copied.
    report : callable
        Called with how many steps are done.

    Raises
    ------
    UserError
        If the name is malformed or taken (without ``force``), the shapes are not those of the
        graph, a number is infinite, ranges overlap or are not there, or the files cannot be
        written.
    """
    path = Path(path)
    SAMPLES.folder(path, name)
    n = read_manifest(path).n
    arrays = {"states": states} | ({} if targets is None else {"targets": targets})
    for kind, array in arrays.items():
        _check_array(kind, array, n, states.shape[:1])
    steps = states.shape[0]
    described = _checked_ranges(ranges, steps)
    with SAMPLES.writing(path, name, force) as temporary:
        found = [
            _written(temporary / f"{kind}.npy", kind, array, (links or {}).get(kind), report)
            for kind, array in arrays.items()
        ]
        moments, id_ = _joined(found, described)
        save_arrays(temporary, {"moments": moments})
        SAMPLES.describe(temporary, _SampleFile(
            name=name, n=n, id=id_, made=made, ranges=described, steps=steps,
            columns=states.shape[2], target_columns=0 if targets is None else targets.shape[2],
        ))  # fmt: skip
    return read_samples(path, name)


def read_samples(path: str | os.PathLike[str], name: str, *, check: bool = False) -> SampleSet:
    """Read the set of samples ``name`` of the graph folder ``path``; its arrays are mapped.

    Parameters
    ----------
    check : bool
        Read all numbers, and refuse a set whose id or moments are not those of them.

    Raises
    ------
    UserError
        If there is none of that name, it is of another number of vertices or another version, or
        its files are damaged.
    """
    path = Path(path)
    folder, n = SAMPLES.folder(path, name), read_manifest(path).n
    facts = SAMPLES.described(path, name)
    if facts.n != n:
        wrong = f"samples {name!r} in {path} are of {facts.n:,} vertices, the graph has {n:,}"
        raise UserError(wrong, _AGAIN)
    columns = {"states": facts.columns, "targets": facts.target_columns}
    columns = {of: width for of, width in columns.items() if width}
    arrays = {
        of: map_array(folder / f"{of}.npy", "f", (facts.steps, n, width), again=_AGAIN)
        for of, width in columns.items()
    }
    shape = (3, facts.steps, sum(columns.values()))
    moments = np.array(map_array(folder / "moments.npy", "f", shape, again=_AGAIN))
    try:
        _checked_ranges(facts.ranges, facts.steps)
        if check:
            found, id_ = _joined([_scanned(*each) for each in arrays.items()], facts.ranges)
            same = np.array_equal(found, moments) and id_ == facts.id
            require(same, "it does not hold what samples.json says")
    except UserError as error:
        raise UserError(f"{folder} is damaged: {error.message}", _AGAIN) from None
    known = {key: getattr(facts, key) for key in ("n", "id", "made", "ranges")}
    known |= {"states": arrays["states"], "targets": arrays.get("targets"), "moments": moments}
    return SampleSet(folder=folder, name=name, **known)


def _written(
    file: Path, kind: str, array: Steps, link: Path | None, report: Callable[[int], None]
) -> tuple[np.ndarray, str]:
    """Write an array, or give its file a second name; returns what :func:`_scanned` does."""
    dtype = _stored(array.dtype)
    in_order = isinstance(array, np.ndarray) and array.flags.c_contiguous and array.dtype == dtype
    if link is not None and in_order:
        with contextlib.suppress(OSError):  # of another file system: a copy
            os.link(link.resolve(), file)
            return _scanned(kind, array, report=report)
    header = {"descr": dtype.str, "fortran_order": False, "shape": array.shape}
    with atomic_file(file) as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        return _scanned(kind, array, stream.write, report)


def _stored(dtype: np.dtype) -> np.dtype:
    if dtype.kind != "f":
        return np.dtype(np.float32)
    return dtype if dtype.itemsize <= 8 else np.dtype(np.float64)


def _scanned(
    kind: str, array: Steps, take: Callable[[memoryview], object] = lambda piece: None,
    report: Callable[[int], None] = lambda steps: None,
) -> tuple[np.ndarray, str]:  # fmt: skip
    """Moments of each step, and the hash of all; ``take`` is given each piece.

    Moments are count, mean and sum of squares about it, of each column over what is known.
    """
    dtype, (steps, n, columns) = _stored(array.dtype), array.shape
    digest = hashlib.blake2b(f"{kind} {dtype.str} {[*array.shape]}".encode(), digest_size=16)
    moments = np.empty((3, steps, columns))
    count = max(1, _AT_ONCE // max(1, n * columns * array.dtype.itemsize))
    for some in slices(steps, count):
        piece = np.ascontiguousarray(array[some], dtype)
        if np.isinf(piece).any():
            step = some.start + int(np.flatnonzero(np.isinf(piece).any(axis=(1, 2)))[0])
            raise UserError(f"{kind} of step {step} have an infinite number", "NaN says: unknown")
        numbers = piece.astype(np.float64)
        known = ~np.isnan(numbers)
        counts = known.sum(axis=1).astype(np.float64)
        mean = np.sum(numbers, axis=1, where=known) / np.maximum(counts, 1)
        squares = np.sum((numbers - mean[:, np.newaxis]) ** 2, axis=1, where=known)
        moments[:, some] = counts, mean, squares
        digest.update(piece.data)
        take(piece.data)
        report(some.stop)
    return moments, digest.hexdigest()


def _joined(
    scanned: Sequence[tuple[np.ndarray, str]], ranges: Mapping[str, _Ranges]
) -> tuple[np.ndarray, str]:
    """Moments of all columns, and the id: a hash of hashes, and of which steps are for what."""
    moments, digests = zip(*scanned, strict=True)
    listed = sorted((mask, [list(one) for one in some]) for mask, some in ranges.items())
    text = f"{[*digests]} {listed}"
    id_ = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return np.concatenate(moments, axis=2), id_


def _check_array(kind: str, array: Steps, n: int, steps: tuple[int, ...]) -> None:
    shape = array.shape
    if np.dtype(array.dtype).kind not in "fiu":
        raise UserError(f"{kind} are {array.dtype}, no numbers", "floating-point or whole numbers")
    if len(shape) != 3 or shape[1] != n or shape[:1] != steps or 0 in (shape[0], shape[2]):
        wanted = f"({'steps' if kind == 'states' else steps[0]}, {n}, columns)"
        raise UserError(
            f"{kind} are of shape {tuple(shape)}, not {wanted}",
            "the first axis is time, the second one the vertices of the graph in its order; runs "
            "of a simulation follow each other, each with a range of steps",
        )


_Ranges = Sequence[Sequence[int]]
"""The steps from start to stop, for each (start, stop) of them."""


def with_columns(array: np.ndarray) -> np.ndarray:
    """An array of steps; of two axes, the last one is that of the only column.

    >>> with_columns(np.zeros((5, 3))).shape
    (5, 3, 1)
    """
    return array[..., np.newaxis] if array.ndim == 2 else array


def shares_of_steps(steps: int, shares: Sequence[float]) -> dict[str, list[tuple[int, int]]]:
    """The first steps to train on, the next ones to validate on, the rest to test on.

    >>> shares_of_steps(10, (0.7, 0.1, 0.2))
    {'train': [(0, 7)], 'val': [(7, 8)], 'test': [(8, 10)]}
    """
    if len(shares) != len(MASKS) or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise UserError("--split takes three shares that add up to 1", "such as 0.7,0.1,0.2")
    borders = [round(steps * sum(shares[:i])) for i in range(len(MASKS) + 1)]
    borders[-1] = steps
    pairs = zip(MASKS, borders[:-1], borders[1:], strict=True)
    return {mask: [(a, b)] for mask, a, b in pairs if b > a}


def _checked_ranges(ranges: Mapping[str, _Ranges], steps: int) -> dict[str, list[tuple[int, int]]]:
    """Ranges as pairs of whole numbers.

    A UserError if they are something else, are not within the steps, or a step is in two.
    """
    for mask in ranges:
        check_name("mask of ranges", mask, MASKS)
    try:
        index = operator.index
        found = {mask: [(index(a), index(b)) for a, b in some] for mask, some in ranges.items()}
    except (TypeError, ValueError):
        told = f"ranges are lists of (start, stop), not {str(ranges)[:80]}"
        raise UserError(told, "such as train: [(0, 300)]") from None
    every = sorted((a, b, mask) for mask, some in found.items() for a, b in some)
    for start, stop, mask in every:
        if not 0 <= start < stop <= steps:
            hint = "START:STOP are numbers of steps from 0, STOP not among them"
            wrong = f"the range {start}:{stop} of {mask} is not within the {steps} steps"
            raise UserError(wrong, hint)
    for (_, stop, mask), (start, _, other) in itertools.pairwise(every):
        if start < stop:
            where = f"twice in {mask}" if mask == other else f"in {mask} and in {other}"
            raise UserError(f"step {start} is {where}", "ranges of steps have none in common")
    if not found.get("train"):
        raise UserError("there is no step to train on", "such as --train 0:300")
    return found
