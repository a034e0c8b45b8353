"""Names of columns and arrays: which first line is a header, and what each column is.

Every table is judged by these rules: lists of arcs, relations, triples, pairs, features, labels,
masks, vertices of a type.
"""

import re
from collections.abc import Container, Sequence

from partition.errors import UserError
from partition.graph.graph import MASKS

# Names that columns have in the files of other programs, without capitals and signs.
_ARC_ROLES = {
    "source": {
        "source", "src", "from", "fromnodeid", "fromnode", "u", "head", "sourceid",
        "node1", "id1", "v1", "vertex1", "user1", "entity1", "protein1", "gene1",
    },
    "target": {
        "target", "dst", "to", "tonodeid", "tonode", "v", "tail", "targetid", "dest",
        "node2", "id2", "v2", "vertex2", "user2", "entity2", "protein2", "gene2",
    },
    "weight": {"weight", "weights", "w", "edgeweight"},
}  # fmt: skip
IDS = {
    "id", "ids", "node", "nodeid", "vertex", "vertexid", "uid",
    "userid", "itemid", "paperid", "authorid", "entityid",
}  # fmt: skip
# The index of a data frame: it has the ids where no other column does.
INDEX = {"", "index", "unnamed:0", "indexlevel0"}
_OTHER_ID = re.compile(r"(?i:[\s_.-]id)$|[a-z]I[dD]$")  # paper_id, paperId
# Names of arrays and columns of vertices, in small letters.
FEATURES = ("features", "feature", "x", "feat", "feats", "attr_matrix", "attributes")
CLASSES = ("label", "labels", "y", "class", "classes")
_NUMBERS_TO_LEARN = ("target", "targets")
LABELS, TARGETS = (*CLASSES, *_NUMBERS_TO_LEARN), (*_NUMBERS_TO_LEARN, "labels", "label", "y")
SPLIT = ("split", "mask")
# The masks of other programs → ours.
MASK_OF = {"train": "train", "valid": "val", "validation": "val", "val": "val", "test": "test"}
HEADINGS = IDS | INDEX | {*CLASSES, "target", "mask", "nodes"}  # of a single column
BOOLEANS = ("true", "false")
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
    plain = plain_name(type)
    return plain != "" and plain_name(word) in (plain, plain_name(type + "id"))


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


def arc_roles(names: Sequence[str]) -> dict[str, int] | None:
    """The places of "source", "target" and perhaps "weight"; None where that is not clear."""
    plain = list(map(plain_name, names))
    found = {
        role: [place for place, name in enumerate(plain) if name in known]
        for role, known in _ARC_ROLES.items()
    }
    if not (found["source"] and found["target"]) or any(len(some) > 1 for some in found.values()):
        return None
    return {role: some[0] for role, some in found.items() if some}


def roles_by_types(
    names: Sequence[str], ends: Sequence[int], types: Sequence[tuple[str, str]]
) -> tuple[dict[str, int], tuple[str, str]] | None:
    """The places of ``ends`` and perhaps of a weight, if the ends are called as two types are.

    With them come these types. So ``user,item,weight,date``, or ``user_id,item_id``, need no other
    names.
    """
    if max(ends) >= len(names):
        return None
    for pair in types:
        if all(is_type(names[place], name) for place, name in zip(ends, pair, strict=True)):
            weights = [
                i for i, name in enumerate(names) if plain_name(name) in _ARC_ROLES["weight"]
            ]
            roles = {"source": ends[0], "target": ends[1]}
            return (roles | {"weight": weights[0]} if len(weights) == 1 else roles), pair
    return None


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
    ending = [i for i in free if _OTHER_ID.search(names[i])]
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


def mask_names(name: str) -> tuple[str, ...]:
    """The names that the array or column of a mask may have."""
    return ("mask", name, f"{name}_mask", f"{name}_idx", "idx")


def vertex_role(name: str, of_numbers: bool) -> str:
    """The role of a column of a table of vertices, ids apart, by its name in small letters.

    "label", "split", "target", "feature", the name of a mask, or "unread".
    """
    if name in CLASSES:
        return "label"
    if name in SPLIT and not of_numbers:
        return "split"
    mask = next((mask for mask in MASKS if name in (mask, f"{mask}_mask")), None)
    if mask is not None or not of_numbers:
        return mask or "unread"
    return "target" if name in _NUMBERS_TO_LEARN else "feature"
