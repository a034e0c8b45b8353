"""Messages: the same bits and predicted bytes by every transport; and what fewer bits change."""

import os

import pytest
from axes import daily, settings_of
from stored_graphs import small_graph, store
from test_schemes import NUMBERS
from words import line

from gcnmpi.core.precision import FORMATS
from gcnmpi.options.scheme import TRANSPORTS
from gcnmpi.run.record import read_run

CASES = [
    ("directed", "kernel=scipy", "model.hidden=[7]", "scheme.progress_chunks=3"),
    ("symmetric", "model.hidden=[11,3]", "graph.normalize=row"),
]
ROUNDED = {"rounded rows", "rounded gradient", "rounded loss"}
ROUNDED |= {f"rounded {purpose} {what}" for purpose in ("training", "evaluation")
            for what in ("bytes", "received", "messages", "shared")}  # fmt: skip
# Networks of sums and of whole rows, exchanges, transports; on four ranks, two copies.
COPIES = ["scheme.name=replicated", "scheme.replication=2"]
VERIFIED = {
    3: [
        ("directed", "gcn", ["scheme.exchange=mixed"]),
        ("symmetric", "gcn", ["scheme.transport=shared", "dtype=float32"]),
        ("directed", "gat", ["scheme.transport=onesided"]),
        ("symmetric", "sage-max", ["scheme.transport=neighbor"]),
        ("directed", "gcn-trained", ["scheme.transport=isend", "kernel=scipy"]),
    ],
    4: [("directed", "gcn", COPIES), ("symmetric", "gatv2", COPIES)],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """``run(out, *settings, verb="train", epochs=3, **options)`` → a command line on two parts."""
    path = store(tmp_path_factory.mktemp("graph") / "g.graph", small_graph("directed"), 2)

    def words(out, *settings, verb="train", epochs=3, **options):
        own = (f"train.epochs={epochs}", *settings)
        return line(verb, path, partition="rp-2", out=out, settings=own, **options)

    return words


@pytest.mark.parametrize("nranks", daily(7, 2))
def test_every_transport_equals_the_serial_run(verified, schemes_folder, nranks):
    """The cases take turns."""
    transports = [name for name in TRANSPORTS if name != "nccl"]  # tests/mpi/test_fake_gpu.py
    cases = []
    for i, transport in enumerate(transports):
        graph, *settings = CASES[(i + nranks) % 2]
        own = [f"scheme.transport={transport}", "train.epochs=3", "model.dropout=0.4", *settings]
        cases.append((schemes_folder / f"{graph}.graph", f"uneven-{nranks}", own))
    verified(nranks, cases, *NUMBERS, "training shared", "evaluation shared")


@pytest.mark.parametrize("nranks", daily(3, 2, 4))
def test_all_transports_move_the_same_bits_also_of_rounded_messages(run_cases, tmp_path, nranks):
    run_cases("products", nranks, [tmp_path], timeout=300)


@pytest.mark.parametrize("nranks", VERIFIED)
def test_verify_says_what_rounding_changes(verified, schemes_folder, nranks):
    cases = []
    for number, (graph, network, own) in enumerate(VERIFIED[nranks]):
        precision = f"comm.precision={list(FORMATS)[number % 3]}"
        given = ["train.epochs=3", *settings_of(network), *own, precision]
        parts = f"uneven-{2 if own is COPIES else nranks}"
        cases.append((schemes_folder / f"{graph}.graph", parts, given))
    verified(nranks, cases, *ROUNDED, "loss curve", "first gradient", "logits", timeout=300)


def test_bytes_errors_and_bits_of_runs(succeed, run, tmp_path):
    """The same bits with more threads and after a resume; inference is exact."""

    def train(name, precision, *own, epochs=6, **options):
        own = ("scheme.transport=persistent", f"comm.precision={precision}", *own)
        own = ("model.hidden=40", "model.dropout=0.3", *own)
        return run(tmp_path / name, *own, epochs=epochs, **options)

    def infer(precision):
        out, own = tmp_path / f"{precision}.csv", f"comm.precision={precision}"
        return run(out, own, verb="infer", weights=weights)

    weights, parts = tmp_path / "w.npz", ("threads=1", "train.checkpoint_every=3")
    shares, aggregate = {"bf16": 0.5, "fp16": 0.51, "int8": 0.28}, "model.order=aggregate"
    succeed(
        2,
        *(train(name, name, aggregate) for name in ("fp32", *shares)),
        train("once", "int8", "threads=1", save_weights=weights),
        train("again", "int8", "threads=3"),
        train("seed", "int8", "train.seed=1"),
        train("parts", "int8", *parts, epochs=3),
        train("parts", "int8", *parts, resume="auto"),
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


def test_mistakes_are_heard_by_all(hear_mistakes, run, tmp_path):
    other = "comm.precision is an option of schemes p2p, replicated, not of scheme"
    told = {
        "comm.precision=bf16 scheme.name=summa": f"{other} summa",
        "comm.precision=fp8": "comm.precision",
        "scheme.transport=pigeon": "pigeon",
        "scheme.transport=shared scheme.progress_chunks=0": "progress_chunks is at least 1",
    }
    hear_mistakes(2, [(run(tmp_path, *own.split()), says) for own, says in told.items()])


def test_what_does_not_work_here_is_a_warning_of_one_line(mpirun, run, tmp_path):
    """And more threads than cores are mentioned."""

    def words(transport, *own):
        own = ("kernel=scipy", f"scheme.transport={transport}", *own)
        return run(tmp_path / transport, *own)

    full = ("broken.py", "full", 1, "os.memfd_create")
    many = words("onesided", "threads=4096")
    done = {
        # A component of Open MPI without windows to which memory can be attached.
        "onesided": mpirun(2, "gcnmpi", *many, env={"OMPI_MCA_osc": "sm"}),
        "shared": mpirun(2, *full, *words("shared")),
    }
    assert done["onesided"].stderr.count("use 8192 threads") == 1
    says = {"onesided": "lets no memory", "shared": "cannot map each other's memory"}
    for transport, ended in done.items():
        warnings = [text for text in ended.stderr.splitlines() if text.startswith("warning")]
        (warning,) = [text for text in warnings if "'persistent' is used" in text]
        assert says[transport] in warning
        record = read_run(tmp_path / transport)
        assert record.start["config"]["scheme"]["transport"] == "persistent"
        assert sum(record.end["bytes_sent"]) > 0
        assert all(0 <= share <= 1 for share in record.end["hidden"])


def test_no_rank_waits_for_one_that_fails_or_is_gone(mpirun, run, tmp_path):
    words = run(tmp_path / "run", "scheme.transport=shared", *COPIES)
    done = mpirun(4, "broken.py", "full", 1, "os.memfd_create@2", *words, code=2)
    assert "rank 1: error: ranks of a node cannot map each other's memory" in done.stderr
    before, begin = set(os.listdir("/dev/shm")), "gcnmpi.halo.exchange:Exchange._begin@40"
    for how, transport in (("SIGKILL", "shared"), ("hang", "onesided")):
        own = (f"scheme.transport={transport}", "comm.timeout=3")
        words = run(tmp_path / how, *own, epochs=10**6)
        done = mpirun(2, "broken.py", how, 1, begin, *words, code=None)
        assert done.returncode != 0
        assert len(read_run(tmp_path / how).epochs) > 3
        assert "has made no progress for 3 s" in done.stderr or how == "SIGKILL"
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "gcnmpi" in name]
