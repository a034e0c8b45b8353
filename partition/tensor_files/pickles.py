"""Pickles read as data: nothing that they name is imported, called or set, whatever the file.

A pickle is a program for a machine with a stack. Here its instructions, which :mod:`pickletools`
takes apart, only put data together: texts, numbers, lists, tuples and dictionaries. A name stands
for a word of the reader's table, and a call for :class:`Made`, which keeps its arguments. A name
that is not in the table is refused, and so are instructions that no reader needs.

The result may refer to one object many times over: a small file can hold a tree of 2⁴⁰ leaves. So
whoever looks into it looks for one thing, by its type, and never compares, hashes, prints or walks
values that can be nested. The keys of dictionaries are short texts and small integers for this
reason, or records of calls, each of which equals itself only.
"""

from __future__ import annotations

import contextlib
import io
import math
import pickletools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partition.errors import UserError, shortened

DICT = "dict"  # the word for names whose call makes a dictionary
LONGEST_KEY = 1000  # characters
LARGEST_KEY = 1 << 31


@dataclass(frozen=True)
class Meant:
    """The expected content of a file, in the words of messages, and how it is saved so."""

    noun: str
    hint: str


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


def read_pickle(
    raw: bytes | io.BytesIO, path: Path, names: Mapping[tuple[str, str], str], meant: Meant
) -> object:
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
            elif name in _MAKES:
                count, make = _MAKES[name]
                items, stack = _taken(count, stack, waiting)
                stack.append(make(items))
            elif name in _CHANGES:
                count, change = _CHANGES[name]
                items, stack = _taken(count, stack, waiting)
                change(stack[-1], items)
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


def _taken(
    count: int | None, stack: list[object], waiting: list[list[object]]
) -> tuple[list[object], list[object]]:
    """The uppermost values, or all above the mark, and the stack without them."""
    if count is None:
        return stack, waiting.pop()
    return [stack.pop() for _ in range(count)][::-1], stack


def _named(names: Mapping[tuple[str, str], str], module: object, name: object) -> Named:
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


def _dict(items: list[object]) -> dict[object, object]:
    found: dict[object, object] = {}
    _set(found, items)
    return found


def _set(target: object, items: list[object]) -> None:
    if type(target) is not dict or len(items) % 2:
        raise ValueError("items of what is no dictionary")
    for key, value in zip(items[::2], items[1::2], strict=True):
        # Three texts are an edge type of PyTorch Geometric.
        texts = key if type(key) is tuple and len(key) == 3 else (key,)
        if type(key) is int:
            good = abs(key) < LARGEST_KEY
        elif type(key) is Made:  # of an enumeration, say; it is hashed by its place in memory
            good = True
        else:
            good = all(type(text) is str and len(text) <= LONGEST_KEY for text in texts)
        if not good:
            raise ValueError("a key that is neither a short text nor a small integer")
        target[key] = value


def _append(target: object, items: list[object]) -> None:
    if type(target) is not list:
        raise ValueError("items of what is no list")
    target.extend(items)


def _build(target: object, items: list[object]) -> None:
    if type(target) is Made:
        (target.state,) = items
    elif type(target) is not dict:  # the state of an ordered dictionary is not kept
        raise ValueError("a state of what has none")


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
# Instructions that take values off the stack, so many or all above the mark (None). Some put one in
# their place, others change the one below.
_MAKES: dict[str, tuple[int | None, Callable[[list[object]], object]]] = {
    "EMPTY_TUPLE": (0, tuple), "TUPLE1": (1, tuple), "TUPLE2": (2, tuple), "TUPLE3": (3, tuple),
    "TUPLE": (None, tuple), "EMPTY_LIST": (0, list), "LIST": (None, list),
    "EMPTY_DICT": (0, _dict), "DICT": (None, _dict), "REDUCE": (2, _made), "NEWOBJ": (2, _made),
    "BINPERSID": (1, lambda items: Made("persistent", tuple(items))),
}  # fmt: skip
_CHANGES: dict[str, tuple[int | None, Callable[[object, list[object]], None]]] = {
    "APPEND": (1, _append), "APPENDS": (None, _append), "SETITEM": (2, _set),
    "SETITEMS": (None, _set), "BUILD": (1, _build),
}  # fmt: skip


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
