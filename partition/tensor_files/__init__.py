"""Files of tensors and of pickled data, read without running code, and without what wrote them.

:func:`read_tensors` reads trained weights: safetensors, npz, and files of ``torch.save``. No reader
allocates more than a file holds.

**Pickles** are read as data: nothing that they name is imported, called or set, whatever the file.
A pickle is a program for a machine with a stack. Here its instructions, which :mod:`pickletools`
takes apart, only put data together: texts, numbers, lists, tuples and dictionaries. A name stands
for a word of the reader's table, and a call for :class:`Made`, which keeps its arguments. A name
that is not in the table is refused, and so are instructions that no reader needs. The result may
refer to one object many times over: a small file can hold a tree of 2⁴⁰ leaves. So whoever looks
into it looks for one thing, by its type, and never compares, hashes, prints or walks values that
can be nested. The keys of dictionaries are short texts and small integers for this reason, or
records of calls, each of which equals itself only.

**Files of torch** since 1.6 are zip archives: ``NAME/data.pkl``, a pickle that describes the
objects, and the numbers of each storage in ``NAME/data/KEY``, uncompressed. Tensors become arrays
at the end, when each has been compared with the bytes of its storage.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from partition.errors import UserError, shortened, system_errors
from partition.records import Whole, open_regular, read_npz, zip_errors
from partition.resident import check_memory

# The (module, name) of what a pickle may name, and the word that stands for it.
_Words = Mapping[tuple[str, str], str]
DICT = "dict"  # the word for names whose call makes a dictionary
INSTANCE = "instance"  # the word for objects of a reader's classes
_LONGEST_KEY = 1000  # characters
_LARGEST_KEY = 1 << 31
_BFLOAT16 = "bf16"  # the upper half of a float32
_KINDS = {
    "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": _BFLOAT16,
    "LongStorage": "i8", "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1",
    "ByteStorage": "u1", "BoolStorage": "b1",
}  # fmt: skip
_NAMES = {
    ("collections", "OrderedDict"): DICT,
    ("torch._utils", "_rebuild_tensor_v2"): "tensor",
    ("torch._utils", "_rebuild_parameter"): "parameter",
    ("torch", "Size"): "size",
} | {("torch", name): kind for name, kind in _KINDS.items()}
# Names under which programs put a state dict beside the state of an optimizer and counters.
_WRAPPED = ("state_dict", "model_state_dict", "model")
# All tensors together may be so many bytes, and so many times as long as the file: bfloat16 becomes
# float32, and some tensors are there twice, but a small file must not grow without end.
_FREE_TENSORS, _TENSORS_RATIO = 1 << 26, 8
OLD_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of a file before torch 1.6
_LONGEST_SHAPE = 32  # dimensions, as in NumPy
_SAFETENSORS = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4",
    "I32": "<i4", "U64": "<u8", "I64": "<i8", "F16": "<f2", "BF16": _BFLOAT16, "F32": "<f4",
    "F64": "<f8",
}  # fmt: skip
_LONGEST_HEADER = 100_000_000  # bytes, as the format has it


@dataclass(frozen=True)
class Meant:
    """The expected content of a file, in the words of messages, and how it is saved so."""

    noun: str
    hint: str


_STATE = Meant("a state dict of tensors", "save tensors only: torch.save(model.state_dict(), FILE)")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Named:
    """A class or a function that a pickle names: the word that the table has for it."""

    word: str


@dataclass(slots=True, eq=False, repr=False)
class Made:
    """The record of a call: the word of the name that is called, its arguments, and its state.

    A persistent id is one with the word "persistent".
    """

    word: str
    arguments: tuple[object, ...]
    state: object = None


def read_pickle(raw: bytes | io.BytesIO, path: Path, names: _Words, meant: Meant) -> object:
    """The data that a pickle of Python 2 or 3 describes; texts of Python 2 as latin-1.

    A stream of bytes is read from where it stands to the end of the pickle; a file would allocate
    whatever length a pickle announces.
    ``names`` has the (module, name) of all that it may name, and the word that stands for each;
    ``DICT`` for dictionaries. A UserError, which names ``path``, if it names anything else, is
    damaged, or has instructions or keys that are not read.
    """
    argument: Any
    place: int | None = 0
    stack: list[object] = []
    waiting: list[list[object]] = []  # the stacks below each mark
    memo: dict[object, object] = {}
    try:
        for opcode, argument, place in pickletools.genops(raw):  # noqa: B007
            name = opcode.name
            if name in _VALUES:
                stack.append(_VALUES[name](argument))
            elif name in _PUTS:
                memo[len(memo) if argument is None else argument] = stack[-1]
            elif name in _GETS:
                stack.append(memo[argument])
            elif name in _STEPS:
                count, make = _STEPS[name]
                if count is None:
                    items, stack = stack, waiting.pop()
                else:
                    items = [stack.pop() for _ in range(count)][::-1]
                stack.append(make([stack.pop(), *items] if name in _ONTO else items))
            elif name == "MARK":
                waiting.append(stack)
                stack = []
            elif name == "GLOBAL":
                stack.append(_named(names, *argument.split(" ", 1)))
            elif name == "STACK_GLOBAL":
                last, module = stack.pop(), stack.pop()
                stack.append(_named(names, module, last))
            elif name == "DUP":
                stack.append(stack[-1])
            elif name == "POP_MARK" or (name == "POP" and not stack):
                stack = waiting.pop()
            elif name == "POP":
                stack.pop()
            elif name == "STOP":
                return stack.pop()
            elif name not in ("PROTO", "FRAME"):
                raise ValueError("an instruction that is not read")
        raise ValueError("no end")
    except _NotAdmittedError as error:
        raise UserError(
            f"{path} names {error}, which {meant.noun} has no use for: nothing of it was run",
            f"{meant.hint}; a pickle can run anything: do not open it elsewhere before you know "
            "its origin",
        ) from error
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        # The error itself may show content of the file.
        raise UserError(
            f"{path} is truncated or damaged, or not {meant.noun}, at byte {place} of the pickle",
            meant.hint,
        ) from error


class _NotAdmittedError(Exception):
    """A pickle names something that is not in the table."""


def _named(names: _Words, module: object, name: object) -> Named:
    if type(module) is not str or type(name) is not str:
        raise ValueError("a name that is no text")
    if (module, name) not in names:
        raise _NotAdmittedError(shortened(f"{module}.{name}"))
    return Named(names[module, name])


def _made(items: list[object]) -> object:
    called, arguments = items
    if type(called) is not Named or type(arguments) is not tuple:
        raise ValueError("a call of what cannot be called")
    return {} if called.word == DICT else Made(called.word, arguments)


def _set(items: list[object]) -> object:
    target, *entries = items
    if type(target) is not dict or len(entries) % 2:
        raise ValueError("items of what is no dictionary")
    for key, value in zip(entries[::2], entries[1::2], strict=True):
        # Three texts are an edge type of PyTorch Geometric. A record, of an enumeration, say, is
        # hashed by its place in memory.
        texts = key if type(key) is tuple and len(key) == 3 else (key,)
        good = all(type(text) is str and len(text) <= _LONGEST_KEY for text in texts)
        small = type(key) is int and abs(key) < _LARGEST_KEY
        if not (good or small or type(key) is Made):
            raise ValueError("a key that is neither a short text nor a small integer")
        target[key] = value
    return target


def _append(items: list[object]) -> object:
    target, *values = items
    if type(target) is not list:
        raise ValueError("items of what is no list")
    target.extend(values)
    return target


def _build(items: list[object]) -> object:
    target, state = items
    if type(target) is Made:
        target.state = state
    elif type(target) is not dict:  # the state of an ordered dictionary is not kept
        raise ValueError("a state of what has none")
    return target


# Instructions that put a value on the stack, and how it is made.
_GIVEN = (
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
)  # fmt: skip
_VALUES: dict[str, Callable[[Any], object]] = {
    **{name: lambda value: value for name in _GIVEN},
    "NONE": lambda _: None, "NEWTRUE": lambda _: True, "NEWFALSE": lambda _: False,
    "BYTEARRAY8": bytes,
}  # fmt: skip
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
# Instructions that take values off the stack, so many or all above the mark (None), and put one in
# their place; some take the one below them, too, and put it there again, changed.
_STEPS: dict[str, tuple[int | None, Callable[[list[object]], object]]] = {
    "EMPTY_TUPLE": (0, tuple), "TUPLE1": (1, tuple), "TUPLE2": (2, tuple), "TUPLE3": (3, tuple),
    "TUPLE": (None, tuple), "EMPTY_LIST": (0, list), "LIST": (None, list),
    "EMPTY_DICT": (0, lambda _: {}), "DICT": (None, lambda items: _set([{}, *items])),
    "REDUCE": (2, _made), "NEWOBJ": (2, _made),
    "BINPERSID": (1, lambda items: Made("persistent", tuple(items))),
    "APPEND": (1, _append), "APPENDS": (None, _append), "SETITEM": (2, _set),
    "SETITEMS": (None, _set), "BUILD": (1, _build),
}  # fmt: skip
_ONTO = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "BUILD"}


# NumPy has moved these modules; pickles keep the name of their day.
ARRAY_NAMES = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy.core.numeric", "_frombuffer"): "from buffer",
    ("numpy._core.numeric", "_frombuffer"): "from buffer",
    ("_codecs", "encode"): "encode",  # with which Python 3 writes bytes for Python 2
    ("__builtin__", "bytes"): "bytes",
}


def is_numpy_array(value: object) -> bool:
    """Whether something in a pickle is an array of NumPy."""
    return isinstance(value, Made) and value.word in ("array", "from buffer")


def numpy_array(value: object, where: str) -> np.ndarray:
    """An array of numbers that has as many bytes as its shape says."""
    match value:
        case Made(
            "array", _, (_, tuple(shape), Made("dtype", (str(code), *_), order), fortran, raw)
        ):
            pass
        case Made(
            "from buffer", (raw, Made("dtype", (str(code), *_), order), tuple(shape), fortran)
        ):
            fortran = fortran == "F"
        case _:
            kind = value.word if isinstance(value, Made) else type(value).__name__
            raise UserError(f"{where} holds a {kind}, not an array or a CSR matrix")
    order = order[1] if isinstance(order, tuple) and len(order) > 1 else "|"
    data = _bytes(raw)
    whole = len(shape) < 3 and all(type(extent) is int and 0 <= extent < 2**31 for extent in shape)
    if not re.fullmatch(r"[biuf][1248]", code) or order not in ("<", ">", "|"):
        raise UserError(f"{where} holds a damaged array: it is of dtype {shortened(code)!r}")
    if data is None or not whole or math.prod(shape) * int(code[1]) != len(data):
        raise UserError(f"{where} holds a damaged array: its bytes do not fit its shape")
    try:
        flat = np.frombuffer(data, order + code)
    except TypeError as error:  # there is no f1
        raise UserError(f"{where} holds a damaged array: it is of dtype {code}") from error
    native = flat.astype(flat.dtype.newbyteorder("="))
    return native.reshape(shape, order="F" if fortran else "C")


def _bytes(raw: object) -> bytes | None:
    """The bytes that Python 2 or 3 wrote for either; None of anything else."""
    match raw:
        case bytes():
            return raw
        case Made("bytes", ()):
            return b""
        case str(text) | Made("encode", (str(text), *_)):
            with contextlib.suppress(UnicodeEncodeError):
                return text.encode("latin-1")
    return None


def _read_torch(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a state dict, or of the one that a checkpoint holds under a usual name.

    A UserError if the file is not in the zip format, names anything that a state dict of tensors
    has no use for, holds something else, or is damaged.
    """
    with open_torch(path) as file:
        found = file.content
        if isinstance(found, dict):
            inner = [found[name] for name in _WRAPPED if isinstance(found.get(name), dict)]
            found = inner[0] if inner else found
        if not isinstance(found, dict) or not all(
            isinstance(name, str) and is_tensor(value) for name, value in found.items()
        ):
            raise UserError(f"{path} holds something else than a dict of tensors", _STATE.hint)
        return {name: file.array(name, tensor) for name, tensor in found.items()}


def is_tensor(value: object) -> bool:
    """Whether something in a file is a tensor."""
    return isinstance(value, Made) and value.word in ("tensor", "parameter")


@contextlib.contextmanager
def open_torch(
    path: Path,
    classes: Iterable[tuple[str, str]] = (),
    meant: Meant = _STATE,
    others: _Words = MappingProxyType({}),
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
            names = _NAMES | dict.fromkeys(classes, INSTANCE) | dict(others)
            yield TorchFile(path, archive, size, names, meant)


def read_old_torch(
    path: Path, classes: Iterable[tuple[str, str]], meant: Meant, others: _Words
) -> object:
    """The content of a file of ``torch.save`` before 1.6: the fourth of the pickles in it.

    Its tensors, whose numbers follow, are not read; arrays of NumPy are in the pickle itself.
    """
    names = _NAMES | dict.fromkeys(classes, INSTANCE) | dict(others)
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
        self, path: Path, archive: zipfile.ZipFile, size: int, names: _Words, meant: Meant
    ) -> None:
        self.path, self._archive, self._size = path, archive, size
        # Bytes that may still be read of it, and be made of them.
        self._unread, self._unmade = size, max(_FREE_TENSORS, _TENSORS_RATIO * size)
        names_of = [name.split("/") for name in archive.namelist()]
        pickles = [name for name, *rest in names_of if rest == ["data.pkl"]]
        if len(pickles) != 1 or any(rest[:1] == ["code"] for _, *rest in names_of):
            raise UserError(f"{path} holds no {meant.noun.split(' ', 1)[1]}", meant.hint)
        self._name = pickles[0]
        if [self._name, "byteorder"] in names_of and self._member("byteorder") != b"little":
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
            ) if word in _KINDS.values() and len(key) < 100 and _are_sizes(offset, shape, strides):
                pass
            case _:
                raise UserError(f"{self.path} is damaged: {name} is no tensor of a storage")
        if (key, word) not in self._storages:
            raw = self._member(f"data/{key}")
            whole = len(raw) // _item_bytes(word) * _item_bytes(word)
            self._storages[key, word] = _array_of(raw[:whole], word)
        flat = self._storages[key, word]
        inside = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        # A stride of 0 repeats numbers, as Tensor.expand does; what is made of them is bounded.
        least, empty = math.prod(filter(None, shape)), 0 in shape
        stored = math.prod(e for e, stride in zip(shape, strides, strict=True) if stride and e)
        fits = stored <= len(flat) and offset + sum(inside) < len(flat)
        if least >= 2**59 or not (fits or empty):
            raise UserError(f"{self.path} is damaged: {name} lies outside of its storage")
        if empty:
            return np.empty(shape, flat.dtype.newbyteorder("="))
        self._unmade -= least * flat.itemsize
        if self._unmade < 0:
            raise UserError(
                f"{self.path} holds tensors of more than {_TENSORS_RATIO} times its size, which "
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
    return len(shape) == len(strides) <= _LONGEST_SHAPE and all(
        type(number) is int and 0 <= number < 2**63 for number in (offset, *shape, *strides)
    )


def _array_of(raw: bytes | memoryview, kind: str) -> np.ndarray:
    """The flat array of bytes in little-endian order.

    ``kind`` is a NumPy code such as "<f4"; or "bf16": the upper half of a float32, which the result
    is.
    """
    if kind != _BFLOAT16:
        return np.frombuffer(raw, kind)
    upper = np.frombuffer(raw, "<u2").astype("<u4")
    return (upper << 16).view("<f4")


def _item_bytes(kind: str) -> int:
    """Bytes of a number in the file."""
    return 2 if kind == _BFLOAT16 else np.dtype(kind).itemsize


class _Entry(msgspec.Struct):
    """The header's description of an array."""

    dtype: str
    shape: list[Whole]
    data_offsets: tuple[Whole, Whole]


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of weights; numbers of 16 bits without a NumPy type are float32.

    A file with none of these suffixes is read as ``.npz``.
    """
    readers = dict.fromkeys((".pt", ".pth", ".bin"), _read_torch)
    return (readers | {".safetensors": _read_safetensors}).get(path.suffix, read_npz)(path)


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file; a UserError if it is none of this format: every offset is checked."""
    with system_errors(f"cannot read {path}"), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_LONGEST_HEADER, size - 8):
            raise UserError(f"{path} is not a safetensors file, or is truncated")
        header, data = file.read(length), memoryview(file.read())
    try:
        entries = json.loads(header, object_pairs_hook=_without_doubles)
        if not isinstance(entries, dict):
            raise ValueError("its header is not an object")
        entries.pop("__metadata__", None)
        described = msgspec.convert(entries, dict[str, _Entry])
        return {name: _array(name, entry, data) for name, entry in described.items()}
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise UserError(f"{path} is damaged, or not a safetensors file: {error}") from error


def _array(name: str, entry: _Entry, data: memoryview) -> np.ndarray:
    kind, shape, (begin, end) = entry.dtype, entry.shape, entry.data_offsets
    if kind not in _SAFETENSORS:
        raise ValueError(f"{name!r} is of dtype {kind!r}, which is not read here")
    if min(*shape, begin, end) < 0:
        raise ValueError(f"{name!r} has no shape and offsets of whole numbers")
    if not begin <= end <= len(data):
        raise ValueError(f"{name!r} lies outside of the file")
    if math.prod(shape) * _item_bytes(_SAFETENSORS[kind]) != end - begin:
        raise ValueError(f"{name!r} has {end - begin} bytes for shape {shape}")
    return _array_of(data[begin:end], _SAFETENSORS[kind]).reshape(shape)


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found
