"""Messages in fewer bits: what is sent, what it changes, and what does not depend on it."""

import pytest
from axes import daily, settings_of
from stored_graphs import small_graph, store
from words import sets

from gcnmpi.core.precision import FORMATS
from gcnmpi.run.record import read_run

ROUNDED = {"rounded rows", "rounded gradient", "rounded loss"}
ROUNDED |= {f"rounded {purpose} {what}" for purpose in ("training", "evaluation")
            for what in ("bytes", "received", "messages", "shared")}  # fmt: skip


@pytest.mark.parametrize(("nranks", "cases"), daily((2, 6), (3, 3), (4, 2)))
def test_products_with_rounded_messages(run_cases, tmp_path, nranks, cases):
    assert run_cases("rounded", nranks, [tmp_path], timeout=300) == [cases]


def verify_cases(nranks):
    """(graph, settings): networks of sums and of whole rows, schemes, exchanges, transports."""
    if nranks == 4:
        replicated = ["scheme.name=replicated", "scheme.replication=2"]
        yield "directed", [*settings_of("gcn"), *replicated]
        yield "symmetric", [*settings_of("gatv2"), *replicated]
        return
    yield "directed", [*settings_of("gcn"), "scheme.exchange=mixed"]
    yield "symmetric", [*settings_of("gcn"), "scheme.exchange=rows", "dtype=float32"]
    yield "directed", [*settings_of("gat"), "scheme.transport=onesided"]
    yield "symmetric", [*settings_of("sage-max"), "scheme.transport=neighbor"]
    yield "directed", [*settings_of("gcn-trained"), "scheme.transport=isend", "kernel=scipy"]
    yield "symmetric", [*settings_of("gcn"), "scheme.transport=shared"]


@pytest.mark.parametrize("nranks", [3, 4])
def test_verify_says_what_rounding_changes(verified, schemes_folder, nranks):
    """Two precisions of three of each case; on four ranks, those of two copies."""
    cases = []
    for number, (graph, settings) in enumerate(verify_cases(nranks)):
        parts = f"uneven-{nranks // 2 if nranks == 4 else nranks}"
        for turn in (0, 1):
            precision = f"comm.precision={list(FORMATS)[(number + turn) % 3]}"
            given = ["train.epochs=3", *settings, precision]
            cases.append((schemes_folder / f"{graph}.graph", parts, given))
    verified(nranks, cases, *ROUNDED, "loss curve", "first gradient", "logits", timeout=300)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("precision") / "small.graph"
    return store(path, small_graph("directed"), 2)


WORDS = ("model.hidden=40", "model.dropout=0.3", "scheme.transport=persistent")


def line(path, out, precision, *settings):
    """The words of a run on two ranks."""
    own = sets(*WORDS, "train.epochs=6", f"comm.precision={precision}", *settings)
    return ["train", path, "--partition", "rp-2", "--out", out, *own]


def losses(record):
    return [epoch["loss"] for epoch in record.epochs]


AGGREGATE = "model.order=aggregate"


def test_the_record_has_bytes_and_errors(gcnmpi_lines, path, tmp_path):
    shares = {"bf16": 0.5, "fp16": 0.51, "int8": 0.28}
    lines = [line(path, tmp_path / name, name, AGGREGATE) for name in ("fp32", *shares)]
    assert gcnmpi_lines(2, lines) == [[None] * 2] * 4
    exact = read_run(tmp_path / "fp32")
    assert exact.end["rounding"] == []
    for precision, share in shares.items():
        record = read_run(tmp_path / precision)
        for field in ("bytes_sent", "bytes_received", "eval_bytes_sent"):
            pairs = zip(record.end[field], exact.end[field], strict=True)
            assert all(a <= share * b for a, b in pairs)
        assert record.end["bytes_sent"] == record.end["bytes_predicted"]
        for field in ("messages_sent", "reduce_bytes", "setup_bytes_sent"):
            assert record.end[field] == exact.end[field]
        assert [e["epoch"] for e in record.end["rounding"]] == [1, 1, 6, 6]
        bound = FORMATS[precision].error(40)
        assert all(0 < e["error"] <= bound for e in record.end["rounding"])
        assert losses(record) != losses(exact)
        assert losses(record) == pytest.approx(losses(exact), rel=0.03)


def test_the_same_bits_again_with_more_threads_and_after_a_resume(gcnmpi_lines, path, tmp_path):
    parts = ("threads=1", "train.checkpoint_every=3")
    lines = [
        line(path, tmp_path / "once", "int8", "threads=1"),
        line(path, tmp_path / "again", "int8", "threads=3"),
        line(path, tmp_path / "seed", "int8", "train.seed=1"),
        line(path, tmp_path / "parts", "int8", "train.epochs=3", *parts),
        [*line(path, tmp_path / "parts", "int8", *parts), "--resume", "auto"],
    ]
    assert gcnmpi_lines(2, lines) == [[None] * 2] * len(lines)
    once, again, seed, parts = (
        losses(read_run(tmp_path / name)) for name in ("once", "again", "seed", "parts")
    )
    assert once == again == parts != seed


def test_inference_is_exact(gcnmpi_lines, path, tmp_path):
    words, weights = [path, "--partition", "rp-2"], tmp_path / "weights.npz"
    outs = {precision: tmp_path / f"{precision}.csv" for precision in ("fp32", "int8")}
    lines = [["train", *words, "--out", tmp_path / "run", "--save-weights", weights,
              *sets(*WORDS, "train.epochs=2")]]  # fmt: skip
    lines += [
        ["infer", *words, "--weights", weights, "--out", out, *sets(f"comm.precision={precision}")]
        for precision, out in outs.items()
    ]
    assert gcnmpi_lines(2, lines) == [[None] * 2] * 3
    assert outs["fp32"].read_bytes() == outs["int8"].read_bytes()


def test_schemes_that_exchange_no_rows_refuse_it(hear_mistakes, path):
    train = ["train", path, "--set", "train.epochs=1", "--out", path / "x"]
    other = "comm.precision is an option of schemes p2p, replicated, not of scheme"
    mistakes = {
        "comm.precision=bf16 scheme.name=summa": f"{other} summa",
        "comm.precision=int8 scheme.name=bcast": f"{other} bcast",
        "comm.precision=fp16 scheme.name=replicated scheme.sparse=false": (
            "comm.precision has no effect with scheme.sparse = false"
        ),
        "comm.precision=fp8": "comm.precision",
    }
    hear_mistakes(2, [([*train, *sets(*key.split())], says) for key, says in mistakes.items()])
