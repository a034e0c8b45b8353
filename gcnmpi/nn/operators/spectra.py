"""Discrete Fourier transforms of rows, in which circular correlations are products entry by entry.

They are products with a matrix, O(width²) of a row, which up to some hundred columns are faster
than transforms row by row; and sums over neighbours may stand between a transform and its inverse,
so that few rows are transformed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operator import Operator
from gcnmpi.nn.program import Instruction, Step
from gcnmpi.nn.tape import Rule, one_step, two_steps


@dataclass(frozen=True)
class Spectrum(Operator):
    """y = the transform of each row, real and imaginary parts in turn; or the rows that x is of.

    Of ``columns`` of a row the first columns // 2 + 1 complex numbers say all.
    """

    columns: int = 0
    inverse: bool = False

    @property
    def words(self) -> str:
        """Which way it goes."""
        return "rows of spectrum" if self.inverse else "spectrum"


@dataclass(frozen=True)
class SpectrumProduct(Operator):
    """y = x̄₁·x₂ entry by entry, of complex rows: the spectrum of their circular correlation.

    Correlation has in column k the sum over i of x₁[i]·x₂[i + k], i + k modulo the columns.
    """

    title = "product of spectra"


def spectrum_width(columns: int) -> int:
    """Columns of the spectrum of a row.

    >>> spectrum_width(4), spectrum_width(5)
    (6, 6)
    """
    return 2 * (columns // 2 + 1)


@lru_cache(maxsize=8)
def spectrum_matrix(columns: int, inverse: bool = False) -> np.ndarray:
    """The matrix of a transform, (columns, spectrum), or of its inverse, float64."""
    times = np.arange(columns)[:, np.newaxis] * np.arange(spectrum_width(columns) // 2) % columns
    angles = 2 * np.pi * times / columns
    found = np.stack((np.cos(angles), -np.sin(angles)), axis=2).reshape(columns, -1)
    if not inverse:
        return found
    twice = np.full(found.shape[1] // 2, 2.0)  # for the conjugates, which are left out
    twice[0] = 1
    if columns % 2 == 0:
        twice[-1] = 1
    back: np.ndarray = np.repeat(twice, 2)[:, np.newaxis] * found.T / columns
    return back


def _spectrum(spectrum: Spectrum, binding: Binding, step: Step) -> Run:
    """Forward x·F, backward g·Fᵀ."""
    kernel, back = binding.kernel, step.instruction is SPECTRUM_T
    x, out = binding.read(step), binding.written(step)
    matrix = transform(binding, spectrum.columns, spectrum.inverse)
    return lambda epoch: kernel.gemm(x, matrix, out, tb=back)


def transform(binding: Binding, columns: int, inverse: bool = False) -> Array:
    """The matrix of a transform, one for all steps that need it."""
    matrix, kernel = spectrum_matrix(columns, inverse), binding.kernel
    found = binding.scratch(f"transform {inverse}", *matrix.shape)
    kernel.copy(kernel.from_host(matrix), found)
    return found


def _product(operator: SpectrumProduct, binding: Binding, step: Step) -> Run:
    """Entry by entry; of x₁ as it is or its conjugate."""
    conjugate, out = step.instruction is CONJUGATE, _complex(binding.written(step))
    x, y = _complex(binding.read(step)), _complex(binding.read(step, 1))

    def run(epoch: int) -> None:
        if conjugate:
            np.conjugate(x, out=out)
        np.multiply(out if conjugate else x, y, out=out)

    return run


def _complex(array: Any) -> Any:
    """The same numbers, two of which are one."""
    return array.view(np.result_type(array.dtype, np.complex64))


SPECTRUM = Instruction("spectrum", _spectrum)
SPECTRUM_T = Instruction("spectrum_t", _spectrum)
CONJUGATE = Instruction("conjugate_product", _product, passes=5)
DIRECT = Instruction("direct_product", _product, passes=4)

RULES = {
    Spectrum: Rule(SPECTRUM, one_step(SPECTRUM_T)),
    SpectrumProduct: Rule(CONJUGATE, two_steps(CONJUGATE, DIRECT)),
}
