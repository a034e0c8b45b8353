"""The table that compares finished runs."""

import json

import pytest

from gcnmpi.report.table import print_runs
from partition.errors import UserError


def write_run(folder, partition="hp-2", finished=True, **start):
    facts = {"graph": "g", "scheme": "p2p", "kernel": "scipy", "ranks": 2, "partition": partition}
    accuracies = {"train_accuracy": 1.0, "val_accuracy": None, "test_accuracy": 0.5}
    end = {"epochs": 2, "epochs_run": 2, "seconds_per_epoch": 0.5}
    end |= {"bytes_sent": [2e6, 6e6], "messages_sent": [4, 4]}
    records = [
        {"event": "start", **facts, "config": {"dtype": "float64"}, **start},
        {"event": "epoch", "epoch": 1, "loss": 1.5, "seconds": 0.5, **accuracies},
        *([{"event": "end", "finished": True, **end}] if finished else []),
    ]
    folder.mkdir()
    (folder / "run.jsonl").write_text("\n".join(map(json.dumps, records)))
    return folder


def test_what_runs_share_is_said_once_and_the_rest_in_columns(tmp_path, capsys):
    runs = [write_run(tmp_path / name, partition=name) for name in ("hp-2", "rp-2")]
    print_runs([runs[0], runs[1] / "run.jsonl"], as_json=False)
    heading, titles, first, second, _ = capsys.readouterr().out.splitlines()
    assert heading == "graph g, ranks 2, scheme p2p, kernel scipy, dtype float64"
    assert " ".join(titles.split()) == "run partition MB/epoch busiest s/epoch loss val test"
    assert " ".join(first.split()) == "hp-2 hp-2 4.000 3.000 0.5000 1.5000 - 0.500"
    assert second.split()[:2] == ["rp-2", "rp-2"]


def test_runs_of_one_name_are_shown_with_their_folders(tmp_path, capsys):
    for parent in ("a", "b"):
        (tmp_path / parent).mkdir()
    runs = [write_run(tmp_path / parent / "run") for parent in ("a", "b")]
    print_runs(runs, as_json=False)
    out = capsys.readouterr().out
    assert all(str(run) in out for run in runs)
    print_runs(runs, as_json=True)
    assert [row["bytes_per_epoch"] for row in json.loads(capsys.readouterr().out)] == [4e6, 4e6]


def test_a_run_that_did_not_finish_is_refused(tmp_path):
    run = write_run(tmp_path / "run", finished=False)
    with pytest.raises(UserError, match=r"did not finish \(last epoch 1\)"):
        print_runs([run], as_json=False)
    with pytest.raises(UserError, match="cannot read"):
        print_runs([tmp_path / "nowhere"], as_json=False)
