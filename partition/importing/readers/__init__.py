"""Graph files of other programs: a line in the table for each format, which names its reader.

A reader hands over the arcs as the file has them, in the file's order;
:mod:`partition.importing.assemble` decides what becomes of duplicates and self-loops.
"""

from dataclasses import dataclass, fields
from pathlib import Path

from partition.errors import UserError, unknown_name
from partition.importing.readers import files, metis_files, source
from partition.registry import Registry

# One of these is in the folder raw of OGB; the last two are of graphs with types.
OGB_FILES = ("edge.csv.gz", "data.npz", "num-node-dict.csv.gz", "edge_index_dict.npz")


@dataclass(frozen=True)
class Format:
    """How the files of a format are told from others, and which options they take.

    Attributes
    ----------
    reader : str
        "module:function" in this package. ``read(path, layout) -> Source`` reads a file as a whole;
        ``stream(path, layout, reading) -> Stream`` reads it a piece at a time: see
        :class:`Reading`.
    suffixes : tuple of str
        Names of files end so.
    inside : tuple of str
        One of these files is in a folder of this format.
    single : bool
        Whether it is always one file.
    options : tuple of str
        The fields of a :class:`Layout` that it has a use for.
    packed : bool
        Whether it is read out of compressed files and archives.
    """

    reader: str
    suffixes: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    single: bool = True
    options: tuple[str, ...] = ()
    packed: bool = False


_ARCHIVES = ("npz", "pyg")  # formats that are zip archives themselves
RELATION = "relation"  # the column of relations in --columns
TRIPLETS = "triplet-type-list.csv.gz"
OF_ARCS = ("arc_features", "arc_label")
_OF_LISTS = ("columns", "string_ids", "vertices", "ids")
_OF_TEXT = ("header", "comments")
FORMATS = {
    "mtx": Format("matrix_market:read", (".mtx",), options=("arc_features",), packed=True),
    "edges": Format(
        "arc_lists:stream",
        (".txt", ".edges", ".edgelist", ".el", ".tsv", ".csv"),
        options=(*_OF_LISTS, *_OF_TEXT, *OF_ARCS),
        packed=True,
    ),
    "metis": Format("metis_files:read", (".graph", ".metis"), packed=True),
    "graphml": Format("libraries:read_networkx", (".graphml",), options=OF_ARCS, packed=True),
    "gml": Format("libraries:read_networkx", (".gml",), options=OF_ARCS, packed=True),
    "node-link": Format("libraries:read_networkx", (".json",), options=OF_ARCS, packed=True),
    "planetoid": Format("planetoid:read", single=False),
    "npz": Format("typed_tables:read_arrays", (".npz",), options=OF_ARCS),
    "npy": Format("arc_lists:stream_array", (".npy",), options=("vertices", "ids")),
    "ogb-hetero": Format("ogb:read_hetero", inside=(f"raw/{TRIPLETS}",), single=False),
    "ogb": Format("ogb:stream", inside=tuple(f"raw/{n}" for n in OGB_FILES), single=False),
    "pyg": Format(
        "torch_files:read",
        (".pt", ".pth"),
        ("processed/data.pt",),
        single=False,
        options=OF_ARCS,
    ),
    "dgl": Format("torch_files:read_dgl", (".bin",), options=OF_ARCS),
    "parquet": Format("arc_lists:stream", (".parquet",), options=(*_OF_LISTS, *OF_ARCS)),
    "triples": Format("typed_tables:read_triples", options=(*_OF_LISTS, *_OF_TEXT), packed=True),
    "tables": Format(
        "typed_tables:read",
        (".toml",),
        ("graph.toml",),
        single=False,
        options=("header", "comments", "string_ids", "relation", "nodes"),
    ),
}
READERS = Registry(
    "graph format",
    {name: f"partition.importing.readers.{form.reader}" for name, form in FORMATS.items()},
)
# Formats that are read a piece at a time, for graphs larger than memory.
STREAMS = [name for name, form in FORMATS.items() if ":stream" in form.reader]
# Formats that do not say how many vertices there are.
LISTS = [name for name, form in FORMATS.items() if "vertices" in form.options]
# Formats of which several read the pieces together.
SHARED = [name for name in STREAMS if name in LISTS]
# Files that tools write and that hold no graph, by the ends of their names.
_NO_GRAPHS = {
    ".hgr": "a hypergraph of hMETIS",
    ".hmetis": "a hypergraph of hMETIS",
    ".patoh": "a hypergraph of PaToH",
    ".u": "a hypergraph of PaToH",
}


def checked_format(path: Path, format: str, layout: source.Layout) -> str:
    """The name of the format, guessed or given, of a file for which ``layout`` has a meaning."""
    if format == "auto" and (layout.relation or layout.nodes):
        format = "tables"
    elif format == "auto":
        format = guess_format(path)
    elif format not in FORMATS:
        raise unknown_name(READERS.kind, format, ["auto", *FORMATS])
    elif FORMATS[format].single:
        files.check_file(path)
    if format in LISTS and RELATION in (layout.columns or "").split(","):
        format = "triples"
    if FORMATS[format].single and not FORMATS[format].packed and format not in _ARCHIVES:
        with files.read_errors(path):
            packing = files.packing_of(path)
        if packing is not None:
            raise UserError(
                f"{path} is {packing}: the format {format} is read unpacked", "unpack it"
            )
    if format == "edges" and layout.columns is None and layout.header is None:
        metis_files.refuse_sizes(path)
    for option in fields(layout):
        given = getattr(layout, option.name) != option.default
        # Files of features may list ids in any order and have comments, whatever the arcs are in.
        if (
            given
            and option.name not in ("ids", "comments", "types")
            and option.name not in FORMATS[format].options
        ):
            takes = ", ".join(name for name in FORMATS if option.name in FORMATS[name].options)
            raise UserError(
                f"{path} has the format {format}: --{option.name.replace('_', '-')} is for {takes}",
                "the tables of --relation and --nodes name their columns in a header"
                if format == "tables"
                else None,
            )
    return format


def guess_format(path: Path) -> str:
    """The name in ``FORMATS`` of the format that a file seems to have; a UserError if none."""
    if Path(f"{path}.graph").is_file():
        return "planetoid"
    if path.is_dir():
        for format, form in FORMATS.items():
            if any((path / name).exists() for name in form.inside):
                return format
        hint = (
            "a folder of OGB has raw/edge.csv.gz or raw/data.npz; a planetoid source is the "
            "prefix of its files, such as DIR/ind.cora"
        )
        raise UserError(f"{path} is a folder, not a graph file", hint)
    files.check_file(path)
    with files.read_errors(path):
        packing = files.packing_of(path)
        arrays, name, begin = packing == files.ZIP and files.holds_arrays(path), path.name, b""
        if not arrays:
            file, name = files.open_content(path)
            with file:
                begin = file.read(1 << 12)
    if metis_files.BANNER.match(begin):
        return "mtx"
    suffix = Path(name.lower()).suffix
    if suffix in _NO_GRAPHS:
        raise UserError(f"{path} is {_NO_GRAPHS[suffix]}, not a graph", metis_files.HYPERGRAPH)
    for format, form in FORMATS.items():
        if suffix in form.suffixes:
            return format
    if (packing is not None or name != path.name) and not arrays:
        return "edges"
    known = ", ".join(FORMATS)
    raise UserError(f"cannot tell the format of {path} by its name", f"give --format: {known}")
