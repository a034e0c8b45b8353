"""Rows of messages in fewer bits."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

A = TypeVar("A")


class MessageOperations(Protocol[A]):
    """Rows in the formats of :mod:`gcnmpi.core.precision`, which are named by ``precision``.

    All kernels give the same bits for the same rows.
    """

    def empty_bytes(self, rows: int, columns: int) -> A:
        """An uninitialised (rows, columns) array of uint8, C-contiguous."""

    def encode_rows(self, x: A, precision: str, rows: A | None, columns: Any, out: A) -> None:
        """out = the rows of x, whose numbers are contiguous, in a format.

        Parameters
        ----------
        rows, columns
            Keys for what is rounded at random, as for
            :meth:`~gcnmpi.kernels.interface.entries.EntryOperations.dropout`; without use else.
        out : (rows, bytes of a row) uint8
            Contiguous.
        """

    def decode_rows(self, message: A, precision: str, out: A) -> None:
        """The inverse: out = what such rows stand for."""
