"""The options of a method, and the keys of the configuration beside them, checked together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from gcnmpi.options.config import Config, keys
from gcnmpi.options.requests import SplitRequest, check_suffix
from gcnmpi.options.scheme import ExchangeOptions
from gcnmpi.options.settings import Key, checked, in_settings, keys_of, parsed, spelled
from gcnmpi.propagation.interface import OPTIONAL, Matrix, Method
from gcnmpi.propagation.methods import METHODS
from partition.errors import UserError, nearest, unknown_name

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
        own, given = keys_of(method.options), dict(values or {})
        texts = {setting: setting.partition("=")[0].strip() for setting in settings}
        others = [setting for setting in settings if texts[setting] not in own]
        found = checked(own, parsed(own, [s for s in settings if s not in others]), in_settings)
        found |= checked(own, [(k, given.pop(k)) for k in [*given] if k in own], in_settings)
        for key in [*(texts[setting] for setting in others), *given]:
            _check_key(name, method, key, list(own))
        options = method.options(**found)
        _check_needs(options, found, own)
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


def _check_key(name: str, method: Method, key: str, options: list[str]) -> None:
    """A UserError for what is no option and no key, or a key that has no effect."""
    known = keys()
    if key not in known and "." not in key and key not in {k.partition(".")[0] for k in known}:
        near = nearest(key, options)
        owners = [other for other in METHODS if key in keys_of(METHODS.get(other).options)]
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


def _check_needs(options: object, given: Iterable[str], own: Mapping[str, Key]) -> None:
    """A UserError for an option that has no effect with the value of another one."""
    for key in given:
        other, wanted = own[key].limits.get("needs", ("", None))
        if not other:
            continue
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
