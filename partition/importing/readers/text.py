"""Tables in text files, of whose blocks Arrow makes columns; words, and errors in them."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from partition.errors import UserError, check_name
from partition.importing.readers import blocks
from partition.importing.readers.blocks import LONGEST_BLANK, LONGEST_LINE, text_blocks
from partition.importing.readers.files import quoted
from partition.importing.readers.names import is_header, is_missing, resembles_number
from partition.importing.readers.sharing import ALONE, Readers

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
