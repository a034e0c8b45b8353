"""Under mpirun: the API against the command line, callbacks, networks of one's own, mistakes.

Usage: api.py FOLDER GRAPH PARTITION

FOLDER is shared by the ranks and empty. All cases run in one launch, of a program that does not
start MPI itself.
"""

import json
import os
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import gcnmpi
from gcnmpi.cli.main import cli
from gcnmpi.mpi.comm import agreed
from gcnmpi.mpi.process import OtherRankError, world
from gcnmpi.options.source import source_of

FOLDER, GRAPH = Path(sys.argv[1]), Path(sys.argv[2])
SETTINGS = {"model.hidden": [6], "model.dropout": 0.25, "train.epochs": 5, "dtype": "float64"}


def near(model, features, classes):
    """A network of one's own."""

    def convolve(b, x, layer):
        far = b.linear(b.aggregate(b.aggregate(x)), layer.width, f"{layer.name}.far", layer=layer.k)
        return b.add(far, b.linear(x, layer.width, f"{layer.name}.near", layer=layer.k))

    return gcnmpi.stack(model, features, classes, convolve)


def command(comm, *words):
    """The exit code of a command line."""
    line = [str(word) for word in words]
    if line[0] != "plan":
        line += ["--partition", sys.argv[3]]
    job = cli.main(line, prog_name="gcnmpi", standalone_mode=False)
    return job(comm) if callable(job) else job


def words_of(settings):
    """The same as --set."""
    given = {k: json.dumps(v) if isinstance(v, list) else v for k, v in settings.items()}
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


def epochs_of(run):
    """Everything in the record that does not depend on clocks, as text."""
    fields = ("seconds", "time")
    lines = [{k: v for k, v in line.items() if k not in fields} for line in run.record.epochs]
    return json.dumps(lines)


def raised(comm, kind, call):
    """The text of what all ranks raise together."""
    with pytest.raises(kind) as found:
        call()
    assert found.value.agreed
    text = str(found.value)
    assert len(set(comm.allgather(text))) == 1 or kind is not gcnmpi.UserError
    return text


def refused(comm, function, *given, **named):
    return raised(comm, gcnmpi.UserError, lambda: function(*given, **named))


def check_equals_the_command(comm, graph, partition):
    """Training, inference and evaluation give the bits of the command line."""
    run = gcnmpi.train(graph, partition, config=SETTINGS, out=FOLDER / "api")
    files = ["--save-weights", FOLDER / "cli.npz", "--save-best", FOLDER / "cli-best.npz"]
    out = ["--out", FOLDER / "cli", "--quiet"]
    assert command(comm, "train", GRAPH, *words_of(SETTINGS), *files, *out) == 0
    other = gcnmpi.Run(FOLDER / "cli")
    assert epochs_of(run) == epochs_of(other)
    assert run.config == other.config
    assert run.best_epoch == other.best_epoch
    assert run.summary["bytes_sent"] == other.summary["bytes_sent"]
    for which, file in (("last", "cli.npz"), ("best", "cli-best.npz")):
        assert run.weights_file(which).read_bytes() == (FOLDER / file).read_bytes()
    logits = gcnmpi.infer(graph, run, partition=partition, dtype="float64")
    out = ["--weights", FOLDER / "cli.npz", "--out", FOLDER / "cli.npy", "--set", "dtype=float64"]
    assert command(comm, "infer", GRAPH, *out) == 0
    assert (logits is None) == (comm.rank > 0)
    if logits is not None:
        np.testing.assert_array_equal(logits, np.load(FOLDER / "cli.npy"))
    rows = [7, 0, graph.n - 1]
    some = gcnmpi.infer(graph, run, partition=partition, rows=rows, dtype="float64")
    assert gcnmpi.infer(graph, run, partition=partition, out=FOLDER / "api.csv") is None
    if some is not None:
        np.testing.assert_array_equal(some, logits[rows])
        assert len((FOLDER / "api.csv").read_text().splitlines()) == graph.n
    scores = gcnmpi.evaluate(graph, run, partition=partition, dtype="float64")
    assert scores == {name: value for name, value in run.last.items() if name in scores}
    assert len(scores) == 3
    # It is complete: no callback is called.
    again = gcnmpi.train(graph, partition, config=SETTINGS, out=FOLDER / "api", callbacks=[never])
    assert epochs_of(again) == epochs_of(run)


def never(epoch):
    raise AssertionError


def check_a_run_that_diverges(comm, graph, partition):
    """One warning, on rank 0, and a run none the less."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gcnmpi.train(graph, partition, train_lr=1000, train_epochs=6, out=FOLDER / "diverged")
    told = [str(warning.message) for warning in caught if "diverged" in str(warning.message)]
    assert len(told) == (comm.rank == 0), told
    assert all("in epoch 6: the run diverged, lower train.lr, which is 1000" in t for t in told)


def check_networks_of_ones_own(comm, graph, partition):
    """As an object and as a file: trained alike, verified, planned, resumed and inferred."""
    file = FOLDER / "own.py"
    if comm.rank == 0:
        file.write_text(source_of(near))
    comm.Barrier()
    name = f"{file}:near"
    run = gcnmpi.train(graph, partition, model=near, config=SETTINGS, out=FOLDER / "object")
    settings = words_of({"model.name": name, **SETTINGS})
    weights = FOLDER / "near.npz"
    files = ["--out", FOLDER / "file", "--quiet", "--save-weights", weights]
    assert command(comm, "train", GRAPH, *settings, *files) == 0
    assert epochs_of(run) == epochs_of(gcnmpi.Run(FOLDER / "file"))
    assert set(run.weights()) >= {"convs.0.far.weight", "convs.1.near.weight"}
    for folder in ("object", "file"):
        assert "def near(model, features, classes)" in (FOLDER / folder / "network.py").read_text()
    kept = f"{FOLDER / 'object' / 'network.py'}:near"
    assert command(comm, "verify", GRAPH, *words_of({"model.name": kept, "train.epochs": 2})) == 0
    assert gcnmpi.verify(graph, partition, model=near, train_epochs=2)
    if comm.rank == 0:
        assert command(comm, "plan", GRAPH, "-P", 8, "--set", f"model.name={name}", "--json") == 0

    text = refused(comm, gcnmpi.infer, graph, run, partition=partition)
    assert "a network of a file, which has to be given" in text
    assert f"model={kept!r}" in text  # the run has kept it
    logits = gcnmpi.infer(graph, run, model=name, partition=partition, dtype="float64")
    same = gcnmpi.infer(graph, weights, model=near, partition=partition, dtype="float64")
    np.testing.assert_array_equal(logits, same)
    scores = gcnmpi.evaluate(graph, run, model=near, partition=partition, dtype="float64")
    assert scores["val_accuracy"] == run.last["val_accuracy"]

    longer = SETTINGS | {"train.epochs": 7, "train.checkpoint_every": 7}
    found = FOLDER / "longer"
    gcnmpi.train(graph, partition, model=near, config=longer, out=found)
    gone_on = gcnmpi.train(graph, partition, model=name, config=longer, train_epochs=8, out=found)
    assert len(gone_on.record.epochs) == 8
    if comm.rank == 0:
        file.write_text(source_of(near).replace("b.add(far", "b.add(b.scale(far, 0.5)"))
    comm.Barrier()

    more = {"model": name, "config": longer, "train_epochs": 9, "out": found}
    assert "was made with model.name" in refused(comm, gcnmpi.train, graph, partition, **more)
    text = refused(comm, gcnmpi.infer, graph, run, model=name, partition=partition)
    assert "is another network, or has changed" in text


def check_callbacks(comm, graph, partition):
    """They are called on rank 0, end the run on all, and fail on all."""
    seen = []

    def stop(epoch):
        seen.append(epoch)
        return "stop" if epoch["epoch"] == 2 else None

    asked = {"config": SETTINGS, "out": FOLDER / "stopped"}
    run = gcnmpi.train(graph, partition, callbacks=[stop, seen.append], **asked)
    assert [epoch["epoch"] for epoch in seen] == ([1, 1, 2, 2] if comm.rank == 0 else [])
    assert (len(run.record.epochs), run.finished, run.summary["stopped_early"]) == (2, True, True)
    assert run.weights_file().exists()
    if comm.rank == 0:
        assert seen[-1] == run.last

    def fails(epoch):
        raise ArithmeticError("of the callback")

    kind = OtherRankError if comm.rank else ArithmeticError
    text = raised(comm, kind, lambda: gcnmpi.train(graph, partition, callbacks=[fails]))
    assert text.endswith("of the callback")
    assert comm.rank == 0 or text.startswith("rank 0 failed: ArithmeticError")
    kind = OtherRankError if comm.rank else ValueError
    answers = raised(comm, kind, lambda: gcnmpi.train(graph, partition, callbacks=[lambda e: 3]))
    assert "a callback returned 3" in answers


def check_signals(comm, graph, partition):
    """One asks for a checkpoint and an end after the next epoch; the same call goes on."""
    asked = {"config": SETTINGS, "out": FOLDER / "signal"}

    def ask(epoch):
        if epoch["epoch"] == 3:
            os.kill(os.getpid(), signal.SIGUSR1)

    with pytest.raises(gcnmpi.Stopped) as found:
        gcnmpi.train(graph, partition, callbacks=[ask], **asked)
    assert found.value.code == (0 if comm.rank else 75)
    before = gcnmpi.Run(FOLDER / "signal")
    assert (before.finished, before.last["epoch"], before.summary["signal"]) == (False, 4, 10)
    run = gcnmpi.train(graph, partition, **asked)
    assert run.finished
    assert epochs_of(run) == epochs_of(gcnmpi.Run(FOLDER / "api"))


def check_graphs_are_made_once(comm, graph, partition):
    """Rank 0 makes folders and partitions; all see them, and its mistakes."""
    random = np.random.default_rng(0)
    arcs, x, y = random.integers(0, 30, (2, 99)), np.eye(30), random.integers(0, 2, 30)
    small = gcnmpi.graph.from_arrays(arcs, x, y)
    assert comm.bcast(small.path) == small.path
    added = small.add_partition("rp", comm.size)
    assert comm.bcast(added.id) == added.id
    run = gcnmpi.train(small, added.name, train_epochs=2, out=FOLDER / "small")
    assert run.best_epoch is None
    assert gcnmpi.evaluate(small, run, partition=added.name)["test_accuracy"] is None
    calls = {
        "y has 29 rows": lambda: gcnmpi.graph.from_arrays(arcs, x, y[1:]),
        "has a partition": lambda: small.add_partition("rp", comm.size),
        "there is no graph folder": lambda: gcnmpi.graph.open(FOLDER / "nothing.graph"),
        "no weights": lambda: gcnmpi.infer(small, gcnmpi.Run(FOLDER / "cli")),
        "unknown keyword 'train_epoch'": lambda: gcnmpi.train(small, train_epoch=3),
        "holds float32|unknown output 'logit'": lambda: gcnmpi.infer(
            small, FOLDER / "small" / "weights.npz", what="logit", partition=added.name
        ),
    }
    for text, call in calls.items():
        said = refused(comm, call)
        assert any(part in said for part in text.split("|")), said


def check_ranks_that_differ(comm, graph, partition):
    """They are told so, and do not wait for each other."""
    mine = {"train_epochs": 2 + comm.rank}
    text = refused(comm, gcnmpi.train, graph, partition, **mine)
    assert "rank 1 has another configuration than rank 0" in text
    out = FOLDER / f"rank-{comm.rank}"
    text = refused(comm, gcnmpi.train, graph, partition, out=out)
    assert "rank 1 has another out than rank 0" in text


def check_propagation_equals_the_command(comm, graph, partition):
    """Arrays on rank 0 are those that the command writes; mistakes are told on all ranks."""
    options = {"count": 3, "scheme_exchange": "rows"}
    found = gcnmpi.propagate(graph, "laplacian-eigenvectors", partition=partition, **options)
    words = ["--set", "count=3", "--set", "scheme.exchange=rows", "--out", FOLDER / "eigen.npz"]
    assert command(comm, "propagate", GRAPH, "laplacian-eigenvectors", *words, "--quiet") == 0
    out = FOLDER / "rank.npy"
    assert gcnmpi.propagate(GRAPH, "pagerank", partition=partition, out=out) is None
    ranks = gcnmpi.propagate(graph, "pagerank", partition=partition)
    with agreed(comm):
        if comm.rank:
            assert found is None
            assert ranks is None
        else:
            np.testing.assert_array_equal(ranks, np.load(out))
            with np.load(FOLDER / "eigen.npz") as written:
                assert sorted(written) == sorted(found) == ["values", "vectors"]
                for name, array in found.items():
                    np.testing.assert_array_equal(array, written[name])
    text = refused(comm, gcnmpi.propagate, graph, "pagerank", dampin=0.5)
    assert "did you mean 'damping'?" in text


def check_a_cut_eigenvalue_is_told(comm, graph, partition):
    """Of a ring, all eigenvalues but the first are of two vectors: one of the two is told."""
    path = FOLDER / "ring.graph"
    ends = np.array([[k, (k + step) % 12] for k in range(12) for step in (-1, 1)])
    gcnmpi.graph.from_arrays(ends.T, np.eye(12), folder=path)
    for count, told in ((2, 1), (3, 0)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            options = {"count": count, "scheme_name": "bcast"}
            gcnmpi.propagate(path, "laplacian-eigenvectors", **options)
        texts = [str(line.message) for line in said if "leaves out" in str(line.message)]
        with agreed(comm):
            assert len(texts) == told * (comm.rank == 0), texts
            assert all("count=1 would not" in text for text in texts), texts


def main() -> None:
    graph = gcnmpi.graph.open(GRAPH)
    comm = world()
    checks = [check for name, check in globals().items() if name.startswith("check_")]
    for check in checks:
        check(comm, graph, sys.argv[3])
    with agreed(comm):
        pass
    if comm.rank == 0:
        print(f"{len(checks)} cases")


if __name__ == "__main__":
    main()
