"""Calls that are refused, as tests of all folders expect it."""

from collections.abc import Callable

import pytest

from partition.errors import UserError


def refuses(message: str, call: Callable, *given, error=UserError, **named) -> Exception:
    """The error of a call, which must be of the kind ``error`` and match ``message``."""
    with pytest.raises(error, match=message) as caught:
        call(*given, **named)
    return caught.value


def raising(error: BaseException | type[BaseException]) -> Callable:
    """A function of any arguments that raises an error."""

    def call(*_, **__):
        raise error

    return call
