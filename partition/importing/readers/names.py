"""Names of columns: which first line is a header, and which column has ids, sources or weights.

Every table in text is judged by these rules: lists of arcs, relations, triples, pairs, features,
labels, masks, vertices of a type.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from partition.errors import UserError

# Names that columns have in the files of other programs, without capitals and signs.
SOURCES = {
    "source", "src", "from", "fromnodeid", "fromnode", "u", "head", "sourceid",
    "node1", "id1", "v1", "vertex1", "user1", "entity1", "protein1", "gene1",
}  # fmt: skip
TARGETS = {
    "target", "dst", "to", "tonodeid", "tonode", "v", "tail", "targetid", "dest",
    "node2", "id2", "v2", "vertex2", "user2", "entity2", "protein2", "gene2",
}  # fmt: skip
WEIGHTS = {"weight", "weights", "w", "edgeweight"}
IDS = {
    "id", "ids", "node", "nodeid", "vertex", "vertexid", "uid",
    "userid", "itemid", "paperid", "authorid", "entityid",
}  # fmt: skip
# The index of a data frame: it has the ids where no other column does.
INDEX = {"", "index", "unnamed:0", "indexlevel0"}
OTHER_ID = re.compile(r"(?i:[\s_.-]id)$|[a-z]I[dD]$")  # paper_id, paperId
# Words in place of a value that is not there, in small letters.
MISSING = {"", "na", "n/a", "#n/a", "<na>", "nan", "none", "null", "nil", "?", "-", ".", "unknown",
           "missing"}  # fmt: skip


def is_header(
    words: Sequence[str], *, known: bool, above_numbers: bool, texts: bool = False
) -> bool:
    """Whether a first line names the columns, and is no row.

    It is a header if its names are ``known``; or if it stands above a row of numbers and each word
    is another name: see :func:`is_name`. Where values may be ``texts``, such names have no digits,
    because ``u17`` may be a value.
    """
    if known or not above_numbers:
        return known
    different = len(set(words)) == len(words)
    return different and all(is_name(w) and not (texts and has_digits(w)) for w in words)


def is_name(word: str) -> bool:
    """Whether a word may name a column: a letter begins it, and it stands for no missing value."""
    begins = word[:1].isalpha() or word[:1] == "_"
    return begins and not is_missing(word) and not resembles_number(word)


def is_missing(word: str) -> bool:
    """Whether a word stands for a value that is missing: empty, NA, None, ?."""
    return word.strip().lower() in MISSING


def has_digits(word: str) -> bool:
    """Whether a word has a digit of any script."""
    return any(letter.isnumeric() for letter in word)


def resembles_number(word: str) -> bool:
    """Whether a word is a number in some notation: 1_000, 0x1f, 0,5, 1.5e3, inf."""
    plain = word.replace(",", ".").replace("_", "").replace(" ", "")
    try:
        float(plain)
    except ValueError:
        return re.fullmatch(r"[+-]?0[xX][0-9a-fA-F]+", plain) is not None
    return True


def plain_name(word: str) -> str:
    """The name of a column without its capitals and the signs between its words."""
    return re.sub(r"[\s_.-]", "", word.lower()) or word.strip()


def is_type(word: str, type: str) -> bool:
    """Whether a column is called as a type of vertices: ``user``, ``user_id``."""
    return plain_name(type) != "" and plain_name(word) in (
        plain_name(type),
        plain_name(type + "id"),
    )


def named_roles(words: Sequence[str]) -> tuple[int, ...] | None:
    """Places of source, target and weight by the names in a header."""
    plain = list(map(plain_name, words))
    places = []
    for known in (SOURCES, TARGETS, WEIGHTS):
        fitting = [i for i, word in enumerate(plain) if word in known]
        if len(fitting) > 1:
            return None
        places += fitting
        if not fitting and known is not WEIGHTS:
            return None
    return tuple(places)


def id_place(
    names: Sequence[str], where: object, *, type: str = "", others: Container[str] = ()
) -> int | None:
    """The column that says which vertex a row is of, by its name; None where there is none.

    The first of these that some columns have: ``id``, ``node`` or the name of the ``type``; then
    ``paper_id`` and the like; then the index of a data frame. ``others``, in small letters, are
    called so and are something else. A UserError where several columns are meant.
    """
    plain = [plain_name(name) for name in names]
    free = [i for i, name in enumerate(names) if name.lower() not in others]
    exact = [i for i in free if plain[i] in IDS or is_type(names[i], type)]
    ending = [i for i in free if OTHER_ID.search(names[i])]
    index = [i for i in free if is_index(names[i]) and (i == 0 or plain[i])]
    fitting: list[int] = exact or ending or index
    if not fitting:
        return None
    if len(fitting) > 1 and (exact or fitting[0] != 0):
        both = " and ".join(repr(names[i]) for i in fitting[:2])
        raise UserError(
            f"{where}: the columns {both} may both have the ids of the vertices",
            "call the one with the ids 'id', and the others otherwise",
        )
    return fitting[0]


def is_index(name: str) -> bool:
    """Whether a column is the index of a data frame, which is never a feature."""
    return plain_name(name) in INDEX


def of_frame(names: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a first line is the header of a data frame whose index has no name: ``,age,size``.

    Columns without names are called 0, 1, 2 …; the index of a single one begins with 0 ``below``.
    """
    first, rest = names[0], list(names[1:])
    counted = rest == list(map(str, range(len(rest))))
    counted = counted and (len(rest) > 1 or list(below[:1]) == ["0"])
    return first == "" and bool(rest) and (counted or all(map(is_name, rest)))
