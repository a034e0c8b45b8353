#!/usr/bin/env python
"""Our epoch beside those of PyTorch, PyTorch Geometric and DGL: same graph, network and threads.

Every contestant is a process of its own (peer_worker.py), which trains a few epochs when it
is asked to; in every round each takes its turn while the others sleep. All start from the same
weights, and the comparison fails if their first losses differ. A peer that is not installed or
lacks the network is left out, and the reason is said; --python NAME=PATH runs one in another
environment. Memory is the most that was in the memory of a process, and what of it came after its
imports: the graph and training.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import click
from peers import PEERS

from gcnmpi.bench.rounds import alternate, ratios, spread
from gcnmpi.kernels.threads import waiting
from gcnmpi.options.config import load_config, table_of
from gcnmpi.options.kernel import AUTO, must_be_best
from partition.errors import EXIT_USER_ERROR, UserError
from partition.graph.store import open_graph
from partition.records import append_record

OURS = "gcnmpi"
OF_ARCS = ("gine", "transformer", "pna", "mgn")  # which take arcs as they are
NETWORKS = ("gcn", "gat", "sage", "gin", *OF_ARCS)
NOTHING_KEPT = ("gat", *OF_ARCS)  # it aggregates what weights have been multiplied with
WORKER = Path(__file__).with_name("peer_worker.py")
LOSS_TOLERANCE = 1e-4  # relative; float32 over 1e5 vertices differs by some 1e-6
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Case:
    """The training that all contestants do.

    Attributes
    ----------
    graph : str
    config : dict
        gcnmpi's configuration, whole.
    """

    graph: str
    config: dict[str, Any]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("graphs", metavar="G.graph...", nargs=-1, required=True, type=Path)
@click.option("--network", type=click.Choice(NETWORKS), default="gcn", show_default=True)
@click.option(
    "--model", "models", metavar="LAYERSxHIDDEN", multiple=True, default=("2x16",),
    show_default=True, help="Such as 3x16; may be repeated.",
)  # fmt: skip
@click.option(
    "--heads", type=click.IntRange(1),
    help="gat: heads of a hidden layer, concatenated; the logits have one.  [default: 1]",
)  # fmt: skip
@click.option(
    "--aggregate", type=click.Choice(("mean", "max")), help="sage: of neighbours.  [default: mean]"
)
@click.option("--threads", type=click.IntRange(1), multiple=True, default=(1,), show_default=True)
@click.option(
    "--cache", type=click.Choice(("on", "off", "both")), default="both", show_default=True,
    help="Keep the first aggregate of the features: gcnmpi and torch-tuned; others cannot.",
)  # fmt: skip
@click.option("--peers", metavar="NAME,…", default=",".join(PEERS), show_default=True)
@click.option(
    "--python", "pythons", metavar="NAME=PATH", multiple=True,
    help="Interpreter of a contestant; may be repeated.  [default: this one]",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--epochs", type=click.IntRange(1), default=3, show_default=True, help="In a contestant's turn."
)
@click.option("--kernel", metavar="NAME", help="Of gcnmpi.  [default: its own choice]")
@click.option(
    "--set", "extra", metavar="KEY=VALUE", multiple=True, help="Of gcnmpi; may be repeated."
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=Path, metavar="FILE", help="Append the records, JSON lines.")
def main(graphs, models, threads, cache, peers, pythons, rounds, epochs, out, **network):
    """Compare epochs on symmetric, unweighted graphs with features and labels."""
    try:
        names = [OURS, *(name for name in peers.split(",") if name)]
        interpreters = dict(text.split("=", 1) for text in pythons if "=" in text)
        if unknown := (set(names) | set(interpreters)) - {OURS, *PEERS}:
            raise UserError(f"no such peer: {', '.join(sorted(unknown))}", ", ".join(PEERS))
        cached = {"on": (True,), "off": (False,), "both": (True, False)}[cache]
        if cache == "both" and network["network"] in NOTHING_KEPT:
            cached = (True,)
        must_be_best(network["kernel"] or AUTO)
        for graph in graphs:
            check_graph(graph, network["network"])
        for graph, model, count, keep in product(graphs, models, threads, cached):
            case = Case(str(graph), configuration(hidden_widths(model), count, keep, **network))
            report(case, compare(case, names, interpreters, rounds, epochs), out)
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_USER_ERROR)


def configuration(
    hidden: tuple[int, ...],
    threads: int,
    cache: bool,
    network: str,
    heads: int | None,
    aggregate: str | None,
    kernel: str | None,
    extra: tuple[str, ...],
    seed: int,
) -> dict[str, Any]:
    """gcnmpi's configuration; a UserError for an option that the network does not have."""
    given = {"model.heads": heads, "model.aggregation": aggregate, "kernel": kernel}
    settings = [f"{name}={value}" for name, value in given.items() if value is not None]
    settings += [f"model.hidden={','.join(map(str, hidden))}", f"model.name={network}"]
    settings += [f"model.cache_input={str(cache).lower()}", f"threads={threads}", *extra]
    return table_of(load_config(settings=[*settings, f"train.seed={seed}"]))


def check_graph(graph: Path, network: str) -> None:
    """Raise a UserError where the contestants could mean different matrices."""
    manifest = open_graph(graph).manifest
    if network not in OF_ARCS and (not manifest.symmetric_values or manifest.weighted):
        raise UserError(f"{graph} is directed or weighted", "import it with --undirected")
    if not manifest.features or not manifest.classes:
        hint = "import it with --features random:16 --labels random:8"
        raise UserError(f"{graph} has no features or no labels", hint)


def hidden_widths(text: str) -> tuple[int, ...]:
    """Widths of the hidden layers of ``"LAYERSxHIDDEN"``."""
    layers, _, width = text.partition("x")
    if not (layers.isdecimal() and width.isdecimal() and int(layers) > 1 and int(width)):
        raise UserError(f"--model {text!r} is not LAYERSxHIDDEN", "such as 3x16")
    return (int(width),) * (int(layers) - 1)


def compare(
    case: Case, names: list[str], pythons: dict[str, str], rounds: int, epochs: int
) -> list[dict[str, Any]]:
    """A record a contestant: seconds, ratio to ours, loss and memory; or why it is missing."""
    workers = {name: Worker(name, case, pythons.get(name, sys.executable)) for name in names}
    try:
        if workers[OURS].missing:
            raise UserError(f"gcnmpi cannot run: {workers[OURS].missing}")
        there = {name: worker for name, worker in workers.items() if not worker.missing}
        measures: dict[str, Callable[[], float]] = {
            name: worker.turn(epochs) for name, worker in there.items()
        }
        times = alternate(measures, rounds)
        over = ratios(times, OURS)
        losses = {name: worker.first_loss for name, worker in there.items()}
        for name, loss in losses.items():
            if not abs(loss - losses[OURS]) <= LOSS_TOLERANCE * abs(losses[OURS]):
                raise UserError(f"{name} does not compute the same: first losses {losses}")
        return [
            {"peer": name, "missing": worker.missing} if worker.missing else
            {"peer": name, "versions": worker.versions, "seconds": asdict(spread(times[name])),
             "ratio": asdict(over[name]), "loss": losses[name], "rounds": rounds,
             "import_bytes": worker.bytes["imports"], "peak_bytes": worker.bytes["peak"]}
            for name, worker in workers.items()
        ]  # fmt: skip
    finally:
        for worker in workers.values():
            worker.close()


class Worker:
    """A contestant's process. It reads one JSON object a line, and answers with one.

    Attributes
    ----------
    missing : str or None
        Why it cannot take part.
    bytes : dict of str to int
        What its imports had put into memory ("imports"), and the most that was there ("peak").
    """

    def __init__(self, name: str, case: Case, python: str) -> None:
        root = str(WORKER.resolve().parents[1])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = dict.fromkeys(THREAD_VARIABLES, str(case.config["threads"]))
        try:
            self._process = subprocess.Popen(
                [python, str(WORKER), name], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, **threads, "PYTHONPATH": path, "DGLBACKEND": "pytorch"},
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"cannot start {python}: {error.strerror}") from error
        self.first_loss = float("nan")
        ready = self._ask(asdict(case))
        self.missing, self.versions = ready.get("missing"), ready.get("versions")
        self.bytes = ready.get("bytes", {})

    def turn(self, epochs: int) -> Callable[[], float]:
        """A measure: the median of the seconds of so many epochs."""

        def measure() -> float:
            answer = self._ask({"epochs": epochs})
            if self.first_loss != self.first_loss:
                self.first_loss = answer["losses"][0]
            self.bytes = answer["bytes"]
            return statistics.median(answer["seconds"])

        return measure

    def close(self) -> None:
        """End the process of this contestant."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which the lines that it left explain
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries greet on the same stream
                return json.loads(line)
        raise UserError(f"a worker ended: {' '.join(map(str, self._process.args))}")


def report(case: Case, records: list[dict[str, Any]], out: Path | None) -> None:
    """Print a table, and append the records."""
    click.echo(f"\n{Path(case.graph).stem}: {title(case.config)}")
    click.echo(
        f"{'':11}  {'ms an epoch (quartiles)':>28}  {'of ours (quartiles)':>24}  {'first loss':>10}"
        f"  {'peak MB':>8}  {'less imports':>12}"
    )
    for record in records:
        if record.get("missing"):
            click.echo(f"{record['peer']:11}  not here: {record['missing']}")
            continue
        low, median, high = (1e3 * record["seconds"][x] for x in ("low", "median", "high"))
        below, ratio, above = (record["ratio"][x] for x in ("low", "median", "high"))
        time = f"{median:.1f} ({low:.1f} to {high:.1f})"
        click.echo(
            f"{record['peer']:11}  {time:>28}  "
            f"{f'{ratio:.2f} ({below:.2f} to {above:.2f})':>24}  {record['loss']:10.6f}"
            f"  {record['peak_bytes'] / 1e6:8.0f}  {training_bytes(record) / 1e6:12.0f}"
        )
    ours, *peers = (record for record in records if not record.get("missing"))
    if peers:
        fastest = min(peers, key=lambda record: record["ratio"]["median"])
        leanest = min(peers, key=training_bytes)
        share = training_bytes(ours) / training_bytes(leanest)
        click.echo(
            f"fastest peer: {fastest['peer']}, {fastest['ratio']['median']:.2f} of our time; "
            f"leanest: {leanest['peer']}, we take {share:.2f} of its memory after imports"
        )
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with open(out, "a", encoding="utf-8") as file:
            for record in records:
                append_record(
                    file, "peer", **asdict(case), load=os.getloadavg()[0], cores=os.cpu_count(),
                    waiting=waiting(), **record,
                )  # fmt: skip


def title(config: dict[str, Any]) -> str:
    """The network and how it is trained, in words."""
    model, threads = config["model"], config["threads"]
    kind = {"gat": f" with {model['heads']} heads", "sage": f" ({model['aggregation']})"}
    words = f"{model['name']}{kind.get(model['name'], '')}, "
    words += f"{len(model['hidden']) + 1} layers of {model['hidden'][0]}, {threads} threads"
    if model["name"] in NOTHING_KEPT:
        return words
    return f"{words}, M·H⁰ {'kept' if model['cache_input'] else 'not kept'}"


def training_bytes(record: dict[str, Any]) -> int:
    """Memory of the graph and training: the peak, less what was there after the imports."""
    return record["peak_bytes"] - record["import_bytes"]


if __name__ == "__main__":
    main()
