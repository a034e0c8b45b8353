"""``gcnmpi propagate``: methods that multiply by one sparse matrix again and again."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gcnmpi.cli import common
from gcnmpi.options.config import meaning_of
from gcnmpi.options.methods import METHODS
from gcnmpi.options.outputs import check_distinct, check_suffix
from partition.commands import option, path_option

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims


def _keys() -> list[str]:
    """The options of all methods, and the keys of the configuration."""
    options = (dataclasses.fields(METHODS.get(name).options) for name in METHODS)
    return [
        *dict.fromkeys(option.name for each in options for option in each),
        *common.config_keys(),
    ]


def options_of_methods() -> dict[str, dict[str, str]]:
    """The options of every method, with their defaults, and what they mean."""
    every = {name: dataclasses.fields(METHODS.get(name).options) for name in METHODS}
    return {
        name: {f"{one.name} = {json.dumps(one.default)}": meaning_of(one) for one in options}
        for name, options in every.items()
        if options
    }


@click.command(short_help="PageRank, label propagation, spectra and embeddings of a graph.")
@functools.partial(common.on_graph, keys=_keys)
@click.argument("method", metavar="METHOD")
@common.told_option("--methods", "Print the options of every method.", options_of_methods)
@common.split_option
@path_option(
    "--out",
    "FILE",
    "File to write, one row per vertex: .npy, .npz, .csv or .parquet.",
    required=True,
)
@option(
    "--force",
    "Start although the forecast needs more memory; go on from a checkpoint of another "
    "partition, with other rounding.",
    is_flag=True,
)
@common.quiet_option
def propagate(
    given: common.Given,
    method: str,
    split: int | None,
    out: Path,
    force: bool,
    quiet: bool,
) -> common.Job:
    """Compute METHOD on GRAPH: a row for each vertex, in the order of the graph.

    Methods are METHODS.

    --set takes the options of the method, such as damping=0.9, and keys of the configuration, such
    as scheme.name=bcast or dtype=float64. --methods lists the options of all methods;
    docs/propagation.md describes them.
    """
    from gcnmpi.propagation.settings import asked_for

    asked = asked_for(method, (*given.settings, *common.of_split(split)), given.file)
    check_suffix("--out", out, asked.method.suffixes)
    check_distinct({"GRAPH": given.graph, "--config": given.file, "--out": out, **asked.files})

    def job(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.propagation.running import propagate as run
        from gcnmpi.report.progress import print_propagated

        if asked.checkpoints is not None:
            claims.folder(asked.checkpoints[0])
        tell = common.telling(comm, quiet)
        done = run(comm, given.graph, given.partition, asked, out, tell, force)
        return lambda: print_propagated(out, done, quiet=quiet)

    return common.claimed(asked.config, given.graph, given.partition, job)


assert propagate.help is not None
propagate.help = propagate.help.replace("METHODS", ", ".join(METHODS))
