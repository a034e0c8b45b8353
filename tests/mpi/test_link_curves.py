"""Link prediction: one curve for every number of ranks, that of the serial oracle, and its metrics.

On small graphs with isolated vertices, under uneven partitions with an empty part and those of
tools: each kind of negatives with each decoder and objective, arcs that leave M in each step,
batches of pairs, candidates of each positive. Bytes counted are bytes predicted.
"""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
from test_minibatch import as_planned
from words import latest, line, sets

from gcnmpi.options.config import load_config
from gcnmpi.proof.links import LinkProblem
from gcnmpi.proof.oracle import train
from gcnmpi.run.record import read_run
from partition.graph.store import open_graph
from partition.graph.vertex_pairs import identified, read_pairs, split_pairs, write_pairs

COMMON = (
    "task.name=links", "dtype=float64", "train.epochs=4", "train.eval_every=2", "train.lr=0.02",
    "model.hidden=7,6", "model.dropout=0.3", "train.seed=5", "task.metric=hits@5",
    "task.metrics=auc,ap,mrr,hits@20",
)  # fmt: skip
HIDDEN = "task.decoder_hidden=6,6 task.decoder_dropout=0.4 task.decoder_norm=layer"
MASKED = "hadamard-uniform-auc-masked"
# Name → graph and settings; pairs are called links unless said otherwise.
CASES = {
    "dot-uniform-bce": "symmetric task.negatives=uniform,2",
    "dot-pool-softmax": "symmetric task.negatives=pool,9 task.objective=softmax task.filter=true",
    MASKED: f"symmetric task.decoder=hadamard {HIDDEN} task.objective=auc task.supervise=0.4",
    "hadamard-given-bce-batches": f"symmetric task.decoder=hadamard {HIDDEN} task.batch=37 "
    "task.decoder_residual=true task.negatives=given task.pairs=given",
    "distmult-pool-bce-masked": "symmetric task.decoder=distmult task.negatives=pool,6 "
    "task.supervise=0.3",
    "concat-uniform-softmax": f"directed task.decoder=concat {HIDDEN} task.objective=softmax "
    "task.negatives=uniform,3 task.filter=true",
    "concat-plain-masked": "directed task.decoder=concat task.supervise=0.5 graph.normalize=row",
    "gat-hadamard-pool": "directed model.name=gat model.hidden=6,8 model.heads=2 task.width=5 "
    "task.decoder=hadamard task.negatives=pool,5 task.objective=softmax",
    "sage-candidates-drawn": "directed model.name=sage model.norm=batch task.pairs=drawn",
    "candidates-both": f"symmetric task.decoder=hadamard {HIDDEN} task.pairs=both "
    "task.supervise=0.6",
    "dot-filtered": "symmetric task.ranked=filtered task.metric=mrr",
    "clipped-mixed": "directed scheme.exchange=mixed train.clip_norm=0.1 train.optimizer=adamw",
}
MORE = {"outputs": True}


def settings_of(name):
    return latest(*COMMON, *CASES[name].split()[1:])


@pytest.fixture(scope="module")
def paths(schemes_folder):
    """The graphs of the schemes, with pairs."""
    found = {kind: schemes_folder / f"{kind}.graph" for kind in ("symmetric", "directed")}
    for kind, path in found.items():
        stored, rng = open_graph(path), np.random.default_rng(0)
        facts = {"directed": kind == "directed", "graph_id": stored.manifest.id}
        split = functools.partial(split_pairs, stored.graph, (0.7, 0.1, 0.2), 3, **facts)
        made = split(name="given")
        count, test = len(made.positives["train"]), len(made.positives["test"])
        given = {**made.negatives, "train": rng.integers(0, stored.graph.n, (2 * count, 2))}
        # Of the test pairs only: the others are ranked among the common negatives.
        candidates = {"test": rng.integers(0, stored.graph.n, (test, 8))}
        for pairs in (
            split(name="links"),
            split(name="drawn", candidates=13),
            identified(replace(made, negatives=given)),
            identified(replace(made, name="both", candidates=candidates, replaced="both")),
        ):
            write_pairs(path, pairs)
    return found


@functools.cache
def of_case(path, name):
    return of_oracle(path, settings_of(name))


def of_oracle(path, settings):
    """The losses and last metrics of the oracle."""
    config, stored = load_config(None, settings), open_graph(path)
    pairs = read_pairs(path, config.task.pairs)
    problem = LinkProblem(stored.graph, pairs, "in", config)
    curve = train(problem, config.train.epochs)
    return np.array(curve.losses), problem.metrics(curve.weights)


def wanted(nranks, paths):
    """All of them on 3 ranks, and every third on 7."""
    return {
        name: (paths[CASES[name].split()[0]], f"uneven-{nranks}", settings_of(name))
        for name in list(CASES)[:: 1 if nranks == 3 else 3]
    }


@pytest.mark.parametrize("nranks", [3, 7])
def test_one_curve_and_its_metrics(results, paths, nranks):
    for name, record in results(nranks).items():
        as_expected(record, of_case(paths[CASES[name].split()[0]], name))


def as_expected(record, expected):
    """The same losses and metrics, and what was counted is as predicted."""
    losses, metrics = expected
    np.testing.assert_allclose(record["losses"], losses, rtol=1e-10)
    found = record["metrics"][-1]
    assert {key: found[key] for key in metrics} == pytest.approx(metrics, rel=1e-10)
    for counted, predicted in record["traffic"]:
        assert counted == predicted


def test_verify_knows_the_task_and_a_run_goes_on_on_other_ranks(verified, succeed, paths, tmp_path):
    path, own = paths["symmetric"], settings_of(MASKED)
    case = path, "uneven-3", [*own, "train.epochs=2"]
    names = "loss curve", "first gradient", "metrics", "finite differences"
    verified(3, [case], *names, directions=1)
    for nranks, epochs in ((2, 2), (3, 4)):
        settings = [*own, "train.checkpoint_every=1", f"train.epochs={epochs}"]
        placed = {"partition": f"uneven-{nranks}", "out": tmp_path}
        succeed(nranks, line("train", path, settings=settings, **placed))
    losses = [epoch["loss"] for epoch in read_run(tmp_path).epochs]
    np.testing.assert_allclose(losses, of_case(path, MASKED)[0], rtol=1e-10)


def test_each_seed_is_repeated_on_its_pairs(succeed, hear_mistakes, paths, tmp_path):
    path, two = paths["symmetric"], ("links-0", "links-1")
    stored = open_graph(path)
    for seed, name in enumerate(two):
        facts = {"directed": False, "graph_id": stored.manifest.id, "name": name}
        write_pairs(path, split_pairs(stored.graph, (0.7, 0.1, 0.2), seed, **facts))
    plain = ["repeat", path, "--partition", "uneven-2", "--out", tmp_path, "--quiet"]
    words = [*plain, *sets("task.name=links", "train.epochs=1", "model.hidden=4")]
    each = [*words, "--seeds", "0..1", "--pairs", "links-{seed}"]
    succeed(2, each, [*words, "--seeds", "1", "--pairs", ",".join(two)])
    runs = json.loads((tmp_path / "summary.json").read_text())
    names = [(run["name"], run["pairs"]) for run in runs]
    assert names == [(f"{name}-seed-1", name) for name in two]
    names = {record.parent.name for record in tmp_path.rglob("run.jsonl")}
    assert names == {"links-0-seed-0", "links-1-seed-1", "links-0-seed-1"}
    for name in ("links-0-seed-0", "links-1-seed-1"):
        pairs, start = read_pairs(path, name[:7]), read_run(tmp_path / name).start
        counts = {mask: len(of) for mask, of in pairs.positives.items()}
        assert start["pairs_id"] == pairs.id
        assert {mask: start["pairs"][mask] for mask in counts} == counts
    told = [
        ([*words, "--pairs", "links-{seed}", "--seeds", "7"], "links-7"),
        ([*words, "--pairs", "links-0", *sets("task.pairs=links-1")], "give one of them"),
        ([*words, "--pairs", "links-0,"], "a name is missing"),
        ([*plain, "--pairs", "links-0"], "task.pairs"),
    ]
    hear_mistakes(2, told)


def test_mistakes_are_told_in_one_line(hear_mistakes, paths):
    told = {
        "task.pairs=link": ("link", "links"),
        "task.negatives=pool": ("uniform,K, corrupt,K, pool,B or given", "'pool'"),
        "task.negatives=given": ("0 negatives to train on", "task.negatives=uniform,1"),
        "task.metric=hits@0": "hits@0",
        "task.metric=accuracy": "no metric of task.name = links",
        "task.supervise=0.5 task.batch=3": "leave one of them out",
        "task.supervise=1.5": "at most 1",
        "task.decoder=dot task.decoder_hidden=4": "no hidden layers",
        "task.decoder=hadamard task.decoder_hidden=4 task.decoder_residual=true": "have 16",
        "scheme.name=summa": ("does not score pairs", "p2p"),
        "train.batches=vertex,9": "task.batch",
        "task.supervise=0.5 model.train_features=true": "same M in every step",
        "task.on=arcs": "rows of vertices",
    }
    words = ["train", paths["symmetric"], "--partition", "uneven-2", *sets("task.name=links")]
    hear_mistakes(2, [([*words, *sets(*some.split())], says) for some, says in told.items()])


# Of pairs with none held out, so that M is the whole graph's.
PLANNED = {
    "dot": "task.negatives=uniform,2",
    "concat": "task.decoder=concat task.objective=softmax task.negatives=pool,4",
    "given": "task.negatives=given task.objective=auc",
    "masked": f"task.supervise=0.5 task.decoder=hadamard {HIDDEN}",
}


def test_bytes_and_messages_are_those_that_are_planned(trained, paths):
    path, rng = paths["symmetric"], np.random.default_rng(0)
    pairs, stored = read_pairs(path, "links"), open_graph(path)
    kept = {mask: of if mask == "train" else of[:0] for mask, of in pairs.positives.items()}
    negatives = {"train": rng.integers(0, stored.graph.n, kept["train"].shape)}
    facts = {"positives": kept, "negatives": negatives, "candidates": {}}
    write_pairs(path, identified(replace(pairs, name="train", **facts)))
    never = "train.epochs=1", "train.eval_every=0", "task.pairs=train", "scheme.exchange=rows"
    settings = {name: latest(*COMMON, *never, *own.split()) for name, own in PLANNED.items()}
    found = trained(4, {name: (path, "uneven-4", own) for name, own in settings.items()})
    for name, record in found.items():
        # Steps of one epoch have different pairs; the first one stands for all.
        near = 0.4 if name == "masked" else 0
        as_planned(stored, load_config(None, settings[name]), 4, record, near=near)
