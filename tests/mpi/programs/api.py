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

import gcnmpi
from gcnmpi.cli.main import cli
from gcnmpi.mpi.process import OtherRankError, world
from gcnmpi.options.user_network import source_of

sys.path.append(str(Path(__file__).parents[2]))
from refusals import refuses
from words import line

FOLDER, GRAPH, PARTITION = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
PLACED = {"partition": PARTITION}
SETTINGS = {"model.hidden": [6], "model.dropout": 0.25, "train.epochs": 5, "dtype": "float64"}


def near(model, features, classes):
    """A network of one's own."""

    def convolve(b, x, layer):
        far = b.linear(b.aggregate(b.aggregate(x)), layer.width, f"{layer.name}.far", layer=layer.k)
        return b.add(far, b.linear(x, layer.width, f"{layer.name}.near", layer=layer.k))

    return gcnmpi.stack(model, features, classes, convolve)


def never(epoch):
    raise AssertionError


def run(verb, *words, settings=(), partition=PARTITION, **options):
    """Run a command line."""
    given = [f"{key}={value}" for key, value in dict(settings).items()]
    words = line(verb, GRAPH, *words, settings=given, partition=partition, **options)
    job = cli.main([str(word) for word in words], prog_name="gcnmpi", standalone_mode=False)
    assert (job(world()) if callable(job) else job or 0) == 0


def epochs_of(of):
    """Everything in the record that does not depend on clocks, as text."""
    fields = ("seconds", "time")
    lines = [{k: v for k, v in epoch.items() if k not in fields} for epoch in of.record.epochs]
    return json.dumps(lines)


def raised(comm, kind, function, *given, **named):
    """The text of what all ranks raise together."""
    found = refuses("", function, *given, error=kind, **named)
    assert found.agreed
    text = str(found)
    assert len(set(comm.allgather(text))) == 1 or kind is not gcnmpi.UserError
    return text


def refused(comm, says, function, *given, **named):
    text = raised(comm, gcnmpi.UserError, function, *given, **named)
    assert says in text, text


def check_equals_the_command(comm, graph):
    """Training, inference and evaluation give the bits of the command line."""
    ours = gcnmpi.train(graph, PARTITION, config=SETTINGS, out=FOLDER / "api")
    weights, best = FOLDER / "cli.npz", FOLDER / "cli-best.npz"
    files = {"save_weights": weights, "save_best": best, "out": FOLDER / "cli", "quiet": True}
    run("train", settings=SETTINGS, **files)
    other = gcnmpi.Run(FOLDER / "cli")
    assert epochs_of(ours) == epochs_of(other)
    for what in ("config", "best_epoch"):
        assert getattr(ours, what) == getattr(other, what)
    assert ours.summary["bytes_sent"] == other.summary["bytes_sent"]
    for which, file in (("last", weights), ("best", best)):
        assert ours.weights_file(which).read_bytes() == file.read_bytes()
    given = {**PLACED, "dtype": "float64"}
    logits = gcnmpi.infer(graph, ours, **given)
    run("infer", weights=weights, out=FOLDER / "cli.npy", settings={"dtype": "float64"})
    rows = [7, 0, graph.n - 1]
    some = gcnmpi.infer(graph, ours, rows=rows, **given)
    assert gcnmpi.infer(graph, ours, **PLACED, out=FOLDER / "api.csv") is None
    assert (logits is None) == (some is None) == (comm.rank > 0)
    if logits is not None:
        np.testing.assert_array_equal(logits, np.load(FOLDER / "cli.npy"))
        np.testing.assert_array_equal(some, logits[rows])
        assert len((FOLDER / "api.csv").read_text().splitlines()) == graph.n
    scores = gcnmpi.evaluate(graph, ours, **given)
    assert scores == {name: value for name, value in ours.last.items() if name in scores}
    assert len(scores) == 3
    refused(comm, "unknown output 'logit'", gcnmpi.infer, graph, ours, what="logit", **PLACED)
    # It is complete: no callback is called.
    asked = {"config": SETTINGS, "out": FOLDER / "api", "callbacks": [never]}
    assert epochs_of(gcnmpi.train(graph, PARTITION, **asked)) == epochs_of(ours)


def check_networks_of_ones_own(comm, graph):
    """As an object and as a file: trained alike, verified, planned, resumed and inferred."""
    file = FOLDER / "own.py"
    if comm.rank == 0:
        file.write_text(source_of(near))
    comm.Barrier()
    name, weights = f"{file}:near", FOLDER / "near.npz"
    ours = gcnmpi.train(graph, PARTITION, model=near, config=SETTINGS, out=FOLDER / "object")
    own = {"model.name": name, **SETTINGS}
    run("train", settings=own, out=FOLDER / "file", quiet=True, save_weights=weights)
    assert epochs_of(ours) == epochs_of(gcnmpi.Run(FOLDER / "file"))
    assert set(ours.weights()) >= {"convs.0.far.weight", "convs.1.near.weight"}
    for folder in ("object", "file"):
        assert "def near(model, features, classes)" in (FOLDER / folder / "network.py").read_text()
    kept = f"{FOLDER / 'object' / 'network.py'}:near"
    run("verify", settings={"model.name": kept, "train.epochs": 2})
    assert gcnmpi.verify(graph, PARTITION, model=near, train_epochs=2)
    if comm.rank == 0:
        run("plan", "-P", 8, json=True, settings={"model.name": name}, partition=None)
    refused(comm, f"model={kept!r}", gcnmpi.infer, graph, ours, **PLACED)  # the run has kept it
    given = {**PLACED, "dtype": "float64"}
    logits = gcnmpi.infer(graph, ours, model=name, **given)
    np.testing.assert_array_equal(logits, gcnmpi.infer(graph, weights, model=near, **given))
    scores = gcnmpi.evaluate(graph, ours, model=near, **given)
    assert scores["val_accuracy"] == ours.last["val_accuracy"]
    longer = SETTINGS | {"train.epochs": 7, "train.checkpoint_every": 7}
    more = {"config": longer, "out": FOLDER / "longer"}
    gcnmpi.train(graph, PARTITION, model=near, **more)
    gone_on = gcnmpi.train(graph, PARTITION, model=name, train_epochs=8, **more)
    assert len(gone_on.record.epochs) == 8
    if comm.rank == 0:
        file.write_text(source_of(near).replace("b.add(far", "b.add(b.scale(far, 0.5)"))
    comm.Barrier()
    more = {**more, "model": name, "train_epochs": 9}
    refused(comm, "was made with model.name", gcnmpi.train, graph, PARTITION, **more)
    changed = "is another network, or has changed"
    refused(comm, changed, gcnmpi.infer, graph, ours, model=name, **PLACED)


def check_callbacks_and_signals(comm, graph):
    """Callbacks are called on rank 0, end the run on all, and fail on all; a run goes on."""
    seen = []

    def stop(epoch):
        seen.append(epoch)
        return "stop" if epoch["epoch"] == 2 else None

    def fails(epoch):
        raise ArithmeticError("of the callback")

    def ask(epoch):
        if epoch["epoch"] == 3:
            os.kill(os.getpid(), signal.SIGUSR1)

    asked = {"config": SETTINGS, "out": FOLDER / "stopped", "callbacks": [stop, seen.append]}
    ended = gcnmpi.train(graph, PARTITION, **asked)
    assert [epoch["epoch"] for epoch in seen] == ([1, 1, 2, 2] if comm.rank == 0 else [])
    assert (len(ended.record.epochs), ended.finished) == (2, True)
    assert ended.summary["stopped_early"]
    assert ended.weights_file().exists()
    assert comm.rank > 0 or seen[-1] == ended.last
    for kind, call, says in (
        (ArithmeticError, fails, "of the callback"),
        (ValueError, lambda epoch: 3, "a callback returned 3"),
    ):
        kind = OtherRankError if comm.rank else kind
        text = raised(comm, kind, gcnmpi.train, graph, PARTITION, callbacks=[call])
        assert says in text
        assert comm.rank == 0 or text.startswith("rank 0 failed: ")
    asked = {"config": SETTINGS | {"train.checkpoint_every": 1}, "out": FOLDER / "moved"}
    asked["callbacks"] = [lambda epoch: os.rename(FOLDER / "moved", FOLDER / "away")]
    refused(comm, "moved was renamed or removed", gcnmpi.train, graph, PARTITION, **asked)
    asked = {"config": SETTINGS, "out": FOLDER / "signal"}
    given = {"callbacks": [ask], "error": gcnmpi.Stopped, **asked}
    assert refuses("", gcnmpi.train, graph, PARTITION, **given).code == (0 if comm.rank else 75)
    before = gcnmpi.Run(FOLDER / "signal")
    assert (before.finished, before.last["epoch"], before.summary["signal"]) == (False, 4, 10)
    ended = gcnmpi.train(graph, PARTITION, **asked)
    assert ended.finished
    assert epochs_of(ended) == epochs_of(gcnmpi.Run(FOLDER / "api"))


def check_graphs_are_made_once(comm, graph):
    """Rank 0 makes folders and partitions; all see them, and its mistakes; so if ranks differ."""
    random = np.random.default_rng(0)
    arcs, x, y = random.integers(0, 30, (2, 99)), np.eye(30), random.integers(0, 2, 30)
    small = gcnmpi.graph.from_arrays(arcs, x, y)
    assert comm.bcast(small.path) == small.path
    added = small.add_partition("rp", comm.size)
    assert comm.bcast(added.id) == added.id
    trained = gcnmpi.train(small, added.name, train_epochs=2, out=FOLDER / "small")
    assert trained.best_epoch is None
    assert gcnmpi.evaluate(small, trained, partition=added.name)["test_accuracy"] is None
    refused(comm, "y has 29 rows", gcnmpi.graph.from_arrays, arcs, x, y[1:])
    refused(comm, "has a partition", small.add_partition, "rp", comm.size)
    refused(comm, "there is no graph folder", gcnmpi.graph.open, FOLDER / "nothing.graph")
    refused(comm, "no weights", gcnmpi.infer, small, gcnmpi.Run(FOLDER / "cli"))
    refused(comm, "unknown keyword 'train_epoch'", gcnmpi.train, small, train_epoch=3)
    other = "rank 1 has another out than rank 0"
    refused(comm, other, gcnmpi.train, graph, PARTITION, out=FOLDER / f"{comm.rank}")


def check_propagation_equals_the_command(comm, graph):
    """Arrays on rank 0 are those that the command writes; mistakes are told on all ranks."""
    eigen = "laplacian-eigenvectors"
    found = gcnmpi.propagate(graph, eigen, count=3, scheme_exchange="rows", **PLACED)
    asked = {"count": 3, "scheme.exchange": "rows"}
    run("propagate", eigen, settings=asked, out=FOLDER / "eigen.npz", quiet=True)
    out = FOLDER / "rank.npy"
    assert gcnmpi.propagate(GRAPH, "pagerank", out=out, **PLACED) is None
    ranks = gcnmpi.propagate(graph, "pagerank", **PLACED)
    assert (found is None) == (ranks is None) == (comm.rank > 0)
    if comm.rank == 0:
        np.testing.assert_array_equal(ranks, np.load(out))
        with np.load(FOLDER / "eigen.npz") as written:
            assert sorted(written) == sorted(found) == ["values", "vectors"]
            assert all(np.array_equal(written[name], array) for name, array in found.items())
    refused(comm, "did you mean 'damping'?", gcnmpi.propagate, graph, "pagerank", dampin=0.5)
    # Of a ring, all eigenvalues but the first are of two vectors: one of the two is told.
    path = FOLDER / "ring.graph"
    ends = np.array([[k, (k + step) % 12] for k in range(12) for step in (-1, 1)])
    gcnmpi.graph.from_arrays(ends.T, np.eye(12), folder=path)
    for count, times in ((2, 1), (3, 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gcnmpi.propagate(path, eigen, count=count, scheme_name="bcast")
        told = [str(one.message) for one in caught if "leaves out" in str(one.message)]
        assert len(told) == times * (comm.rank == 0)
        assert all("count=1 would not" in text for text in told)


def main() -> None:
    graph, comm = gcnmpi.graph.open(GRAPH), world()
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check(comm, graph)
            print(f"rank {comm.rank} has done {name}")


if __name__ == "__main__":
    main()
