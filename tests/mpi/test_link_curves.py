"""Link prediction: one curve for every number of ranks, that of the serial oracle, and its metrics.

On small graphs with isolated vertices, under uneven partitions with an empty part and those of
tools: each kind of negatives with each decoder and objective, arcs that leave M in each step,
batches of pairs, candidates of each positive. Bytes counted are bytes predicted.
"""

import functools
import json

import numpy as np
import pytest
from test_minibatch import as_planned
from words import latest, sets

from gcnmpi.options.config import load_config
from gcnmpi.proof import links
from gcnmpi.run.record import read_run
from partition.graph.links import PairSet, identified, read_pairs, split_pairs, write_pairs
from partition.graph.store import open_graph

RANKS = (3, 7)
EPOCHS = 4
COMMON = (
    "task.name=links", "dtype=float64", f"train.epochs={EPOCHS}", "train.eval_every=2",
    "train.lr=0.02", "model.hidden=7,6", "model.dropout=0.3", "train.seed=5",
    "task.metric=hits@5", "task.metrics=auc,ap,mrr,hits@20",
)  # fmt: skip
HIDDEN = ("task.decoder_hidden=6,6", "task.decoder_dropout=0.4", "task.decoder_norm=layer")
# Name → (graph, settings); pairs are called links unless said otherwise.
CASES = {
    "dot-uniform-bce": ("symmetric", ["task.negatives=uniform,2"]),
    "dot-pool-softmax": (
        "symmetric", ["task.negatives=pool,9", "task.objective=softmax", "task.filter=true"],
    ),
    "hadamard-uniform-auc-masked": (
        "symmetric",
        ["task.decoder=hadamard", *HIDDEN, "task.objective=auc", "task.supervise=0.4"],
    ),
    "hadamard-given-bce-batches": (
        "symmetric",
        ["task.decoder=hadamard", *HIDDEN, "task.decoder_residual=true", "task.batch=37",
         "task.negatives=given", "task.pairs=given"],
    ),
    "distmult-pool-bce-masked": (
        "symmetric", ["task.decoder=distmult", "task.negatives=pool,6", "task.supervise=0.3"],
    ),
    "concat-uniform-softmax": (
        "directed",
        ["task.decoder=concat", *HIDDEN, "task.objective=softmax", "task.negatives=uniform,3",
         "task.filter=true"],
    ),
    "concat-plain-masked": (
        "directed", ["task.decoder=concat", "task.supervise=0.5", "graph.normalize=row"],
    ),
    "gat-hadamard-pool": (
        "directed",
        ["model.name=gat", "model.hidden=6,8", "model.heads=2", "task.width=5",
         "task.decoder=hadamard", "task.negatives=pool,5", "task.objective=softmax"],
    ),
    "sage-candidates-drawn": (
        "directed", ["model.name=sage", "model.norm=batch", "task.pairs=drawn"],
    ),
    "candidates-both": (
        "symmetric", ["task.decoder=hadamard", *HIDDEN, "task.pairs=both", "task.supervise=0.6"],
    ),
    "dot-filtered": ("symmetric", ["task.ranked=filtered", "task.metric=mrr"]),
    "clipped-mixed": (
        "directed", ["scheme.exchange=mixed", "train.clip_norm=0.1", "train.optimizer=adamw"],
    ),
}  # fmt: skip


def settings_of(name):
    return latest(*COMMON, *CASES[name][1])


@pytest.fixture(scope="module")
def folder(schemes_folder):
    """The graphs of the schemes, with pairs."""
    for kind in ("symmetric", "directed"):
        path = schemes_folder / f"{kind}.graph"
        stored = open_graph(path)
        facts = {"directed": kind == "directed", "graph_id": stored.manifest.id}
        split = functools.partial(split_pairs, stored.graph, (0.7, 0.1, 0.2), 3, **facts)
        write_pairs(path, split(name="links"))
        write_pairs(path, split(name="drawn", candidates=13))
        rng, n = np.random.default_rng(0), stored.graph.n
        made = split(name="given")
        count = 2 * len(made.positives["train"])
        given = {**made.negatives, "train": rng.integers(0, n, (count, 2))}
        write_pairs(path, identified(_with(made, negatives=given)))
        made = split(name="both")
        # Of the test pairs only: the others are ranked among the common negatives.
        candidates = {"test": rng.integers(0, n, (len(made.positives["test"]), 8))}
        write_pairs(path, identified(_with(made, candidates=candidates, replaced="both")))
    return schemes_folder


def _with(pairs: PairSet, **fields) -> PairSet:
    return PairSet(**{**vars(pairs), **fields})


@functools.cache
def expected(folder, name):
    return of_oracle(folder / f"{CASES[name][0]}.graph", settings_of(name))


def of_oracle(path, settings):
    """The losses and last metrics of the oracle."""
    config, stored = load_config(None, settings), open_graph(path)
    pairs = read_pairs(path, config.task.pairs)
    curve = links.train(stored.graph, pairs, "in", config, config.train.epochs)
    problem = links.LinkProblem(stored.graph, pairs, "in", config)
    return np.array(curve.losses), problem.metrics(curve.weights)


MORE = {"outputs": True}


def wanted(nranks, folder):
    """All of them on 3 ranks, and every third on 7."""
    return {
        name: (folder / f"{CASES[name][0]}.graph", f"uneven-{nranks}", settings_of(name))
        for name in list(CASES)[:: 1 if nranks == 3 else 3]
    }


@pytest.mark.parametrize("nranks", RANKS)
def test_one_curve_and_its_metrics(results, folder, nranks):
    for name, record in results(nranks).items():
        as_expected(record, expected(folder, name))


def as_expected(record, expected):
    """The same losses and metrics, and what was counted is as predicted."""
    losses, metrics = expected
    np.testing.assert_allclose(record["losses"], losses, rtol=1e-10)
    found = record["metrics"][-1]
    assert {key: found[key] for key in metrics} == pytest.approx(metrics, rel=1e-10)
    for counted, predicted in record["traffic"]:
        assert counted == predicted


def test_verify_knows_the_task(verified, folder):
    case = folder / "symmetric.graph", "uneven-3", [*settings_of(MASKED), "train.epochs=2"]
    verified(3, [case], "loss curve", "first gradient", "metrics", "finite differences")


MASKED = "hadamard-uniform-auc-masked"


def test_a_run_goes_on_from_its_checkpoint_on_other_ranks(gcnmpi_lines, folder, tmp_path):
    several = [*settings_of(MASKED), "train.checkpoint_every=1"]
    for nranks, settings in ((2, [*several, "train.epochs=2"]), (3, several)):
        words = ["train", folder / "symmetric.graph", "--out", tmp_path]
        words += ["--partition", f"uneven-{nranks}", *sets(*settings)]
        assert gcnmpi_lines(nranks, [words]) == [[None] * nranks]
    losses = [epoch["loss"] for epoch in read_run(tmp_path).epochs]
    np.testing.assert_allclose(losses, expected(folder, MASKED)[0], rtol=1e-10)


def test_each_seed_is_repeated_on_its_pairs(gcnmpi_lines, hear_mistakes, folder, tmp_path):
    path, two = folder / "symmetric.graph", ("links-0", "links-1")
    stored = open_graph(path)
    for seed, name in enumerate(two):
        facts = {"directed": False, "graph_id": stored.manifest.id, "name": name}
        write_pairs(path, split_pairs(stored.graph, (0.7, 0.1, 0.2), seed, **facts))
    plain = ["repeat", path, "--partition", "uneven-2", "--out", tmp_path, "--quiet"]
    words = [*plain, *sets("task.name=links", "train.epochs=1", "model.hidden=4")]
    lines = [[*words, "--seeds", "0..1", "--pairs", "links-{seed}"]]
    lines.append([*words, "--seeds", "1", "--pairs", ",".join(two)])
    assert gcnmpi_lines(2, lines) == [[None] * 2] * 2
    runs = json.loads((tmp_path / "summary.json").read_text())
    assert [(run["name"], run["pairs"]) for run in runs] == [
        ("links-0-seed-1", "links-0"), ("links-1-seed-1", "links-1"),
    ]  # fmt: skip
    assert {record.parent.name for record in tmp_path.rglob("run.jsonl")} == {
        "links-0-seed-0", "links-1-seed-1", "links-0-seed-1",
    }  # fmt: skip
    for name in ("links-0-seed-0", "links-1-seed-1"):
        pairs, start = read_pairs(path, name[:7]), read_run(tmp_path / name).start
        assert start["pairs_id"] == pairs.id
        counts = {mask: len(of) for mask, of in pairs.positives.items()}
        assert {mask: start["pairs"][mask] for mask in counts} == counts
    told = [
        (["--pairs", "links-{seed}", "--seeds", "7"], "links-7"),
        (["--pairs", "links-0", *sets("task.pairs=links-1")], "give one of them"),
        (["--pairs", "links-0,"], "a name is missing"),
    ]
    told = [([*words, *some], says) for some, says in told]
    hear_mistakes(2, [*told, ([*plain, "--pairs", "links-0"], "task.pairs")])


def test_mistakes_are_told_in_one_line(hear_mistakes, folder):
    graph, links_of = folder / "symmetric.graph", sets("task.name=links")
    words = ["train", graph, "--partition", "uneven-2", *links_of]
    told = [
        (["task.pairs=link"], ("link", "links")),
        (["task.negatives=pool"], ("uniform,K, corrupt,K, pool,B or given", "'pool'")),
        (["task.negatives=given"], ("0 negatives to train on", "task.negatives=uniform,1")),
        (["task.metric=hits@0"], "hits@0"),
        (["task.metric=accuracy"], "no metric of task.name = links"),
        (["task.supervise=0.5", "task.batch=3"], "leave one of them out"),
        (["task.supervise=1.5"], "at most 1"),
        (["task.decoder=dot", "task.decoder_hidden=4"], "no hidden layers"),
        (["task.decoder=hadamard", "task.decoder_hidden=4", "task.decoder_residual=true"],
         "the rows of vertices have 16"),
        (["scheme.name=summa"], ("does not score pairs", "p2p")),
        (["train.batches=vertex,9"], "task.batch"),
        (["task.supervise=0.5", "model.train_features=true"], "same M in every step"),
        (["task.on=arcs"], "rows of vertices"),
    ]  # fmt: skip
    hear_mistakes(2, [([*words, *sets(*some)], says) for some, says in told])


# Of pairs with none held out, so that M is the whole graph's.
PLANNED = {
    "dot": ["task.negatives=uniform,2"],
    "concat": ["task.decoder=concat", "task.objective=softmax", "task.negatives=pool,4"],
    "given": ["task.negatives=given", "task.objective=auc"],
    "masked": ["task.supervise=0.5", "task.decoder=hadamard", *HIDDEN],
}


def test_bytes_and_messages_are_those_that_are_planned(trained, folder):
    path = folder / "symmetric.graph"
    pairs, rng = read_pairs(path, "links"), np.random.default_rng(0)
    kept = {mask: of if mask == "train" else of[:0] for mask, of in pairs.positives.items()}
    negatives = {"train": rng.integers(0, open_graph(path).graph.n, kept["train"].shape)}
    all_train = _with(pairs, name="train", positives=kept, negatives=negatives, candidates={})
    write_pairs(path, identified(all_train))
    never = "train.epochs=1", "train.eval_every=0", "task.pairs=train", "scheme.exchange=rows"
    settings = {name: latest(*COMMON, *never, *own) for name, own in PLANNED.items()}
    found = trained(4, {name: (path, "uneven-4", own) for name, own in settings.items()})
    for name, record in found.items():
        # Steps of one epoch have different pairs; the first one stands for all.
        near = 0.4 if name == "masked" else 0
        as_planned(open_graph(path), load_config(None, settings[name]), 4, record, near=near)
