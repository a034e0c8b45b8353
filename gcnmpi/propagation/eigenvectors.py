"""The smallest eigenvalues of the normalised Laplacian L = I − D^-1/2 A D^-1/2, and their vectors.

By the block Chebyshev–Davidson method (Zhou 2010, A block Chebyshev–Davidson method with
inner–outer restart for large eigenvalue problems). A basis grows by a block of vectors at a time:
those Ritz vectors that have not converged, filtered by a Chebyshev polynomial of L that is small on
all of the spectrum but its lower end. The upper end is 2 (Chung 1997, lemma 1.7), which other
problems have to estimate. Pairs that have converged stay in the basis, and are filtered no more. A
block finds equal eigenvalues together: 0 is one for each connected component. Of an eigenvalue of
more vectors than a block has, what one random block can tell is not all: when all pairs have
converged, another one is filtered and added, until the values stay as they are. Row and column of
an isolated vertex are 0, as in SciPy and NetworkX.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gcnmpi.options.settings import key
from gcnmpi.propagation.blocks import normal, orthonormal, signed
from gcnmpi.propagation.checkpoint import CheckpointOptions, State
from gcnmpi.propagation.interface import Held, Holds, Matrix, Method, Outcome
from gcnmpi.propagation.space import Space
from partition.errors import UserError
from partition.graph.store import StoredGraph

_UPPER = 2.0
_GUARDS = 2  # blocks of vectors beyond those that are wanted, which survive a restart
_ROWS_AT_ONCE = 1 << 12
_GROWTH = 5  # blocks that a basis grows by between restarts


@dataclass(frozen=True)
class EigenOptions(CheckpointOptions):
    """The options of ``laplacian-eigenvectors``.

    Attributes
    ----------
    count
        eigenvalues, from the smallest
    tolerance
        length of L·v − λ·v below which a pair has converged; 0: 1e-11 in float64, 1e-5 in float32
    iterations
        blocks that are filtered at most
    block
        vectors that are filtered together
    degree
        degree of the filter: products with each block
    seed
        of the first block
    """

    count: int = key(10, low=1)
    tolerance: float = key(0.0, low=0, example=1e-9)
    iterations: int = key(500, low=1)
    block: int = key(8, low=1)
    degree: int = key(24, low=2)
    seed: int = key(0, low=0)


def check(stored: StoredGraph, options: EigenOptions) -> None:
    """Refuse more eigenvalues than the graph has vertices."""
    n = stored.manifest.n
    if options.count > n:
        raise UserError(
            f"count = {options.count}, and {stored.path} has {n} vertices", f"at most count={n}"
        )


def run(space: Space, options: EigenOptions) -> Outcome:
    """Values (count,), increasing, and vectors (n, count) of length 1."""
    tolerance = options.tolerance or (1e-11 if space.dtype == np.float64 else 1e-5)
    basis, residuals, step, proven = _davidson(space, options, tolerance)
    values, equal = basis.values[: options.count], _equal(space)
    vectors = _settled(space, basis.ritz(slice(options.count)), values)
    notes = [f"{step} blocks, largest residual {residuals.max():.2g}"]
    following = basis.values[options.count : options.count + 1]
    if len(following) and following[0] - values[-1] <= equal:
        whole = int(np.sum(values < values[-1] - equal))
        notes.append(
            f"warning: count = {options.count} leaves out vectors of the eigenvalue "
            f"{abs(values[-1]):.6g}: those that are given depend on rounding, and so on the "
            f"number of ranks; {f'count={whole}' if whole else 'a larger count'} would not"
        )
    if residuals.max() > tolerance:
        notes.append(
            f"warning: {np.sum(residuals > tolerance)} of {options.count} pairs did not converge "
            f"to {tolerance:.2g}: raise iterations"
        )
    elif not proven:
        notes.append(
            "warning: all pairs converged, but not the next one, which might belong before them: "
            "raise iterations"
        )
    arrays = {"values": values.astype(space.dtype)}
    return Outcome(vectors.astype(space.dtype), "vectors", arrays=arrays, notes=tuple(notes))


def _davidson(
    space: Space, options: EigenOptions, tolerance: float
) -> tuple[_Basis, np.ndarray, int, bool]:
    """A basis whose first Ritz pairs have converged, their residuals, and the number of blocks.

    And whether another random block found nothing that belongs before them.
    """
    count, block, kept, capacity = _sizes(options, space.n)
    equal, proven = _equal(space), False
    laplacian = _Laplacian(space)
    basis = _Basis(space, laplacian, capacity)
    saved = space.checkpoints.resume("block")
    if saved is None:
        start = normal(space, options.seed, block)
        start = laplacian.filtered(start, options.degree, 0.5, 0.0)
        basis.add(orthonormal(space, start))
    else:
        basis.restore(saved)
    # The values when the last random block came: what it does not change is proven.
    before = np.zeros(0) if saved is None else saved.small["before"]
    done = 0 if saved is None else min(saved.step, options.iterations - 1)
    for step in range(done + 1, options.iterations + 1):
        all_residuals = basis.residuals(count + 1)
        residuals = all_residuals[:count]
        waiting = np.flatnonzero(residuals > tolerance)
        text = f"{len(residuals) - len(waiting)} of {count} pairs, residual {residuals.max():.1e}"
        space.progress("block", step, options.iterations, text)
        size = basis.size
        converged = size >= count and not len(waiting)
        same = len(before) == count and np.allclose(basis.values[:count], before, 0, equal)
        known = converged and _settled_next(basis, count, all_residuals, tolerance, equal)
        proven = size == space.n or (same and known)
        if proven or step == options.iterations:
            break
        cut = basis.values[min(kept, (size + count) // 2, size - 1)]
        if converged and not same:
            before = basis.values[:count].copy()
            given = normal(space, options.seed, block, step)
        else:
            # Of what has not converged, the lowest; beyond those that are wanted, what comes next.
            given = basis.ritz([*waiting, *range(len(residuals), size)][:block])
        new = laplacian.filtered(given, options.degree, cut, basis.values[0])
        if size + block > basis.capacity and kept < size:
            basis.restart(kept)
        new = orthonormal(space, new, basis.vectors)
        if not new.shape[1]:  # the filtered vectors say nothing new: others may
            new = orthonormal(space, normal(space, options.seed, block, step), basis.vectors)
        basis.add(new[:, : basis.capacity - basis.size])
        basis.save(step, before)
    return basis, residuals, step, proven


def _settled_next(
    basis: _Basis, count: int, residuals: np.ndarray, tolerance: float, equal: float
) -> bool:
    """Whether the next pair is known to be no copy of an eigenvalue that is wanted, or to be one.

    Within its residual of a Ritz value there is an eigenvalue.
    """
    if basis.size == count:
        return False
    gap = basis.values[count] - basis.values[count - 1] - equal
    return bool(residuals[count] <= max(gap, tolerance))


def _sizes(options: EigenOptions, n: int) -> tuple[int, int, int, int]:
    """Pairs that are wanted, columns of a block, those that survive a restart, and of the basis."""
    block = min(options.block, n)
    kept = options.count + _GUARDS * block
    return options.count, block, kept, min(kept + (_GROWTH + 1) * block, n)


class _Laplacian:
    """The Laplacian L, for products with it."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._isolated = np.flatnonzero(space.column_sums() == 0)  # their rows are 0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The product L·x, in a new array."""
        return self._combined(x, 1.0, 0.0)

    def filtered(self, x: np.ndarray, degree: int, low: float, lowest: float) -> np.ndarray:
        """p(L)·x with the Chebyshev polynomial that is small on [low, 2] and 1 at ``lowest``.

        Algorithm 3.1 of Zhou and Saad 2007, A Chebyshev–Davidson algorithm for large symmetric
        eigenproblems.
        """
        low = min(max(low, 1e-3), _UPPER - 1e-3)
        centre, half = (_UPPER + low) / 2, (_UPPER - low) / 2
        sigma = half / (min(lowest, low - 1e-6) - centre)
        twice = 2 / sigma
        before, now = x, self._combined(x, sigma / half, centre)
        for _ in range(2, degree + 1):
            following = 1 / (twice - sigma)
            after = self._combined(now, 2 * following / half, centre, before, sigma * following)
            before, now, sigma = now, after, following
        return now

    def _combined(
        self,
        x: np.ndarray,
        factor: float,
        shift: float,
        other: np.ndarray | None = None,
        weight: float = 0.0,
    ) -> np.ndarray:
        """factor · (L − shift)·x − weight · other, some rows at a time, which stay in cache."""
        out = self._space.multiply(x).astype(np.float64, copy=False)
        if len(self._isolated):
            out[self._isolated] = x[self._isolated]
        for start in range(0, len(out), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            some = out[rows]
            some *= -factor
            some += (factor * (1.0 - shift)) * x[rows]
            if other is not None:
                some -= weight * other[rows]
        return out


class _Basis:
    """An orthonormal basis V with its products L·V and its Ritz pairs.

    Attributes
    ----------
    size, capacity : int
        Columns that there are, and that there is room for.
    values : (size,) float64
        Ritz values, increasing.
    """

    def __init__(self, space: Space, laplacian: _Laplacian, capacity: int) -> None:
        self._space, self._laplacian = space, laplacian
        self.size, self.capacity = 0, capacity
        own = len(space.vertices)
        self._vectors, self._images = np.empty((own, self.capacity)), np.empty((own, self.capacity))
        self._projection = np.zeros((self.capacity, self.capacity))
        self.values, self._rotation = np.zeros(0), np.zeros((0, 0))

    @property
    def vectors(self) -> np.ndarray:
        """The basis V, (own, size)."""
        return self._vectors[:, : self.size]

    def add(self, new: np.ndarray) -> None:
        """Columns that are orthonormal, also to those that there are: one all-reduce."""
        some = slice(self.size, self.size + new.shape[1])
        self.size = some.stop
        self._vectors[:, some], self._images[:, some] = new, self._laplacian(new)
        inner = self._space.gram(self.vectors, self._images[:, some])
        self._projection[: self.size, some] = inner
        self._projection[some, : self.size] = inner.T
        small = self._projection[: self.size, : self.size]
        self.values, self._rotation = self._space.alike(lambda: np.linalg.eigh(small))

    def save(self, step: int, before: np.ndarray) -> None:
        """Write a checkpoint, with the values that were there before a random block."""
        rows = {"vectors": self.vectors, "images": self._images[:, : self.size]}
        small = {"projection": self._projection[: self.size, : self.size]}
        small |= {"values": self.values, "rotation": self._rotation, "before": before}
        self._space.checkpoints.save("block", step, rows, small)

    def restore(self, saved: State) -> None:
        """Take the basis of a checkpoint."""
        self.values, self._rotation = saved.small["values"], saved.small["rotation"]
        some = slice(self.size, self.size + len(self.values))
        self.size = some.stop
        self._projection[some, some] = saved.small["projection"]
        for array, name in ((self._vectors, "vectors"), (self._images, "images")):
            array[:, some] = self._space.checkpoints.rows(saved, name)

    def restart(self, kept: int) -> None:
        """Go on with the first Ritz vectors alone."""
        rotation = self._rotation[:, :kept]
        for array in (self._vectors, self._images):
            array[:, :kept] = array[:, : self.size] @ rotation
        self.size, self.values = kept, self.values[:kept]
        self._projection[:kept, :kept] = np.diag(self.values)
        self._rotation = np.eye(kept)

    def ritz(self, which: slice | list[int]) -> np.ndarray:
        """Some of the Ritz vectors."""
        return self.vectors @ self._rotation[:, which]

    def residuals(self, count: int) -> np.ndarray:
        """Lengths of L·v − λ·v of the first Ritz pairs, at most (count,): one all-reduce."""
        rotation, values = self._rotation[:, :count], self.values[:count]
        off = self._images[:, : self.size] @ rotation
        off -= self.vectors @ (rotation * values)
        return np.sqrt(self._space.total((off[self._space.counted] ** 2).sum(axis=0)))


def _settled(space: Space, vectors: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Vectors that do not depend on rounding: their signs, and the basis where values are equal.

    Of an eigenspace, any rotation is as good. The one is taken that makes the product with some
    fixed vectors triangular.
    """
    vectors = vectors.copy()
    cuts = np.flatnonzero(np.diff(values) > _equal(space)) + 1
    groups = np.split(np.arange(len(values)), cuts)
    for group in groups:
        if len(group) > 1:
            inner = space.gram(vectors[:, group], normal(space, 1, len(group)))
            rotation = space.alike(partial(np.linalg.qr, inner)).Q
            vectors[:, group] = vectors[:, group] @ rotation
    return signed(space, vectors)


def _equal(space: Space) -> float:
    """Values that differ by no more are taken for one."""
    return 1e-9 if space.dtype == np.float64 else 1e-6


def holds(stored: StoredGraph, options: EigenOptions) -> Holds:
    """The basis and its products with L, and beside them matrices that are made of these.

    They are a filtered block; Ritz vectors, where the basis begins anew; or the vectors that are
    wanted, with their residuals.
    """
    count, block, kept, capacity = _sizes(options, stored.manifest.n)
    basis = 2 * capacity
    reading = Held(basis, file=(capacity, 8)) if options.checkpoint else Held()
    moments = (
        Held(arcs=True),
        reading,
        Held(basis + max(5 * block, kept, 2 * count), product=block),
        Held(basis + 3 * count, product=block),
    )
    return Holds(count, moments)


METHOD = Method(
    EigenOptions,
    Matrix("sym", False, fixed=True, symmetric=True),
    run,
    holds,
    check,
    dtype="float64",
    suffixes=(".npz",),
)
