"""What ``torch.save`` wrote, read without torch and without running code.

Since torch 1.6 the file is a zip archive: ``NAME/data.pkl``, a pickle that describes the objects,
and the numbers of each storage in ``NAME/data/KEY``, uncompressed. A pickle is a program that calls
what it names. Here every name stands for something harmless of this module, which keeps what it is
given; what is not in the table is refused. Tensors become arrays at the end, when each has been
compared with the bytes of its storage.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import pickle
import zipfile
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from partition.errors import UserError
from partition.records import open_regular
from partition.tensor_files.numbers import BFLOAT16, array_of, item_bytes

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
    with open_torch(path) as file:
        found = file.content
        if isinstance(found, dict):
            inner = [found[name] for name in WRAPPED if isinstance(found.get(name), dict)]
            found = inner[0] if inner else found
        if not isinstance(found, dict) or not all(
            isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
        ):
            raise UserError(f"{path} holds something else than a dict of tensors", SAVE_STATE)
        return {name: file.array(name, tensor) for name, tensor in found.items()}


@contextlib.contextmanager
def open_torch(
    path: Path, classes: Container[tuple[str, str]] = (), what: Meant | None = None
) -> Iterator[TorchFile]:
    """Open a file of tensors in containers: ``content``, and ``array`` for the tensors in it.

    Parameters
    ----------
    classes : container of (module, name)
        Of objects that may be in the file: an :class:`Instance` stands for each, and nothing of the
        class is run.
    what : Meant, optional
        What the file should hold, for messages.

    Raises
    ------
    UserError
        If the file is not in the zip format, names anything else than tensors, containers and
        ``classes``, or is damaged.
    """
    try:
        with open_regular(path) as file:
            if not zipfile.is_zipfile(file):
                raise UserError(
                    f"{path} is not in torch's zip format",
                    "if an older torch wrote it: load it there and torch.save it with 1.6 or later",
                )
            with zipfile.ZipFile(file) as archive:
                size = os.fstat(file.fileno()).st_size
                yield TorchFile(path, archive, size, classes, what or Meant())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, EOFError) as error:
        raise UserError(f"{path} is truncated or damaged: {error}") from error


SAVE_STATE = "save tensors only: torch.save(model.state_dict(), FILE)"


@dataclass(frozen=True)
class Meant:
    """What a file should hold, in the words of messages, and how it is saved so."""

    noun: str = "a state dict of tensors"
    hint: str = SAVE_STATE


class Instance:
    """Stands for an object of a class: its state, which is data like the rest.

    Attributes
    ----------
    state : Any
    """

    def __init__(self, *_: Any) -> None:
        self.state: Any = None


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
class Tensor:
    """Stands for a tensor: what ``_rebuild_tensor_v2`` is called with."""

    storage: Any
    offset: Any
    shape: Any
    strides: Any


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    return Tensor(storage, offset, shape, strides)


def _parameter(data: Any, *_: Any) -> Any:
    return data


ADMITTED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Dict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch", "Size"): tuple,
} | {("torch", name): _Kind(code) for name, code in KINDS.items()}


class _NotAdmittedError(Exception):
    """A pickle names something that is not in the table."""


class _Unpickler(pickle._Unpickler):
    # The one written in Python: the one in C reserves memory for whatever a pickle announces.
    stack: list[Any]
    classes: Container[tuple[str, str]] = ()

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.classes:
            return Instance
        if (module, name) not in ADMITTED:
            raise _NotAdmittedError(f"{module}.{name}")
        return ADMITTED[module, name]

    def load_build(self) -> None:
        """Attributes are set on nothing: what stands for something else is the same for all."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], Instance):
            self.stack[-1].state = state
        elif not isinstance(self.stack[-1], _Dict):
            raise ValueError("it sets attributes of what has none")

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}

    def persistent_load(self, pid: Any) -> _Storage:
        word, kind, key, *_ = pid
        if word != "storage" or not isinstance(kind, _Kind) or not isinstance(key, str):
            raise ValueError(f"what {pid!r} refers to is no storage")
        return _Storage(kind, key)


class TorchFile:
    """An open file: what it holds, with a :class:`Tensor` in place of each tensor."""

    def __init__(
        self,
        path: Path,
        archive: zipfile.ZipFile,
        size: int,
        classes: Container[tuple[str, str]],
        what: Meant,
    ) -> None:
        self._path, self._archive, self._size, self._what = path, archive, size, what
        pickles = [n for n in archive.namelist() if n.split("/")[1:] == ["data.pkl"]]
        if len(pickles) != 1 or any(n.split("/")[1:2] == ["code"] for n in archive.namelist()):
            raise UserError(f"{path} holds no {what.noun.split(' ', 1)[1]}", what.hint)
        self._name = pickles[0].split("/")[0]
        order = f"{self._name}/byteorder"
        if order in archive.namelist() and self._member("byteorder") != b"little":
            raise UserError(f"{path} has numbers in big-endian order, which is not read here")
        self._storages: dict[str, bytes] = {}
        self.content = self._unpickled(classes)

    def _unpickled(self, classes: Container[tuple[str, str]]) -> Any:
        unpickler = _Unpickler(io.BytesIO(self._member("data.pkl")), encoding="utf-8")
        unpickler.classes = classes
        try:
            return unpickler.load()
        except _NotAdmittedError as error:
            raise UserError(
                f"{self._path} names {error}, which {self._what.noun} has no use for: "
                "nothing of it was run",
                f"{self._what.hint}; a pickle can run "
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

    def array(self, name: str, tensor: Tensor) -> np.ndarray:
        """The numbers of a tensor, which messages call ``name``; bfloat16 as float32."""
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
