"""``gcnmpi demo``: from nothing to a comparison of partitions and numbers of ranks."""

from __future__ import annotations

import shlex
import subprocess
import webbrowser
from pathlib import Path
from typing import Annotated

import click

from gcnmpi.cli.common import Many
from gcnmpi.mpi.launch import launched, local_environment, local_launcher
from partition import PYTHON
from partition.commands import command
from partition.errors import UserError

_MODULES = {"gcn-partition": "partition", "gcnmpi": "gcnmpi"}
_MODELS = ("rp", "gp", "hp")
RANKS = 4


@command
def demo(
    *,
    out: Annotated[Path, click.Path(path_type=Path, file_okay=False)] = Path("gcnmpi-demo"),
    vertices: Annotated[int, click.IntRange(100)] = 20_000,
    epochs: Many = 50,
    browse: Annotated[bool, {"names": ["--browse/--no-browse"]}] = False,
) -> None:
    """Make a graph, partition it, train, and compare.

    The graph has planted communities, and is partitioned for 4 ranks in three ways. A GCN is
    trained on one rank, and on four with each partition: the loss is the same, and the rows that
    ranks send are not. Each command is printed before it runs, so that it can be repeated and
    changed. The page with curves and bytes is DIR/report.html.

    Parameters
    ----------
    out : DIR
        Folder for the graph, the runs and the page.
    vertices
        Vertices of the graph.
    epochs
        Epochs of each run.
    browse
        Open the page in a browser.  [default: no-browse]
    """
    if launched():
        raise UserError("demo starts ranks of its own", "start it without mpirun")
    graph, page = out / "demo.graph", out / "report.html"
    out.mkdir(parents=True, exist_ok=True)
    _step("A graph with planted communities:")
    made = f"--vertices {vertices} --classes 8 --features 64 --seed 1 --force"
    _run(1, f"gcn-partition synth sbm {shlex.quote(str(graph))} {made}")
    _step("Three partitions, at random, of the graph, and of its hypergraph, and what they send:")
    for model in _MODELS:
        add = f"--model {model} -k {RANKS} --name {model}-{RANKS} --force"
        _run(1, f"gcn-partition add {shlex.quote(str(graph))} {add}")
    _run(1, f"gcn-partition compare {shlex.quote(str(graph))}")
    runs = {"one": ""} | {f"{model}-{RANKS}": f"--partition {model}-{RANKS}" for model in _MODELS}
    for name, partition in runs.items():
        _step(f"Training on {RANKS if partition else 1} ranks:" if partition else "On one rank:")
        common = f"--config gcn --set train.epochs={epochs} --resume never --quiet"
        words = f"gcnmpi train {shlex.quote(str(graph))} {partition} {common}"
        _run(RANKS if partition else 1, f"{words} --out {shlex.quote(str(out / name))}")
    _step("The runs beside each other:")
    folders = " ".join(shlex.quote(str(out / name)) for name in runs)
    _run(1, f"gcnmpi report {folders} --html {shlex.quote(str(page))}")
    if browse and not webbrowser.open(page.absolute().as_uri()):
        click.echo("no browser could be opened", err=True)


def _step(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")


def _run(ranks: int, line: str) -> None:
    """Print a command and run it on so many ranks; a UserError if it does not end well."""
    program, *words = shlex.split(line)
    command = [*PYTHON, _MODULES[program], *words]
    if ranks > 1:
        command = [*local_launcher(), "-n", str(ranks), *command]
        line = f"mpirun -n {ranks} {line}"
    click.echo(f"$ {' '.join(line.split())}")
    # Its input may be a list that a loop of the shell reads, and mpirun would read all of it.
    done = subprocess.run(
        command, env=local_environment(ranks), check=False, stdin=subprocess.DEVNULL
    )
    code = done.returncode
    if code:
        raise UserError(f"{program} {words[0]} ended with exit code {code}")
