"""Random runs against dense matrices and PyTorch, for as long as is asked for.

Usage: mpirun -n P python tests/differential/run.py --seconds 450 [--seed 1] [--only NUMBER]

Each case is a function of the seed, P and its number. A run is trained through the command line,
in one go or interrupted and resumed, and its curve, accuracies, weights and bytes are compared; so
are the logits of ``infer`` with those weights. Where the oracle knows a reason to refuse a case,
it must be refused, and only there. The first failures are printed with what makes them again; the
exit code is 1 if there were any. It needs torch.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
from draw import Example, draw_example, draw_parts, draw_settings

from gcnmpi.cli.main import cli
from gcnmpi.mpi.process import run
from partition.errors import UserError
from partition.graph.graph import Graph

sys.path.append(str(Path(__file__).parents[1]))
from stored_graphs import store, store_parts

SHOWN = 10  # failures


@click.command()
@click.option("--seconds", default=60.0)
@click.option("--seed", default=0)
@click.option("--only", type=int, help="Run this case alone.")
def options(**given: Any) -> dict[str, Any]:
    return given


def main(comm: Any) -> int:
    given = options.main(standalone_mode=False)
    root = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    if comm.rank == 0:  # here, because torch and its optimizers take long to import
        import oracle
    else:
        oracle = None
    counts: Counter = Counter()
    until, number = time.monotonic() + given["seconds"], given["only"] or 0
    while comm.bcast(time.monotonic() < until):
        result, told = attempt(comm, oracle, root / "case", given["seed"], number)
        counts[result] += 1
        if comm.rank == 0 and result == "failed" and counts[result] <= SHOWN:
            print(f"seed {given['seed']}, {comm.size} ranks, case {number}: {told}", flush=True)
        number += 1
        if given["only"] is not None:
            break
    if comm.rank == 0:
        shutil.rmtree(root)
        print(f"{comm.size} ranks: {sum(counts.values())} cases: {dict(counts)}", flush=True)
    return 1 if counts["failed"] else 0


def attempt(comm: Any, oracle: Any, folder: Path, seed: int, number: int) -> tuple[str, str]:
    """ "agreed", "refused" as expected, or "failed" and what was told; equal on all ranks."""
    rng = np.random.default_rng([seed, comm.size, number])
    example = draw_example(rng)
    settings = draw_settings(rng, comm.size)
    parts = draw_parts(rng, example.n, comm.size, settings)
    half = int(rng.integers(0, settings["train.epochs"])) if rng.random() < 0.2 else 0
    told = ""
    if comm.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        write(folder / "g.graph", example, parts)
    comm.barrier()
    where = [folder / "g.graph", *(["--partition", "drawn"] if parts else []), *words(settings)]
    out = ["--out", folder / "run", "--save-weights", folder / "w.npz", "--quiet"]
    lines = [["train", *where, *out]]
    if half:  # the last value of a key that is given twice would not count
        halved = words({**settings, "train.epochs": half, "train.checkpoint_every": 1})
        graph = where[: -len(words(settings))]
        lines.insert(0, ["train", *graph, *halved, "--out", folder / "run", "--quiet"])
    lines.append(["infer", *where, "--weights", folder / "w.npz", "--out", folder / "y.npy"])
    refusal = None
    for line in lines:
        refusal = refusal or command(comm, line)
    if comm.rank == 0:
        expected = reasons(oracle, comm.size, example, settings)
        if expected or refusal:
            fits = refusal is not None and any(piece in refusal for piece in expected)
            told = "" if fits else f"refused for {refusal!r}, expected {expected!r}"
        else:
            m = oracle.matrix(example, *(settings[f"graph.{x}"] for x in MATRIX))
            told = differences(folder, oracle.train(example, m, settings), settings)
    told = comm.bcast(f"{told}\n  {line_of(settings)}" if told else "")
    return ("failed" if told else "refused" if refusal else "agreed"), told


MATRIX = ("direction", "self_loops", "normalize")


def reasons(oracle: Any, nranks: int, example: Example, s: dict[str, Any]) -> list[str]:
    """Pieces of the messages with one of which the case must be refused; none: it must run."""
    found = []
    if nranks > example.n:
        found.append("vertices: use no more ranks")
    pairs = {(source, target) for source, target, _ in example.arcs}
    if s.get("scheme.backward") == "expand" and any((t, s) not in pairs for s, t in pairs):
        found.append("directed")
    m = oracle.matrix(example, *(s[f"graph.{x}"] for x in MATRIX))
    if m is None:
        found.append("row sums of the weights")
    if example.labels.max(initial=-1) < 0:
        found.append("has no labels")
    elif not example.training().any():
        found.append("no labelled vertex to train on")
    if not found:
        with np.errstate(all="ignore"):
            losses = oracle.train(example, m, s).losses
        found = [] if np.isfinite(losses[-1]) else ["the loss is "]
    return found


def write(path: Path, example: Example, parts: tuple[np.ndarray, int] | None) -> None:
    """The graph folder and the partition "drawn"."""
    arcs = sorted(example.arcs)
    sources = np.array([source for source, _, _ in arcs], np.int64)
    indptr = np.searchsorted(sources, np.arange(example.n + 1)).astype(np.int64)
    graph = Graph(
        indptr,
        np.array([target for _, target, _ in arcs], np.int32),
        np.array([weight for _, _, weight in arcs], np.float64) if example.weighted else None,
        example.features,
        example.labels,
        example.masks,
    )
    path.parent.mkdir(parents=True)
    store(path, graph)
    if parts is not None:
        store_parts(path, "drawn", *parts)


def words(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={toml(value)}")]


def line_of(settings: dict[str, Any]) -> str:
    return " ".join(f"{key}={toml(value)}" for key, value in settings.items())


def toml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def command(comm: Any, line: list[Any]) -> str | None:
    """Run a command line of gcnmpi on all ranks; what it was refused with, or None."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            code = cli.main([str(word) for word in line], "gcnmpi", standalone_mode=False)(comm)
    except UserError as error:
        return str(error)
    except click.ClickException as error:
        return error.format_message()
    return f"exit code {code}" if code else None


def differences(folder: Path, outcome: Any, settings: dict[str, Any]) -> str:
    """The first difference of the run from the oracle, or ""."""
    single = settings["dtype"] == "float32"
    tolerance = 3e-3 if single else 1e-8
    lines = (folder / "run" / "run.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    epochs = [record for record in records if record["event"] == "epoch"]
    end = records[-1]
    if len(epochs) != settings["train.epochs"] or not end["finished"]:
        return f"{len(epochs)} epochs, {end}"
    certain = len(outcome.losses) if not single else 1
    certain = min(certain, outcome.epochs_certain)
    for epoch, loss in list(zip(epochs, outcome.losses, strict=True))[:certain]:
        if not np.isclose(epoch["loss"], loss, rtol=tolerance, atol=tolerance):
            return f"loss of epoch {epoch['epoch']}: {epoch['loss']!r}, expected {loss!r}"
    for what in ("bytes", "messages", "eval_bytes", "eval_messages"):
        if end[f"{what}_sent"] != end[f"{what}_predicted"]:
            return f"{what}: {end[f'{what}_sent']} counted, {end[f'{what}_predicted']} predicted"
    if single or outcome.epochs_certain <= settings["train.epochs"]:
        return ""
    for epoch, expected, clear in zip(epochs, outcome.accuracies, outcome.certain, strict=True):
        for name, value in expected.items():
            found = epoch[f"{name}_accuracy"]
            if clear and found is not None and abs(found - value) > 1e-12:
                return f"{name} accuracy of epoch {epoch['epoch']}: {found}, expected {value}"
    with np.load(folder / "w.npz") as file:
        for name, value in outcome.weights.items():
            if not np.allclose(file[name], value, rtol=1e-6, atol=1e-7):
                return f"{name} is off by {np.abs(file[name] - value).max()}"
    if outcome.features is not None:
        found = np.load(folder / "w.features.npy")
        if not np.allclose(found, outcome.features, rtol=1e-5, atol=1e-6):
            return f"trained features are off by {np.abs(found - outcome.features).max()}"
    logits = np.load(folder / "y.npy")
    size = 1 + np.abs(outcome.logits).max()
    if logits.shape != outcome.logits.shape or np.abs(logits - outcome.logits).max() > 1e-5 * size:
        return "logits of infer differ"
    return ""


if __name__ == "__main__":
    run(main)
