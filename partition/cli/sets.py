"""``gcn-partition pairs``, ``negatives`` and ``samples``: sets to learn from, beside a graph."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partition.cli import common
from partition.cli.importing import Comments
from partition.commands import Result, command
from partition.errors import UserError, check_name
from partition.graph import store
from partition.graph.graph import MASKS
from partition.graph.manifest import check_stored_name
from partition.graph.samples import KIND, shares_of_steps, write_samples
from partition.graph.vertex_pairs import (
    HELD_OUT,
    descriptions,
    has_pairs,
    read_pairs,
    split_pairs,
    twins_of,
    with_hard_candidates,
    write_pairs,
)
from partition.importing.data_files import RowMap, open_steps
from partition.importing.pair_files import import_pairs
from partition.importing.readers import RELATION
from partition.importing.readers.source import Layout
from partition.reporting import tables


@dataclass(frozen=True)
class _Drawing:
    """How arcs of the graph are split into pairs.

    Attributes
    ----------
    split : TRAIN,VAL,TEST
        Shares of the pairs that train, validate and test: they are drawn at random.
    seed
        Seed of all that is drawn.
    negatives
        Pairs without an arc that are drawn for each pair to validate or test on; all pairs are
        ranked against all of them.
    candidates
        Vertices in place of the second one that each pair to validate or test on is ranked against;
        they are drawn when they are needed.
    relation : NAME
        Split the arcs of this relation; may be given several times.  [default: all but reverses and
        copies of others]
    """

    split: str = "0.85,0.05,0.10"
    seed: int = 0
    negatives: int = 1
    candidates: int = 0
    relation: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Files:
    """The files of pairs of each mask.

    Attributes
    ----------
    train : FILE
        Pairs to train on: a table, .npy, .parquet or .pt.
    val : FILE
        Pairs to validate on.
    test : FILE
        Pairs to test on.
    train_negatives : FILE
        Negatives of those to train on.
    val_negatives : FILE
        Negatives of those to validate on.
    test_negatives : FILE
        Negatives of those to test on.
    val_candidates : FILE
        Vertices in place of the second one of each pair to validate on, a row for each.
    test_candidates : FILE
        Vertices in place of the second one of each pair to test on, a row for each.
    """

    train: Path | None = None
    val: Path | None = None
    test: Path | None = None
    train_negatives: Path | None = None
    val_negatives: Path | None = None
    test_negatives: Path | None = None
    val_candidates: Path | None = None
    test_candidates: Path | None = None

    def given(self) -> dict[tuple[str, str], Path]:
        """Files that are given, by mask and kind."""
        found = {}
        for name, file in vars(self).items():
            mask, _, kind = name.partition("_")
            if file is not None:
                found[mask, kind or "positives"] = file
        return found


@command
def pairs(
    graph: common.GraphFolder,
    *,
    drawing: _Drawing,
    name: str = "links",
    directed: bool | None = None,
    reverse_of: tuple[str, ...] = (),
    copy_of: tuple[str, ...] = (),
    whole: Path | None = None,
    files: _Files,
    columns: str | None = None,
    header: bool | None = None,
    comments: Comments = None,
    drop_held_out: bool = False,
    force: common.Force = False,
) -> Result:
    """Split the arcs of a graph into pairs to train on, validate on and test on, or read pairs.

    The graph keeps all arcs: gcnmpi leaves those to validate and test on out of M, both ways of
    an undirected pair, and of relations that have the edges of another one. Pairs of a graph with
    relations have that of their arc, and are split relation by relation.

    Parameters
    ----------
    name : NAME
        Name of the set.
    directed : --directed/--undirected
        Whether an arc and its reverse are two pairs.  [default: as the graph; pairs with relations
        are two]
    reverse_of : OTHER=RELATION
        OTHER has the edges of RELATION turned round, and leaves M with them; of a symmetric
        relation both are the same. 'none': nothing is recognised.  [default: where nine of ten
        edges are, and rev_NAME]
    copy_of : OTHER=RELATION
        OTHER has the edges of RELATION, and leaves M with them.
    whole : --from FILE|FOLDER
        Read the pairs of all masks: a folder of OGB, or one with train, valid and test; an .npz; or
        what torch.save wrote of the three graphs of RandomLinkSplit.
    columns : NAMES
        Columns of tables of pairs in their order: source, target, relation, and - for one that is
        not read.
    header
        Whether the first line of a table is a header.  [default: determined from it]
    comments
        Lines of text that are comments: those that begin with these signs.  [default: lines that
        begin with # or % and cannot be rows]
    drop_held_out
        Leave pairs that are also there to validate or test on out of those to train on, and those
        to test on out of those to validate on.

    Examples
    --------
    gcn-partition pairs G.graph --split 0.85,0.05,0.10
    gcn-partition pairs G.graph --split 0.7,0.1,0.2 --seed 1 --name links-1 --negatives 0
    gcn-partition pairs shop.graph --split 0.8,0.1,0.1 --relation user,buys,item
    gcn-partition pairs collab.graph --from dataset/ogbl_collab
    gcn-partition pairs G.graph --train train.csv --val val.csv --test test.csv
    gcn-partition pairs kg.graph --from TRIPLES --columns source,relation,target
    gcn-partition info G.graph links
    """
    if store.has_partition(graph, name):
        raise UserError(f"{graph} has a partition {name!r}", "give another --name")
    if has_pairs(graph, name) and not force:
        hint = "give --name or --force, or remove them first"
        raise UserError(f"{graph} has pairs {name!r} already", hint)
    layout = Layout(columns, header=header, comments=comments)
    parts = files.given()
    reading = bool(whole or parts)
    for option in vars(drawing) if reading else ():
        if common.is_given(option):
            raise UserError(f"--{option} draws pairs, and these are read from files")
    if (layout != Layout() or drop_held_out) and not reading:
        raise UserError(
            "--columns, --header, --comments and --drop-held-out are for pairs that are read",
            "give --from, or --train, --val and --test",
        )
    stored = store.open_graph(graph)
    if directed is None:
        related = RELATION in (columns or "").replace(" ", "").split(",")
        directed = stored.manifest.directed or (
            related if reading else bool(stored.graph.relations)
        )
    with common.working("reading" if reading else "drawing"):
        twins = twins_of(stored.graph, directed, reverse_of, copy_of)
        facts: dict[str, Any] = {"graph_id": stored.manifest.id, "directed": directed, "name": name}
        notes: list[str] = []
        if reading:
            made, notes = import_pairs(
                whole, parts, stored.graph, layout, drop_held_out=drop_held_out, twins=twins,
                **facts,
            )  # fmt: skip
        else:
            made = split_pairs(
                stored.graph, drawing.split.split(","), seed=drawing.seed, twins=twins,
                negatives=drawing.negatives, candidates=drawing.candidates,
                relations=drawing.relation, **facts,
            )  # fmt: skip
        made = write_pairs(graph, made, force)
    of = {int(number) for each in made.relations.values() for number in np.unique(each)} or {0}
    kept = {twin: share for twin, share in twins.items() if twin in (made.twins or ())}
    for line in [*notes, *descriptions(kept, stored.graph.relations, of)]:
        common.note(line)
    described = tables.describe_pairs(made, stored.graph)
    return Result(described, lambda _: tables.show_list([], [described]))


@command
def negatives(
    graph: common.GraphFolder,
    *,
    name: str = "links",
    hard: int = 500,
    masks: str = "val,test",
    force: common.Force = False,
) -> Result:
    """Find candidates that are hard to tell from the true ends of pairs to validate and test on.

    They are the likeliest partners of the other end that are none, by common neighbours and
    personalised PageRank (Li et al. 2023), and are put into the set of pairs.

    Parameters
    ----------
    name : --pairs NAME
        The set of pairs that they are put into.
    hard
        How many for each pair, half of them in place of either end.
    masks : --of val,test
        Masks whose pairs they are for.

    Examples
    --------
    gcn-partition negatives G.graph --pairs links --hard 500
    gcn-partition negatives G.graph --pairs links --hard 100 --of test --force
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
    with common.working() as tell:
        made = with_hard_candidates(pairs, stored.graph, hard, list(dict.fromkeys(of)), tell)
    facts = tables.describe_pairs(write_pairs(graph, made, force=True), stored.graph)
    return Result(facts, lambda _: tables.show_list([], [facts]))


SHARES = "0.7,0.1,0.2"


@command
def samples(
    graph: common.GraphFolder,
    *,
    states: Path,
    targets: Path | None = None,
    ids: str | None = None,
    name: str = "samples",
    split: str | None = None,
    train: str | None = None,
    val: str | None = None,
    test: str | None = None,
    link: bool = False,
    force: common.Force = False,
) -> Result:
    """Put many states of a graph into its folder, to train on one after the other.

    They are numbers of each vertex at many times (or of many simulations). The network is told
    some of them and predicts the next ones, or the targets. Means and deviations of the training
    steps are found on the way.

    Parameters
    ----------
    states : FILE
        States of all vertices, (steps, vertices, columns): .npy, or an array of Zarr. NaN: unknown.
    targets : FILE
        Numbers to predict from the states of the same step, (steps, vertices, columns); without
        them, later states are predicted.
    ids : FILE|sorted
        FILE with the id of each vertex in the order of the arrays; or sorted, if they follow
        increasing ids. A graph whose ids are not consecutive numbers needs it.
    name : NAME
        Name of the set.
    split : TRAIN,VAL,TEST
        Shares of the steps that train, validate and test, in this order of time.
        [default: 0.7,0.1,0.2]
    train : A:B,…
        Ranges of steps to train on; no sample crosses a border.
    val : A:B,…
        Ranges of steps to validate on.
    test : A:B,…
        Ranges of steps to test on.
    link
        Give the files a second name where that is possible, and copy nothing.

    Examples
    --------
    gcn-partition samples roads.graph --states speeds.npy
    gcn-partition samples roads.graph --states speeds.zarr --split 0.7,0.1,0.2 --name speeds
    gcn-partition samples mesh.graph --states runs.npy --train 0:50,50:100 --val 100:150
    gcn-partition samples parts.graph --states loads.npy --targets stress.npy --link
    gcn-partition info roads.graph speeds
    """
    check_stored_name(KIND, name)
    if store.has_partition(graph, name) or has_pairs(graph, name):
        raise UserError(f"{graph} has a partition or pairs {name!r}", "give another --name")
    files = {"states": states} | ({} if targets is None else {"targets": targets})
    stored = store.open_graph(graph)
    row_map = RowMap(stored.graph, ids, source=stored.manifest.source)
    arrays = {kind: row_map.steps(open_steps(file), str(file)) for kind, file in files.items()}
    said = zip(MASKS, (train, val, test), strict=True)
    given = {mask: _ranges(mask, text) for mask, text in said if text is not None}
    if given and split is not None:
        raise UserError("--split and ranges of steps exclude each other", "leave one of them out")
    ranges = given or shares_of_steps(arrays["states"].shape[0], _shares(split or SHARES))
    made = ", ".join(f"{kind} of {file.name}" for kind, file in files.items())
    plain = {kind: file for kind, file in files.items() if file.suffix == ".npy"}
    with common.working("reading"):
        found = write_samples(
            graph, name, arrays["states"], arrays.get("targets"), ranges, made=made, force=force,
            links=plain if link else None,
        )  # fmt: skip
    facts = tables.describe_samples(found)
    return Result(facts, lambda _: tables.show_list([], [], [facts]))


def _shares(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"--split takes shares, not {text!r}", "such as 0.7,0.1,0.2") from None


def _ranges(mask: str, text: str) -> list[tuple[int, int]]:
    """The ranges of steps of START:STOP,START:STOP."""
    words = text.replace(" ", "").split(",")
    wrong = next((word for word in words if not re.fullmatch(r"\d+:\d+", word)), None)
    if wrong is not None:
        raise UserError(f"--{mask} takes ranges of steps, not {wrong!r}", "such as 0:300,400:500")
    return [(int(start), int(stop)) for start, _, stop in (word.partition(":") for word in words)]
