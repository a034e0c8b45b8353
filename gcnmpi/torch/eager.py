"""Functions that ``torch.compile`` leaves to Python."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def eager(function: Callable[P, T]) -> Callable[P, T]:
    """A function that a compiled one calls, with all that it calls, and does not trace.

    Messages and arrays of NumPy cannot be traced. It is ``torch.compiler.disable``, which loads
    the compiler, from the moment on that somebody else has loaded it.
    """
    disabled: list[Callable[P, T]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    # The compiler counts how often it meets a code object, and gives up on one of many functions.
    call.__code__ = call.__code__.replace(co_name=function.__name__)  # type: ignore[attr-defined]
    return call
