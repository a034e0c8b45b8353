"""Partitioning tools: each is one file that defines a ``TOOL``, and one line in the table here."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files

import numpy as np

from partition.errors import UserError, check_name, unknown_name
from partition.registry import Registry, Setting, Settings

TOOLS = Registry(
    "tool",
    {
        "random": "partition.backends.rows:RANDOM",
        "block": "partition.backends.rows:BLOCK",
        "metis": "partition.backends.metis:TOOL",
        "kaminpar": "partition.backends.kaminpar:TOOL",
        "mtkahypar": "partition.backends.mtkahypar:TOOL",
        "kahypar": "partition.backends.kahypar:TOOL",
    },
    extras={"kahypar": "kahypar", "kaminpar": "kaminpar"},
)

# Arcs of a graph beyond which tools are spared work that takes long and gains little there.
HUGE = 10_000_000


@dataclass(frozen=True)
class Option:
    """An option of a tool: its default, what it may be, and one line of help.

    Attributes
    ----------
    default : str, int or float
        A value given as text is converted to the type of the default.
    choices : tuple
        The values there are; empty where any of the type will do.
    least : int, optional
        The smallest number that it may be.
    by_size : (value, value), optional
        What the default stands for: on graphs of up to ``HUGE`` arcs, and on larger ones.
    """

    default: Setting
    help: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    by_size: tuple[Setting, Setting] | None = None

    def __post_init__(self) -> None:
        if self.by_size is not None:
            usual, huge = self.by_size
            text = f"{self.help}; {self.default}: {usual}, or {huge} beyond {HUGE:,} arcs"
            object.__setattr__(self, "help", text)

    def decided(self, value: Setting, arcs: int) -> Setting:
        """The value, or what the default stands for on a graph of so many arcs."""
        if self.by_size is None or value != self.default:
            return value
        return self.by_size[arcs > HUGE]


@dataclass(frozen=True)
class Tool:
    """A partitioning tool.

    Attributes
    ----------
    partition : callable
        ``partition(model, k, *, imbalance, seed, **options)`` → (n,) part numbers in 0..k−1,
        for a model of ``partition.models``, 1 < k ≤ n. ``imbalance`` is what the heaviest row
        allows at least; ``options`` has a value for each name in the table below.
    options : mapping of str to Option
    distribution : str, optional
        The Python distribution whose version is recorded; the tool then runs in a process of
        its own, since foreign code may print, crash, or start threads once and for all. Tools
        without one are ours and run in place.
    balanced : bool
        Whether it heeds ``imbalance``.
    seeded : bool
        Whether it heeds ``seed``.
    deterministic : callable
        From the options to whether the same call gives the same parts again.
    memory : callable, optional
        From the options, the vertices of the model and its pins, or ends of edges, to the bytes
        that the tool takes at most, by measurements on graphs that shrink slowly when they are
        coarsened; None where that is not known.
    """

    partition: Callable[..., np.ndarray]
    options: Mapping[str, Option] = field(default_factory=dict)
    distribution: str | None = None
    balanced: bool = True
    seeded: bool = True
    deterministic: Callable[[Settings], bool] = lambda options: True
    memory: Callable[[Settings, int, int], float] | None = None


def check_options(
    name: str, table: Mapping[str, Option], given: Settings, kind: str = "tool"
) -> Settings:
    """All options of a tool: those given, converted and checked, and defaults for the others.

    ``table`` has the options of the tool, or model; messages name it by its ``kind``.
    """
    options = {key: option.default for key, option in table.items()}
    for key, value in given.items():
        if not options:
            raise UserError(f"the {kind} {name!r} has no options, {key!r} was given")
        check_name(f"option of the {kind} {name!r}", key, options)
        option = table[key]
        try:
            options[key] = type(option.default)(value)
        except ValueError as error:
            type_ = type(option.default).__name__
            message = f"option {key!r} of {name!r}: {value!r} is not of type {type_}"
            raise UserError(message) from error
        if option.choices and options[key] not in option.choices:
            raise unknown_name(f"{key} of the {kind} {name!r}", str(value), option.choices)
        if option.least is not None and int(options[key]) < option.least:
            raise UserError(f"{key} = {value}: it is at least {option.least}")
    return options


@contextlib.contextmanager
def settings_file(name: str, more: Settings) -> Iterator[str]:
    """The path of a file with the settings that lie here under a name, and with more.

    Some tools read their settings from files only.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(files("partition.backends").joinpath(name).read_text(encoding="utf-8"))
        file.writelines(f"{key}={value}\n" for key, value in more.items())
        file.flush()
        yield file.name
