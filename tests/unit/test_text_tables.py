"""Text files: the lines of a reader, and random tables, by Arrow and by hand."""

import gzip
import random
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from partition.errors import UserError
from partition.importing.readers import text
from partition.importing.readers.reading import open_stream, read_source
from partition.importing.readers.source import Layout, Readers, Reading
from partition.importing.readers.text import TextTable
from partition.importing.readers.vertex_tables import read_features, read_labels


def test_lines_keep_their_numbers_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 1 << 11)
    lines = [f"{i} {i + 1}" + " # c" * (i % 7 == 0) for i in range(2000)]
    path = tmp_path / "e.txt"
    path.write_text("# c\n\n" + "\n".join(lines))
    assert read_source(path).source.tolist() == list(range(2000))
    for bad, said in (("5 x", "line 1803: '5 x' is not"), ("5", "line 1803: '5' has 1 columns")):
        path.write_text("# c\n\n" + "\n".join([*lines[:1800], bad, *lines[1801:]]))
        refuses(said, read_source, path)


# Random tables: whatever their first lines are, no row is lost, added or changed

SEPARATORS = (" ", "\t", ",", ";", "  ", " \t", ", ")
# Words that look like numbers but are none of 64 bits, or stand for nothing.
ODD = (
    "9223372036854775808", "18446744073709551615", "-9223372036854775809", "1e+05", "1E5", "1.0",
    "1.5", "NA", "nan", "NaN", "None", "null", "?", "-", "N/A", "1_000", "0x1f", "١٢", "+7", "-3",
    "007", "9f86d081", "inf", "1'000", "x1", "1x", "#1", "%20a", "0,5", "unknown",
)  # fmt: skip
HASHES = ("#a", "#b2", "%41", "%C3%89ire", "##", "#tag c")
COMMENTS = ("# of the table", "# nodes: 5, edges: 3", "%", "% sym 1 2 3", "#", "# within")
HEADERS = (("source", "target"), ("FromNodeId", "ToNodeId"), ("u", "v"), ("id_1", "id_2"))
OTHER_HEADERS = (("user", "friend"), ("a", "b"), ("von", "nach"))


def word_of(rng: random.Random, kind: str) -> str:
    """A value of a table; texts that are no names of columns have a digit or a capital."""
    if kind == "numbers" or (kind == "mixed" and rng.random() < 0.5):
        return str(rng.randrange(-3, 40))
    if kind == "hashes" and rng.random() < 0.5:
        return rng.choice(HASHES)
    if kind == "large":
        return str(rng.randrange(2**63, 2**65))
    word = rng.choice("ABCDE") + str(rng.randrange(9))
    return word + rng.choice(["", "é", "#", "%", ", x", " y"])


def quoted(rng: random.Random, word: str, separator: str, share: float) -> str:
    """The word, in quotes where it has to be, and sometimes elsewhere."""
    sign = separator.strip(" ") or " "
    needed = any(each in word for each in (sign, *{" ": ",;"}.get(sign, "")))
    return f'"{word}"' if needed or rng.random() < share else word


def written(rng, path: Path, rows: list[list[str]], header: list[str] | None):
    """Write a table with comments and quotes at random places."""
    separator, share = rng.choice(SEPARATORS), rng.choice((0, 0, 0.5, 1))
    table = rows if header is None else [header, *rows]
    lines = [separator.join(quoted(rng, word, separator, share) for word in row) for row in table]
    for _ in range(rng.choice((0, 0, 1, 3))):
        lines.insert(rng.choice((0, rng.randrange(len(lines) + 1))), rng.choice(COMMENTS))
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), "")
    if rng.random() < 0.2:
        lines = [f" {line}  " for line in lines]
    end, encoding = rng.choice(("\n", "\r\n")), rng.choice(("utf-8", "utf-8", "utf-8-sig"))
    path.write_text(end.join(lines) + rng.choice((end, "")), encoding, newline="")


def rows_of(rng: random.Random, width: int, kinds: list[str]) -> list[list[str]]:
    """Rows of which the first may be odd."""
    rows = [[word_of(rng, kind) for kind in kinds[:width]] for _ in range(rng.randrange(1, 7))]
    if rng.random() < 0.5:
        rows[0][rng.randrange(width)] = rng.choice(ODD)
    if rng.random() < 0.1:
        odd = ODD if width == 1 else (*ODD, "")
        rows[rng.randrange(len(rows))][rng.randrange(width)] = rng.choice(odd)
    for row in rows if kinds[0] == "numbers" else ():  # among numbers, these are comments
        row[0] = row[0].replace("#", "9").replace("%", "9")
    if kinds == ["numbers"] and rows[0][0] in ("x1", "0,5"):  # a name, and two numbers
        rows[0] = ["1x"]
    return rows


def same(found, word: str) -> bool:
    """Whether a value is what was written."""
    if isinstance(found, str):
        return found == word
    try:
        number = float(word.replace("_", "x"))
    except ValueError:
        return word == "" and np.isnan(found)
    return int(word) == found if isinstance(found, int) else np.isclose(number, found)


def arcs(rng: random.Random, path: Path) -> None:
    """A list of arcs, read at once and, if ids are integers, in pieces."""
    kind = rng.choice(("numbers", "numbers", "texts", "mixed", "hashes", "large"))
    rows = rows_of(rng, 2, [kind, kind])
    header = rng.choice((None, None, [*rng.choice(HEADERS)], [*rng.choice(OTHER_HEADERS)]))
    option = {"string_ids": rng.random() < 0.3}
    if rng.random() < 0.2:
        option["header"] = header is not None
    written(rng, path, rows, header)
    source = read_source(path, "edges", Layout(**option))
    ids = np.arange(source.n) if source.ids is None else source.ids
    compare(ids[np.stack([source.source, source.target], 1)].tolist(), rows)
    if ids.dtype.kind == "i":
        stream = open_stream(path, "edges", Layout(**option), Reading())
        pieces = [np.stack([piece.source, piece.target], 1) for piece in stream.pieces]
        compare(np.concatenate(pieces).tolist(), rows)


def compare(found: list[list], rows: list[list[str]]) -> None:
    """Fail unless the rows are those that were written."""
    assert len(found) == len(rows), (found, rows)
    for have, want in zip(found, rows, strict=True):
        assert all(map(same, have, want)), (have, want)


def features(rng: random.Random, path: Path) -> None:
    """A table of numbers, perhaps with a column of ids in any place."""
    width = rng.randrange(1, 4)
    rows, ids = rows_of(rng, width, ["numbers"] * width), None
    header = rng.choice((None, [f"f{i}" for i in range(width)], list("abc")[:width]))
    table = [list(row) for row in rows]
    if header is not None and rng.random() < 0.5:
        place, kinds = rng.randrange(width + 1), ("numbers", "texts", "hashes")
        ids = [f"{word_of(rng, rng.choice(kinds))}{i}" for i in range(len(rows))]
        header.insert(place, rng.choice(("id", "node", "user_id", "userId", "")))
        for row, name in zip(table, ids, strict=True):
            row.insert(place, name)
    written(rng, path, table, header)
    read = read_features(path)
    compare(read.values.astype(float).tolist(), rows)
    assert (read.ids is None) == (ids is None)
    if ids is not None:
        compare([[name] for name in read.ids.tolist()], [[name] for name in ids])


def labels(rng: random.Random, path: Path) -> None:
    """Labels one a line, or beside ids."""
    kind = rng.choice(("numbers", "texts", "hashes", "mixed"))
    rows = rows_of(rng, 1, [kind])
    table, header, with_ids = rows, rng.choice((None, ["label"], ["y"])), rng.random() < 0.5
    if with_ids:
        header = ["label", "id"]
        table = [[*row, f"{word_of(rng, kind)}{i}"] for i, row in enumerate(rows)]
        if rng.random() < 0.5:
            table, header = [row[::-1] for row in table], header[::-1]
    written(rng, path, table, header)
    read = read_labels(path)
    found = [[value] for value in read.values.tolist()]
    compare(found, [row for row in rows if row != [""] or with_ids])
    assert (read.ids is not None) == with_ids


TABLES = (arcs, features, labels)


def outcome(seed: int, folder: Path) -> str:
    """A refusal, or that it is read; an AssertionError if it is read wrongly."""
    rng, kind = random.Random(seed), TABLES[seed % len(TABLES)]
    try:
        kind(rng, folder / f"{kind.__name__}.csv")
    except UserError as error:
        return str(error)
    return f"{kind.__name__} read"


@pytest.mark.parametrize("part", range(4))
def test_no_row_of_a_random_table_is_lost(tmp_path, monkeypatch, part):
    """Whether Arrow reads it, or it is read by hand."""
    seeds, by_arrow, used = range(part * 100, part * 100 + 100), TextTable._by_arrow, []
    monkeypatch.setattr(TextTable, "_by_arrow", lambda *a: used.append(by_arrow(*a)) or used[-1])
    outcomes = [outcome(seed, tmp_path) for seed in seeds]
    assert sum(outcomes.count(f"{kind.__name__} read") for kind in TABLES) > 30
    assert sum(columns is not None for columns in used) > 30
    monkeypatch.setattr(TextTable, "_by_arrow", lambda *a: None)
    assert [outcome(seed, tmp_path) for seed in seeds] == outcomes


@given(
    st.lists(st.tuples(st.text("ab ,1\t", max_size=9), st.sampled_from(["\n", "\r\n", "\r"]))),
    st.sampled_from([b"", b"\xef\xbb\xbf"]), st.integers(1, 5), st.integers(4, 9), st.booleans(),
)  # fmt: skip
def test_readers_get_each_line_once_whatever_their_ranges(lines, mark, ranks, at_once, packed):
    content = mark + "".join(map("".join, lines)).encode() + b"end"
    with tempfile.TemporaryDirectory() as folder:
        path, counts = Path(folder) / "e.txt", list[int]()
        path.write_bytes(gzip.compress(content) if packed else content)

        def blocks(rank, gathered):
            reading = Reading(readers=Readers(rank, ranks, gathered))
            return text.text_blocks(path, at_once=at_once, reading=reading)

        for rank in range(ranks):
            blocks(rank, lambda count: counts.append(count) or [0] * ranks)
        found = [each for rank in range(ranks) for each in blocks(rank, lambda count: counts)]
    of_blocks = [row for n, block in found for row in enumerate(block.split(b"\n"), n)]
    rows = re.split(rb"\r\n?|\n", content.removeprefix(mark))
    assert [row for row in of_blocks if row[1].strip()] == [
        row for row in enumerate(rows, 1) if row[1].strip()
    ]
