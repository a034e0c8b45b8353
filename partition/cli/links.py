"""``gcn-partition pairs`` and ``negatives``: pairs of vertices for link prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from partition.cli import common, importing
from partition.cli.common import FILE, note, option
from partition.errors import UserError, check_name
from partition.graph import store
from partition.graph.graph import MASKS
from partition.graph.links import HELD_OUT, PairSet, has_pairs, read_pairs, split_pairs, write_pairs
from partition.graph.store import StoredGraph
from partition.graph.twins import descriptions, twins_of
from partition.importing.links import LinkFiles, import_pairs
from partition.importing.readers import RELATION
from partition.importing.readers.source import Layout
from partition.pipeline.hard_candidates import with_hard_candidates
from partition.reporting import describe
from partition.reporting.describe import describe_pairs

OF_A_SPLIT = ("split", "seed", "negatives", "candidates", "relation")
PARTS = [
    *((mask, "positives") for mask in MASKS),
    *((mask, "negatives") for mask in MASKS),
    *((mask, "candidates") for mask in HELD_OUT),
]


def _files(command: Any) -> Any:
    """--train FILE, --val-negatives FILE and so on."""
    texts = {
        "positives": "Pairs of {}: a table, .npy, .parquet or .pt.",
        "negatives": "Negatives of {}.",
        "candidates": "Vertices in place of the second one of each pair of {}, a row for each.",
    }
    for mask, kind in reversed(PARTS):
        flag = f"--{mask}" if kind == "positives" else f"--{mask}-{kind}"
        command = option(
            f"{flag} {mask}_{kind}", texts[kind].format(mask), metavar="FILE", type=FILE
        )(command)
    return command


@click.command(
    epilog="""\b
Examples:
  gcn-partition pairs G.graph --split 0.85,0.05,0.10
  gcn-partition pairs G.graph --split 0.7,0.1,0.2 --seed 1 --name links-1 --negatives 0
  gcn-partition pairs shop.graph --split 0.8,0.1,0.1 --relation user,buys,item
  gcn-partition pairs collab.graph --from dataset/ogbl_collab
  gcn-partition pairs G.graph --train train.csv --val val.csv --test test.csv
  gcn-partition pairs kg.graph --from TRIPLES --columns source,relation,target
  gcn-partition info G.graph links"""
)
@common.graph_argument
@option(
    "--split",
    "Shares of the pairs that train, validate and test: they are drawn at random.",
    "0.85,0.05,0.10",
    metavar="TRAIN,VAL,TEST",
)
@option("--seed", "Seed of all that is drawn.", 0)
@option("--name", "Name of the set.", "links", metavar="NAME")
@click.option(
    "--directed/--undirected",
    default=None,
    help="Whether an arc and its reverse are two pairs.  [default: as the graph; pairs with "
    "relations are two]",
)
@option(
    "--negatives",
    "Pairs without an arc that are drawn for each pair to validate or test on; all pairs are "
    "ranked against all of them.",
    1,
)
@option(
    "--candidates",
    "Vertices in place of the second one that each pair to validate or test on is ranked against; "
    "they are drawn when they are needed.",
    0,
)
@click.option(
    "--relation",
    multiple=True,
    metavar="NAME",
    help="Split the arcs of this relation; may be given several times.  [default: all but reverses "
    "and copies of others]",
)
@click.option(
    "--reverse-of",
    multiple=True,
    metavar="OTHER=RELATION",
    help="OTHER has the edges of RELATION turned round, and leaves M with them; of a symmetric "
    "relation both are the same. 'none': nothing is recognised.  [default: where nine of ten edges "
    "are, and rev_NAME]",
)
@click.option(
    "--copy-of",
    multiple=True,
    metavar="OTHER=RELATION",
    help="OTHER has the edges of RELATION, and leaves M with them.",
)
@option(
    "--from whole",
    "Read the pairs of all masks: a folder of OGB, or one with train, valid and test; an .npz; or "
    "what torch.save wrote of the three graphs of RandomLinkSplit.",
    metavar="FILE|FOLDER",
    type=FILE,
)
@_files
@option(
    "--columns",
    "Columns of tables of pairs in their order: source, target, relation, and - for one that is "
    "not read.",
    metavar="NAMES",
)
@importing.header_option
@importing.comments_option
@option(
    "--drop-held-out",
    "Leave pairs that are also there to validate or test on out of those to train on, and those to "
    "test on out of those to validate on.",
    is_flag=True,
)
@common.force_option
@common.json_option
def pairs(
    graph: Path, name: str, directed: bool | None, force: bool, as_json: bool, **options: Any
) -> None:
    """Split the arcs of a graph into pairs to train on, validate on and test on, or read pairs.

    The graph keeps all arcs: gcnmpi leaves those to validate and test on out of M, both ways of
    an undirected pair, and of relations that have the edges of another one. Pairs of a graph with
    relations have that of their arc, and are split relation by relation.
    """
    check_is_free(graph, name, force)
    whole, columns = options.pop("whole"), options.pop("columns")
    layout = Layout(columns, header=options.pop("header"), comments=options.pop("comments"))
    parts = {(m, k): options.pop(f"{m}_{k}") for m, k in PARTS}
    files = LinkFiles(whole, {key: f for key, f in parts.items() if f is not None}, layout)
    drop = options.pop("drop_held_out")
    declared = options.pop("reverse_of"), options.pop("copy_of")
    reading = bool(files.whole or files.parts)
    _check_options(reading, layout != Layout() or drop)
    stored = store.open_graph(graph)
    if directed is None:
        related = bool(stored.graph.relations)
        if reading:
            related = columns is not None and RELATION in columns.replace(" ", "").split(",")
        directed = stored.manifest.directed or related
    with common.working("reading" if reading else "drawing"):
        twins = twins_of(stored.graph, directed, *declared)
        if reading:
            made, notes = import_pairs(
                files,
                stored.graph,
                graph_id=stored.manifest.id,
                directed=directed,
                name=name,
                drop_held_out=drop,
                twins=twins,
            )
        else:
            made, notes = _drawn(stored, directed, name, twins=twins, **options), []
        made = write_pairs(graph, made, force)
    of = {int(number) for each in made.relations.values() for number in np.unique(each)} or {0}
    kept = {twin: share for twin, share in twins.items() if twin in (made.twins or ())}
    for line in [*notes, *descriptions(kept, stored.graph.relations, of)]:
        note(line)
    facts = describe_pairs(made, stored.graph)
    common.emit(facts, as_json, lambda: describe.show_pair_sets([facts]))


def _drawn(
    stored: StoredGraph, directed: bool, name: str, relation: tuple[str, ...], **options: Any
) -> PairSet:
    shares, graph_id = options.pop("split").split(","), stored.manifest.id
    facts: dict[str, Any] = {"directed": directed, "name": name, "graph_id": graph_id}
    return split_pairs(stored.graph, shares, relations=relation, **facts, **options)


def _check_options(reading: bool, of_files: bool) -> None:
    """Refuse options of a split for pairs that are read, and the other way round."""
    context = click.get_current_context()
    for name in OF_A_SPLIT if reading else ():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UserError(f"--{name} draws pairs, and these are read from files")
    if of_files and not reading:
        raise UserError(
            "--columns, --header, --comments and --drop-held-out are for pairs that are read",
            "give --from, or --train, --val and --test",
        )


def check_is_free(graph: Path, name: str, force: bool) -> None:
    """Refuse a name that is taken before anything is drawn or read."""
    if store.has_partition(graph, name):
        raise UserError(f"{graph} has a partition {name!r}", "give another --name")
    if has_pairs(graph, name) and not force:
        hint = "give --name or --force, or remove them first"
        raise UserError(f"{graph} has pairs {name!r} already", hint)


@click.command(
    epilog="""\b
Examples:
  gcn-partition negatives G.graph --pairs links --hard 500
  gcn-partition negatives G.graph --pairs links --hard 100 --of test --force"""
)
@common.graph_argument
@option("--pairs name", "The set of pairs that they are put into.", "links", metavar="NAME")
@option("--hard", "How many for each pair, half of them in place of either end.", 500)
@option("--of masks", "Masks whose pairs they are for.", ",".join(HELD_OUT), metavar="val,test")
@common.force_option
@common.json_option
def negatives(graph: Path, name: str, hard: int, masks: str, force: bool, as_json: bool) -> None:
    """Find candidates that are hard to tell from the true ends of pairs to validate and test on.

    They are the likeliest partners of the other end that are none, by common neighbours and
    personalised PageRank (Li et al. 2023), and are put into the set of pairs.
    """
    of = [mask.strip() for mask in masks.split(",")]
    for mask in of:
        check_name("mask", mask, HELD_OUT)
    pairs = read_pairs(graph, name)
    taken = [mask for mask in of if mask in pairs.candidates]
    if taken and not force:
        hint = "--force replaces them"
        raise UserError(f"the pairs {name!r} have candidates of {taken[0]} already", hint)
    stored = store.open_graph(graph)
    with common.advancing() as tell:
        made = with_hard_candidates(pairs, stored.graph, hard, list(dict.fromkeys(of)), tell)
    facts = describe_pairs(write_pairs(graph, made, force=True), stored.graph)
    common.emit(facts, as_json, lambda: describe.show_pair_sets([facts]))
