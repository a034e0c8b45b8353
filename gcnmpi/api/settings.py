"""The configuration of a call: a file or a mapping, and keywords over it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

from gcnmpi.mpi.comm import Comm, agreed
from gcnmpi.options.config import Config, key_fields, read_config
from gcnmpi.options.own_code import handed_over
from gcnmpi.run.checkpoint import flat
from partition.errors import UserError, meant_keys

Settings = str | os.PathLike | Mapping[str, object] | None
Network = str | Callable | None


@contextlib.contextmanager
def configured(
    comm: Comm,
    config: Settings,
    model: Network,
    keywords: Mapping[str, object],
    under: Mapping[str, object] | None = None,
    settings: tuple[str, ...] = (),
) -> Iterator[tuple[Config, dict[str, object]]]:
    """The configuration, and the full names of the keys that were given, the same on all ranks.

    It holds in this block: a network that is a function has a name in it. ``config``, ``model`` and
    the keywords are those of :func:`gcnmpi.train`; ``under`` stands in place of defaults,
    and ``settings`` over a file.
    """
    with contextlib.ExitStack() as stack:
        with agreed(comm):
            file, values = file_or_keys(config)
            names = {name.replace(".", "_"): name for name, _, _ in key_fields()}
            for word, value in keywords.items():
                if word not in names:
                    raise _unknown_keyword(word, value, names)
                values[names[word]] = value
            if model is not None:
                if "model.name" in values:
                    raise UserError("model and model.name say the same: give one of them")
                is_name = isinstance(model, str)
                values["model.name"] = model if is_name else stack.enter_context(handed_over(model))
            found = read_config(file, settings, values=values, under=under)
        yield found


def file_or_keys(config: Settings) -> tuple[str | os.PathLike | None, dict[str, object]]:
    """The file of a configuration, or the full names of keys and their values."""
    if isinstance(config, str | os.PathLike):
        return config, {}
    return None, dict(flat(config or {}))


def _unknown_keyword(word: str, value: object, names: Mapping[str, str]) -> UserError:
    """The error for a keyword that is no key of the configuration, with those that may be meant."""
    spelled = {name: keyword for keyword, name in names.items()}
    section, _, last = word.partition("_")
    dotted = f"{section}.{last}" if any(k.startswith(f"{section}.") for k in spelled) else word
    meant = [spelled[key] for key in meant_keys(dotted, spelled) if key in spelled]
    hint = "keys of the configuration with a _ for the dot: 'gcnmpi info' lists them"
    if isinstance(value, Mapping):
        hint = f"config={{{word!r}: {value!r}}}"
    elif meant:
        shown = value if isinstance(value, str | int | float | list | tuple) else "…"
        words = [f"{keyword}={shown!r}" for keyword in meant]
        hint = f"did you mean {' or '.join(words)}?"
    return UserError(f"unknown keyword {word!r}", hint)
