"""How many threads libraries have, and how these wait for work."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

# Of GNU's and LLVM's library: turns of a loop, and milliseconds, for which a thread without work
# keeps its core before it sleeps.
SETTINGS = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "0"}
OF_USERS = ("OMP_WAIT_POLICY", *SETTINGS)


@contextmanager
def sleeping_soon() -> Iterator[None]:
    """Load libraries whose threads sleep soon after their work, unless the user said how they wait.

    By default, GNU's OpenMP keeps the core of a thread that waits for milliseconds. Where another
    process needs that core, or another thread of a rank, they wait for each other: epochs of small
    graphs take up to 30 times as long. A library reads its settings when it is loaded.
    """
    given = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    if not any(name in os.environ for name in OF_USERS):
        os.environ |= SETTINGS
    try:
        yield
    finally:  # other programs that this process starts are not meant
        for name in SETTINGS:
            os.environ.pop(name, None)
        os.environ |= given


def waiting() -> dict[str, str]:
    """The variables by which threads of OpenMP wait, for records of benchmarks."""
    return {name: os.environ[name] for name in OF_USERS if name in os.environ} or SETTINGS


class Library(Protocol):
    """A library whose number of threads can be set, as threadpoolctl finds it."""

    num_threads: int

    def set_num_threads(self, num_threads: int) -> object:
        """Of all calls from now on."""


@contextmanager
def one_thread(libraries: Sequence[Library]) -> Iterator[None]:
    """Some microseconds in which libraries compute in the thread that calls them, and no other."""
    before = [library.num_threads for library in libraries]
    try:
        for library in libraries:
            library.set_num_threads(1)
        yield
    finally:
        for library, threads in zip(libraries, before, strict=True):
            library.set_num_threads(threads)
