"""Settings as people write them: what a text means, how a value is spelled, which key is meant.

The configuration itself, its keys and what they may be, is in :mod:`gcnmpi.options.config`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    TypedDict,
    TypeVar,
    Unpack,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from partition.commands import described
from partition.errors import UserError, meant_keys, nearest, unknown_name
from partition.registry import Registry

# Integers are below this where their key says nothing else: what counts by them uses 32 bits or 64.
INTEGERS = 2**31
_FOLDERS = ("tuned", "links")  # of configurations that come along
T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Options:
    """Keys of a section, which the table of an entry names: its classes are frozen dataclasses.

    Keys ``of_all`` entries stand in a class from which those of the entries inherit.
    """

    section: ClassVar[str]
    of_all: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, section: str = "", of_all: bool = False) -> None:
        made: Any = dataclass(frozen=True, kw_only=True)(cls)
        if section:
            made.section = section
        if of_all:
            made.of_all = frozenset(entry.name for entry in fields(made))


def chosen(section: type[T], registry: Registry, values: Mapping[str, Any]) -> T:
    """The section with the options of the entry that it names, of a registry.

    Values that are no options of that entry are left out.
    """
    name = values.get("name", section.name)  # type: ignore[attr-defined]
    kinds = (kind for kind in registry.kinds(name) if not isinstance(kind, str))
    kind: Any = next((kind for kind in kinds if issubclass(kind, section)), section)
    known = {entry.name for entry in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in known})


class Limits(TypedDict, total=False):
    """The values that a key may take.

    Attributes
    ----------
    choices, also, several
        Names; those of a registry, to which more may be added later, and further ones; whether
        several may be given, as "mean+max".
    low, below, most, positive
        Bounds of a number; ``most`` is the length of the longest list, too.
    joined
        The numbers of a list are joined by it to the string that is meant.
    example
        Shown where a value is refused, in place of the default.
    needs
        The value of another key without which this one has no effect, wherever that one is read.
    """

    choices: Iterable[str]
    also: tuple[str, ...]
    several: bool
    low: float
    below: float
    most: int
    positive: bool
    joined: str
    example: object
    needs: tuple[str, object]


def key(default: object, **limits: Unpack[Limits]) -> Any:
    """A field of options whose value has limits; the docstring of its class says what it means."""
    return field(default=default, metadata=limits)


@dataclass(frozen=True)
class Key:
    """A key of the configuration, or an option of a method, by its full name."""

    name: str
    default: Any
    hint: Any
    limits: Mapping[str, Any]  # see Limits
    kind: type  # the dataclass that has it

    @property
    def example(self) -> Any:
        """A value to be shown."""
        return self.limits.get("example", self.default)

    @property
    def choices(self) -> list[str]:
        """The names that it takes; a registry may take more than it lists."""
        return [*self.limits.get("also", ()), *self.limits.get("choices", ())]

    @property
    def meaning(self) -> str:
        """Its text, with the choices that it does not name, and the largest number."""
        text, most = described(self.kind)[self.name.rpartition(".")[2]][1], self.limits.get("most")
        named = set(re.findall(r"[\w@]+", text))
        text += "" if named.issuperset(self.choices) else f" ({', '.join(self.choices)})"
        return text + (f"; at most {most}" if most else "")

    def check(self, value: Any) -> Any:
        """The value as it is kept; a UserError unless it is of the type and within the limits."""
        if get_origin(self.hint) is not tuple:
            return self._check_one(value, self.hint)
        items = value if isinstance(value, list | tuple) else [value]
        most = self.limits.get("most")
        if most is not None and len(items) > most:
            raise UserError(f"{self.name} has at most {most} items, not {len(items)}")
        return tuple(self._check_one(item, get_args(self.hint)[0], most=math.inf) for item in items)

    def _check_one(self, value: Any, hint: type, **other: Any) -> Any:
        limits: dict[str, Any] = {**self.limits, **other}
        if "joined" in limits and isinstance(value, list):
            value = limits["joined"].join(map(str, value))
        if "joined" in limits and isinstance(value, str):
            value = "".join(value.lower().split())
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value) if abs(value) < 2**1023 else math.inf
        if hint is int and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)  # 1e3
        kind = type(value)
        if kind is not hint:
            raise UserError(f"{self.name} takes {_TYPE_NAMES[hint]}, not {value!r}")
        words = value.split("+") if limits.get("several") else [value]
        # A registry may take more names than it lists.
        known = (word in self.choices or word in limits["choices"] for word in words)
        if self.choices and (len(set(words)) < len(words) or not all(known)):
            raise unknown_name(self.name, value, self.choices)
        if hint is float and not math.isfinite(value):
            raise UserError(f"{self.name} takes a finite number, not {value}")
        if hint is int or hint is float:
            low, most = limits.get("low", -math.inf), limits.get("most", math.inf)
            below = limits.get("below", INTEGERS if hint is int else math.inf)
            for fits, says in (
                (value >= low, f"is at least {low}"),
                (value < below, f"is below {below}"),
                (value <= most, f"is at most {most}"),
                (value > 0 or not limits.get("positive"), "is more than 0"),
            ):
                if not fits:
                    raise UserError(f"{self.name} {says}, not {_shown(value)}")
        return value


@functools.cache
def keys_of(kind: Any, section: str = "") -> Mapping[str, Key]:
    """The keys of a dataclass by their full names."""
    hints, found = get_type_hints(kind), {}
    for entry in fields(kind):
        name, hint = f"{section}.{entry.name}" if section else entry.name, hints[entry.name]
        if not is_dataclass(hint):
            found[name] = Key(name, entry.default, hint, entry.metadata, kind)
    return found


def checked(
    known: Mapping[str, Key],
    values: Iterable[tuple[str, object]],
    such_as: Callable[[Key], str | None],
) -> dict[str, Any]:
    """Checked values by full names; a UserError shows how a key is given, with ``such_as``."""
    found: dict[str, Any] = {}
    for name, value in values:
        if name not in known:
            raise _unknown_key(name, known)
        if name in found:
            raise UserError(f"--set {name} is given twice", "give each key once")
        try:
            # A program may give values of NumPy.
            found[name] = known[name].check(value.tolist() if hasattr(value, "tolist") else value)
        except UserError as error:
            raise UserError(error.message, error.hint or such_as(known[name])) from None
    return found


def in_settings(known: Key) -> str:
    """How a key is given on a command line."""
    return f"such as --set {known.name}={spelled(known.example)}"


def parsed(known: Mapping[str, Key], settings: Iterable[str]) -> Iterator[tuple[str, object]]:
    """Names and values of ``key=value``; the text is the value of a key that is not known."""
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals:
            near = [key for key in known if key == name or key.startswith(f"{name}.")]
            hint = in_settings(known[(*near, "train.epochs", *known)[0]])
            raise UserError(f"--set {setting!r} is not of the form key=value", hint)
        yield name, _read_value(text, known[name].hint) if name in known else text


def _read_value(text: str, hint: object) -> object:
    """The value of type ``hint`` that a text stands for; the text itself if it stands for none.

    Values are TOML; strings need no quotes, lists no brackets, and numbers may be spelled as in
    Python.

    >>> _read_value("64,32", tuple[int, ...]), _read_value("2x2", str), _read_value(".5", float)
    ([64, 32], '2x2', 0.5)
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    if get_origin(hint) is tuple and not isinstance(value, list):
        return [_read_value(word.strip(), get_args(hint)[0]) for word in text.split(",")]
    if hint is str and not isinstance(value, str | list):
        return text  # a name that looks like a number or a date is a name
    if hint is float and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
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
        f"{place}{file.name.removesuffix('.toml')}": Path(str(file))
        for place in ("", *(f"{name}/" for name in _FOLDERS))
        for file in folder.joinpath(place).iterdir()
        if file.name.endswith(".toml")
    }


def _unknown_key(name: str, known: Mapping[str, Key]) -> UserError:
    """The error for a key that is not in the configuration, with the one that may be meant."""
    inside = [key for key in known if key.startswith(f"{name}.")]
    if inside:
        return UserError(f"{name} is a table of keys, not a value", in_settings(known[inside[0]]))
    section = name.rpartition(".")[0]
    here = [key.rpartition(".")[2] for key in known if key.rpartition(".")[0] == section]
    meant = meant_keys(name, known)
    hint = "'gcnmpi info' lists the keys"
    if meant:
        hint = f"did you mean {' or '.join(map(repr, meant))}?"
    elif here and section:
        hint = f"keys of {section}: {', '.join(here)}"
    return UserError(f"unknown config key {name!r}", hint)


def split_words(text: str) -> list[str]:
    """Words between commas; commas in brackets do not separate.

    >>> split_words("64,[64,64]")
    ['64', '[64,64]']
    """
    return re.split(r",(?![^\[]*\])", text)
