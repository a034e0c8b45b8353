"""Files of ``torch.save``, read without torch and without running code.

Since torch 1.6 the file is a zip archive: ``NAME/data.pkl``, a pickle that describes the objects,
and the numbers of each storage in ``NAME/data/KEY``, uncompressed. The pickle is read as data, see
:mod:`partition.tensor_files.pickles`. Tensors become arrays at the end, when each has been compared
with the bytes of its storage.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from partition.errors import UserError
from partition.records import open_regular, zip_errors
from partition.resident import check_memory
from partition.tensor_files.pickles import DICT, Made, Meant, Named, read_pickle

BFLOAT16 = "bf16"  # the upper half of a float32
KINDS = {
    "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": BFLOAT16,
    "LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1",
    "ByteStorage": "u1", "BoolStorage": "b1",
}  # fmt: skip
NAMES = {
    ("collections", "OrderedDict"): DICT,
    ("torch._utils", "_rebuild_tensor_v2"): "tensor",
    ("torch._utils", "_rebuild_parameter"): "parameter",
    ("torch", "Size"): "size",
} | {("torch", name): kind for name, kind in KINDS.items()}
NOTHING: Mapping[tuple[str, str], str] = {}
INSTANCE = "instance"  # the word for objects of a reader's classes
STATE = Meant("a state dict of tensors", "save tensors only: torch.save(model.state_dict(), FILE)")
# Names under which programs put a state dict beside the state of an optimizer and counters.
WRAPPED = ("state_dict", "model_state_dict", "model")
# All tensors together may be so many bytes, and so many times as long as the file: bfloat16 becomes
# float32, and some tensors are there twice, but a small file must not grow without end.
FREE_TENSORS, TENSORS_RATIO = 1 << 26, 8
OLD_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of a file before torch 1.6
LONGEST_SHAPE = 32  # dimensions, as in NumPy


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a state dict, or of the one that a checkpoint holds under a usual name.

    A UserError if the file is not in the zip format, names anything that a state dict of tensors
    has no use for, holds something else, or is damaged.
    """
    with open_torch(path) as file:
        found = file.content
        if isinstance(found, dict):
            inner = [found[name] for name in WRAPPED if isinstance(found.get(name), dict)]
            found = inner[0] if inner else found
        if not isinstance(found, dict) or not all(
            isinstance(name, str) and is_tensor(value) for name, value in found.items()
        ):
            raise UserError(f"{path} holds something else than a dict of tensors", STATE.hint)
        return {name: file.array(name, tensor) for name, tensor in found.items()}


def is_tensor(value: object) -> bool:
    """Whether something in a file is a tensor."""
    return isinstance(value, Made) and value.word in ("tensor", "parameter")


@contextlib.contextmanager
def open_torch(
    path: Path,
    classes: Iterable[tuple[str, str]] = (),
    meant: Meant = STATE,
    others: Mapping[tuple[str, str], str] = NOTHING,
) -> Iterator[TorchFile]:
    """Open a file of tensors in containers: ``content``, and ``array`` for the tensors in it.

    Objects of ``classes``, each a (module, name), may be in it, too: a :class:`Made` with the word
    ``INSTANCE`` stands for each, and nothing of the class is run; and calls of ``others``, with the
    words that these have. A UserError if the file is not in
    the zip format, names anything else, or is damaged; ``meant`` is for messages.
    """
    with zip_errors(path), open_regular(path) as file:
        if not zipfile.is_zipfile(file):
            raise UserError(
                f"{path} is not in torch's zip format",
                "if an older torch wrote it: load it there and torch.save it with 1.6 or later",
            )
        with zipfile.ZipFile(file) as archive:
            size = os.fstat(file.fileno()).st_size
            yield TorchFile(path, archive, size, names_of(classes, others), meant)


def names_of(
    classes: Iterable[tuple[str, str]], others: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], str]:
    """All that a pickle of torch may name, with the words for it."""
    return NAMES | dict.fromkeys(classes, INSTANCE) | dict(others)


def read_old_torch(
    path: Path,
    classes: Iterable[tuple[str, str]],
    meant: Meant,
    others: Mapping[tuple[str, str], str],
) -> object:
    """The content of a file of ``torch.save`` before 1.6: the fourth of the pickles in it.

    Its tensors, whose numbers follow, are not read; arrays of NumPy are in the pickle itself.
    """
    names = names_of(classes, others)
    with zip_errors(path), open_regular(path) as file:
        check_memory(os.fstat(file.fileno()).st_size, f"{path}: its content")
        stream = io.BytesIO(file.read())  # which gives what it has, whatever length is announced
    magic = read_pickle(stream, path, names, meant)
    if type(magic) is not int or magic != OLD_MAGIC:
        raise UserError(f"{path} is not a file of torch", meant.hint)
    for _ in range(2):  # a version; sizes of types
        read_pickle(stream, path, names, meant)
    return read_pickle(stream, path, names, meant)


class TorchFile:
    """An open file and its content, in which :func:`is_tensor` tells the values for ``array``."""

    def __init__(
        self,
        path: Path,
        archive: zipfile.ZipFile,
        size: int,
        names: Mapping[tuple[str, str], str],
        meant: Meant,
    ) -> None:
        self.path, self._archive, self._size = path, archive, size
        # Bytes that may still be read of it, and be made of them.
        self._unread, self._unmade = size, max(FREE_TENSORS, TENSORS_RATIO * size)
        pickles = [n for n in archive.namelist() if n.split("/")[1:] == ["data.pkl"]]
        if len(pickles) != 1 or any(n.split("/")[1:2] == ["code"] for n in archive.namelist()):
            raise UserError(f"{path} holds no {meant.noun.split(' ', 1)[1]}", meant.hint)
        self._name = pickles[0].split("/")[0]
        order = f"{self._name}/byteorder"
        if order in archive.namelist() and self._member("byteorder") != b"little":
            raise UserError(f"{path} has numbers in big-endian order, which is not read here")
        self._storages: dict[tuple[str, str], np.ndarray] = {}
        self.content = read_pickle(self._member("data.pkl"), path, names, meant)

    def _member(self, name: str) -> bytes:
        """The bytes of a member; of all members together, no more than the file has."""
        try:
            entry = self._archive.getinfo(f"{self._name}/{name}")
        except KeyError as error:
            raise UserError(f"{self.path} is damaged: it has no {name}") from error
        plain = entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
        if not plain or entry.file_size > self._unread:
            raise UserError(f"{self.path} is damaged: torch does not compress {name}")
        self._unread -= entry.file_size
        return self._archive.read(entry)

    def array(self, name: str, tensor: object) -> np.ndarray:
        """The numbers of a tensor, which messages call ``name``; bfloat16 as float32."""
        if isinstance(tensor, Made) and tensor.word == "parameter" and tensor.arguments:
            tensor = tensor.arguments[0]
        match tensor:
            case Made(
                "tensor",
                (
                    Made("persistent", (("storage", Named(word), str(key), *_),)),
                    int(offset),
                    tuple(shape),
                    tuple(strides),
                    *_,
                ),
            ) if word in KINDS.values() and len(key) < 100 and _are_sizes(offset, shape, strides):
                pass
            case _:
                raise UserError(f"{self.path} is damaged: {name} is no tensor of a storage")
        if (key, word) not in self._storages:
            raw = self._member(f"data/{key}")
            count = len(raw) // item_bytes(word)
            self._storages[key, word] = array_of(raw[: count * item_bytes(word)], word)
        flat = self._storages[key, word]
        inside = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        # A stride of 0 repeats numbers, as Tensor.expand does; what is made of them is bounded.
        least, empty = math.prod(filter(None, shape)), 0 in shape
        stored = math.prod(e for e, stride in zip(shape, strides, strict=True) if stride and e)
        fits = least < 2**59
        if not empty:
            fits = fits and stored <= len(flat) and offset + sum(inside) < len(flat)
        if not fits:
            raise UserError(f"{self.path} is damaged: {name} lies outside of its storage")
        if empty:
            return np.empty(shape, flat.dtype.newbyteorder("="))
        self._unmade -= least * flat.itemsize
        if self._unmade < 0:
            raise UserError(
                f"{self.path} holds tensors of more than {TENSORS_RATIO} times its size, which "
                "share their numbers",
                "save copies: {name: tensor.clone() for name, tensor in state.items()}",
            )
        # A step along one row goes nowhere, however long it is.
        steps = [flat.itemsize * (stride if extent > 1 else 0)
                 for extent, stride in zip(shape, strides, strict=True)]  # fmt: skip
        view = np.lib.stride_tricks.as_strided(flat[offset:], shape, steps, writeable=False)
        return view.astype(view.dtype.newbyteorder("="), order="C")


def _are_sizes(offset: int, shape: tuple[object, ...], strides: tuple[object, ...]) -> bool:
    """Whether these are the offset, the extents and the strides of a tensor."""
    return len(shape) == len(strides) <= LONGEST_SHAPE and all(
        type(number) is int and 0 <= number < 2**63 for number in (offset, *shape, *strides)
    )


def array_of(raw: bytes | memoryview, kind: str) -> np.ndarray:
    """The flat array of bytes in little-endian order.

    ``kind`` is a NumPy code such as "<f4"; or "bf16": the upper half of a float32, which the result
    is.
    """
    if kind != BFLOAT16:
        return np.frombuffer(raw, kind)
    upper = np.frombuffer(raw, "<u2").astype("<u4")
    return (upper << 16).view("<f4")


def item_bytes(kind: str) -> int:
    """Bytes of a number in the file."""
    return 2 if kind == BFLOAT16 else np.dtype(kind).itemsize
