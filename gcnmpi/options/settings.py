"""Settings as people write them: what a text means, how a value is spelled, which key is meant.

The configuration itself, its keys and what they may be, is in :mod:`gcnmpi.options.config`.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform, get_args, get_origin

from partition.errors import UserError, meant_keys, nearest, unknown_name
from partition.registry import Registry

# Integers are below this where their key says nothing else: what counts by them uses 32 bits or 64.
INTEGERS = 2**31
FOLDERS = ("tuned", "links")  # of configurations that come along
T = TypeVar("T")


@dataclass(frozen=True)
class Several:
    """The choices of a key that takes one name or several: "mean+max"."""

    names: tuple[str, ...]

    def __contains__(self, value: object) -> bool:
        several = str(value).split("+")
        return set(several) <= {*self.names} and len(set(several)) == len(several)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def options_of(section: str, of_all: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass of keys of a section, which the tables of entries name.

    Keys ``of_all`` entries stand in a class from which those of the entries inherit.
    """

    def made(options: type[T]) -> type[T]:
        found: Any = dataclass(frozen=True, kw_only=True)(options)
        found.section = section
        if of_all or not hasattr(found, "of_all"):
            found.of_all = {entry.name for entry in fields(found)} if of_all else set()
        return found

    return made


def chosen(section: type[T], registry: Registry, values: Mapping[str, Any]) -> T:
    """The section with the options of the entry that it names, of a registry.

    Values that are no options of that entry are left out.
    """
    name = values.get("name", section.name)  # type: ignore[attr-defined]
    kind: Any = next((kind for kind in registry.kinds(name) if issubclass(kind, section)), section)
    known = {entry.name for entry in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in known})


def key(
    default: object,
    doc: str,
    *,
    choices: Iterable[str] = (),
    also: tuple[str, ...] = (),
    low: float | None = None,
    below: float | None = None,
    most: int | None = None,
    positive: bool = False,
    example: object = None,
    joined: str = "",
    needs: tuple[str, object] | None = None,
) -> Any:
    """A configuration key: default, one-line meaning and the values it may take.

    ``example`` is shown where a value is refused, in place of the default; the numbers of a list
    are ``joined`` to the string that is meant; ``most`` is the largest number, or the length of the
    longest list; ``needs`` is the value of another key without which
    this one has no effect, wherever the scheme has that one.
    """
    metadata = {
        "doc": doc,
        "choices": choices,  # a registry stays one: what is added to it later counts
        "also": also,  # further choices
        "low": low,
        "below": below,
        "most": most,
        "positive": positive,
        "example": default if example is None else example,
        "joined": joined,
        "needs": needs,
    }
    return field(default=default, metadata=metadata)


def read_value(text: str, hint: object) -> object:
    """The value of type ``hint`` that a text stands for; the text itself if it stands for none.

    Values are TOML; strings need no quotes, lists no brackets, and numbers may be spelled as in
    Python.

    >>> read_value("64,32", tuple[int, ...]), read_value("2x2", str), read_value(".5", float)
    ([64, 32], '2x2', 0.5)
    """
    value = _toml(text)
    if get_origin(hint) is tuple and not isinstance(value, list):
        return [read_value(word.strip(), get_args(hint)[0]) for word in text.split(",")]
    if hint is str and not isinstance(value, str | list):
        return text  # a name that looks like a number or a date is a name
    if hint is float and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return text
    if hint is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return value


def spelled(value: object) -> str:
    """A value as ``--set`` takes it.

    >>> spelled((64, 32)), spelled(True), spelled(0.5), spelled(())
    ('64,32', 'true', '0.5', '[]')
    """
    if isinstance(value, tuple):
        return ",".join(map(spelled, value)) or "[]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def spelled_in_toml(value: object) -> str:
    """A value as a TOML file has it: strings, numbers and lists are as in JSON."""
    return json.dumps(value)


def checked(name: str, value: Any, hint: Any, limits: Mapping[str, Any]) -> Any:
    """A value of the type that is wanted and within its limits.

    Parameters
    ----------
    name : str
        Full name of the key, for messages.
    hint : type
        What is wanted: str, int, float, bool or a tuple of these.
    limits : mapping
        As :func:`key` makes it.

    Raises
    ------
    UserError
        If it is none.
    """
    if get_origin(hint) is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        if limits["most"] is not None and len(items) > limits["most"]:
            raise UserError(f"{name} has at most {limits['most']} items, not {len(items)}")
        limits = {**limits, "most": None}
        return tuple(checked(name, item, get_args(hint)[0], limits) for item in items)
    if limits["joined"] and isinstance(value, list):
        value = limits["joined"].join(map(str, value))
    if limits["joined"] and isinstance(value, str):
        value = "".join(value.lower().split())
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1023 else math.inf
    if hint is int and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)  # 1e3
    if type(value) is not hint:
        raise UserError(f"{name} takes {_TYPE_NAMES[hint]}, not {value!r}")
    choices = [*limits["also"], *limits["choices"]]
    # A registry may take more names than it lists.
    if choices and value not in limits["also"] and value not in limits["choices"]:
        raise unknown_name(name, value, choices)
    if hint is float and not math.isfinite(value):
        raise UserError(f"{name} takes a finite number, not {value}")
    if limits["low"] is not None and not value >= limits["low"]:
        raise UserError(f"{name} is at least {limits['low']}, not {_shown(value)}")
    below = INTEGERS if hint is int and limits["below"] is None else limits["below"]
    if below is not None and not value < below:
        raise UserError(f"{name} is below {below}, not {_shown(value)}")
    if limits["most"] is not None and value > limits["most"]:
        raise UserError(f"{name} is at most {limits['most']}, not {value}")
    if limits["positive"] and not value > 0:
        raise UserError(f"{name} is more than 0, not {value}")
    return value


def plain(value: Any) -> Any:
    """A value that a program gives, without NumPy's types."""
    return value.tolist() if hasattr(value, "tolist") else value


def _shown(value: Any) -> str:
    """A number, of which Python writes no more than some thousand digits."""
    large = isinstance(value, int) and abs(value) >= 2**64
    return f"a number of {value.bit_length()} bits" if large else str(value)


_TYPE_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


def read_toml(path: str | os.PathLike) -> dict[str, object]:
    """The tables of a TOML file, or of the shipped configuration of that name.

    Raises
    ------
    UserError
        If it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(config_path(path).read_text(encoding="utf-8"))
    except OSError as error:
        name, there = os.fspath(path), shipped_configs()
        short = name.removesuffix(".toml")
        meant = short if short in there else nearest(short, there)
        hint = f"--config {meant} takes the configuration that comes along"
        if meant is not None and meant != short:
            hint = f"did you mean {meant!r}? 'gcnmpi config' lists the configurations"
        message = f"cannot read {name}: {error.strerror}"
        raise UserError(message, hint if meant else None) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def config_path(given: str | os.PathLike) -> Path:
    """The file of a configuration: a file there is, or the shipped configuration of that name."""
    path = Path(given)
    return path if path.is_file() else shipped_configs().get(os.fspath(given), path)


def shipped_configs() -> dict[str, Path]:
    """The configurations that come along, by name: "gcn", "tuned/cora-gat", "links/cora"."""
    folder = files("gcnmpi").joinpath("configs")
    return {
        f"{prefix}{file.name.removesuffix('.toml')}": Path(str(file))
        for prefix, place in (
            ("", folder),
            *((f"{name}/", folder.joinpath(name)) for name in FOLDERS),
        )
        for file in place.iterdir()
        if file.name.endswith(".toml")
    }


def unknown_key(name: str, known: Iterable[str]) -> UserError:
    """The error for a key that is not in the configuration, with the one that may be meant."""
    known = list(known)
    section = name.rpartition(".")[0]
    here = [key.rpartition(".")[2] for key in known if key.rpartition(".")[0] == section]
    meant = meant_keys(name, known)
    hint = "'gcnmpi info' lists the keys"
    if meant:
        hint = f"did you mean {' or '.join(map(repr, meant))}?"
    elif here and section:
        hint = f"keys of {section}: {', '.join(here)}"
    return UserError(f"unknown config key {name!r}", hint)


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def split_words(text: str) -> list[str]:
    """Words between commas; commas in brackets do not separate.

    >>> split_words("64,[64,64]")
    ['64', '[64,64]']
    """
    return re.split(r",(?![^\[]*\])", text)
