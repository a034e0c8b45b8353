"""The table that compares finished runs."""

import csv
import io
import json

import pytest
from refusals import refuses

from gcnmpi.report.table import print_runs


def write_run(folder, partition="hp-2", finished=True, epoch=(), end=(), **start):
    facts = {"graph": "g", "scheme": "p2p", "kernel": "scipy", "ranks": 2, "partition": partition}
    accuracies = {"train_accuracy": 1.0, "val_accuracy": None, "test_accuracy": 0.5}
    figures = {"epochs": 2, "epochs_run": 2, "seconds_per_epoch": 0.5}
    figures |= {"best_epoch": 1, "bytes_sent": [2e6, 6e6], "messages_sent": [4, 4]}
    records = [
        {"event": "start", **facts, "config": {"dtype": "float64"}, **start},
        {"event": "epoch", "epoch": 1, "loss": 1.5, "seconds": 0.5, **accuracies} | dict(epoch),
        *([{"event": "end", "finished": True, **figures} | dict(end)] if finished else []),
    ]
    folder.mkdir(parents=True)
    (folder / "run.jsonl").write_text("\n".join(map(json.dumps, records)))
    return folder


def test_what_runs_share_is_said_once_and_the_rest_in_columns(tmp_path, capsys):
    runs = [write_run(tmp_path / name, partition=name) for name in ("hp-2", "rp-2")]
    print_runs([runs[0], runs[1] / "run.jsonl"], as_json=False)
    heading, titles, first, second, *_ = capsys.readouterr().out.splitlines()
    assert heading == "graph g, ranks 2, scheme p2p, kernel scipy, dtype float64, metric accuracy"
    assert " ".join(titles.split()) == (
        "run partition MB/epoch busiest s/epoch loss val test best val its test"
    )
    assert " ".join(first.split()) == "hp-2 hp-2 4.000 3.000 0.5000 1.5000 - 0.500 - 0.500"
    assert second.split()[:2] == ["rp-2", "rp-2"]


def seeds(folder, lr, values, **start):
    """Runs that differ in their seed only, and their test accuracies."""
    for seed, value in enumerate(values):
        table = {"dtype": "float64", "train": {"lr": lr, "seed": seed}}
        accuracies = {"val_accuracy": value, "test_accuracy": value}
        write_run(folder / f"lr={lr}" / f"seed-{seed}", config=table, epoch=accuracies, **start)


def test_keys_that_differ_are_columns_and_seeds_have_a_mean(tmp_path, capsys):
    seeds(tmp_path, 0.1, (0.25, 0.75))
    seeds(tmp_path, 0.5, (0.5, 0.5))
    print_runs([tmp_path])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:4] == ["run", "train.lr", "train.seed", "MB/epoch"]
    assert lines[3][:3] == ["lr=0.1/seed-1", "0.1", "1"]
    assert lines[-3:] == [
        ["train.lr", "runs", "best", "val", "its", "test"],
        ["0.1", "2", *["0.500", "±", "0.354"] * 2], ["0.5", "2", *["0.500", "±", "0.000"] * 2],
    ]  # fmt: skip
    print_runs([tmp_path], as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["group"] for row in rows] == [1, 1, 2, 2]
    assert (rows[0]["train.lr"], rows[1]["best_test_mean"]) == (0.1, 0.5)
    assert rows[1]["best_test_deviation"] == pytest.approx(0.5**1.5)
    print_runs([tmp_path], as_csv=True)
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["train.seed"] for row in table] == ["0", "1", "0", "1"]


def linked(folder, seed, made="split 0.8,0.1,0.1"):
    """A run of link prediction, with the pairs of its seed."""
    task = {"name": "links", "pairs": f"links-{seed}", "metric": "hits@20", "metrics": ["mrr"]}
    task |= {"decoder": "dot", "objective": "bce", "negatives": "uniform,1", "supervise": 1.0}
    pairs = {"name": f"links-{seed}", "made": made, "directed": False, "train": 8000, "val": 10}
    pairs |= {"test": 20, "negatives": {"val": 10, "test": 20}, "candidates": {}}
    values = {f"{m}_{name}": seed / 4 for m in ("val", "test") for name in ("hits@20", "mrr")}
    config = {"dtype": "float64", "task": task, "train": {"seed": seed}}
    return write_run(folder, config=config, pairs=pairs, metric="hits@20", epoch=values)


def test_pairs_of_seeds_are_said_once_and_all_metrics_have_means(tmp_path, capsys):
    for seed in range(2):
        linked(tmp_path / f"s{seed}", seed)
    print_runs([tmp_path])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "links: pairs links-0, links-1: 8,000 to train on, 10 (10 negatives) to validate on, "
        "20 (20 negatives) to test on; decoder dot, objective bce, negatives uniform,1"
    )
    assert lines[2].split()[1:3] == ["task.pairs", "train.seed"]
    assert lines[4].split()[-3:] == ["0.250"] * 3
    assert lines[-1].split() == ["2", *["0.125", "±", "0.177"] * 3]
    linked(tmp_path / "hard", 2, made="split 0.8,0.1,0.1; 50 hard candidates of test")
    print_runs([tmp_path], as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["group"] for row in rows] == [1, 2, 2]  # of other pairs: no seed of the same
    assert rows[1]["best_test_mrr_mean"] == 0.125
    print_runs([tmp_path])
    assert capsys.readouterr().out.splitlines()[-3].split()[:2] == ["task.pairs", "runs"]


def test_a_folder_stands_for_all_runs_below_it(tmp_path, capsys):
    for name in ("a/one", "a/b/two"):
        write_run(tmp_path / name)
    write_run(tmp_path / "a/dead", finished=False)
    write_run(tmp_path / "a/bad", end={"bytes_sent": ["many"]})
    # The runs below a run are its own affair, and one that is named twice counts once.
    write_run(tmp_path / "a/one/before")
    print_runs([tmp_path / "a", tmp_path / "a/one"], as_csv=True)
    out, err = capsys.readouterr()
    lines = list(csv.DictReader(io.StringIO(out)))
    assert [line["run"][-6:] for line in lines][-2:] == ["/a/one", "before"]
    assert {line["loss"] for line in lines} == {"1.5"}
    assert "dead: the run did not finish" in err
    assert "bad/run.jsonl is damaged: bytes_sent[0]: " in err
    (tmp_path / "empty").mkdir()
    for nothing in ("empty", "a/dead", "a/bad"):
        refuses(".", print_runs, [tmp_path / nothing])


def test_errors_by_lead_are_printed(tmp_path, capsys):
    """Of many leads some; nothing of runs that predict one state."""
    for name, count in (("one", 1), ("three", 3), ("many", 50)):
        leads = {"test": {"mae": [lead / 8 for lead in range(1, count)] + [None]}, "val": {}}
        write_run(tmp_path / name, end={"leads": leads}, metric="mae")
    print_runs([tmp_path / "one"])
    assert "ahead" not in capsys.readouterr().out
    print_runs([tmp_path / "one", tmp_path / "three", tmp_path / "many"])
    told, heads, *lines = capsys.readouterr().out.splitlines()[-4:]
    assert told.startswith("test MAE after the last epoch, by how many states ahead")
    assert heads.split() == ["run", "1", "5", "10", "14", "19", "23", "28", "32", "37", "41",
                             "46", "50"]  # fmt: skip
    assert [line.split()[:3] for line in lines] == [
        ["three", "0.125", "-"], ["many", "0.125", "0.625"],
    ]  # fmt: skip
    print_runs([tmp_path / "three"], as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert row["test_mae_by_lead"] == [0.125, 0.25, None]


DAMAGED = [
    ({"end": {"leads": {"test": {"mae": 3}}}}, "leads[...][...]"),
    ({"end": {"leads": {"test": 3}}}, "leads[...]"),
    ({"end": {"seconds_per_epoch": "fast"}}, "seconds_per_epoch: Expected"),
    ({"end": {"messages_sent": [1, [2]]}}, "messages_sent[1]: "),
    ({"end": {"bytes_sent": [10**400]}}, "too large"),
    ({"epoch": {"loss": True}}, "loss: "),
    ({"epoch": {"val_accuracy": {}}}, "metrics[...]: "),
    ({"config": {"task": []}}, "task"),
]


def test_damaged_fields_are_told_in_one_line(tmp_path):
    for number, (part, says) in enumerate(DAMAGED):
        run = write_run(tmp_path / str(number), **part)
        assert says in refuses(".", print_runs, [run]).message


def test_escapes_of_a_record_do_not_reach_the_terminal(tmp_path, capsys):
    print_runs([write_run(tmp_path / "a\x1b[2J", graph="g\x1b[31m"), write_run(tmp_path / "b")])
    out = capsys.readouterr().out
    assert ("\x1b" in out, r"g\x1b[31m" in out) == (False, True)


def test_two_forms_and_names_of_no_folder_are_refused(tmp_path):
    refuses("exclude each other", print_runs, [tmp_path], as_csv=True, as_json=True)
