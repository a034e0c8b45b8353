"""How numbers of exchanged rows are written in messages: ``comm.precision``.

======== ===========================================================================================
bf16     The upper half of a float32: its range, 8 bits of precision; rounded to nearest.
fp16     Half precision of the row times a power of two that brings its largest number to 2¹⁴ … 2¹⁵,
         whose exponent is one more byte: nothing overflows, and gradients, which are small in all
         their numbers, are not lost. 11 bits of precision; rounded to nearest.
int8     Multiples of a 127th of the largest number of the row, which is sent too, as a float32.
         Rounded up or down at random, so that the mean is the number itself: what is smaller than
         half a step would always vanish otherwise. A row whose largest is below 2⁻¹⁰⁰ becomes 0.
======== ===========================================================================================

A subnormal number of float32, below 2⁻¹²⁶, is a zero of its sign in every format, as it is to the
arithmetic of GPUs (CuPy compiles with ``-ftz=true``); no other number arrives as a subnormal one.

The random numbers are the hash of :mod:`gcnmpi.core.rng`. A row that holds an infinity or a NaN
arrives with one in ``bf16``, and as NaN throughout otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt


@dataclass(frozen=True)
class Format:
    """A row in a message: its numbers, then its scale.

    Attributes
    ----------
    name : str
        Value of ``comm.precision``.
    number_bytes, scale_bytes : int
        Of a number, and of what a row has once.
    error : callable
        ``error(width)``: what rounding changes in a row of so many numbers at most, as the
        Euclidean norm relative to that of the row.
    """

    name: str
    number_bytes: int
    scale_bytes: int
    error: Callable[[int], float]
    random: bool = False

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of so many numbers."""
        return width * self.number_bytes + self.scale_bytes


EXACT = "fp32"  # numbers as they were computed, in the training's type
FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format("bf16", 2, 0, lambda width: 2.0**-8),
        Format("fp16", 2, 1, lambda width: 2.0**-10),  # half of it but for the smallest numbers
        Format("int8", 1, 4, lambda width: sqrt(width) / 127, random=True),
    )
}
PRECISIONS = (EXACT, *FORMATS)


def format_of(precision: str, width: int, itemsize: int) -> Format | None:
    """The format of rows of some width; None: as they are, also where that is as short.

    A number has ``itemsize`` bytes as it is computed.

    >>> [getattr(format_of("int8", width, 4), "name", None) for width in (1, 2)]
    [None, 'int8']
    """
    found = FORMATS.get(precision)
    return found if found and found.row_bytes(width) < width * itemsize else None


def row_bytes(precision: str, width: int, itemsize: int) -> int:
    """Bytes of a row in a message; parameters as for :func:`format_of`.

    >>> [row_bytes(precision, 64, 4) for precision in PRECISIONS]
    [256, 128, 129, 68]
    """
    found = format_of(precision, width, itemsize)
    return width * itemsize if found is None else found.row_bytes(width)
