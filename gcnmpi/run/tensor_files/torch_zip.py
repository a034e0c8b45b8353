"""State dicts that ``torch.save`` wrote, read without torch and without running code.

Since torch 1.6 the file is a zip archive: ``NAME/data.pkl``, a pickle that describes the objects,
and the numbers of each storage in ``NAME/data/KEY``, uncompressed. A pickle is a program that calls
what it names. Here every name stands for something harmless of this module, which keeps what it is
given; what is not in the table is refused. Tensors become arrays at the end, when each has been
compared with the bytes of its storage.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gcnmpi.run.tensor_files.numbers import BFLOAT16, array_of, item_bytes
from partition.errors import UserError
from partition.records import open_regular

KINDS = {
    "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": BFLOAT16,
    "LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1",
    "ByteStorage": "u1", "BoolStorage": "b1",
}  # fmt: skip
# What programs wrap a state dict in, beside the state of an optimizer and counters.
WRAPPED = ("state_dict", "model_state_dict", "model")


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a state dict, or of the one that a checkpoint holds under a usual name.

    Raises
    ------
    UserError
        If the file is not in the zip format, names anything that a state dict of tensors has no
        use for, holds something else, or is damaged.
    """
    try:
        with open_regular(path) as file:
            if not zipfile.is_zipfile(file):
                raise UserError(
                    f"{path} is not in torch's zip format",
                    "if an older torch wrote it: load it there and torch.save it with 1.6 or later",
                )
            with zipfile.ZipFile(file) as archive:
                return _Archive(path, archive, os.fstat(file.fileno()).st_size).read()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, EOFError) as error:
        raise UserError(f"{path} is truncated or damaged: {error}") from error


class _Dict(dict):
    """Stands for an ordered dictionary; what torch hangs on one is not kept."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Stands for a class of storages: the code of its numbers."""

    code: str


@dataclass(frozen=True, slots=True)
class _Storage:
    kind: _Kind
    key: str


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Stands for a tensor: what ``_rebuild_tensor_v2`` is called with."""

    storage: Any
    offset: Any
    shape: Any
    strides: Any


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, shape, strides)


def _parameter(data: Any, *_: Any) -> Any:
    return data


ADMITTED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Dict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
} | {("torch", name): _Kind(code) for name, code in KINDS.items()}


class _NotAdmittedError(Exception):
    """A pickle names something that is not in the table."""


class _Unpickler(pickle._Unpickler):
    # The one written in Python: the one in C reserves memory for whatever a pickle announces.
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise _NotAdmittedError(f"{module}.{name}")
        return ADMITTED[module, name]

    def load_build(self) -> None:
        """Attributes are set on nothing: what stands for something else is the same for all."""
        self.stack.pop()
        if not isinstance(self.stack[-1], _Dict):
            raise ValueError("it sets attributes of what has none")

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}

    def persistent_load(self, pid: Any) -> _Storage:
        word, kind, key, *_ = pid
        if word != "storage" or not isinstance(kind, _Kind) or not isinstance(key, str):
            raise ValueError(f"what {pid!r} refers to is no storage")
        return _Storage(kind, key)


class _Archive:
    def __init__(self, path: Path, archive: zipfile.ZipFile, size: int) -> None:
        self._path, self._archive, self._size = path, archive, size
        pickles = [n for n in archive.namelist() if n.split("/")[1:] == ["data.pkl"]]
        if len(pickles) != 1 or any(n.split("/")[1:2] == ["code"] for n in archive.namelist()):
            raise UserError(
                f"{path} holds no state dict",
                "save tensors only: torch.save(model.state_dict(), FILE)",
            )
        self._name = pickles[0].split("/")[0]
        order = f"{self._name}/byteorder"
        if order in archive.namelist() and self._member("byteorder") != b"little":
            raise UserError(f"{path} has numbers in big-endian order, which is not read here")
        self._storages: dict[str, bytes] = {}

    def read(self) -> dict[str, np.ndarray]:
        found = self._unpickled()
        if isinstance(found, dict):
            inner = [found[name] for name in WRAPPED if isinstance(found.get(name), dict)]
            found = inner[0] if inner else found
        if not isinstance(found, dict) or not all(
            isinstance(name, str) and isinstance(value, _Tensor) for name, value in found.items()
        ):
            raise UserError(
                f"{self._path} holds something else than a dict of tensors",
                "save tensors only: torch.save(model.state_dict(), FILE)",
            )
        return {name: self._array(name, tensor) for name, tensor in found.items()}

    def _unpickled(self) -> Any:
        raw = self._member("data.pkl")
        try:
            return _Unpickler(io.BytesIO(raw), encoding="utf-8").load()
        except _NotAdmittedError as error:
            raise UserError(
                f"{self._path} names {error}, which a state dict of tensors has no use for: "
                "nothing of it was run",
                "save tensors only, torch.save(model.state_dict(), FILE); a pickle can run "
                "anything: do not open it elsewhere before you know its origin",
            ) from error
        except (OSError, MemoryError):
            raise
        except Exception as error:  # a damaged pickle can raise anything
            raise UserError(f"{self._path} is truncated or damaged: {error}") from error

    def _member(self, name: str) -> bytes:
        """The bytes of a member, of which there are no more than the file has."""
        try:
            entry = self._archive.getinfo(f"{self._name}/{name}")
        except KeyError as error:
            raise UserError(f"{self._path} is damaged: it has no {name}") from error
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > self._size:
            raise UserError(f"{self._path} is damaged: torch does not compress {name}")
        return self._archive.read(entry)

    def _array(self, name: str, tensor: _Tensor) -> np.ndarray:
        storage, offset, shape, strides = (
            tensor.storage, tensor.offset, tensor.shape, tensor.strides,
        )  # fmt: skip
        tuples = isinstance(shape, tuple) and isinstance(strides, tuple)
        numbers = (offset, *shape, *strides) if tuples else (None,)
        whole = all(type(number) is int and number >= 0 for number in numbers)
        if not isinstance(storage, _Storage) or not whole or len(shape) != len(strides):
            raise UserError(f"{self._path} is damaged: {name} is no tensor of a storage")
        if storage.key not in self._storages:
            self._storages[storage.key] = self._member(f"data/{storage.key}")
        raw, kind = self._storages[storage.key], storage.kind.code
        count = len(raw) // item_bytes(kind)
        inside = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        # A stride of 0 repeats numbers: a small file could grow without end.
        if math.prod(shape) > count or (0 not in shape and offset + sum(inside) >= count):
            raise UserError(f"{self._path} is damaged: {name} lies outside of its storage")
        flat = array_of(raw[: count * item_bytes(kind)], kind)[offset:]
        steps = [stride * flat.itemsize for stride in strides]
        view = np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False)
        return view.astype(view.dtype.newbyteorder("="), order="C")
