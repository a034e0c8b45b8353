"""Reading text files: whole lines in blocks, words, and errors in them."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from partition.errors import UserError
from partition.importing.readers.files import open_plain_or_gzip, position_in

COMMENTS = ("#", "%")
LONGEST_LINE = 1 << 16
LONGEST_BLANK = 1 << 24
BLOCK = 1 << 20
INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def text_blocks(
    path: Path, longest_line: int = LONGEST_LINE, *, tell: Callable[[int], None] = lambda at: None
) -> Iterator[tuple[int, str]]:
    r"""The text of a plain or gzip'd file, some megabytes of whole lines at a time.

    Line ends are ``\n``, whatever they are in the file, and a byte order mark is left out.
    Bytes that are not UTF-8 become lone surrogates, which :func:`check_text` refuses.

    Parameters
    ----------
    tell : callable
        Told how many bytes of the file have been read.

    Yields
    ------
    (int, str)
        The number of the first line, from 1, and the lines.

    Raises
    ------
    UserError
        If the file is in UTF-16, holds a NUL, a line longer than ``longest_line``, or
        ``LONGEST_BLANK`` characters of nothing but white space.
    """
    number, rest, blank = 1, b"", 0
    with open_plain_or_gzip(path) as file:
        for place in itertools.count():
            chunk = file.read(BLOCK)
            if not chunk:
                break
            tell(position_in(file))
            chunk = _plain_start(path, chunk) if place == 0 else chunk
            if chunk.endswith(b"\r"):  # the other half of a DOS line end may follow
                chunk += file.read(1)
            if b"\0" in chunk:
                line = number + (rest + chunk[: chunk.index(0)]).count(b"\n")
                raise UserError(f"{path}, line {line}: there is a NUL, so this is not a text file")
            blank = blank + len(chunk) if chunk.isspace() else 0
            if blank >= LONGEST_BLANK:
                raise UserError(f"{path}: there are {blank >> 20} MiB of blanks and empty lines")
            text = (rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            end = text.rfind(b"\n") + 1
            block, rest = text[:end], text[end:]
            if len(rest) > longest_line:
                line = number + block.count(b"\n")
                raise UserError(f"{path}, line {line} is longer than {longest_line:,} bytes")
            if block and not block.isspace():
                yield number, block.decode("utf-8", "surrogateescape")
            number += block.count(b"\n")
    if rest:
        yield number, rest.decode("utf-8", "surrogateescape")


def first_lines(path: Path, count: int, longest_line: int = LONGEST_LINE) -> list[tuple[int, str]]:
    """The first lines that are neither empty nor comments, each with its number."""
    lines: list[tuple[int, str]] = []
    passed = 0
    for first, block in text_blocks(path, longest_line):
        for number, line in enumerate(block.split("\n"), first):
            if line.strip() and not line.lstrip().startswith(COMMENTS):
                lines.append((number, line))
                if len(lines) == count:
                    return lines
        passed += len(block)
        if passed > LONGEST_BLANK and not lines:
            raise UserError(f"{path} begins with {passed >> 20} MiB of comments")
    return lines


def separator_of(line: str) -> str | None:
    """What separates the columns of a line: a semicolon, a comma, a tab; None is white space."""
    return next((sign for sign in ";,\t" if sign in line), None)


def words_of(line: str, separator: str | None) -> list[str]:
    """The columns of a line, without white space around them and without quotes."""
    if separator is None:
        return line.split()
    if '"' in line:
        (words,) = csv.reader([line], delimiter=separator, skipinitialspace=True)
    else:
        words = line.split(separator)
    return [word.strip() for word in words]


def is_integer(word: str) -> bool:
    """Whether a word is a whole number of 64 bits."""
    return INTEGER.fullmatch(word) is not None and -(2**63) <= int(word) < 2**63


def is_number(word: str) -> bool:
    """Whether a word is a number in decimal notation, or nan or inf."""
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word


def check_text(text: str, where: str) -> None:
    """A UserError if there are bytes that are not UTF-8."""
    if any("\udc80" <= sign <= "\udcff" for sign in text):
        raw = text[:40].encode("utf-8", "surrogateescape")
        raise UserError(f"{where}: {raw!r} is not UTF-8", "save the file as UTF-8")


def _plain_start(path: Path, chunk: bytes) -> bytes:
    if chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path} is in UTF-16", "save it as UTF-8")
    return chunk.removeprefix(b"\xef\xbb\xbf")
