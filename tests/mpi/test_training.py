"""Training: one curve for every P, partition, kernel and order; what the record says.

The small runs of one rank count share a launch.
"""

import json
import shlex

import numpy as np
import pytest
from stored_graphs import graph_of, store
from words import line, sets

from gcnmpi.options.kernel import resolve
from gcnmpi.run.record import read_run
from partition.graph.store import open_graph, read_partition
from partition.importing.synthetic import sbm

BASE = (
    "dtype=float64", "model.hidden=[8, 6]", "model.dropout=0.2", "model.input_dropout=0.1",
    "train.epochs=10", "train.lr=0.05", "train.weight_decay=5e-3",
    "train.weight_decay_layers=first", "train.eval_every=5",
)  # fmt: skip
KINDS = [(graph, dtype) for graph in ("directed", "symmetric", "hubs")
         for dtype in ("float64", "float32")]  # fmt: skip
# Name → ranks, graph, and settings over BASE.
RUNS = {
    f"{graph} {dtype} {ranks}": (ranks, graph, (f"dtype={dtype}",))
    for graph, dtype in KINDS
    for ranks in (1, 3, 4)
} | {
    "again": (4, "directed", ("dtype=float32",)),
    "never": (4, "directed", ("train.eval_every=0",)),
    "third": (4, "directed", ("train.eval_every=3", "train.epochs=7")),
    # Nothing is learnt: patience counts from the first evaluation, and ends at one.
    "patient": (1, "directed", (
        "train.eval_every=3", "train.epochs=20", "train.patience=4", "train.lr=1e-15",
        "train.checkpoint_minutes=1e-9",
    )),
}  # fmt: skip
ACCURACIES = ("train_accuracy", "val_accuracy", "test_accuracy")


def words(root, out, ranks, graph, settings):
    partition = f"uneven-{ranks}" if ranks > 1 else None
    options = {"partition": partition, "quiet": True, "out": out, "save_weights": out / "w.npz"}
    return line("train", root / f"{graph}.graph", settings=(*BASE, *settings), **options)


class Record:
    """A run's record, its losses and its final weights."""

    def __init__(self, folder):
        run, self.folder = read_run(folder), folder
        self.start, self.epochs, self.end = run.start, run.epochs, run.end
        self.losses = np.array([epoch["loss"] for epoch in self.epochs])
        file = folder / "w.npz"
        self.weights = dict(np.load(file)) if file.exists() else {}


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def runs(succeed, schemes_folder, tmp_path_factory):
    """The records and weights of all RUNS, by name."""
    root, before = tmp_path_factory.mktemp("runs"), contents(schemes_folder)
    for ranks in (1, 3, 4):
        some = [(root / name, *run) for name, run in RUNS.items() if run[0] == ranks]
        succeed(ranks, *(words(schemes_folder, *one) for one in some))
    assert contents(schemes_folder) == before, "training changed the graph folder"
    return {name: Record(root / name) for name in RUNS}


@pytest.mark.parametrize(("graph", "dtype"), KINDS)
def test_one_curve_for_every_rank_count_and_partition(runs, graph, dtype):
    reference, tolerance = runs[f"{graph} {dtype} 1"], 1e-10 if dtype == "float64" else 1e-5
    assert reference.losses[-1] < reference.losses[0]
    for found in (runs[f"{graph} {dtype} {ranks}"] for ranks in (3, 4)):
        np.testing.assert_allclose(found.losses, reference.losses, rtol=tolerance)
        for name, value in found.weights.items():
            np.testing.assert_allclose(value, reference.weights[name], atol=100 * tolerance)
        for mine, theirs in zip(found.epochs, reference.epochs, strict=True):
            same = [mine[key] for key in ACCURACIES] == [theirs[key] for key in ACCURACIES]
            assert same or dtype == "float32"


def test_the_same_run_twice_and_in_another_launch_is_the_same_bit_for_bit(
    mpirun, runs, schemes_folder, tmp_path
):
    done = mpirun(4, "gcnmpi", *words(schemes_folder, tmp_path, *RUNS["again"]))
    assert done.stdout == done.stderr == ""  # --quiet
    first = runs["directed float32 4"]
    for again in (runs["again"], Record(tmp_path)):
        assert first.losses.tolist() == again.losses.tolist()
        assert all(np.array_equal(again.weights[name], a) for name, a in first.weights.items())


def test_bytes_are_those_predicted_and_evaluation_changes_none(runs):
    """Never, and every third epoch; patience ends at one, and checkpoints are written by time."""
    for name, record in runs.items():
        end = record.end
        for what in ("bytes", "messages", "eval_bytes", "eval_messages"):
            assert end[f"{what}_sent"] == end[f"{what}_predicted"], (name, what)
        assert (sum(end["bytes_sent"]) > 0) == (RUNS[name][0] > 1), name
    never, third, fifth = runs["never"], runs["third"], runs["directed float64 4"]
    assert all(epoch[key] is None for epoch in never.epochs for key in ACCURACIES)
    assert never.end["eval_bytes_sent"] == [0, 0, 0, 0]
    evaluated = [e["epoch"] for e in third.epochs if all(e[key] is not None for key in ACCURACIES)]
    assert evaluated == [3, 6, 7]
    assert never.losses.tolist() == fifth.losses.tolist()
    assert third.losses.tolist() == fifth.losses[:7].tolist()
    assert never.end["bytes_sent"] == fifth.end["bytes_sent"]
    eval_bytes = np.array(fifth.end["eval_bytes_sent"]) // 2
    assert third.end["eval_bytes_sent"] == (3 * eval_bytes).tolist()
    patient = runs["patient"]
    assert (len(patient.epochs), patient.end["finished"]) == (9, True)
    assert len(list((patient.folder / "checkpoints").iterdir())) == 2


def test_the_record_has_what_scripts_rely_on(runs, schemes_folder):
    record, path = runs["directed float64 4"], schemes_folder / "directed.graph"
    start, end = record.start, record.end
    assert start.items() >= {
        "event": "start", "graph_id": open_graph(path).manifest.id, "scheme": "p2p", "ranks": 4,
        "partition_id": read_partition(path, "uneven-4").id, "kernel": resolve("auto")[0],
        "devices": [None] * 4, "reduction": "mpi",
    }.items()  # fmt: skip
    lists = [start["hosts"], *(start["of_ranks"][name] for name in ("rows", "entries", "peers"))]
    lists += [end[name] for name in ("bytes_sent", "messages_sent", "peak_memory_bytes")]
    assert [len(one) for one in lists] == [4] * len(lists)
    given = start["config"]
    assert (given["kernel"], given["train"]["weight_decay"]) == ("auto", 5e-3)
    assert {"gcnmpi", "python", "numpy", "scipy", "mpi"} <= set(start["versions"])
    assert [epoch["epoch"] for epoch in record.epochs] == list(range(1, 11))
    fields = {"event", "epoch", "loss", "seconds", "time", *ACCURACIES}
    assert all(set(epoch) == fields and epoch["seconds"] > 0 for epoch in record.epochs)
    assert (end["event"], end["finished"], end["epochs"]) == ("end", True, 10)
    assert end["seconds_per_epoch"] == np.median([epoch["seconds"] for epoch in record.epochs])
    assert min(end["peak_memory_bytes"]) > 1e7
    for times in end["phases"].values():
        assert 0 <= times["min"] <= times["mean"] <= times["max"]
    phases = {"load", "spmm", "gemm", "pack", "wait", "reduce", "update", "eval", "loss"}
    assert phases <= set(end["phases"])


def test_defaults_without_config_and_out_and_what_an_earlier_record_becomes(
    mpirun, succeed, schemes_folder, tmp_path
):
    path, few = schemes_folder / "directed.graph", sets("train.epochs=2")
    mpirun(2, "gcnmpi", "train", path, "--partition", "uneven-2", *few, cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("directed-uneven-2-")
    config = Record(folder).start["config"]
    assert (config["dtype"], config["model"]["hidden"]) == ("float32", [16])
    seeds = [["train", path, *few, "--out", folder, *sets(f"train.seed={n}")] for n in (1, 2)]
    succeed(1, *seeds)
    assert Record(folder).start["config"]["train"]["seed"] == 2
    previous = (folder / "run.previous.jsonl").read_text().splitlines()
    assert json.loads(previous[0])["config"]["train"]["seed"] == 1
    assert len(previous) == 4


def test_codes_are_written_to_terminals_only(mpirun, shell, tmp_path):
    """By every command under mpirun that prints a table or progress."""
    path = store(tmp_path / "g.graph", sbm(60, 3, degree=5, features=4, seed=0), 2)

    def words(verb, out=None, settings=("train.epochs=3",), **options):
        placed = {"partition": "rp-2", "settings": settings, "out": out and tmp_path / out}
        return [str(word) for word in line(verb, path, **placed, **options)]

    lines = [
        words("train", "t"),
        words("repeat", "r", seeds="0..1"),
        [*words("sweep", "s", seeds=0), "--try", "train.lr=0.1,0.01"],
        words("verify"), ["doctor"],
        words("bench-schemes", settings=(), epochs=1, schemes="p2p"),
    ]  # fmt: skip
    done = mpirun(2, "commands.py", json.dumps(lines))
    assert done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    again = words("repeat", "out", seeds="0..1")
    command = shlex.join(["mpirun", "-n", "2", "python", "-P", "-m", "gcnmpi", *again])
    # A terminal that Python makes, as script(1) does; what is written to it is printed here.
    there = shlex.join(["python", "-c", "import pty, sys; pty.spawn(sys.argv[1:])"])
    done = shell(f"TERM=xterm {there} sh -c {shlex.quote(f'{command}; {command} > file')}")
    assert "\x1b[1m" in done.stdout
    assert "seed-1 " in (tmp_path / "file").read_text()
    assert "\x1b" not in (tmp_path / "file").read_text()


# Features that are kept as a sparse matrix give what dense ones do, on any number of ranks.

N, WIDTH, CLASSES = 90, 150, 4
DROPPED = "model.input_dropout=0.4"
CASES = {
    "gcn": f"{DROPPED} model.dropout=0.3",
    "normalised": "graph.feature_norm=row model.residual=linear",
    "sage": f"model.name=sage model.norm=batch {DROPPED}",
    "gat": f"model.name=gat model.heads=2 {DROPPED}",
    "scipy": f"kernel=scipy {DROPPED}",
    "gin": "model.name=gin",  # which adds features and their aggregate: they are dense then
    "bcast": f"scheme.name=bcast {DROPPED}",
    "replicated": f"scheme.name=replicated {DROPPED}",
    "dense copies": "scheme.name=replicated scheme.sparse=false",
    "summa": f"scheme.name=summa {DROPPED}",
}
BATCHES = (
    f"dtype=float64 train.epochs=3 graph.feature_norm=row {DROPPED} train.batches=labor,20,3,3"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same graph twice; directed, with isolated vertices and vertices without features."""
    root, random = tmp_path_factory.mktemp("sparse"), np.random.default_rng(4)
    dense = random.random((N, N)) < 0.06
    dense[-2:] = dense[:, -2:] = False
    features = np.where(random.random((N, WIDTH)) < 0.03, random.uniform(0.1, 2, (N, WIDTH)), 0)
    features[5:8] = 0
    labels = random.integers(0, CLASSES, N).astype(np.int32)
    graph = graph_of(dense, features=features.astype(np.float32), labels=labels)
    for form in ("sparse", "dense"):
        path = store(root / f"{form}.graph", graph, 2, 4, keep_features=form)
        assert bool(open_graph(path).manifest.feature_entries) == (form == "sparse")
    return root


def test_runs_are_those_of_one_process(verified, folder):
    cases = []
    for settings in CASES.values():
        parts = "rp-2" if "replicated" in settings else None if "name=summa" in settings else "rp-4"
        given = [*settings.split(), "train.epochs=3"]
        cases.append((folder / "sparse.graph", parts, given))
    verified(4, cases, "loss curve", "final weights", "logits")


def test_batches_and_inference_are_those_of_dense_features(trained, succeed, folder, tmp_path):
    """Also where ranks keep rows of others."""
    own = BATCHES.split()
    cases = {
        (form, len(more)): (folder / f"{form}.graph", "rp-4", [*own, *more])
        for form in ("dense", "sparse")
        for more in ((), ("train.cache_mb=1",))
    }
    losses = [record["losses"] for record in trained(4, cases).values()]
    for found in losses[1:]:
        np.testing.assert_allclose(found, losses[0], rtol=1e-10)
    placed, weights = {"partition": "rp-2"}, tmp_path / "w.npz"
    outs = {form: tmp_path / f"{form}.npy" for form in ("dense", "sparse")}
    train = {"settings": own, "out": tmp_path / "run", "save_weights": weights}
    infer = {"settings": ["dtype=float64"], "weights": weights}
    succeed(
        2,
        line("train", folder / "sparse.graph", **train, **placed),
        *(line("infer", folder / f"{f}.graph", out=o, **infer, **placed) for f, o in outs.items()),
    )
    logits = [np.load(out) for out in outs.values()]
    np.testing.assert_allclose(*logits, rtol=1e-10, atol=1e-10)
