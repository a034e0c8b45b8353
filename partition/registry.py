"""Tables of replaceable things: a name, where it is defined, resolved on first use.

A backend, reader, kernel or scheme is one file and one line in such a table; optional
libraries are imported only by the file that needs them, so only when it is asked for.
"""

import importlib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from partition.errors import UserError, check_name, installing, shortened

Setting = str | int | float  # the value of an option
Settings = dict[str, Setting]


@dataclass(frozen=True)
class Registry:
    """Names and the ``"module:attribute"`` each stands for.

    Attributes
    ----------
    kind : str
        What is in the table, for messages: ``"kernel"``.
    entries : mapping of str to str
        Name → ``"module:attribute"``.
    extras : mapping of str to str
        Name → the extra of this distribution that installs what the entry needs.
    options : dict of str to tuple of str and frozen dataclasses
        Name → the keys of the configuration that this entry has and not every other one. The fields
        of a dataclass are keys in the section that is its attribute ``section``, but for those that
        ``of_all`` names, which every entry has. Entries that are not named have none.
    """

    kind: str
    entries: dict[str, str]
    extras: Mapping[str, str] = field(default_factory=dict)
    options: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """The object that ``name`` stands for.

        Raises
        ------
        UserError
            If the name is unknown, or a library that it needs is not installed.
        """
        check_name(self.kind, name, self.entries)
        try:
            return resolved(self.entries[name])
        except ModuleNotFoundError as error:
            if _package(error.name or "") in OWN:
                raise
            extra = self.extras.get(name)
            hint = installing(extra) if extra else f"pip install {error.name}"
            message = f"{self.kind} {name!r} needs the Python package {error.name!r}"
            raise UserError(message, hint) from error
        except Exception as error:  # of a library that is installed in part, or too new or too old
            library = _foreign(error)
            if library is None:
                raise
            reason = shortened((str(error).splitlines() or [""])[0], 200)
            raise UserError(
                f"{self.kind} {name!r} needs the Python package {library!r}, which cannot be "
                f"imported: {type(error).__name__}: {reason}",
                f"pip install --force-reinstall {library}, or versions that go together",
            ) from error

    def kinds(self, name: str) -> tuple[Any, ...]:
        """The classes of the options of an entry."""
        return self.options.get(name, ())

    def keys(self, name: str) -> list[str]:
        """The keys of the configuration that an entry has and not every other one."""
        found: list[str] = []
        for options in self.kinds(name):
            own = () if isinstance(options, str) else fields(options)
            found += [options] if isinstance(options, str) else []
            found += [f"{options.section}.{o.name}" for o in own if o.name not in options.of_all]
        return found

    def owners(self, key: str) -> list[str]:
        """The entries that have a key of the configuration; none for a key of all."""
        return self._owners.get(key, [])

    @cached_property
    def _owners(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self.entries:
            for key in self.keys(name):
                found.setdefault(key, []).append(name)
        return found

    def available(self) -> dict[str, str | None]:
        """Every name, with None where it can be used and the reason where it cannot."""
        found: dict[str, str | None] = dict.fromkeys(self.entries)
        for name in found:
            try:
                self.get(name)
            except UserError as error:
                found[name] = error.message
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries


def resolved(entry: str) -> Any:
    """The object that ``"module:attribute"`` stands for."""
    module, attribute = entry.split(":")
    return getattr(importlib.import_module(module), attribute)


def _foreign(error: Exception) -> str | None:
    """The package outside of this distribution whose import failed with an error, if it was one."""
    frames = traceback.walk_tb(error.__traceback__)
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in frames]
    # The first of its modules behind the last of ours; or what lacks something that ours asks for.
    own = max(i for i, name in enumerate(modules) if _package(name) in OWN)
    missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
    lacking = getattr(error, "obj", None) if isinstance(error, AttributeError) else None
    names = [*modules[own + 1 :], missing, getattr(lacking, "__name__", None)]
    packages = (_package(name) for name in names if isinstance(name, str) and name)
    return next((name for name in packages if name not in (*OWN, "importlib")), None)


def _package(module: str) -> str:
    return module.removeprefix("_frozen_").split(".")[0]


OWN = ("partition", "gcnmpi")
