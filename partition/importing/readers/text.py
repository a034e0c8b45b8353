"""Tables in text: their lines in blocks, their first lines, and their columns as arrays.

Arrow reads the columns. Lines that it cannot read, or might take for something else, are read one
by one; so every error names its line.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from partition.errors import UserError, check_name
from partition.importing.readers import files
from partition.importing.readers.names import is_header, is_missing, resembles_number
from partition.importing.readers.source import ALL, Reading
from partition.records import open_regular

LONGEST_LINE = 1 << 16
LONGEST_ROW = 1 << 26  # a line of features is as long as there are features
_LONGEST_TEXT = 256
LONGEST_BLANK = 1 << 24
BLOCK = 1 << 22
_EXPANDS = 64  # times that a packed file may grow before it takes a second block
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LINE_END = re.compile(rb"\r\n?|\n")


def text_blocks(
    path: Path, longest: int = LONGEST_LINE, at_once: int = BLOCK, reading: Reading = ALL
) -> Iterator[tuple[int, bytes]]:
    r"""The bytes of a file, perhaps packed, whole lines, with the number of the first line, from 1.

    Some megabytes at a time: ``at_once`` bytes are read. Line ends are ``\n``, whatever they are in
    the file, and a byte order mark is left out. A UserError if the file is in UTF-16, holds a NUL,
    a line of more than ``longest`` bytes, or ``LONGEST_BLANK`` characters of nothing but white
    space.

    Each of several readers gets the lines that begin in its range of bytes. It counts them first,
    and all ranges are of one size; of a packed file, whose middle nobody can find, each unpacks
    what stands before its range.
    """
    readers, lines = reading.readers, 0
    with readers.agreed(), files.read_errors(path):
        size = path.stat().st_size
        at_once = min(at_once, _EXPANDS * size + 1)  # as many are allocated
        cuts = [size * rank // readers.size for rank in (readers.rank, readers.rank + 1)]
        apart = readers.size > 1 and files.packing_of(path) is None
        if apart:
            with open_regular(path) as file:
                cuts = [_line_start(file, cut, longest) for cut in cuts]
                file.seek(cuts[0])
                chunks = _chunks(file, cuts[1] - cuts[0], at_once)
                lines = sum(chunk.count(b"\n") for chunk in chunks)
    before = sum(readers.gathered(lines)[: readers.rank])
    own = range(cuts[0], cuts[1] if readers.rank < readers.size - 1 else sys.maxsize)
    return _blocks(path, longest, at_once, reading, own, before if apart else None)


def _blocks(
    path: Path, longest: int, at_once: int, reading: Reading, own: range, before: int | None
) -> Iterator[tuple[int, bytes]]:
    """The blocks that begin at ``own`` bytes of the file, with so many lines ``before`` them.

    None: that shows when what stands before is read.
    """
    number, rest, blank, size = 1 + (before or 0), b"", 0, path.stat().st_size
    with files.read_errors(path), files.open_unpacked(path) as file:
        if before is not None:
            file.seek(own.start)
        chunks = _chunks(file, sys.maxsize if before is None else len(own), at_once)
        while True:
            place, chunk = files.position_in(file), next(chunks, b"")
            ended = not chunk
            reading.tell("reading", files.position_in(file), size)
            if number == 1 and not rest:
                if chunk.startswith(_UTF16):
                    raise UserError(f"{path} is in UTF-16", "save it as UTF-8")
                chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            behind = len(chunk) - len(chunk.rstrip())
            blank = behind + blank * (behind == len(chunk))
            if blank >= LONGEST_BLANK:
                most = LONGEST_BLANK >> 20
                raise UserError(f"{path}: there are {most} MiB of blanks and empty lines")
            text = rest + chunk
            _check(path, number, text, longest)
            end = len(text) if ended else text.rfind(b"\n") + 1
            block, rest = text[:end], text[end:]
            if (before is not None or place in own) and block and not block.isspace():
                yield number, block
            if ended or (before is None and place >= own.stop):
                return
            number += block.count(b"\n")


def _chunks(file: IO[bytes], left: int, at_once: int) -> Iterator[bytes]:
    r"""The next ``left`` bytes of a file, so many at once; lines end with ``\n``."""
    half = b""  # of a DOS line end, perhaps, whose other half follows
    while read := file.read(min(at_once, left)):
        left -= len(read)
        chunk = half + read
        half = b"\r" if chunk.endswith(b"\r") else b""
        if whole := chunk.removesuffix(b"\r"):
            yield whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in whole else whole
    if half:
        yield b"\n"


def _line_start(file: IO[bytes], place: int, longest: int) -> int:
    """The first place from this one on where a line begins, or the end of the file.

    In a line that is too long, a place that makes its first part too long.
    """
    if place == 0:
        return 0
    file.seek(place - 1)
    around = file.read(longest + 2)
    found = _LINE_END.search(around)
    return place - 1 + (len(around) if found is None else found.end())


def _check(path: Path, number: int, block: bytes, longest: int) -> None:
    """A UserError for a NUL in a block that begins with a line, or if its last line is too long."""
    if b"\0" in block:
        line = number + block[: block.index(0)].count(b"\n")
        raise UserError(f"{path}, line {line}: there is a NUL, so this is not a text file")
    if len(block) - (block.rfind(b"\n") + 1) > longest:
        line = number + block.count(b"\n")
        raise UserError(f"{path}, line {line} is longer than {longest:,} bytes")


_DECIMAL_COMMA = re.compile(r"(?<![0-9,])-?[0-9]+,[0-9]+(?![0-9,])")
_POINTS = "decimals have a point: 0.5, not 0,5"
FAULTS = {pa.int64(): "an integer of 64 bits", pa.float64(): "a number"}
SIGNS = "#%"  # with which a comment begins
APART = re.compile(rf"\s*[{SIGNS}]+(\s|$)")  # a sign that is no begin of a word
NO_COMMENTS = "none"
COMMENTS = ("#", "%", "#%", NO_COMMENTS)
_AT_FIRST = 3  # lines by which a table is judged: a header and two rows
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INTEGER_OF_ANY_SIZE = re.compile(r"[+-]?[0-9]+")
_BLANKS = bytes.maketrans(b"\t\v\f", b"   ")
UNUSED = "\x01"  # separates the columns of lines that are one column


@dataclass
class Comments:
    """Which lines of a table are comments, and how many were.

    Attributes
    ----------
    given : str, optional
        The signs with which a comment begins, "#", "%" or both, or "none": as the user says. None:
        a line with one of both is a comment unless it could be a row, see
        :meth:`TextTable.is_comment`.
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
        return SIGNS if self.given is None else self.given.replace(NO_COMMENTS, "")


@dataclass(frozen=True)
class TextTable:
    """A text file by its first lines; later, how its lines are cut and which columns are read.

    Attributes
    ----------
    path : path
    comments : Comments
        They also stand behind rows where columns are of numbers.
    lines : list of (int, str)
        The first lines, at most three, that do not begin with a sign of comments, numbered.
    heading : (int, str), optional
        The last line above them with such a sign, without it: perhaps it names the columns.
    signed : list of (int, str)
        The first lines below the first one with such a sign, and no blank behind it.
    longest : int
        Bytes of the longest line.
    separator : str or None
        None: white space, or nothing where there is one column.
    width : int
        Number of columns.
    header : int
        Number of the line with the names, 0 where there is none.
    names : sequence of str
        The names of all columns; none without a header.
    kinds : mapping of int to pyarrow type
        Places of the columns that are read: ``int64``, ``float64`` or ``string``.
    nulls : bool
        Empty values are unknown, and empty lines are rows.
    meaning : str
        The meaning of a line that is an arc: no id is empty, and columns that are not read may be
        missing, or there may be more.
    missing : str
        A hint on numbers that are missing.
    """

    path: Path
    comments: Comments = field(default_factory=Comments)
    lines: Sequence[tuple[int, str]] = ()
    heading: tuple[int, str] | None = None
    signed: Sequence[tuple[int, str]] = ()
    longest: int = LONGEST_ROW
    separator: str | None = None
    width: int = 0
    header: int = 0
    names: Sequence[str] = ()
    kinds: Mapping[int, pa.DataType] = field(default_factory=dict)
    nulls: bool = False
    meaning: str = ""
    missing: str = "no number may be missing: fill it in, or leave the column or the row out"

    @property
    def begins(self) -> int:
        """Number of the first row, or of the header above it; comments may stand before it."""
        return self.lines[0][0] if self.lines else 0

    def line(self, number: int) -> str:
        """The first line, or the second; empty where there is none."""
        return self.lines[number][1] if number < len(self.lines) else ""

    def rows(self, header: int) -> Sequence[tuple[int, str]]:
        """The first rows below the number of a header, or of a table without one."""
        found = [line for line in self.lines if line[0] > header]
        return found or (self.signed if header else [])

    def find_header(
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
        first, below = cut(self.line(0)), cut(self.line(1))
        fits = len(below) == len(first) and above_numbers(below)
        if is_header(first, known=known(first), above_numbers=fits, texts=texts):
            return self.begins, first
        names = [] if self.heading is None else cut(self.heading[1])
        if self.heading and all(names) and len(names) == len(first) and known(names):
            return self.heading[0], names
        return 0, []

    def pieces(self, reading: Reading) -> Iterator[tuple[str, int, list[np.ndarray | pa.Array]]]:
        """The columns of ``kinds``, some megabytes at a time, and where they are, for messages.

        That is a name and the number of rows between what it names and the first of these. Numbers
        are arrays of NumPy, texts of Arrow.
        """
        where, rows = str(self.path), 0
        # A column of few rows costs as much as one of many.
        at_once = max(BLOCK, 512 * self.width)
        for first, block in text_blocks(self.path, self.longest, at_once, reading):
            if reading.readers.rank and not rows:  # nobody has counted the rows before
                where = f"{self.path}, from line {first} on"
            reading.look(block)
            columns = self._columns_of(first, block)
            yield (
                where,
                rows,
                [
                    one if one.type == pa.string() else one.to_numpy(zero_copy_only=False)
                    for one in columns
                ],
            )
            rows += len(columns[0])

    def _columns_of(self, first: int, block: bytes) -> list[pa.Array]:
        """The columns of some lines, of which the first has a number."""
        block = self._without_comments(first, block)
        columns = self._by_arrow(block)
        if columns is None and (bare := self._without_comments_behind(block)) != block:
            block, columns = bare, self._by_arrow(bare)
        if columns is None:
            rows = [self._by_hand(number, line) for number, line in lines_of(first, block)]
            values = zip(*rows, strict=True) if rows else ((),) * len(self.kinds)
            columns = list(map(pa.array, values, self.kinds.values()))
        return columns

    def _without_comments_behind(self, block: bytes) -> bytes:
        """The lines without comments behind rows; a text may have the sign."""
        signs = self.comments.signs.encode()
        if pa.string() in self.kinds.values() or not signs:
            return block
        return re.sub(rb"(?<=[^\s%b])[^\S\n]*[%b][^\n]*" % (signs, signs), b"", block)

    def _without_comments(self, first: int, block: bytes) -> bytes:
        """The lines, of which comments and the header are empty."""
        if first <= self.header:
            lines = block.split(b"\n")
            lines[self.header - first : self.header - first + 1] = [b""]
            block = b"\n".join(lines)
        signs = self.comments.signs.encode()
        if not any(sign in block for sign in signs):
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
            at = f"{self.path}, line {number}: {files.quoted(line.strip())}"
            raise UserError(
                f"{at} may be a comment or a row",
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
        if self.meaning and len(self.kinds) < self.width:
            return len(words) > max(self.kinds)
        return len(words) == self.width

    def _is_row(self, words: Sequence[str]) -> bool:
        """Whether the columns of a line hold what those of a row do."""
        return self._has_columns(words) and all(
            self._is_value(words[place], kind) for place, kind in self.kinds.items()
        )

    def _is_value(self, word: str, kind: pa.DataType) -> bool:
        if kind == pa.string():
            return bool(self.meaning) <= len(word) <= _LONGEST_TEXT
        return is_integer(word) if kind == pa.int64() else is_number(word or "nan" * self.nulls)

    def _by_arrow(self, block: bytes) -> list[pa.Array] | None:
        """The columns of lines; None where some are wrong, or may mean something else to Arrow."""
        delimiter: str = self.separator or (" " if self.width > 1 else UNUSED)
        quotes = b'"' in block
        hexadecimal = pa.int64() in self.kinds.values() and (b"0x" in block or b"0X" in block)
        # Blanks within quotes are kept as they are.
        if hexadecimal or (quotes and (delimiter == " " or b' "' in block)):
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
                shortest = bool(self.meaning) or self.width == 1 or self.separator == "\t"
                if lengths["min"] < shortest or lengths["max"] > _LONGEST_TEXT:
                    return None
        return columns

    def _by_hand(self, number: int, line: str) -> list[int | float | str]:
        """The values of a line; a UserError if it is wrong."""
        if pa.string() in self.kinds.values() and any(
            "\udc80" <= sign <= "\udcff" for sign in line
        ):
            raw = line[:40].encode("utf-8", "surrogateescape")
            raise UserError(
                f"{self.path}, line {number}: {raw!r} is not UTF-8", "save the file as UTF-8"
            )
        words = self._words(line)
        at = f"{self.path}, line {number}: {files.quoted(line.strip())}"
        if not self._has_columns(words):
            meaning = self.meaning and f": {self.meaning!r}"
            raise UserError(
                f"{at} has {len(words)} columns, not {self.width}{meaning}",
                self._hint_of_line(line),
            )
        at += self.meaning and f" is not {self.meaning!r}"
        for place, kind in self.kinds.items():
            if not self._is_value(words[place], kind):
                fault = FAULTS.get(
                    kind, f"a text of {bool(self.meaning):d} to {_LONGEST_TEXT} characters"
                )
                hint = self._hint_of_line(line) or self._hint_of_value(words[place], place, number)
                name = files.quoted(self.names[place]) if self.names else str(place + 1)
                raise UserError(
                    f"{at}: {files.quoted(words[place])} in column {name} is not {fault}", hint
                )
        converters = {pa.string(): str, pa.int64(): int, pa.float64(): float}
        return [
            converters[kind](words[place] or "nan" * (kind == pa.float64()))
            for place, kind in self.kinds.items()
        ]

    def _hint_of_value(self, word: str, place: int, number: int) -> str | None:
        """How a value that cannot be read may be mended."""
        ids = place in [*self.kinds][:2] and self.kinds[place] != pa.float64()
        if is_missing(word):
            return "no vertex may be missing: leave the row out" if ids else self.missing
        several = len(word.split()) > 1 and all(map(is_number, word.split()))
        if _DECIMAL_COMMA.fullmatch(word) or (several and self.separator == ","):
            return _POINTS
        if self.kinds[place] == pa.string() or not ids:
            return None
        hint = "if ids are texts, give --string-ids"
        if resembles_number(word) and not _INTEGER_OF_ANY_SIZE.fullmatch(word):
            hint = "write ids as whole numbers: 100000, not 1e5 or 100000.0"
        return hint + "; if the line names the columns, --header" * (number == self.begins)

    def _hint_of_line(self, line: str) -> str | None:
        """The reason why a line may have other columns than the others."""
        if line.lstrip()[:1] in [*self.comments.signs]:
            return f"if the line is a comment, --comments '{line.lstrip()[0]}'"
        other = separator_of(line)
        tabs = self.separator is None and other == "\t"
        if self.width == 1 or other in (self.separator, None) or tabs:
            return None
        if other == "," and _DECIMAL_COMMA.search(line):
            return _POINTS
        called = {None: "white space", "\t": "tabs"}
        one, two = (called.get(sign, f"{sign!r}") for sign in (self.separator, other))
        return f"the first line is separated by {one}, this one by {two}"


def lines_of(first: int, block: bytes) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, each with its number.

    Bytes that are not UTF-8 become lone surrogates, which texts are refused for.
    """
    for number, raw in enumerate(block.split(b"\n"), first):
        line = raw.decode("utf-8", "surrogateescape")
        if line.strip():
            yield number, line


def open_table(path: Path, longest: int = LONGEST_LINE, comments: str | None = None) -> TextTable:
    """The first lines of a table; ``comments`` as :class:`Comments` has them ``given``."""
    of_table = Comments(comments)
    signs = [*of_table.signs]
    lines: list[tuple[int, str]] = []
    signed: list[tuple[int, str]] = []
    heading, passed = None, 0
    for first, block in text_blocks(path, longest):
        if block[:14].lower() == b"%%matrixmarket":
            raise UserError(f"{path} is a Matrix Market file", "give --format mtx")
        for number, line in lines_of(first, block):
            if line.lstrip()[:1] not in signs:
                lines.append((number, line))
            elif not lines:
                heading = number, line.strip().lstrip(of_table.signs).strip()
            elif comments is None and len(signed) < _AT_FIRST and not APART.match(line):
                signed.append((number, line))
            if len(lines) == _AT_FIRST:
                return TextTable(path, of_table, lines, heading, signed, longest)
        passed += len(block)
        if passed > LONGEST_BLANK and not lines:
            raise UserError(
                f"{path} begins with {passed >> 20} MiB of comments",
                f"--comments {NO_COMMENTS}: lines that begin with a sign are rows",
            )
    return TextTable(path, of_table, lines, heading, signed, longest)


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
    else:
        words = line.split(separator)
    return [word.strip() for word in words]


def is_integer(word: str) -> bool:
    """Whether a word is a whole number of 64 bits."""
    return _INTEGER.fullmatch(word) is not None and -(2**63) <= int(word) < 2**63


def is_number(word: str) -> bool:
    """Whether a word is a number in decimal notation, or nan or inf."""
    try:
        float(word)
    except ValueError:
        return False
    return "_" not in word


def _single_blanks(block: bytes) -> bytes:
    """The lines with one blank between two words, and nowhere else."""
    block = block.translate(_BLANKS)
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")
