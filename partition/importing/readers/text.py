"""Tables in text files, of whose blocks Arrow makes columns; words, and errors in them."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from partition.errors import UserError
from partition.importing.readers import blocks
from partition.importing.readers.blocks import LONGEST_BLANK, LONGEST_LINE, text_blocks
from partition.importing.readers.files import quoted
from partition.importing.readers.sharing import ALONE, Readers

COMMENTS = ("#", "%")
LONGEST_ROW = 1 << 26  # a line of features is as long as there are features
LONGEST_TEXT = 256
INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
BLANKS = bytes.maketrans(b"\t\v\f", b"   ")
UNUSED = "\x01"  # separates the columns of lines that are one column


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
    comments : str
        Signs of which a line that is not read has one before it, and also behind it where columns
        are of integers.
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
    """

    path: Path
    separator: str | None
    width: int
    kinds: Mapping[int, pa.DataType]
    header: int = 0
    comments: str = "#"
    nulls: bool = False
    shortest: int = 0
    longest: int = LONGEST_ROW
    ragged: bool = False
    meaning: str = ""

    def columns(self) -> list[pa.ChunkedArray]:
        """The columns, in the order of ``kinds``."""
        return [pa.chunked_array(column) for column in zip(*self.pieces(), strict=True)]

    def pieces(
        self, tell: Callable[[int], None] = lambda at: None, readers: Readers = ALONE
    ) -> Iterator[list[pa.Array]]:
        """The same some megabytes at a time; ``tell``, ``readers``: as of :func:`text_blocks`."""
        # A column of few rows costs as much as one of many.
        at_once = max(blocks.BLOCK, 512 * self.width)
        for first, block in text_blocks(
            self.path, self.longest, tell=tell, at_once=at_once, readers=readers
        ):
            with readers.agreed():
                columns = self._columns_of(first, block)
            yield columns

    def _columns_of(self, first: int, block: bytes) -> list[pa.Array]:
        """The columns of some lines, of which the first has a number."""
        block = self._bare(first, block)
        columns = self._by_arrow(block)
        if columns is None:
            rows = [self._by_hand(number, line) for number, line in lines_of(first, block, ())]
            values = zip(*rows, strict=True) if rows else ((),) * len(self.kinds)
            columns = list(map(pa.array, values, self.kinds.values()))
        return columns

    def _bare(self, first: int, block: bytes) -> bytes:
        """The lines, of which comments and the header are empty."""
        if first <= self.header:
            lines = block.split(b"\n")
            lines[self.header - first : self.header - first + 1] = [b""]
            block = b"\n".join(lines)
        if not any(sign in block for sign in map(str.encode, self.comments)):
            return block
        sign = rb"[%b][^\n]*" % self.comments.encode()
        if pa.int64() in self.kinds.values():
            return re.sub(sign, b"", block)
        return re.sub(rb"\n[^\S\n]*" + sign, b"\n", b"\n" + block)[1:]

    def _by_arrow(self, block: bytes) -> list[pa.Array] | None:
        """The columns of lines; None where some are wrong, or may mean something else to Arrow."""
        delimiter: str = self.separator or (" " if self.width > 1 else UNUSED)
        quotes = b'"' in block and delimiter != " "
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
        lone = self.separator is None and self.width == 1
        words = [line.strip().strip('"')] if lone else words_of(line, self.separator)
        at = f"{self.path}, line {number}: {quoted(line.strip())}"
        if len(words) <= max(self.kinds) if self.ragged else len(words) != self.width:
            meaning = self.meaning and f": {self.meaning!r}"
            raise UserError(f"{at} has {len(words)} columns, not {self.width}{meaning}")
        at += self.meaning and f" is not {self.meaning!r}"
        return [self._value(words[place], kind, number, at) for place, kind in self.kinds.items()]

    def _value(self, word: str, kind: pa.DataType, number: int, at: str) -> int | float | str:
        if kind == pa.string():
            if self.shortest <= len(word) <= LONGEST_TEXT:
                return word
            fault, hint = f"a text of {self.shortest} to {LONGEST_TEXT} characters", None
        elif kind == pa.int64():
            if is_integer(word):
                return int(word)
            fault, hint = "an integer of 64 bits", "if ids are texts, give --string-ids"
            hint = "put a # before a line that is a heading" if number == 1 else hint
        else:
            word = word or "nan" * self.nulls
            if is_number(word):
                return float(word)
            fault, hint = "a number", None
        raise UserError(f"{at}: {quoted(word)} is not {fault}", hint)


def lines_of(
    first: int, block: bytes, comments: tuple[str, ...] = COMMENTS
) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor comments, each with its number.

    Bytes that are not UTF-8 become lone surrogates, which :func:`check_text` refuses.
    """
    for number, raw in enumerate(block.split(b"\n"), first):
        line = raw.decode("utf-8", "surrogateescape")
        if line.strip() and not line.lstrip().startswith(comments):
            yield number, line


def first_lines(path: Path, count: int, longest_line: int = LONGEST_LINE) -> list[tuple[int, str]]:
    """The first lines that are neither empty nor comments, each with its number."""
    lines: list[tuple[int, str]] = []
    passed = 0
    for first, block in text_blocks(path, longest_line):
        lines += itertools.islice(lines_of(first, block), count - len(lines))
        passed += len(block)
        if len(lines) == count:
            break
        if passed > LONGEST_BLANK and not lines:
            raise UserError(f"{path} begins with {passed >> 20} MiB of comments")
    return lines


def separator_of(line: str) -> str | None:
    """The separator of the columns of a line: a semicolon, a comma, a tab; None is white space."""
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


def plain_name(word: str) -> str:
    """The name of a column without its capitals and the signs between its words."""
    return re.sub(r"[\s_.-]", "", word.lower())


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
