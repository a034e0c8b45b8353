"""Files that several read together: each takes some of the pieces, in step with the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


class Readers(Protocol):
    """Several who read a file together; every one calls every method, in the same order."""

    @property
    def rank(self) -> int:
        """The number of this one."""

    @property
    def size(self) -> int:
        """How many there are."""

    def gathered(self, value: T) -> list[T]:
        """The values that all of them have, in their order."""

    def agreed(self) -> contextlib.AbstractContextManager[None]:
        """A block that all leave together: with the UserError of the first that has one."""


@dataclass(frozen=True)
class Alone:
    """Somebody who reads a file alone."""

    rank: int = 0
    size: int = 1

    def gathered(self, value: T) -> list[T]:
        """The value of this one."""
        return [value]

    def agreed(self) -> contextlib.AbstractContextManager[None]:
        """A block that this one leaves with its own errors."""
        return contextlib.nullcontext()


ALONE = Alone()


def in_step(pieces: Iterator[T], readers: Readers, nothing: Callable[[], T]) -> Iterator[T]:
    """The pieces of this reader until nobody has any more: ``nothing()`` while others have some."""
    while True:
        with readers.agreed():
            piece = next(pieces, None)
        if not any(readers.gathered(piece is not None)):
            return
        yield nothing() if piece is None else piece


def before_and_all(readers: Readers, count: int) -> tuple[int, int]:
    """How many those before this one have, where it has ``count``; and all together."""
    counts = readers.gathered(count)
    return sum(counts[: readers.rank]), sum(counts)
