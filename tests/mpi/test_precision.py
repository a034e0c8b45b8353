"""Messages in fewer bits: what is sent, what it changes, and what does not depend on it."""

import json

import pytest
from networks import settings_of
from test_schemes import make_graph
from words import latest, sets

from gcnmpi.core.precision import FORMATS
from gcnmpi.run.record import read_run
from partition.graph.store import write_graph
from partition.pipeline.adding import add_partition

ROUNDED = {"rounded rows", "rounded gradient", "rounded loss"}
ROUNDED |= {f"rounded {purpose} {what}" for purpose in ("training", "evaluation")
            for what in ("bytes", "received", "messages", "shared")}  # fmt: skip


@pytest.mark.parametrize(("nranks", "cases"), [(1, 24), (2, 24), (3, 8), (4, 5), (7, 3)])
def test_products_with_rounded_messages(mpirun, tmp_path, nranks, cases):
    done = mpirun(nranks, "rounded.py", tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases agree" in done.stdout


def verify_cases(nranks):
    """(graph, settings): networks of sums and of whole rows, schemes, exchanges, transports."""
    yield "directed", [*settings_of("gcn"), "scheme.exchange=mixed"]
    yield "symmetric", [*settings_of("gcn"), "scheme.exchange=rows", "dtype=float32"]
    yield "directed", [*settings_of("gat"), "scheme.transport=onesided"]
    yield "symmetric", [*settings_of("sage-max"), "scheme.transport=neighbor"]
    yield "directed", [*settings_of("gcn-trained"), "scheme.transport=isend"]
    yield "directed", [*settings_of("appnp"), "kernel=scipy"]
    yield "directed", [*settings_of("sgc")]
    yield "symmetric", [*settings_of("gcn"), "scheme.transport=shared"]
    if nranks % 2 == 0:
        replicated = ["scheme.name=replicated", "scheme.replication=2"]
        yield "directed", [*settings_of("gcn"), *replicated]
        yield "symmetric", [*settings_of("gatv2"), *replicated]


@pytest.mark.parametrize("nranks", [1, 2, 3, 4, 7])
def test_verify_says_what_rounding_changes(mpirun, schemes_folder, tmp_path, nranks):
    cases = [
        {
            "graph": str(schemes_folder / f"{graph}.graph"),
            "partition": f"uneven-{nranks // 2 if 'scheme.replication=2' in settings else nranks}",
            "settings": latest("train.epochs=4", *settings, f"comm.precision={precision}"),
            "fault": None,
            "directions": 1,
        }
        for number, (graph, settings) in enumerate(verify_cases(nranks))
        for precision in (FORMATS if nranks == 2 else [list(FORMATS)[number % 3]])
    ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    done = mpirun(nranks, "verify_cases.py", tmp_path / "cases.json", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for case, result in zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert (result["code"], result["missed"]) == (0, []), case
        assert set(result["checks"]) >= ROUNDED | {"loss curve", "first gradient", "logits"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("precision") / "small.graph"
    write_graph(path, make_graph("directed"), source={})
    add_partition(path, "rp", 2)
    return path


WORDS = ("model.hidden=40", "model.dropout=0.3", "scheme.transport=persistent")


def run(mpirun, path, out, precision, *settings):
    """The record of a run on two ranks."""
    own = sets(*WORDS, "train.epochs=6", f"comm.precision={precision}", *settings)
    words = ["train", path, "--partition", "rp-2", "--out", out, *own]
    done = mpirun(2, "gcnmpi", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return read_run(out), done.stdout


def losses(record):
    return [epoch["loss"] for epoch in record.epochs]


def test_the_record_has_bytes_and_errors(mpirun, path, tmp_path):
    exact, said = run(mpirun, path, tmp_path / "fp32", "fp32", "model.order=aggregate")
    assert exact.end["rounding"] == []
    assert "rounded" not in said
    for precision, share in {"bf16": 0.5, "fp16": 0.51, "int8": 0.28}.items():
        record, said = run(mpirun, path, tmp_path / precision, precision, "model.order=aggregate")
        for field in ("bytes_sent", "bytes_received", "eval_bytes_sent"):
            assert all(a <= share * b for a, b in zip(record.end[field], exact.end[field]))  # noqa: B905
        assert record.end["bytes_sent"] == record.end["bytes_predicted"]
        assert record.end["messages_sent"] == exact.end["messages_sent"]
        assert record.end["reduce_bytes"] == exact.end["reduce_bytes"]
        assert record.end["setup_bytes_sent"] == exact.end["setup_bytes_sent"]
        assert [e["epoch"] for e in record.end["rounding"]] == [1, 1, 6, 6]
        bound = FORMATS[precision].error(40)
        assert all(0 < e["error"] <= bound for e in record.end["rounding"])
        assert "rounded rows in messages: by" in said
        assert losses(record) != losses(exact)
        assert losses(record) == pytest.approx(losses(exact), rel=0.03)


def test_the_same_bits_again_with_more_threads_and_after_a_resume(mpirun, path, tmp_path):
    once = losses(run(mpirun, path, tmp_path / "once", "int8", "threads=1")[0])
    assert losses(run(mpirun, path, tmp_path / "again", "int8", "threads=3")[0]) == once
    other = losses(run(mpirun, path, tmp_path / "seed", "int8", "train.seed=1")[0])
    assert other != once
    parts = "train.checkpoint_every=3"
    run(mpirun, path, tmp_path / "parts", "int8", "threads=1", "train.epochs=3", parts)
    words = ["train", path, "--partition", "rp-2", "--out", tmp_path / "parts", "--resume", "auto"]
    settings = sets(*WORDS, "train.epochs=6", "comm.precision=int8", "threads=1", parts)
    done = mpirun(2, "gcnmpi", *words, *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert losses(read_run(tmp_path / "parts")) == once


def test_inference_is_exact(mpirun, path, tmp_path):
    weights, outs = tmp_path / "weights.npz", []
    words = [path, "--partition", "rp-2"]
    train = ["train", *words, "--out", tmp_path / "run", "--save-weights", weights]
    assert mpirun(2, "gcnmpi", *train, *sets(*WORDS, "train.epochs=2")).returncode == 0
    for precision in ("fp32", "int8"):
        outs.append(tmp_path / f"{precision}.csv")
        infer = ["infer", *words, "--weights", weights, "--out", outs[-1]]
        done = mpirun(2, "gcnmpi", *infer, *sets(f"comm.precision={precision}"))
        assert done.returncode == 0, done.stderr
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_schemes_that_exchange_no_rows_refuse_it(gcnmpi_lines, path):
    train = ["train", path, "--set", "train.epochs=1", "--out", path / "x"]
    lines = [
        [*train, *sets("comm.precision=bf16", "scheme.name=summa")],
        [*train, *sets("comm.precision=int8", "scheme.name=bcast")],
        [*train, *sets("comm.precision=fp16", "scheme.name=replicated", "scheme.sparse=false")],
        [*train, *sets("comm.precision=fp8")],
    ]
    says = [
        "comm.precision is an option of schemes p2p, replicated, not of scheme summa",
        "comm.precision is an option of schemes p2p, replicated, not of scheme bcast",
        "comm.precision has no effect with scheme.sparse = false",
        "comm.precision",
    ]
    for (first, second), words in zip(gcnmpi_lines(2, lines), says, strict=True):
        assert first == second
        assert words in first
