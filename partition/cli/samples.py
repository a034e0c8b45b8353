"""``gcn-partition samples``: many states of a graph, to learn from."""

from __future__ import annotations

from pathlib import Path

import click

from partition.cli import common
from partition.cli.common import FILE, option
from partition.errors import UserError
from partition.graph import store
from partition.graph.folders import check_stored_name
from partition.graph.graph import MASKS
from partition.graph.links import has_pairs
from partition.graph.samples import KIND, shares_of_steps, write_samples
from partition.importing.steps import in_order_of_vertices, open_steps
from partition.importing.vertex_data import Places
from partition.reporting import describe
from partition.reporting.describe import describe_samples

SHARES = "0.7,0.1,0.2"


@click.command(
    epilog="""\b
Examples:
  gcn-partition samples roads.graph --states speeds.npy
  gcn-partition samples roads.graph --states speeds.zarr --split 0.7,0.1,0.2 --name speeds
  gcn-partition samples mesh.graph --states runs.npy --train 0:50,50:100 --val 100:150
  gcn-partition samples parts.graph --states loads.npy --targets stress.npy --link
  gcn-partition info roads.graph speeds"""
)
@common.graph_argument
@option(
    "--states",
    "States of all vertices, (steps, vertices, columns): .npy, or an array of Zarr. NaN: unknown.",
    metavar="FILE",
    type=FILE,
    required=True,
)
@option(
    "--targets",
    "Numbers to predict from the states of the same step, (steps, vertices, columns); without "
    "them, later states are predicted.",
    metavar="FILE",
    type=FILE,
)
@option(
    "--ids",
    "FILE with the id of each vertex in the order of the arrays; or sorted, if they follow "
    "increasing ids. A graph whose ids are not consecutive numbers needs it.",
    metavar="FILE|sorted",
)
@option("--name", "Name of the set.", "samples", metavar="NAME")
@option(
    "--split",
    "Shares of the steps that train, validate and test, in this order of time.  "
    f"[default: {SHARES}]",
    metavar="TRAIN,VAL,TEST",
)
@option("--train", "Ranges of steps to train on; no sample crosses a border.", metavar="A:B,…")
@option("--val", "Ranges of steps to validate on.", metavar="A:B,…")
@option("--test", "Ranges of steps to test on.", metavar="A:B,…")
@option(
    "--link", "Give the files a second name where that is possible, and copy nothing.", is_flag=True
)
@common.force_option
@common.json_option
def samples(
    graph: Path,
    states: Path,
    targets: Path | None,
    ids: str | None,
    name: str,
    split: str | None,
    link: bool,
    force: bool,
    as_json: bool,
    **masks: str | None,
) -> None:
    """Put many states of a graph into its folder, to train on one after the other.

    They are numbers of each vertex at many times (or of many simulations). The network is told
    some of them and predicts the next ones, or the targets. Means and deviations of the training
    steps are found on the way.
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
    given = {mask: _ranges(mask, text) for mask in MASKS if (text := masks[mask]) is not None}
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
    common.emit(facts, as_json, lambda: describe.show_sample_sets([facts]))


def _shares(text: str) -> list[float]:
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"--split takes shares, not {text!r}", "such as 0.7,0.1,0.2") from None


def _ranges(mask: str, text: str) -> list[tuple[int, int]]:
    """The ranges of steps of START:STOP,START:STOP."""
    found = []
    for word in text.replace(" ", "").split(","):
        start, colon, stop = word.partition(":")
        if not (colon and start.isdecimal() and stop.isdecimal()):
            raise UserError(
                f"--{mask} takes ranges of steps, not {word!r}", "such as 0:300,400:500"
            )
        found.append((int(start), int(stop)))
    return found
