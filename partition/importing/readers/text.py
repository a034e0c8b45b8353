"""Files that several read together: each takes some of the pieces, in step with the others."""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from partition.errors import UserError, check_name
from partition.importing.readers.files import (
    open_unpacked,
    packing_of,
    position_in,
    quoted,
    read_errors,
)
from partition.importing.readers.names import is_header, is_missing, resembles_number
from partition.records import open_regular

T = TypeVar("T")


class Readers(Protocol):
    """Several who read a file together; every one calls every method, in the same order."""

    @property
    def rank(self) -> int:
        """The number of this one."""

    @property
    def size(self) -> int:
        """How many there are."""

    def gathered(self, value: T) -> list[T]:
        """The values that all of them have, in their order."""

    def agreed(self) -> contextlib.AbstractContextManager[None]:
        """A block that all leave together: with the UserError of the first that has one."""


@dataclass(frozen=True)
class Alone:
    """Somebody who reads a file alone."""

    rank: int = 0
    size: int = 1

    def gathered(self, value: T) -> list[T]:
        """The value of this one."""
        return [value]

    def agreed(self) -> contextlib.AbstractContextManager[None]:
        """A block that this one leaves with its own errors."""
        return contextlib.nullcontext()


ALONE = Alone()


def in_step(pieces: Iterator[T], readers: Readers, nothing: Callable[[], T]) -> Iterator[T]:
    """The pieces of this reader until nobody has any more: ``nothing()`` while others have some."""
    while True:
        with readers.agreed():
            piece = next(pieces, None)
        if not any(readers.gathered(piece is not None)):
            return
        yield nothing() if piece is None else piece


def before_and_all(readers: Readers, count: int) -> tuple[int, int]:
    """How many those before this one have, where it has ``count``; and all together."""
    counts = readers.gathered(count)
    return sum(counts[: readers.rank]), sum(counts)


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


DECIMAL_COMMA = re.compile(r"(?<![0-9,])-?[0-9]+,[0-9]+(?![0-9,])")
POINTS = "decimals have a point: 0.5, not 0,5"
FAULTS = {pa.int64(): "an integer of 64 bits", pa.float64(): "a number"}
SIGNS = "#%"  # with which a comment begins
APART = re.compile(rf"\s*[{SIGNS}]+(\s|$)")  # a sign that is no begin of a word
NO_COMMENTS = "none"
COMMENTS = ("#", "%", "#%", NO_COMMENTS)
AT_FIRST = 3  # lines by which a table is judged: a header and two rows
LONGEST_ROW = 1 << 26  # a line of features is as long as there are features
LONGEST_TEXT = 256
INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
INTEGER_OF_ANY_SIZE = re.compile(r"[+-]?[0-9]+")
BLANKS = bytes.maketrans(b"\t\v\f", b"   ")
UNUSED = "\x01"  # separates the columns of lines that are one column


@dataclass
class Comments:
    """Which lines of a table are comments, and how many were.

    Attributes
    ----------
    given : str, optional
        The signs with which a comment begins, "#", "%" or both, or "none": as the user says. None:
        a line with one of both is a comment unless it could be a row, see :meth:`Table.is_comment`.
    lines : int
        How many lines were comments.
    """

    given: str | None = None
    lines: int = 0

    def __post_init__(self) -> None:
        if self.given is not None:
            check_name("comments", self.given, COMMENTS)

    @property
    def signs(self) -> str:
        """The signs with which a comment may begin."""
        return SIGNS if self.given is None else "" if self.given == NO_COMMENTS else self.given

    def may_begin(self, line: str) -> bool:
        """Whether a line begins with one of the signs."""
        return line.lstrip()[:1] in [*self.signs]


@dataclass(frozen=True)
class Table:
    """A text file, and which of its columns are read.

    Attributes
    ----------
    path : path
    separator : str or None
        None: white space, or nothing where there is one column.
    width : int
        Number of columns.
    kinds : mapping of int to pyarrow type
        Places of the columns that are read: ``int64``, ``float64`` or ``string``.
    header : int
        Number of the line with the names, 0 where there is none.
    begins : int
        Number of the line with the names, or of the first row; comments may stand above it.
    names : sequence of str
        The names of all columns, for messages.
    comments : Comments
        They also stand behind rows where columns are of numbers.
    nulls : bool
        Empty values are unknown, and empty lines are rows.
    shortest : int
        Characters that a text has at least.
    longest : int
        Bytes of the longest line.
    ragged : bool
        Columns that are not read may be missing, and there may be more.
    meaning : str
        The meaning of a line, for messages.
    missing : str
        A hint on numbers that are missing.
    """

    path: Path
    separator: str | None
    width: int
    kinds: Mapping[int, pa.DataType]
    header: int = 0
    begins: int = 0
    names: Sequence[str] = ()
    comments: Comments = field(default_factory=Comments)
    nulls: bool = False
    shortest: int = 0
    longest: int = LONGEST_ROW
    ragged: bool = False
    meaning: str = ""
    missing: str = "no number may be missing: fill it in, or leave the column or the row out"

    def columns(self) -> list[pa.ChunkedArray]:
        """The columns, in the order of ``kinds``."""
        return [pa.chunked_array(column) for column in zip(*self.pieces(), strict=True)]

    def pieces(
        self,
        tell: Callable[[int], None] = lambda at: None,
        readers: Readers = ALONE,
        look: Callable[[bytes], object] = lambda lines: None,
    ) -> Iterator[list[pa.Array]]:
        """The same some megabytes at a time; ``tell``, ``readers``: as of :func:`text_blocks`.

        ``look`` is shown the lines.
        """
        # A column of few rows costs as much as one of many.
        at_once = max(BLOCK, 512 * self.width)
        for first, block in text_blocks(
            self.path, self.longest, tell=tell, at_once=at_once, readers=readers
        ):
            look(block)
            with readers.agreed():
                columns = self._columns_of(first, block)
            yield columns

    def _columns_of(self, first: int, block: bytes) -> list[pa.Array]:
        """The columns of some lines, of which the first has a number."""
        block = self._without_comments(first, block)
        columns = self._by_arrow(block)
        behind = self._behind
        if columns is None and behind is not None and behind.search(block):
            block = behind.sub(b"", block)
            columns = self._by_arrow(block)
        if columns is None:
            rows = [self._by_hand(number, line) for number, line in lines_of(first, block)]
            values = zip(*rows, strict=True) if rows else ((),) * len(self.kinds)
            columns = list(map(pa.array, values, self.kinds.values()))
        return columns

    @property
    def _behind(self) -> re.Pattern[bytes] | None:
        """A comment behind a row; None where the sign may be in a text."""
        if pa.string() in self.kinds.values() or not self.comments.signs:
            return None
        signs = self.comments.signs.encode()
        return re.compile(rb"(?<=[^\s%b])[^\S\n]*[%b][^\n]*" % (signs, signs))

    def _without_comments(self, first: int, block: bytes) -> bytes:
        """The lines, of which comments and the header are empty."""
        if first <= self.header:
            lines = block.split(b"\n")
            lines[self.header - first : self.header - first + 1] = [b""]
            block = b"\n".join(lines)
        signs = self.comments.signs.encode()
        if not any(sign in block for sign in self.comments.signs.encode()):
            return block
        number, place = first, 0

        def kept(found: re.Match[bytes]) -> bytes:
            nonlocal number, place
            number += block.count(b"\n", place, found.start())
            place = found.start()
            if not self.is_comment(number, found[0].decode("utf-8", "surrogateescape")):
                return found[0]
            self.comments.lines += 1
            return b""

        return re.sub(rb"(?m)^[^\S\n]*[%b][^\n]*" % signs, kept, block)

    def is_comment(self, number: int, line: str) -> bool:
        """Whether a line that begins with a sign of comments is one.

        It is, unless it could be a row. A line that could be a row is one below a header, unless a
        blank follows the sign; otherwise it is refused, because nobody can say. Above the first
        row, and where a blank follows the sign, all other lines are comments; so are, among
        numbers, lines of other columns and rows that are commented out. A line that is left, such
        as ``#a 5`` among numbers, is a wrong row.
        """
        if self.comments.given is not None or number < self.header:
            return True
        words, apart = self._words(line), APART.match(line)
        if self._is_row(words):
            if self.header and not apart:
                return False
            raise UserError(
                f"{self.path}, line {number}: {quoted(line.strip())} may be a comment or a row",
                f"--comments {NO_COMMENTS}: it is a row; --comments '{SIGNS}': it is a comment",
            )
        if apart:
            return True
        above, fits = number < self.begins, self._has_columns(words)
        if pa.string() in self.kinds.values():
            return above and not fits
        return above or not fits or self._is_row(self._words(line.lstrip(SIGNS + " \t")))

    def _words(self, line: str) -> list[str]:
        """The columns of a line."""
        if self.separator is None and self.width == 1:
            return [line.strip().strip('"')]
        return words_of(line, self.separator)

    def _has_columns(self, words: Sequence[str]) -> bool:
        """Whether a line has as many columns as a row."""
        return len(words) > max(self.kinds) if self.ragged else len(words) == self.width

    def _is_row(self, words: Sequence[str]) -> bool:
        """Whether the columns of a line hold what those of a row do."""
        return self._has_columns(words) and all(
            self._is_value(words[place], kind) for place, kind in self.kinds.items()
        )

    def _is_value(self, word: str, kind: pa.DataType) -> bool:
        if kind == pa.string():
            return self.shortest <= len(word) <= LONGEST_TEXT
        if kind == pa.int64():
            return is_integer(word)
        return is_number(word or "nan" * self.nulls)

    def _by_arrow(self, block: bytes) -> list[pa.Array] | None:
        """The columns of lines; None where some are wrong, or may mean something else to Arrow."""
        delimiter: str = self.separator or (" " if self.width > 1 else UNUSED)
        quotes = b'"' in block
        if quotes and delimiter == " ":
            return None  # blanks within quotes are kept as they are
        hexadecimal = pa.int64() in self.kinds.values() and (b"0x" in block or b"0X" in block)
        if hexadecimal or (quotes and b' "' in block):
            return None
        if delimiter == " ":
            if self.width == len(self.kinds) and pa.string() not in self.kinds.values():
                # Perhaps there is one blank or tab between two numbers, and none elsewhere.
                columns = self._read(block, "\t" if b"\t" in block else " ", quotes=False)
                if columns is not None:
                    return columns
            block = _single_blanks(block)
        return self._read(block, delimiter, quotes)

    def _read(self, block: bytes, delimiter: str, quotes: bool) -> list[pa.Array] | None:
        names = list(map(str, range(self.width)))
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block or b"\n"),
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=names
                ),
                arrow_csv.ParseOptions(
                    delimiter=delimiter,
                    quote_char='"' if quotes else False,
                    ignore_empty_lines=not self.nulls,
                ),
                arrow_csv.ConvertOptions(
                    column_types={names[at]: kind for at, kind in self.kinds.items()},
                    include_columns=[names[at] for at in self.kinds],
                    null_values=[""] if self.nulls else [],
                ),
            )
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        if quotes and not self.nulls and table.num_rows != sum(map(bool, block.split(b"\n"))):
            return None  # there are texts of two lines
        columns = [column.combine_chunks() for column in table.columns]
        for i, column in enumerate(columns):
            if column.type == pa.string() and len(column):
                columns[i] = pc.utf8_trim_whitespace(column)
                lengths = pc.min_max(pc.utf8_length(columns[i])).as_py()
                # Lines of blanks are no values.
                shortest = max(self.shortest, self.width == 1 or self.separator == "\t")
                if lengths["min"] < shortest or lengths["max"] > LONGEST_TEXT:
                    return None
        return columns

    def _by_hand(self, number: int, line: str) -> list[int | float | str]:
        """The values of a line; a UserError if it is wrong."""
        if pa.string() in self.kinds.values():
            check_text(line, f"{self.path}, line {number}")
        words = self._words(line)
        at = f"{self.path}, line {number}: {quoted(line.strip())}"
        if not self._has_columns(words):
            meaning = self.meaning and f": {self.meaning!r}"
            raise UserError(
                f"{at} has {len(words)} columns, not {self.width}{meaning}",
                self._hint_of_line(line),
            )
        at += self.meaning and f" is not {self.meaning!r}"
        for place, kind in self.kinds.items():
            if not self._is_value(words[place], kind):
                fault = FAULTS.get(kind, f"a text of {self.shortest} to {LONGEST_TEXT} characters")
                hint = self._hint_of_line(line) or self._hint_of_value(words[place], place, number)
                column = f"{quoted(words[place])} in column {self._called(place)}"
                raise UserError(f"{at}: {column} is not {fault}", hint)
        return [_converted(words[place], kind) for place, kind in self.kinds.items()]

    def _called(self, place: int) -> str:
        """The name of a column, or its number from 1."""
        return quoted(self.names[place]) if self.names else str(place + 1)

    def _hint_of_value(self, word: str, place: int, number: int) -> str | None:
        """How a value that cannot be read may be mended."""
        ids = place in [*self.kinds][:2] and self.kinds[place] != pa.float64()
        if is_missing(word) and ids:
            return "no vertex may be missing: leave the row out"
        if is_missing(word):
            return self.missing
        several = len(word.split()) > 1 and all(map(is_number, word.split()))
        if DECIMAL_COMMA.fullmatch(word) or (several and self.separator == ","):
            return POINTS
        if self.kinds[place] == pa.string():
            return None
        hints = []
        if ids and resembles_number(word) and not INTEGER_OF_ANY_SIZE.fullmatch(word):
            hints.append("write ids as whole numbers: 100000, not 1e5 or 100000.0")
        elif ids:
            hints.append("if ids are texts, give --string-ids")
        if ids and number == self.begins:
            hints.append("if the line names the columns, --header")
        return "; ".join(hints) or None

    def _hint_of_line(self, line: str) -> str | None:
        """The reason why a line may have other columns than the others."""
        if self.comments.may_begin(line):
            return f"if the line is a comment, --comments '{line.lstrip()[0]}'"
        other = separator_of(line)
        tabs = self.separator is None and other == "\t"
        if self.width > 1 and other not in (self.separator, None) and not tabs:
            called = {None: "white space", "\t": "tabs"}
            one, two = (called.get(sign, f"{sign!r}") for sign in (self.separator, other))
            if other == "," and DECIMAL_COMMA.search(line):
                return POINTS
            return f"the first line is separated by {one}, this one by {two}"
        return None


def _converted(word: str, kind: pa.DataType) -> int | float | str:
    if kind == pa.string():
        return word
    return int(word) if kind == pa.int64() else float(word or "nan")


def lines_of(first: int, block: bytes) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, each with its number.

    Bytes that are not UTF-8 become lone surrogates, which :func:`check_text` refuses.
    """
    for number, raw in enumerate(block.split(b"\n"), first):
        line = raw.decode("utf-8", "surrogateescape")
        if line.strip():
            yield number, line


@dataclass(frozen=True)
class Opening:
    """The first lines of a table, by which its columns and its header are judged.

    Attributes
    ----------
    path : path
    comments : Comments
    lines : list of (int, str)
        The first lines, at most three, that do not begin with a sign of comments, numbered.
    heading : (int, str), optional
        The last line above them with such a sign, without it: perhaps it names the columns.
    signed : list of (int, str)
        The first lines below the first one with such a sign, and no blank behind it.
    """

    path: Path
    comments: Comments
    lines: list[tuple[int, str]]
    heading: tuple[int, str] | None = None
    signed: list[tuple[int, str]] = field(default_factory=list)

    def rows(self, header: int) -> list[tuple[int, str]]:
        """The first rows below the number of a header, or of a table without one."""
        found = [line for line in self.lines if line[0] > header]
        return found or (self.signed if header else [])

    @property
    def begins(self) -> int:
        """Number of the first row, or of the header above it."""
        return self.lines[0][0] if self.lines else 0

    @property
    def first(self) -> str:
        """The first row, or the header above it; empty where there is none."""
        return self.lines[0][1] if self.lines else ""

    @property
    def second(self) -> str:
        """The line after the first; empty where there is none."""
        return self.lines[1][1] if len(self.lines) > 1 else ""

    def header(
        self,
        cut: Callable[[str], list[str]],
        known: Callable[[list[str]], bool],
        above_numbers: Callable[[list[str]], bool],
        texts: bool = False,
    ) -> tuple[int, list[str]]:
        """Number and names of the line that names the columns; 0 and none without one.

        ``cut`` gives the columns of a line; see :func:`is_header` for the others. A comment is the
        header if its names are known.
        """
        number, first, below = self.begins, cut(self.first), cut(self.second)
        fits = len(below) == len(first) and above_numbers(below)
        if is_header(first, known=known(first), above_numbers=fits, texts=texts):
            return number, first
        if self.heading is not None:
            names = cut(self.heading[1])
            if all(names) and len(names) == len(first) and known(names):
                return self.heading[0], names
        return 0, []


def open_table(
    path: Path, longest_line: int = LONGEST_LINE, comments: str | None = None
) -> Opening:
    """The first lines of a table; ``comments`` as :class:`Comments` has them ``given``."""
    of_table = Comments(comments)
    lines: list[tuple[int, str]] = []
    signed: list[tuple[int, str]] = []
    heading, passed = None, 0
    for first, block in text_blocks(path, longest_line):
        for number, line in lines_of(first, block):
            if not of_table.may_begin(line):
                lines.append((number, line))
            elif not lines:
                heading = number, line.strip().lstrip(of_table.signs).strip()
            elif comments is None and len(signed) < AT_FIRST and not APART.match(line):
                signed.append((number, line))
            if len(lines) == AT_FIRST:
                return Opening(path, of_table, lines, heading, signed)
        passed += len(block)
        if passed > LONGEST_BLANK and not lines:
            raise UserError(
                f"{path} begins with {passed >> 20} MiB of comments",
                f"--comments {NO_COMMENTS}: lines that begin with a sign are rows",
            )
    return Opening(path, of_table, lines, heading, signed)


def separator_of(line: str) -> str | None:
    """The separator of the columns of a line: a semicolon, a comma, a tab; None is white space.

    A tab with no other sign beside it goes first: texts and decimals may have commas. Signs in
    quotes do not count.
    """
    line = re.sub(r'"[^"]*"', "", line)
    if "\t" in line.strip() and not re.search(r"[;,]\s*\t|\t\s*[;,]", line):
        return "\t"
    return next((sign for sign in ";,\t" if sign in line), None)


def words_of(line: str, separator: str | None) -> list[str]:
    """The columns of a line, without white space around them and without quotes."""
    if '"' in line:
        if separator is None:
            line = line.replace("\t", " ").strip()
        (words,) = csv.reader([line], delimiter=separator or " ", skipinitialspace=True)
    elif separator is None:
        words = line.split()
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


def _single_blanks(block: bytes) -> bytes:
    """The lines with one blank between two words, and nowhere else."""
    block = block.translate(BLANKS)
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")
