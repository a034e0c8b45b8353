"""``gcn-partition samples``: many states of a graph, to learn from."""

from __future__ import annotations

import re
from pathlib import Path

from partition.cli import common
from partition.commands import Result, command
from partition.errors import UserError
from partition.graph import store
from partition.graph.folders import check_stored_name
from partition.graph.graph import MASKS
from partition.graph.links import has_pairs
from partition.graph.samples import KIND, shares_of_steps, write_samples
from partition.importing.steps import in_order_of_vertices, open_steps
from partition.importing.vertex_data import Places
from partition.reporting import tables
from partition.reporting.describe import describe_samples

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
    places = Places(stored.graph, ids, source=stored.manifest.source)
    arrays = {
        kind: in_order_of_vertices(open_steps(file), places, str(file))
        for kind, file in files.items()
    }
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
    facts = describe_samples(found)
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
