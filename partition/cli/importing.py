"""Options of imports, of one process and of the ranks of a job, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from partition.cli import common
from partition.cli.common import FILE, note, option
from partition.commands import Decorator, parse_bytes
from partition.errors import UserError
from partition.graph import store
from partition.graph.graph import MASKS
from partition.graph.relations import STORED_NAME
from partition.graph.sparse_rows import FORMS
from partition.importing import assemble
from partition.importing.arc_data import ArcFiles
from partition.importing.arcs import DUPLICATES, SELF_LOOPS
from partition.importing.readers import READERS, STREAMS
from partition.importing.readers.source import Layout
from partition.importing.readers.text import COMMENTS
from partition.importing.vertex_data import MASK_NUMBERS, SPLIT_EXAMPLES, RandomSplit
from partition.reporting import tables
from partition.reporting.describe import describe_data

AUTOMATIC = "auto"


header_option = click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line of a list of arcs is a header.  [default: determined from it]",
)
comments_option = option(
    "--comments",
    "Lines of text that are comments: those that begin with these signs.  [default: lines that "
    "begin with # or % and cannot be rows]",
    type=click.Choice(COMMENTS),
)


def with_options(
    command: Callable[..., object], options: Sequence[Decorator]
) -> Callable[..., object]:
    """The command with some options, in their order."""
    for each in reversed(options):
        command = each(command)
    return command


def list_options(command: Callable[..., object]) -> Callable[..., object]:
    """--format, and what is said of a list of arcs."""
    options: list[Decorator] = [
        option(
            "--format",
            "Format of SOURCE: Matrix Market, a list of arcs, a graph of METIS, GraphML, GML or "
            "node-link JSON (by NetworkX), the planetoid files (SOURCE is their common prefix), "
            "the npz of gnn-benchmark or of SciPy, an edge_index in an npy, a folder of "
            "OGB with raw and split, a file of PyTorch Geometric or of dgl.save_graphs, a list of "
            "arcs in Parquet, triples of a list with a column of relations, or tables of "
            "relations; auto looks at the file.",
            AUTOMATIC,
            type=click.Choice([AUTOMATIC, *READERS]),
        ),
        option(
            "--columns",
            "Columns of a list of arcs, in their order: source, target, weight, relation, and - "
            "for a "
            "column that is not read. Further columns are not read.",
            metavar="NAMES",
        ),
        header_option,
        option(
            "--string-ids",
            "Read ids in a list of arcs as text, even if all are digits.",
            is_flag=True,
        ),
        option(
            "--vertices",
            "Vertices of a list of arcs, including those without arcs: N for 0..N-1 or 1..N, or "
            "A..B.",
            metavar="N|A..B",
        ),
    ]
    return with_options(command, options)


def rule_options(command: Callable[..., object]) -> Callable[..., object]:
    """The rules for reverses, duplicates and self-loops, and the direction."""
    options: list[Decorator] = [
        option("--undirected", "Add the reverse of every arc.", is_flag=True),
        common.direction_option(
            "Whether a vertex sums over the arcs that enter it or leave it.  [default: in]"
        ),
        option(
            "--duplicates",
            "For arcs that are listed more than once: merge them, with the weight of the first; "
            "add their "
            "weights; keep all, each with its own data; or fail.",
            "merge",
            type=click.Choice(DUPLICATES),
        ),
        option(
            "--self-loops",
            "Keep or drop arcs from a vertex to itself.",
            "keep",
            type=click.Choice(SELF_LOOPS),
        ),
    ]
    return with_options(command, options)


def arc_data_options(command: Callable[..., object]) -> Callable[..., object]:
    """Options of data of arcs: --arc-features and --arc-label."""
    options: list[Decorator] = [
        option(
            "--arc-features",
            "Features of the arcs: columns of SOURCE by names and patterns, such as w1,w2 or 'f*'; "
            "weight: the weights, which are then none; FILE.npy with a row for each arc that "
            "SOURCE lists; or D random columns.",
            metavar="NAMES|FILE.npy|random:D",
        ),
        option(
            "--arc-label",
            "Labels of the arcs: a column of SOURCE with classes or fractions, several with "
            "numbers, FILE.npy, or C random classes.",
            metavar="NAMES|FILE.npy|random:C",
        ),
    ]
    return with_options(command, options)


def vertex_data_options(command: Callable[..., object]) -> Callable[..., object]:
    """--features, --labels, --targets, the masks, and what says which vertex a row is of."""
    options: list[Decorator] = [
        option(
            "--features",
            "A file, or D random columns; with orthogonal:D of length 1 and at right angles. Of a "
            "graph with vertex types, TYPE=FILE for each type.",
            metavar="X|random:D|orthogonal:D|TYPE=X",
            multiple=True,
        ),
        option("--labels", "A file, or C random classes.", metavar="Y|random:C"),
        option(
            "--label-column",
            "Column of the table of --labels that has the labels, by its name in the header; "
            "or of that of --features, whose other columns of numbers are the features.",
            metavar="NAME",
        ),
        option(
            "--targets",
            "Numbers to learn, or several labels a vertex as 0 and 1; NaN where unknown.",
            metavar="FILE",
            type=FILE,
        ),
        *(
            option(
                f"--{name}-mask",
                f"Vertices to {verb}; a column for each split, or a * in FILE for its number.",
                metavar="FILE",
                type=FILE,
            )
            for name, verb in (("train", "train on"), ("val", "validate on"), ("test", "test on"))
        ),
        option(
            "--split rule",
            "Draw the masks among vertices with labels. random:0.6,0.2,0.2: shares to train "
            "on, validate on and test on. per-class:20,500,1000: 20 of each class to train on, "
            "and 500 and 1000 of the others.",
            metavar="RULE",
        ),
        option("--splits", "Number of splits that are drawn.  [default: 1]", type=int),
        option(
            "--ids",
            "FILE with the id of each row of the files of features, labels and masks; or "
            "sorted, if their rows are in the order of increasing ids. For a list of arcs, FILE "
            "also determines the vertices of the graph and their order.",
            metavar="FILE|sorted",
        ),
        comments_option,
        option(
            "--missing-label",
            "Word for no label, beside an empty one and -1; may be given several times. All other "
            "words are classes.  [default: NaN; words such as NA are refused among numbers]",
            metavar="WORD",
            multiple=True,
        ),
        option(
            "--mask-numbers",
            "Meaning of numbers in a mask: ids of vertices, or rows of the files.",
            type=click.Choice(MASK_NUMBERS),
        ),
        option("--seed", "Seed of random data and splits.", 0),
        option(
            "--keep-features",
            "Keep features as a dense array or as a sparse matrix; auto: sparse if at most "
            "5 % are not 0 and a dense array would take 64 MiB or more.",
            AUTOMATIC,
            type=click.Choice(FORMS),
        ),
    ]
    return with_options(command, options)


def taken(options: dict[str, Any]) -> None:
    """Put in place of options what they say together: fields of an import."""
    options["masks"], options["split"] = masks_given(options), split_given(options)
    options["type_features"], options["arc_files"] = (
        type_features_given(options),
        arc_files(options),
    )
    options["missing_labels"] = options.pop("missing_label")
    layout = {part.name: options.pop(part.name) for part in fields(Layout) if part.name in options}
    options["layout"] = Layout(**layout)


def masks_given(options: dict[str, Any]) -> dict[str, Path]:
    """The files of masks, by name."""
    given = {name: options.pop(f"{name}_mask") for name in MASKS}
    return {name: file for name, file in given.items() if file is not None}


def type_features_given(options: dict[str, Any]) -> dict[str, Path]:
    """Files of the features of types; those of all vertices, at most one, stay an option."""
    found: dict[str, Path] = {}
    of_all = []
    for text in options["features"]:
        name, equals, file = text.partition("=")
        if not equals or not STORED_NAME.fullmatch(name) or Path(text).exists():
            of_all.append(text)
        elif name in found:
            raise UserError(f"--features {name}=… is given twice")
        else:
            found[name] = Path(file)
    if len(of_all) > 1 or (of_all and found):
        raise UserError("--features is given twice", "once, or TYPE=FILE for each type of vertices")
    options["features"] = of_all[0] if of_all else None
    return found


def arc_files(options: dict[str, Any]) -> ArcFiles:
    """Data of arcs that are in files of their own, or random; names of columns stay options."""
    found = {"arc_features": None, "arc_label": None}
    for name in found:
        value = options[name]
        if value is not None and (value.endswith(".npy") or value.startswith("random:")):
            found[name] = options[name]
            options[name] = None
    return ArcFiles(found["arc_features"], found["arc_label"], {}, options["seed"])


def split_given(options: dict[str, Any]) -> RandomSplit | None:
    """How masks are drawn, if they are."""
    rule, splits = options.pop("rule"), options.pop("splits")
    if rule is None:
        if splits is not None:
            hint = f"--split {SPLIT_EXAMPLES}"
            raise UserError("--splits says how many splits are drawn, but not how", hint)
        return None
    return RandomSplit(rule, 1 if splits is None else splits, options["seed"])


# The folder does not say it; its loader adds the reverses for these two.
ONE_WAY = (
    "OGB lists an undirected edge once: for ogbn-products and ogbn-proteins, import with "
    "--undirected"
)


DIRECTED = (
    "the graph is directed, and a vertex sums over the arcs that enter it; --undirected adds the "
    "reverse of every arc, as is usual for citations and links"
)


ONE_WAY_RELATIONS = (
    "a vertex sums over the arcs that enter it; --reverse adds the reverse of each relation, so "
    "that the types at their sources sum too"
)


@click.command(
    "import",
    epilog="""\b
Examples:
  gcn-partition import soc-Slashdot0902.mtx.gz slashdot.graph --features random:16
  gcn-partition import planetoid/ind.cora cora.graph
  gcn-partition import ogbn_products products.graph --undirected
  gcn-partition import pyg:Planetoid/Cora cora.graph
  gcn-partition import ogb:ogbn-arxiv arxiv.graph --undirected
  gcn-partition import links.txt links.graph --undirected --features x.npy --labels y.csv
  gcn-partition import links.csv links.graph --features people.csv --label-column kind
  gcn-partition import calls.csv calls.graph --columns source,target,-,weight --ids people.txt
  gcn-partition import train.tsv kg.graph --columns source,relation,target --reverse
  gcn-partition import ogbn_mag mag.graph --reverse
  gcn-partition import DIR g.graph --relation author,writes,paper=w.csv --nodes paper=p.parquet""",
)
@click.argument("source", type=FILE)
@common.out_argument
@list_options
@option(
    "--relation",
    "Table of the arcs of a relation, in the folder SOURCE; once for each.",
    metavar="A,NAME,B=FILE",
    multiple=True,
)
@option(
    "--nodes",
    "Table of the vertices of a type, with ids, features, label and split; or how many there are. "
    "Without it, they are those of the arcs.",
    metavar="TYPE=FILE|N",
    multiple=True,
)
@option(
    "--reverse",
    "Add the reverse of each relation, rev_NAME, unless it is there or the relation is symmetric.",
    is_flag=True,
)
@rule_options
@option(
    "--memory",
    "Take at most so much memory, such as 3GB, and sort the arcs in files beside OUT.graph, "
    f"with the same result: for {', '.join(STREAMS)}.  [default: sort in memory]",
    metavar="SIZE",
)
@arc_data_options
@vertex_data_options
@common.force_option
@common.json_option
def import_(
    source: Path,
    out: Path,
    direction: str | None,
    memory: str | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Read the graph in the file or folder SOURCE and write it to the folder OUT.graph.

    SOURCE may also be a data set that PyTorch Geometric, OGB or DGL downloads, if it is installed:
    pyg:CLASS/NAME, ogb:NAME, dgl:CLASS.
    """
    taken(options)
    limit = None if memory is None else parse_bytes(memory)
    with common.noted_warnings(), common.advancing() as tell:
        manifest = assemble.import_graph(
            source,
            out,
            direction=direction or "in",
            overwrite=force,
            memory=limit,
            report=note,
            tell=tell,
            **options,
        )
    if manifest.source["format"] == "ogb" and manifest.directed and not options["undirected"]:
        note(ONE_WAY)
    elif manifest.vertex_types:
        if not options["reverse"]:
            note(ONE_WAY_RELATIONS)
    elif manifest.directed and direction is None and not options["undirected"]:
        note(DIRECTED)
    _show_data(out, manifest, as_json)


@click.command(
    epilog="""\b
Examples:
  gcn-partition attach links.graph --features x.npy --labels y.csv --train-mask train.npy
  gcn-partition attach calls.graph --features x.csv --ids people.txt
  gcn-partition attach links.graph --split random:0.6,0.2,0.2 --splits 10
  gcn-partition attach links.graph --arc-features random:16 --arc-labels y.npy
  gcn-partition attach mag.graph --features author=a.npy --features institution=i.npy""",
)
@common.graph_argument
@vertex_data_options
@option(
    "--arc-features",
    "Features of the arcs in their order in the folder: a file with a row for each, or D random "
    "columns.",
    metavar="FILE.npy|random:D",
)
@option(
    "--arc-labels",
    "Labels of the arcs likewise: classes, or numbers with NaN where unknown; or C random classes.",
    metavar="FILE.npy|random:C",
)
@option("--arc-train-mask", "Arcs to train on: true or false for each.", metavar="FILE.npy")
@option("--arc-val-mask", "Arcs to validate on.", metavar="FILE.npy")
@option("--arc-test-mask", "Arcs to test on.", metavar="FILE.npy")
@common.json_option
def attach(graph: Path, as_json: bool, **options: Any) -> None:
    """Add data of vertices and arcs to a graph folder, or replace those that it has.

    Arcs and partitions stay as they are.
    """
    masks, split, type_features = (
        masks_given(options),
        split_given(options),
        type_features_given(options),
    )
    of_arcs = {name: options.pop(f"arc_{name}_mask") for name in MASKS}
    options["missing_labels"] = options.pop("missing_label")
    arc_files = ArcFiles(
        options.pop("arc_features"),
        options.pop("arc_labels"),
        {name: file for name, file in of_arcs.items() if file is not None},
        options["seed"],
    )
    named = ("features", "labels", "targets", "label_column")
    given = arc_files.given() or type_features or any(options[name] is not None for name in named)
    if not masks and split is None and not given and options["keep_features"] == AUTOMATIC:
        hint = "give --features, --labels, --targets, a mask, --split, or --arc-features"
        raise UserError("there is nothing to attach", hint)
    with common.noted_warnings():
        manifest = assemble.attach_files(
            graph, masks=masks, split=split, arc_files=arc_files, type_features=type_features,
            report=note, **options,
        )  # fmt: skip
    _show_data(graph, manifest, as_json)


@click.command(
    epilog="""\b
Example:
  gcn-partition export mag.graph tables
  gcn-partition import tables again.graph
  gcn-partition export mag.graph cites.graph --relation cites --relation rev_cites"""
)
@common.graph_argument
@click.argument("out", metavar="DIR", type=FILE)
@option(
    "--relation",
    "Write a graph folder DIR with the arcs of this relation only, and all vertices; "
    "SOURCE,NAME,TARGET where several have a name. May be repeated.",
    metavar="NAME",
    multiple=True,
)
@common.force_option
@common.json_option
def export(graph: Path, out: Path, relation: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Write the relations and types of a heterogeneous graph as tables into the folder DIR.

    A csv for each relation, Parquet for each type, and graph.toml, which import reads.
    """
    from partition.importing.typed_export import export_relations, export_tables

    if relation:
        manifest = export_relations(store.open_graph(graph), out, relation, force, note)
        _show_data(out, manifest, as_json)
        return
    facts = export_tables(store.open_graph(graph), out, force)
    line = f"{out}: {len(facts['relations']):,} relations, {len(facts['nodes']):,} types"
    common.emit(facts, as_json, lambda: click.echo(line))


def _show_data(path: Path, manifest: store.Manifest, as_json: bool) -> None:
    summary = describe_data(store.open_graph(path))
    facts = {"path": str(path), "manifest": manifest, "summary": summary}
    common.emit(facts, as_json, lambda: tables.show_data(path, manifest, summary))
