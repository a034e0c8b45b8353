"""Text files as blocks of whole lines, for one who reads a file, or for several together."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from partition.errors import UserError
from partition.importing.readers.files import read_errors
from partition.importing.readers.sharing import ALONE, Readers
from partition.importing.readers.unpacking import open_unpacked, packing_of, position_in
from partition.records import open_regular

LONGEST_LINE = 1 << 16
LONGEST_BLANK = 1 << 24
BLOCK = 1 << 22
EXPANDS = 64  # times that a packed file may grow before it takes a second block
UTF16 = (b"\xff\xfe", b"\xfe\xff")
LINE_END = re.compile(rb"\r\n?|\n")


def text_blocks(
    path: Path,
    longest_line: int = LONGEST_LINE,
    *,
    tell: Callable[[int], None] = lambda at: None,
    at_once: int = BLOCK,
    readers: Readers = ALONE,
) -> Iterator[tuple[int, bytes]]:
    r"""The bytes of a file, perhaps packed, whole lines, with the number of the first line, from 1.

    Some megabytes at a time: ``at_once`` bytes are read, and ``tell`` is told how many of the file
    have been. Line ends are ``\n``, whatever they are in the file, and a byte order mark is left
    out. A UserError if the file is in UTF-16, holds a NUL, a line longer than ``longest_line``, or
    ``LONGEST_BLANK`` characters of nothing but white space.

    Several ``readers`` take turns: the first block is that of the first of them, and so on. Where
    the file has no block for one of them at the end, it is empty.
    """
    if readers is ALONE:
        return _one_after_the_other(path, longest_line, tell, at_once)
    with readers.agreed(), read_errors(path):
        packed = packing_of(path) is not None
    share = _unpacked_by_all if packed else _by_place
    return share(path, longest_line, tell, at_once, readers)


def _one_after_the_other(
    path: Path, longest_line: int, tell: Callable[[int], None], at_once: int
) -> Iterator[tuple[int, bytes]]:
    number, rest, blank = 1, b"", 0
    at_once = min(at_once, EXPANDS * path.stat().st_size + 1)  # as many are allocated
    with open_unpacked(path) as file:
        for place in itertools.count():
            chunk = file.read(at_once)
            if not chunk:
                break
            tell(position_in(file))
            chunk = _begun(path, chunk) if place == 0 else chunk
            if chunk.endswith(b"\r"):  # the other half of a DOS line end may follow
                chunk += file.read(1)
            blank = _blank_after(blank, _blanks(chunk))
            _check(path, number, rest + chunk if b"\0" in chunk else b"", blank)
            text = _with_plain_ends(rest + chunk)
            end = text.rfind(b"\n") + 1
            block, rest = text[:end], text[end:]
            _check_end(path, number, text, longest_line)
            if block and not block.isspace():
                yield number, block
            number += block.count(b"\n")
    if rest:
        yield number, rest


def _unpacked_by_all(
    path: Path, longest_line: int, tell: Callable[[int], None], at_once: int, readers: Readers
) -> Iterator[tuple[int, bytes]]:
    """Everybody unpacks all of a packed file, whose middle nobody can find, and keeps its share."""
    blocks = _one_after_the_other(path, longest_line, tell, at_once)
    block: tuple[int, bytes] | None = (1, b"")
    while block is not None:
        own = (1, b"")
        with readers.agreed(), read_errors(path):
            for turn in range(readers.size):
                block = next(blocks, None)
                if block is not None and turn == readers.rank:
                    own = block
        yield own


def _by_place(
    path: Path, longest_line: int, tell: Callable[[int], None], at_once: int, readers: Readers
) -> Iterator[tuple[int, bytes]]:
    """Each block is of the lines that begin within so many bytes; all count their lines at once.

    So everybody knows how many lines there are before its own.
    """
    with readers.agreed(), read_errors(path):
        file = open_regular(path)
        size = os.fstat(file.fileno()).st_size
    at_once = max(1, min(at_once, -(-size // readers.size)))
    number, blank = 1, 0
    with file:
        for turn in range(0, max(1, -(-size // at_once)), readers.size):
            place = (turn + readers.rank) * at_once
            with readers.agreed(), read_errors(path):
                block = _lines_from(path, file, place, at_once, longest_line)
            counts = readers.gathered((block.count(b"\n"), _blanks(block)))
            for reader, (lines, blanks) in enumerate(counts):
                if reader == readers.rank:
                    first, blank_here = number, _blank_after(blank, blanks)
                number, blank = number + lines, _blank_after(blank, blanks)
            with readers.agreed():
                _check(path, first, block, blank_here)
                _check_end(path, first, block, longest_line)
            tell(min(size, (turn + readers.size) * at_once))
            yield first, b"" if block.isspace() else block


def _lines_from(path: Path, file: IO[bytes], place: int, count: int, longest_line: int) -> bytes:
    """The lines of a file that begin at one of ``count`` places from one on."""
    start, end = (_line_start(file, at, longest_line) for at in (place, place + count))
    file.seek(start)
    block = file.read(end - start)
    return _with_plain_ends(_begun(path, block) if place == 0 else block)


def _line_start(file: IO[bytes], place: int, longest_line: int) -> int:
    """The first place from this one on where a line begins, or the end of the file.

    In a line that is too long, a place that makes its first part too long.
    """
    if place == 0:
        return 0
    file.seek(place - 1)
    around = file.read(longest_line + 2)
    found = LINE_END.search(around)
    return place - 1 + (len(around) if found is None else found.end())


def _begun(path: Path, block: bytes) -> bytes:
    """The begin of a file without its byte order mark."""
    if block.startswith(UTF16):
        raise UserError(f"{path} is in UTF-16", "save it as UTF-8")
    return block.removeprefix(b"\xef\xbb\xbf")


def _with_plain_ends(text: bytes) -> bytes:
    if b"\r" not in text:
        return text
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _blanks(block: bytes) -> tuple[int, int]:
    """How many characters a block has, and how many of white space there are at its end."""
    return len(block), len(block) - len(block.rstrip())


def _blank_after(before: int, blanks: tuple[int, int]) -> int:
    """Characters of white space at the end of a block, with those at the end of the ones before."""
    length, blank = blanks
    return before + blank if length == blank else blank


def _check(path: Path, number: int, block: bytes, blank: int) -> None:
    """A UserError for a NUL in a block that begins with a line, or for too much white space."""
    if b"\0" in block:
        line = number + block[: block.index(0)].count(b"\n")
        raise UserError(f"{path}, line {line}: there is a NUL, so this is not a text file")
    if blank >= LONGEST_BLANK:
        most = LONGEST_BLANK >> 20
        raise UserError(f"{path}: there are {most} MiB of blanks and empty lines")


def _check_end(path: Path, number: int, block: bytes, longest_line: int) -> None:
    """A UserError if the line that a block ends in is too long."""
    if len(block) - (block.rfind(b"\n") + 1) > longest_line:
        line = number + block.count(b"\n")
        raise UserError(f"{path}, line {line} is longer than {longest_line:,} bytes")
