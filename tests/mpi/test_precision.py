"""Messages in fewer bits: what is sent, what it changes, and what does not depend on it."""

import pytest
from axes import daily, settings_of
from stored_graphs import small_graph, store
from words import line, sets

from gcnmpi.core.precision import FORMATS
from gcnmpi.run.record import read_run

ROUNDED = {"rounded rows", "rounded gradient", "rounded loss"}
ROUNDED |= {f"rounded {purpose} {what}" for purpose in ("training", "evaluation")
            for what in ("bytes", "received", "messages", "shared")}  # fmt: skip
# Networks of sums and of whole rows, exchanges, transports; on four ranks, two copies.
COPIES = ["scheme.name=replicated", "scheme.replication=2"]
VERIFIED = {
    3: [
        ("directed", "gcn", ["scheme.exchange=mixed"]),
        ("symmetric", "gcn", ["scheme.exchange=rows", "dtype=float32"]),
        ("directed", "gat", ["scheme.transport=onesided"]),
        ("symmetric", "sage-max", ["scheme.transport=neighbor"]),
        ("directed", "gcn-trained", ["scheme.transport=isend", "kernel=scipy"]),
        ("symmetric", "gcn", ["scheme.transport=shared"]),
    ],
    4: [("directed", "gcn", COPIES), ("symmetric", "gatv2", COPIES)],
}


@pytest.mark.parametrize("nranks", daily(3, 2, 4))
def test_products_with_rounded_messages(run_cases, tmp_path, nranks):
    run_cases("products", nranks, [(tmp_path, True)], timeout=300)


@pytest.mark.parametrize("nranks", VERIFIED)
def test_verify_says_what_rounding_changes(verified, schemes_folder, nranks):
    cases = []
    for number, (graph, network, own) in enumerate(VERIFIED[nranks]):
        precision = f"comm.precision={list(FORMATS)[number % 3]}"
        given = ["train.epochs=3", *settings_of(network), *own, precision]
        parts = f"uneven-{2 if own is COPIES else nranks}"
        cases.append((schemes_folder / f"{graph}.graph", parts, given))
    verified(nranks, cases, *ROUNDED, "loss curve", "first gradient", "logits", timeout=300)


def test_bytes_errors_and_bits_of_runs(succeed, hear_mistakes, tmp_path):
    """The same bits with more threads and after a resume; inference is exact."""
    path = store(tmp_path / "g.graph", small_graph("directed"), 2)
    always = ("model.hidden=40", "model.dropout=0.3", "scheme.transport=persistent")

    def run(name, precision, *own, epochs=6, **options):
        own = (*always, f"train.epochs={epochs}", f"comm.precision={precision}", *own)
        out = {"partition": "rp-2", "out": tmp_path / name}
        return line("train", path, settings=own, **out, **options)

    def infer(precision):
        out = {"partition": "rp-2", "out": tmp_path / f"{precision}.csv", "weights": weights}
        return line("infer", path, settings=(f"comm.precision={precision}",), **out)

    weights, parts = tmp_path / "w.npz", ("threads=1", "train.checkpoint_every=3")
    shares, aggregate = {"bf16": 0.5, "fp16": 0.51, "int8": 0.28}, "model.order=aggregate"
    succeed(
        2,
        *(run(name, name, aggregate) for name in ("fp32", *shares)),
        run("once", "int8", "threads=1", save_weights=weights),
        run("again", "int8", "threads=3"),
        run("seed", "int8", "train.seed=1"),
        run("parts", "int8", *parts, epochs=3),
        run("parts", "int8", *parts, resume="auto"),
        infer("fp32"),
        infer("int8"),
    )
    assert (tmp_path / "fp32.csv").read_bytes() == (tmp_path / "int8.csv").read_bytes()

    def losses(name):
        return [epoch["loss"] for epoch in read_run(tmp_path / name).epochs]

    assert losses("once") == losses("again") == losses("parts") != losses("seed")
    exact = read_run(tmp_path / "fp32")
    assert exact.end["rounding"] == []
    for precision, share in shares.items():
        end = read_run(tmp_path / precision).end
        for field in ("bytes_sent", "bytes_received", "eval_bytes_sent"):
            assert all(a <= share * b for a, b in zip(end[field], exact.end[field], strict=True))
        assert end["bytes_sent"] == end["bytes_predicted"]
        for field in ("messages_sent", "reduce_bytes", "setup_bytes_sent"):
            assert end[field] == exact.end[field]
        assert [e["epoch"] for e in end["rounding"]] == [1, 1, 6, 6]
        assert all(0 < e["error"] <= FORMATS[precision].error(40) for e in end["rounding"])
        assert losses(precision) != losses("fp32")
        assert losses(precision) == pytest.approx(losses("fp32"), rel=0.03)
    other = "comm.precision is an option of schemes p2p, replicated, not of scheme"
    mistakes = {
        "comm.precision=bf16 scheme.name=summa": f"{other} summa",
        "comm.precision=int8 scheme.name=bcast": f"{other} bcast",
        "comm.precision=fp16 scheme.name=replicated scheme.sparse=false": "has no effect with",
        "comm.precision=fp8": "comm.precision",
    }
    train = ["train", path, "--out", tmp_path / "x"]
    hear_mistakes(2, [([*train, *sets(*key.split())], says) for key, says in mistakes.items()])
