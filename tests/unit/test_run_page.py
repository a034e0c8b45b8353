"""The page of runs, from records that were made for it."""

import json
import re

import numpy as np
import pytest
from refusals import refuses

from gcnmpi.report.page import DETAILED, report_figures, write_report
from gcnmpi.report.run_facts import facts_of
from gcnmpi.report.run_figures import APART
from gcnmpi.report.table import print_runs
from gcnmpi.run.record import read_run
from gcnmpi.run.run_record import sampled_every


def make_run(folder, epochs=40, ranks=4, seed=0, **start):
    """Write ``run.jsonl``; further facts are over those of its start. Rank ranks // 2 is slow."""
    random = np.random.default_rng(seed)
    speed = 1 + 0.1 * random.random(ranks)
    speed[ranks // 2] = 1.5
    facts = {
        "time": "2026-01-01T00:00:00+00:00", "graph": "ogbn", "graph_id": "0a", "data_id": "0b",
        "n": 169343, "nnz": 2315598, "partition": f"hp-{ranks}", "partition_id": "0c",
        "direction": "in", "scheme": "p2p", "scheme_options": {"name": "p2p", "exchange": "rows"},
        "kernel": "native", "ranks": ranks, "threads": 1, "job": None, "reduction": "mpi",
        "hosts": [f"node{rank // 16:03}" for rank in range(ranks)], "devices": [None] * ranks,
        "versions": {"gcnmpi": "0.1.0", "python": "3.12", "mpi": "Open MPI v5"},
        "metric": "accuracy", "warnings": [],
        "config": {"dtype": "float32", "model": {"name": "gcn", "hidden": [64], "dropout": 0.5},
                   "train": {"epochs": epochs, "lr": 0.01, "seed": 0}},
    } | start  # fmt: skip
    pairs = np.zeros((ranks, ranks), int)  # rows sent from one to another
    for rank in range(ranks):
        near = np.arange(ranks)[(np.arange(ranks) - rank) % ranks < 1 + ranks // 2]
        pairs[rank, near] = 4000 / (1 + np.abs(near - rank))
    np.fill_diagonal(pairs, 0)
    peers = [np.flatnonzero(line).tolist() for line in pairs]
    out, back = pairs.sum(axis=1), pairs.sum(axis=0)
    sent, received = 512 * out + 256 * back, 512 * back + 256 * out
    ranks_record = {
        "rows": random.integers(2000, 2400, ranks).tolist(),
        "entries": random.integers(30000, 36000, ranks).tolist(),
        "memory_forecast_bytes": 480_000_000, "peers": peers,
        "peer_rows": [line[near].tolist() for line, near in zip(pairs, peers, strict=True)],
        "expand_row_bytes": 512, "fold_row_bytes": 256,
    }  # fmt: skip
    lines = [{"event": "start", **facts, "of_ranks": ranks_record}]
    after, whole, samples = 0, {}, []
    for epoch in range(1, epochs + 1):
        curve = 1 - np.exp(-epoch / (epochs / 5))
        noise = random.normal(0, 0.01, 4)
        lines.append({
            "event": "epoch", "epoch": epoch, "loss": 3.7 * (1 - curve) + 0.15 + abs(noise[0]),
            "train_accuracy": 0.78 * curve + noise[1], "val_accuracy": 0.72 * curve + noise[2],
            "test_accuracy": 0.71 * curve + noise[3],
            "seconds": 0.02 * (1 + abs(random.normal(0, 0.1))), "time": 1.7e9 + epoch * 0.025,
        })  # fmt: skip
        if epoch % sampled_every(epoch, ranks) == 0 or epoch == epochs:
            span = epoch - after
            work = speed * span * (1 + 0.05 * random.random(ranks))
            seconds = {
                "spmm": work * 0.008, "gemm": work * 0.002, "loss": work * 1e-4,
                "update": work * 1e-4, "other": work * 1e-4, "pack": work * 4e-4,
                "reduce": 0.0108 * (1.6 * span - work), "wait": 0.001 * (1.7 * span - work),
                "eval": work * 0.004,
            }  # fmt: skip
            rounded = {k: [float(f"{v:.3g}") for v in values] for k, values in seconds.items()}
            samples.append({"epoch": epoch, "after": after, "seconds": rounded})
            whole = {k: whole.get(k, 0) + values for k, values in seconds.items()}
            after = epoch
    each = {name: values.tolist() for name, values in whole.items()} | {"load": [2.5] * ranks}
    lines.append({
        "event": "end", "finished": True, "epochs": epochs, "epochs_run": epochs,
        "stopped_early": False, "best_epoch": epochs, "best_val_accuracy": 0.72,
        "best_test_accuracy": 0.71, "seconds_per_epoch": 0.0205, "orders": ["given", "combine"],
        "bytes_sent": (sent * epochs).tolist(), "bytes_predicted": (sent * epochs).tolist(),
        "bytes_received": (received * epochs).tolist(),
        "messages_sent": [len(near) * epochs for near in peers],
        "messages_predicted": [len(near) * epochs for near in peers],
        "hidden": [0.83] * ranks, "rounding": [],
        "peak_memory_bytes": random.integers(380_000_000, 470_000_000, ranks).tolist(),
        "phases": {}, "rank_phases": each, "samples": samples,
    })  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


LEADS = {"val": {"accuracy": [1, 2, None]}, "test": {"accuracy": [3, 4, 5]}}


def facts(folder, name="run"):
    return facts_of(name, str(folder), read_run(folder))


def changed(folder, change):
    """Let ``change`` make other records of those in the folder of a run; None: leave one out."""
    path = folder / "run.jsonl"
    records = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(r) + "\n" for r in records if r is not None))
    return folder


def page_of(tmp_path, *folders):
    write_report(tmp_path / "page.html", [facts(folder, folder.name) for folder in folders])
    return (tmp_path / "page.html").read_text()


def figures_of(*folders):
    return {figure.key: figure for figure in report_figures([facts(folder) for folder in folders])}


def test_figures_of_a_run(tmp_path):
    folder = make_run(tmp_path / "one")
    run, found = facts(folder), figures_of(folder)
    assert list(found) == [
        "loss", "accuracy", "seconds", "phases", "waiting", "work-over-epochs", "bytes", "sent",
        "received", "entries", "rows", "work", "memory",
    ]  # fmt: skip
    assert "Rank 2 computes longest" in found["phases"].about
    waiting = found["waiting"].values
    assert (waiting[2] < waiting[[0, 1, 3]]).all()
    np.testing.assert_allclose(run.pairs.sum(axis=1), run.sent)
    np.testing.assert_allclose(run.pairs.sum(axis=0), run.received)
    assert found["memory"].mark == ("forecast for the rank that needs most", 480.0)
    assert found["waiting"].edges[-1] == 40
    found = figures_of(make_run(tmp_path / "wide", 5, 200))  # more ranks than a figure shows
    assert found["bytes"].values.shape == (50, 50)
    assert "A cell is 4 × 4 ranks." in found["bytes"].about
    assert found["phases"].columns[:2] == ["ranks 0 to 1", "ranks 2 to 3"]


def test_several_runs_are_compared(tmp_path):
    runs = [make_run(tmp_path / f"r{i}", 20, 2 + i, seed=i) for i in range(3)]
    page = page_of(tmp_path, *runs)
    assert "3 training runs" in page
    assert page.count('<details class="group"') == 3
    assert page.count('<details class="group" id="run1-overview-group" open>') == 1
    keys = re.findall(r'id="([^"]+)"', page)
    assert len(keys) == len(set(keys))
    assert {*re.findall(r'href="#([^"]+)"', page)} <= {*keys}
    grid = [with_settings(tmp_path / f"{x}", x % 2, x // 2) for x in range(2 * APART + 2)]
    names = [line.name for line in figures_of(*grid)["accuracy"].series]
    assert names == ["all runs", "1. train.lr=0 (2 runs)"]
    write_report(tmp_path / "many.html", [facts(runs[0], f"n{i}") for i in range(DETAILED + 3)])
    page = (tmp_path / "many.html").read_text()
    assert f"Only the first {DETAILED}" in page
    assert f"n{DETAILED + 2}" in page


def with_settings(folder, seed, lr, **more):
    config = {"dtype": "float32", "train": {"epochs": 20, "seed": seed, "lr": lr}}
    return make_run(folder, 20, 2, seed=seed, config=config, **more)


def test_metrics_of_links_and_errors_by_lead_are_figures(tmp_path):
    names = ("auc", "mrr", "hits@20")
    task = {"name": "links", "pairs": "mine", "metric": "auc", "metrics": names[1:]}
    task |= {"decoder": "hadamard", "objective": "softmax", "negatives": "pool,64"}
    pairs = {"name": "mine", "made": "split 0.8,0.1,0.1", "train": 9000, "val": 30, "test": 40}
    pairs |= {"negatives": {"test": 41}, "candidates": {"val": 7, "test": 7}}
    config = {"task": task, "train": {"epochs": 4}}

    def with_metrics(record):
        every = [f"{m}_{name}" for m in ("val", "test") for name in names]
        known = dict.fromkeys(every, record.get("epoch", 0) / 8)
        return record | (known if record["event"] == "epoch" else {})

    made = make_run(tmp_path / "run", 4, metric="auc", config=config, pairs=pairs)
    found = figures_of(changed(made, with_metrics))
    titles = [(found[key].title, found[key].y_label) for key in ("auc", "mrr", "hits-20")]
    assert titles == [("AUC", "AUC"), ("MRR", "MRR"), ("Hits@20", "Hits@20")]
    assert "pairs to train on" in found["loss"].about
    assert "40 (41 negatives, 7" in page_of(tmp_path, made)

    def with_leads(record):
        return record | ({"leads": LEADS} if record["event"] == "end" else {})

    runs = [changed(with_settings(tmp_path / f"r{i}", i, 0.1), with_leads) for i in range(2)]
    found = [(line.name, line.x, line.y) for line in figures_of(runs[0])["leads-accuracy"].series]
    assert found == [("validation", [1, 2], [1, 2]), ("test", [1, 2, 3], [3, 4, 5])]
    both = next(figure for key, figure in figures_of(*runs).items() if "leads" in key)
    assert [(line.y, line.low, line.high) for line in both.series] == [([3, 4, 5],) * 3]


def test_records_of_earlier_versions_and_of_runs_that_go_on_have_less_to_show(tmp_path, capsys):
    def older(record):
        for name in ("of_ranks", "rank_phases", "samples"):
            record.pop(name, None)
        phases = {"spmm": {"min": 1.0, "mean": 2.0, "max": 3.0}}
        return record | ({"phases": phases} if record["event"] == "end" else {})

    page = page_of(tmp_path, changed(make_run(tmp_path / "old"), older))
    assert "Seconds of the whole run, over ranks" in page
    assert "Bytes from rank to rank are not known" in page
    run = changed(make_run(tmp_path / "on"), lambda r: r if r["event"] != "end" else None)
    print_runs([run], page=tmp_path / "p.html")
    out, err = capsys.readouterr()
    assert (out, "did not finish" in err) == ("", True)
    page = (tmp_path / "p.html").read_text()
    assert all(said in page for said in ("has not finished: epoch 40 of 40.", "Training loss"))
    refuses("did not finish", print_runs, [run])
    refuses("cannot read", print_runs, [tmp_path / "nowhere"], page=tmp_path / "p.html")


def test_texts_of_a_record_are_no_part_of_the_page(tmp_path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    texts = dict.fromkeys(("graph", "partition", "scheme", "metric"), evil)
    run = make_run(
        tmp_path / "evil", 3, 2, **texts, warnings=[evil], hosts=[evil, evil],
        versions={evil: evil}, scheme_options={evil: evil},
        config={"dtype": evil, "model": {"name": evil, evil: [evil]}, "train": {"epochs": 3}},
    )  # fmt: skip
    write_report(tmp_path / "p.html", [facts(run, evil), facts(run, evil)])
    page = (tmp_path / "p.html").read_text()
    assert [page.count(text) for text in ("<script", "<img")] == [1, 0]
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("event", "part"),
    [("of_ranks", {"peers": [[7], [0]], "peer_rows": [[1], [1]]}), ("of_ranks", {"rows": [1]}),
     ("of_ranks", {"peers": [[1]], "peer_rows": [[1]]}), ("of_ranks", {"entries": ["a", 1]}),
     ("samples", {"seconds": {"spmm": [1.0, None]}}), ("samples", {"after": "x"}),
     ("end", {"rank_phases": {"spmm": [1.0]}}), ("end", {"peak_memory_bytes": [[], 1]}),
     ("start", {"ranks": -2})],
)  # fmt: skip
def test_damaged_fields_are_told(tmp_path, event, part):
    """Of the record itself, or in what it has under a name."""

    def damaged(record):
        of = record.get(event)
        if of is not None:
            changed = [sample | part for sample in of] if event == "samples" else of | part
            return record | {event: changed}
        return record | part if record["event"] == event else record

    refuses("is damaged", facts, changed(make_run(tmp_path / "run", 3, 2), damaged))
