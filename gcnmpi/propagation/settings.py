"""The options of a method, and the keys of the configuration beside them, checked together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

from gcnmpi.options.config import Config, keys
from gcnmpi.options.methods import METHODS
from gcnmpi.options.requests import SplitRequest, check_suffix
from gcnmpi.options.scheme import ExchangeOptions
from gcnmpi.options.settings import checked, plain, read_value, spelled
from gcnmpi.propagation.interface import OPTIONAL, Matrix, Method
from partition.errors import UserError, nearest, unknown_name

Fields = Mapping[str, dataclasses.Field]
# Keys that say nothing of a propagation: it learns nothing.
_OF_TRAINING = ("model.", "task.", "train.")
FILE_OPTIONS = ("seeds", "predictions", "checkpoint")
_FIXED = ("graph.normalize", "graph.self_loops")


@dataclass(frozen=True, kw_only=True)
class PropagateRequest(SplitRequest):
    """A method, its options, and the configuration with the method's matrix.

    All are checked as far as the words go.
    """

    name: str
    options: Any
    out: Path | None = None
    force: bool = False

    own_settings: ClassVar[bool] = True

    @classmethod
    def read(
        cls,
        file: str | os.PathLike | None,
        settings: Iterable[str] = (),
        *,
        values: Mapping[str, object] | None = None,
        under: Mapping[str, object] | None = None,
        **more: Any,
    ) -> Self:
        """Read options of the method, and keys.

        Settings are such as ``"damping=0.9"`` or ``"scheme.name=bcast"``: an option, or a key. The
        TOML file is one of keys; those of training are not looked at. Values, by option or full
        name of a key, go before settings. A UserError names what is no method, option or key, or
        has no effect.
        """
        name = more.pop("method")
        method: Method = METHODS.get(name)
        fields = {entry.name: entry for entry in dataclasses.fields(method.options)}
        own, others = _split(settings, fields)
        given = dict(values or {})
        hints = get_type_hints(method.options)
        found = {key: read_value(text, hints[key]) for key, text in own.items()}
        found |= {key: plain(given.pop(key)) for key in [*given] if key in fields}
        found = {k: _checked(k, v, hints[k], fields[k].metadata) for k, v in found.items()}
        known = [key for key, _, _ in keys()]
        for key in [*(text.partition("=")[0].strip() for text in others), *given]:
            _check_key(name, method, key, list(fields), known)
        options = method.options(**found)
        _check_needs(name, options, found, fields)
        request = super().read(
            file, others, values=given, under=under, name=name, options=options, **more
        )
        config = _of_method(request.config, method, request.given)
        return dataclasses.replace(request, config=config)

    def __post_init__(self) -> None:
        """Refuse a file that cannot be written."""
        check_suffix("--out", self.out, self.method.suffixes)
        super().__post_init__()

    @property
    def method(self) -> Method:
        """The method of that name."""
        return METHODS.get(self.name)

    @property
    def checkpoints(self) -> tuple[Path, float] | None:
        """The folder of checkpoints, and the seconds between two; None: there are to be none."""
        folder = getattr(self.options, "checkpoint", "")
        return (Path(folder), self.options.every) if folder else None

    @property
    def files_of_options(self) -> dict[str, Path]:
        """Files that options name."""
        named = {name: getattr(self.options, name, "") for name in FILE_OPTIONS}
        return {name: Path(path) for name, path in named.items() if path}

    @property
    def files(self) -> dict[str, Path | None]:
        """Also the files that options name."""
        return super().files | self.files_of_options


def _split(settings: Iterable[str], fields: Fields) -> tuple[dict[str, str], list[str]]:
    """Texts of options by name, and all other settings."""
    own: dict[str, str] = {}
    others = []
    for setting in settings:
        key, equals, text = (part.strip() for part in setting.partition("="))
        if key not in fields:
            others.append(setting)
        elif not equals:
            example = spelled(fields[key].metadata["example"])
            raise UserError(
                f"--set {setting!r} is not of the form key=value", f"such as --set {key}={example}"
            )
        elif key in own:
            raise UserError(f"--set {key} is given twice", "give each key once")
        else:
            own[key] = text
    return own, others


def _checked(key: str, value: object, hint: object, limits: Mapping[str, object]) -> object:
    try:
        return checked(key, value, hint, limits)
    except UserError as error:
        example = f"such as --set {key}={spelled(limits['example'])}"
        raise UserError(error.message, error.hint or example) from None


def _check_key(name: str, method: Method, key: str, options: list[str], known: list[str]) -> None:
    """A UserError for what is no option and no key, or a key that has no effect."""
    if key not in known and "." not in key and key not in {k.partition(".")[0] for k in known}:
        near = nearest(key, options)
        owners = [other for other in METHODS if _has(other, key)]
        if owners and near is None:
            raise UserError(
                f"{key} is an option of {', '.join(owners)}, not of {name}",
                f"options of {name}: {', '.join(options) or 'none'}",
            )
        raise unknown_name(f"option of {name}", key, options)
    if key in OPTIONAL:
        if key not in method.reads:
            raise UserError(f"{key} has no effect on {name}", f"leave {key} out")
    elif key.startswith(_OF_TRAINING) and key in known:
        raise UserError(f"{key} has no effect on a propagation", f"leave {key} out")
    if key in _FIXED and method.matrix.fixed:
        raise UserError(f"{key} has no effect: {name} has a matrix of its own", f"leave {key} out")


def _has(name: str, key: str) -> bool:
    return key in {entry.name for entry in dataclasses.fields(METHODS.get(name).options)}


def _check_needs(name: str, options: object, given: Iterable[str], fields: Fields) -> None:
    """A UserError for an option that has no effect with the value of another one."""
    for key in given:
        needs = fields[key].metadata["needs"]
        if needs is None:
            continue
        other, wanted = needs
        if wanted is None:  # any value but none
            if not getattr(options, other):
                raise UserError(f"{key} has no effect without {other}", f"leave {key} out")
            continue
        values = wanted if isinstance(wanted, tuple) else (wanted,)
        if getattr(options, other) not in values:
            now, hint = spelled(getattr(options, other)), spelled(values[0])
            raise UserError(
                f"{key} has no effect with {other} = {now}",
                f"--set {other}={hint}, or leave {key} out",
            )


def _of_method(config: Config, method: Method, given: Iterable[str]) -> Config:
    """The configuration with the matrix of the method, its dtype, and an exchange that it can."""
    matrix: Matrix = method.matrix
    graph, scheme = config.graph, config.scheme
    if matrix.fixed or "graph.normalize" not in given:
        graph = dataclasses.replace(graph, normalize=matrix.normalize)
    if matrix.fixed or "graph.self_loops" not in given:
        graph = dataclasses.replace(graph, self_loops=matrix.self_loops)
    if graph.direction == "auto":
        graph = dataclasses.replace(graph, direction=matrix.direction)
    if method.rows and isinstance(scheme, ExchangeOptions) and scheme.exchange == "auto":
        scheme = dataclasses.replace(scheme, exchange="rows")
    dtype = config.dtype if "dtype" in given else method.dtype
    return dataclasses.replace(config, graph=graph, scheme=scheme, dtype=dtype)
