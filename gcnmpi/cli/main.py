"""The ``gcnmpi`` command: train, infer, verify, config, report. Launch it with mpirun or srun."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gcnmpi.cli import common
from gcnmpi.mpi.launch import launched, start_limit
from gcnmpi.mpi.watch import EXIT_REQUEUE, watchdog
from gcnmpi.options.config import (
    keys,
    load_config,
    readers,
)
from gcnmpi.options.outputs import (
    RESULTS,
    Inferring,
    Training,
    check_distinct,
    check_suffix,
    check_training_files,
    features_path,
)
from gcnmpi.options.settings import shipped_configs
from gcnmpi.run.logs import parse_logs
from partition.commands import Commands, figures_option, option, page_option, path_option
from partition.errors import EXIT_USER_ERROR, UserError, meant_keys, unknown_name

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims
    from gcnmpi.run.problem import Problem
    from gcnmpi.run.record import Epoch


def main() -> None:
    """Console entry: read the command line, then start MPI for the commands that need it.

    Every rank reads the same command line and finds the same mistake in it. Under mpirun, the
    mistake is reported once, through MPI.
    """
    try:
        outcome = cli.main(prog_name="gcnmpi", standalone_mode=False) or 0
        if not callable(outcome):
            sys.exit(outcome)
        timeout = outcome.timeout or start_limit(os.environ)
        from gcnmpi.mpi.process import run
    except UserError as error:
        _report(error)
    run(outcome, timeout)


def _report(error: UserError) -> NoReturn:
    with contextlib.suppress(UserError):
        from gcnmpi.mpi.comm import agreed
        from gcnmpi.mpi.process import run

        if launched():

            def fail(world: Comm) -> int:
                with agreed(world):
                    raise error

            run(fail, _TELLING)
    print(f"error: {error}", file=sys.stderr)
    sys.exit(EXIT_USER_ERROR)


_TELLING = 60.0  # seconds that ranks wait for each other to tell a mistake in their words once

ELSEWHERE = {
    "propagate": "gcnmpi.cli.propagate:propagate",
    "import": "gcnmpi.cli.importing:import_",
    "partition": "gcnmpi.cli.partition:partition",
    "score": "gcnmpi.cli.score:score",
    "evaluate": "gcnmpi.cli.score:evaluate",
    "plan": "gcnmpi.cli.schemes:plan",
    "volumes": "gcnmpi.cli.schemes:volumes",
    "calibrate": "gcnmpi.cli.schemes:calibrate",
    "bench-schemes": "gcnmpi.cli.schemes:bench_schemes",
    "bench": "gcnmpi.cli.bench:bench",
    "repeat": "gcnmpi.cli.repeated:repeat",
    "sweep": "gcnmpi.cli.repeated:sweep",
    "info": "gcnmpi.cli.info:info",
    "demo": "gcnmpi.cli.demo:demo",
    "doctor": "gcnmpi.cli.cluster:doctor",
    "submit": "gcnmpi.cli.cluster:submit",
    "status": "gcnmpi.cli.cluster:status",
    "stop": "gcnmpi.cli.cluster:stop",
}


@click.group(
    cls=Commands,
    elsewhere=ELSEWHERE,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="gcnmpi", prog_name="gcnmpi")
def cli() -> None:
    """Exact full-graph training and inference of graph neural networks over many machines.

    Make a graph folder and a partition with gcn-partition first, then

    \b
      mpirun -n 4 gcnmpi train G.graph --partition hp-4 --out runs/first
    """


@cli.command(short_help="Train on GRAPH and write the record of the run.")
@common.on_graph
@common.split_option
@path_option(
    "--out",
    "DIR",
    "Folder for run.jsonl; default: runs/GRAPH-PARTITION-DATE. A complete run in it is not run "
    "again; the record of another one is kept as run.previous.jsonl.",
)
@path_option(
    "--save-weights",
    "W.npz",
    "Write the final weights under PyTorch Geometric's names; features that were trained go to "
    "W.features.npy beside it, where infer finds them.",
    dir_okay=False,
)
@path_option(
    "--save-best",
    "W.npz",
    "Write the weights of the epoch with the best validation metric (task.metric).",
    dir_okay=False,
)
@option(
    "--resume",
    "auto: from the newest intact checkpoint in DIR, without any from the start. never: from the "
    "start; record and checkpoints in DIR are kept as ….previous. PATH: from a checkpoint, or the "
    "newest one of another run; those in DIR after its epoch are removed.",
    "auto",
    metavar="auto|never|PATH",
)
@click.option(
    "--log",
    "log",
    default="",
    metavar="NAME,…",
    help="Write the epochs to DIR for other programs too: csv, tensorboard.",
)
@common.quiet_option
def train(
    given: common.Given,
    split: int | None,
    out: Path | None,
    save_weights: Path | None,
    save_best: Path | None,
    resume: str,
    log: str,
    quiet: bool,
) -> common.Job:
    """Train on GRAPH; the record of the run goes to DIR/run.jsonl.

    Without --config and --set: a GCN with one hidden layer of 16, 200 epochs of Adam.

    After gcnmpi stop DIR or SIGUSR1, the run finishes its epoch, writes a checkpoint and ends with
    exit code 75. The same command then continues from the checkpoint. After Ctrl-C, Open MPI's
    mpirun leaves half a second: what is kept is the state after the last epoch.
    """
    config = given.config(*common.of_split(split))
    files = out, save_weights, save_best
    asked = Training(given.graph, given.partition, config, *files, resume, logs=parse_logs(log))
    check_training_files(asked, given.file)
    check = common.same_words(config)

    def job(comm: Comm) -> int:
        from gcnmpi.report.outcome import print_trained
        from gcnmpi.report.progress import Progress, print_warnings
        from gcnmpi.run.training import guarded, train_run

        began = time.monotonic()
        with guarded(comm, config, "gcnmpi train") as guard:
            check(comm)

            machine: list[str] = []

            @contextlib.contextmanager
            def progress(problem: Problem) -> Iterator[Callable[[Epoch], None]]:
                machine.extend(problem.machine)
                if quiet and comm.rank == 0:
                    print_warnings(problem.warnings)
                hidden, folders = quiet or comm.rank != 0, guard.claims.folders
                with Progress(problem, hidden, guard.moved, folders=folders) as shown:
                    yield shown.epoch

            done = train_run(comm, asked, guard, progress)
        if comm.rank == 0:
            print_trained(asked, done, time.monotonic() - began, quiet=quiet)
            print_warnings(() if quiet else machine)
        return EXIT_REQUEUE if done.stopped else 0

    return common.Job(job, config.comm.timeout)


@cli.command(short_help="Exact full-graph inference with trained weights.")
@common.on_graph
@common.weights_option
@common.network_option
@path_option(
    "--out",
    "Y.npy",
    "File to write, one row per vertex: .npy, .npz, .csv or .parquet.",
    required=True,
)
@option(
    "--what",
    "What to write. probabilities: softmax of the logits, of several labels (task.name) their "
    "sigmoid; classes: the column of the largest logit, in tables the name of the class; "
    "embeddings: the output of the last hidden layer, after its activation. Regression has "
    "logits only.",
    "logits",
    type=click.Choice(("logits", "probabilities", "embeddings", "classes")),
)
@option(
    "--layer", "Write the output of layer K, from 1, instead of the logits.", type=int, metavar="K"
)
@option("--classes", "The same as --what classes.", is_flag=True)
@path_option(
    "--rows rows_file",
    "IDS.txt",
    "Write the rows of these vertices or arcs only, one a line, in this order: ids of the imported "
    "file (ids.npy) if it had any, else numbers from 0. An arc is SOURCE TARGET, or its number in "
    "the folder.",
)
@option(
    "--samples",
    "Of weights of task.name = samples: predict those of train, val, test, or all.",
    metavar="WHICH",
)
@common.force_option
def infer(
    given: common.Given,
    weights: Path,
    network_file: Path | None,
    out: Path,
    what: str,
    layer: int | None,
    classes: bool,
    rows_file: Path | None,
    samples: str | None,
    force: bool,
) -> common.Job:
    """Exact full-graph inference on GRAPH with trained weights.

    W is a file of --save-weights, or the state dict of a PyTorch Geometric or DGL module, whose
    network --network describes; no code of it is run. Y.npy gets one row per vertex, in the order
    of the graph; with --samples, (samples, vertices, columns). The memory that is needed is
    forecast, and refused before the start if a node has less.
    """
    config, keys = common.config_of_weights(given, network_file, weights)
    if classes and what not in ("logits", "classes"):
        raise UserError(f"--classes and --what {what} exclude each other")
    check_suffix("--out", out, RESULTS)
    inputs = {
        "GRAPH": given.graph, "--weights": weights, "--config": given.file,
        "--network": network_file, "--rows": rows_file,
    }  # fmt: skip
    check_distinct({**inputs, "the features of --weights": features_path(weights), "--out": out})
    asked = Inferring(
        given.graph, given.partition, config, weights, out, keys, "classes" if classes else what,
        layer, rows_file, force,
    )  # fmt: skip

    def job(comm: Comm, claims: Claims) -> Callable[[], None]:
        from gcnmpi.report.outcome import print_inference
        from gcnmpi.run.inference import infer as run
        from gcnmpi.run.samples.inference import infer_samples

        if samples is not None:
            done = infer_samples(comm, asked, samples, common.telling(comm)).done
        else:
            done = run(comm, asked, common.telling(comm))
        return lambda: print_inference(out, done)

    return common.claimed(config, given.graph, given.partition, job)


@cli.command(short_help="Check that a run equals one serial process.")
@common.on_graph
@common.split_option
@common.json_option
def verify(
    given: common.Given,
    split: int | None,
    as_json: bool,
) -> common.Job:
    """Check that this run equals one serial process on GRAPH; exit code 1 if it does not.

    Trains up to 20 epochs on all ranks, and serially with SciPy on rank 0. It compares loss curves
    and weights, checks the gradient by finite differences and the products by the dot test, and
    compares counted with predicted bytes. Rank 0 holds the whole graph. It computes in float64,
    unless --set dtype=float32 selects float32 and larger tolerances.
    """
    config = load_config(given.file, ("dtype=float64",), (*given.settings, *common.of_split(split)))

    check = common.same_words(config)

    def job(comm: Comm) -> int:
        from gcnmpi.proof.verify import verify as run
        from gcnmpi.report.checks import print_checks
        from gcnmpi.run.claims import Claims

        watch = watchdog(config.comm.timeout, comm.rank)
        with watch as moved, Claims(comm, "gcnmpi verify") as claims:
            check(comm)
            claims.graph(given.graph, given.partition)
            found = run(comm, given.graph, given.partition, config, moved=moved)
            if comm.rank == 0:
                print_checks(found, as_json)
            return 0 if found.ok else 1

    return common.Job(job, config.comm.timeout)


@cli.command(short_help="Print example configurations.")
@click.argument("name", required=False)
def config(name: str | None) -> int:
    """Print the configuration NAME, to edit and give to --config; without NAME, list all.

    --config NAME takes one as it is. Where NAME is a key, its last word, or a table of keys, print
    its default, what it means, and which networks, tasks or schemes read it, if not all do.

    \b
      gcnmpi config gcn > my.toml
      gcnmpi config tuned/physics-sage > my.toml
      gcnmpi config model.norm
      gcnmpi config train
    """
    there = shipped_configs()
    told = {key: (default, text) for key, default, text in keys()}
    meant = [key for key in told if name in (key, key.split(".")[0])]
    meant = meant or [key for key in told if name == key.rpartition(".")[2]]
    if name is None:
        for each, file in sorted(there.items()):
            about = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
            print(f"{each:22} {re.split('[:.] |[:.]$', about)[0]}")
    elif meant and name not in there:
        for key in meant:
            default, text = told[key]
            of = readers(key)
            print(f"{key} = {json.dumps(default)}\n    {text}" + (f" [{of}]" if of else ""))
    elif name.removesuffix(".toml") not in there:
        found = {key for key in told if key.split(".")[0] == name.split(".")[0]}
        raise unknown_name("configuration or key", name, found or meant_keys(name, told) or there)
    else:
        print(there[name.removesuffix(".toml")].read_text(encoding="utf-8"), end="")
    return 0


def _fields() -> Mapping[str, Mapping[str, str]]:
    from gcnmpi.run.record import field_tables

    return field_tables()


@cli.command(short_help="Compare finished runs: volume, time, accuracy.")
@common.told_option("--fields", "Print what the fields of run.jsonl mean.", _fields)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--json as_json", "Print one JSON array.", is_flag=True)
@option("--csv as_csv", "Print CSV, one line per run.", is_flag=True)
@page_option("Write a page with curves, phases of ranks, bytes between them, memory and settings.")
@figures_option
def report(
    runs: tuple[Path, ...], as_json: bool, as_csv: bool, page: Path | None, figures: Path | None
) -> int:
    """Compare finished RUNS: volume, time, accuracy.

    RUNS are folders with a run.jsonl, or folders with such folders somewhere below them. --html and
    --figures also show runs that go on, or did not finish.
    """
    from gcnmpi.report.table import print_runs

    print_runs(runs, as_json=as_json, as_csv=as_csv, page=page, figures=figures)
    return 0
