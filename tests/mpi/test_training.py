"""Training: one curve for every P, partition, kernel and order; what the record says.

The small runs of one rank count share a launch.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from words import sets

from gcnmpi.options.kernel import resolve
from gcnmpi.run.record import read_run
from partition.graph.store import open_graph, read_partition
from partition.importing.assemble import import_graph
from partition.pipeline.adding import add_partition

CORA_SETTINGS = ("dtype=float64", "train.epochs=100", "train.eval_every=100")
CORA = Path(__file__).parents[2] / "configs" / "cora.toml"


BASE = (
    "dtype=float64", "model.hidden=[8, 6]", "model.dropout=0.2", "model.input_dropout=0.1",
    "train.epochs=10", "train.lr=0.05", "train.weight_decay=5e-3",
    "train.weight_decay_layers=first", "train.eval_every=5",
)  # fmt: skip
# Name → ranks, graph, and settings over BASE.
RUNS = {
    f"{graph} {dtype} {ranks}": (ranks, graph, (f"dtype={dtype}",))
    for graph in ("directed", "symmetric", "hubs")
    for dtype in ("float64", "float32")
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


def line(root, out, ranks, graph, settings):
    partition = ["--partition", f"uneven-{ranks}"] if ranks > 1 else []
    words = ["train", root / f"{graph}.graph", *partition, "--quiet", "--out", out]
    return [*words, "--save-weights", out / "w.npz", *sets(*BASE, *settings)]


@pytest.fixture(scope="module")
def runs(gcnmpi_lines, schemes_folder, tmp_path_factory):
    """The records and weights of all RUNS, by name."""
    root, contents = tmp_path_factory.mktemp("runs"), _contents(schemes_folder)
    for ranks in (1, 3, 4):
        some = {name: run for name, run in RUNS.items() if run[0] == ranks}
        lines = [line(schemes_folder, root / name, *run) for name, run in some.items()]
        assert gcnmpi_lines(ranks, lines) == [[None] * ranks] * len(lines)
    assert _contents(schemes_folder) == contents, "training changed the graph folder"
    return {name: Record(root / name) for name in RUNS}


class Record:
    """A run's record, its losses and its final weights."""

    def __init__(self, folder):
        run, self.folder = read_run(folder), folder
        self.start, self.epochs, self.end, self.weights = run.start, run.epochs, run.end, {}
        self.losses = np.array([epoch["loss"] for epoch in self.epochs])
        if (folder / "w.npz").exists():
            with np.load(folder / "w.npz") as arrays:
                self.weights = dict(arrays)


def _contents(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files}


ACCURACIES = ("train_accuracy", "val_accuracy", "test_accuracy")


@pytest.mark.parametrize("graph", ["directed", "symmetric", "hubs"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_one_curve_for_every_rank_count_and_partition(runs, graph, dtype, tolerance):
    reference = runs[f"{graph} {dtype} 1"]
    assert len(reference.losses) == 10
    assert reference.losses[-1] < reference.losses[0]
    for name in (f"{graph} {dtype} {ranks}" for ranks in (3, 4)):
        np.testing.assert_allclose(
            runs[name].losses, reference.losses, rtol=tolerance, err_msg=name
        )
        for weight, value in runs[name].weights.items():
            np.testing.assert_allclose(
                value, reference.weights[weight], rtol=0, atol=100 * tolerance, err_msg=name
            )
        if dtype == "float64":
            for mine, theirs in zip(runs[name].epochs, reference.epochs, strict=True):
                assert [mine[key] for key in ACCURACIES] == [theirs[key] for key in ACCURACIES]


def test_the_same_run_twice_and_in_another_launch_is_the_same_bit_for_bit(
    mpirun, runs, schemes_folder, tmp_path
):
    done = mpirun(4, "gcnmpi", *line(schemes_folder, tmp_path / "run", *RUNS["again"]))
    assert done.stdout == done.stderr == ""  # --quiet
    first = runs["directed float32 4"]
    for again in (runs["again"], Record(tmp_path / "run")):
        assert first.losses.tolist() == again.losses.tolist()
        for name, weight in first.weights.items():
            np.testing.assert_array_equal(again.weights[name], weight)


def test_one_curve_on_cora(gcnmpi_lines, data_dir, tmp_path):
    import_graph(data_dir / "planetoid" / "ind.cora", tmp_path / "cora.graph")
    add_partition(tmp_path / "cora.graph", "hp", 4)
    words = ["--config", CORA, "--quiet", *sets(*CORA_SETTINGS)]
    line = ["train", tmp_path / "cora.graph", *words]
    alone = gcnmpi_lines(1, [[*line, "--out", tmp_path / "1"]])
    parts = gcnmpi_lines(4, [[*line, "--partition", "hp-4", "--out", tmp_path / "4"]])
    assert (alone, parts) == ([[None]], [[None] * 4])
    one, four = Record(tmp_path / "1"), Record(tmp_path / "4")
    assert len(one.losses) == 100
    np.testing.assert_allclose(four.losses, one.losses, rtol=1e-10)
    assert four.epochs[-1]["test_accuracy"] == one.epochs[-1]["test_accuracy"] > 0.79
    assert four.end["bytes_sent"] == four.end["bytes_predicted"]


def test_bytes_counted_are_bytes_predicted(runs):
    for name, record in runs.items():
        end = record.end
        for what in ("bytes", "messages", "eval_bytes", "eval_messages"):
            assert end[f"{what}_sent"] == end[f"{what}_predicted"], (name, what)
        assert (sum(end["bytes_sent"]) > 0) == (RUNS[name][0] > 1), name


def test_evaluation_never_and_every_third_epoch(runs):
    never, third, fifth = runs["never"], runs["third"], runs["directed float64 4"]
    assert all(epoch[key] is None for epoch in never.epochs for key in ACCURACIES)
    assert never.end["eval_bytes_sent"] == [0, 0, 0, 0]
    evaluated = [e["epoch"] for e in third.epochs if all(e[key] is not None for key in ACCURACIES)]
    assert evaluated == [3, 6, 7]
    assert all(0 <= e[key] <= 1 for e in third.epochs for key in ACCURACIES if e[key] is not None)
    # Evaluation changes neither the losses nor what the training epochs send.
    assert never.losses.tolist() == fifth.losses.tolist()
    assert third.losses.tolist() == fifth.losses[:7].tolist()
    assert never.end["bytes_sent"] == fifth.end["bytes_sent"]
    eval_bytes = np.array(fifth.end["eval_bytes_sent"]) // 2
    assert third.end["eval_bytes_sent"] == (3 * eval_bytes).tolist()


def test_the_record_has_what_scripts_rely_on(runs, schemes_folder):
    record = runs["directed float64 4"]
    start, end = record.start, record.end
    path = schemes_folder / "directed.graph"
    assert start["event"] == "start"
    assert start["graph_id"] == open_graph(path).manifest.id
    assert start["partition_id"] == read_partition(path, "uneven-4").id
    assert (start["scheme"], start["kernel"], start["ranks"]) == ("p2p", resolve("auto")[0], 4)
    assert start["config"]["kernel"] == "auto"
    assert len(start["hosts"]) == 4
    assert [len(start["of_ranks"][name]) for name in ("rows", "entries", "peers")] == [4] * 3
    assert all(isinstance(host, str) for host in start["hosts"])
    assert start["devices"] == [None] * 4
    assert start["reduction"] == "mpi"
    assert start["config"]["train"]["weight_decay"] == 5e-3
    assert start["config"]["model"]["hidden"] == [8, 6]
    assert {"gcnmpi", "python", "numpy", "scipy", "mpi"} <= set(start["versions"])
    assert [epoch["epoch"] for epoch in record.epochs] == list(range(1, 11))
    for epoch in record.epochs:
        assert epoch["event"] == "epoch"
        assert set(epoch) == {"event", "epoch", "loss", "seconds", "time", *ACCURACIES}
        assert epoch["seconds"] > 0
    assert (end["event"], end["finished"], end["epochs"]) == ("end", True, 10)
    assert end["seconds_per_epoch"] == np.median([epoch["seconds"] for epoch in record.epochs])
    for name in ("bytes_sent", "bytes_predicted", "messages_sent", "peak_memory_bytes"):
        assert len(end[name]) == 4
    assert min(end["peak_memory_bytes"]) > 1e7
    for times in end["phases"].values():
        assert 0 <= times["min"] <= times["mean"] <= times["max"]
    assert {"load", "spmm", "gemm", "pack", "wait", "reduce", "update", "eval", "loss"} <= set(
        end["phases"]
    )


def test_defaults_without_config_and_out(mpirun, schemes_folder, tmp_path):
    words = [schemes_folder / "directed.graph", "--partition", "uneven-2", *sets("train.epochs=2")]
    done = mpirun(2, "gcnmpi", "train", *words, cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("directed-uneven-2-")
    assert str(Path("runs") / folder.name) in done.stdout
    assert done.stderr.count("epoch     2/2") == 1
    record = Record(folder)
    assert record.start["config"]["dtype"] == "float32"
    assert record.start["config"]["model"]["hidden"] == [16]


def test_another_run_keeps_the_earlier_record(gcnmpi_lines, schemes_folder, tmp_path):
    words = ["train", schemes_folder / "directed.graph", "--quiet", "--out", tmp_path / "run"]
    lines = [[*words, *sets("train.epochs=2", f"train.seed={seed}")] for seed in (1, 2)]
    assert gcnmpi_lines(1, lines) == [[None]] * 2
    record = Record(tmp_path / "run")
    assert record.start["partition_id"] is None
    assert record.start["config"]["train"]["seed"] == 2
    previous = (tmp_path / "run" / "run.previous.jsonl").read_text().splitlines()
    assert json.loads(previous[0])["config"]["train"]["seed"] == 1
    assert len(previous) == 4


def test_labels_masks_and_features_are_not_changed_in_place(run_cases, schemes_folder):
    path = schemes_folder / "directed.graph"
    before = _contents(path)
    run_cases("in_memory", 2, [(path, "uneven-2")])
    assert _contents(path) == before


def test_patience_ends_at_an_evaluation_and_checkpoints_are_written_by_time(runs):
    patient = runs["patient"]
    assert len(patient.epochs) == 9
    assert patient.end["finished"]
    assert len(list((patient.folder / "checkpoints").iterdir())) == 2
