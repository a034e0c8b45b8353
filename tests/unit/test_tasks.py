"""Losses, learning rates and metrics of tasks, against numbers of PyTorch and scikit-learn."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from one_process import LossScheme
from refusals import refuses
from small_graphs import from_arcs
from stored_graphs import small_graph, store

import gcnmpi
from gcnmpi.layout.place import Place
from gcnmpi.nn.schedules import LearningRate
from gcnmpi.nn.tasks.drawing import drawer_of
from gcnmpi.nn.tasks.interface import LossInputs, Targets
from gcnmpi.options.config import from_table, load_config
from gcnmpi.options.kernel import KERNELS
from gcnmpi.options.task import TASKS
from gcnmpi.proof import scores, updates
from gcnmpi.proof.losses import loss_of
from gcnmpi.run.best import Best, stops_early
from gcnmpi.run.record import Epoch
from partition.graph.relations import VertexTypes

NAN = np.nan
LOGITS = np.array([[0.5, -1.25, 2.0], [3.0, 0.1, -0.4], [-2.0, 0.3, 0.7], [0.0, 0.2, -0.1]])
CLASSES = np.array([2, 0, 1, 1], np.int32)
LABELS = np.array([[1, 0, NAN], [0, 1, 1], [NAN, NAN, 0], [1, 0.25, 0]])
NUMBERS = np.array([[1.5, -1.25, NAN], [2, 1, 1], [NAN, NAN, 0], [1, 0.25, -3]])
WEIGHTS = {"class_weights": "1,2.5,0.5"}
# Options, labels, loss and the gradient of the second vertex, from torch 2.13 in float64.
PYTORCH = [
    ({}, CLASSES, 0.552405138850371,
     [-0.02030429416750837, 0.012638597368032968, 0.007665696799475389]),
    (WEIGHTS, CLASSES, 0.758730641195372,
     [-0.012494950256928228, 0.007777598380327981, 0.00471735187660024]),
    ({"label_smoothing": 0.2}, CLASSES, 0.7765718055170376,
     [0.013029039165824957, -0.004028069298633698, -0.009000969867191278]),
    ({"label_smoothing": 0.2, **WEIGHTS}, CLASSES, 0.9132766383061021,
     [0.01744128382850733, -0.017344920702009128, -9.636312649820609e-05]),
    ({"name": "labels"}, LABELS, 0.9467637876081457,
     [0.10584156964693704, -0.05278009028011778, -0.06652085112360578]),
    ({"name": "labels", **WEIGHTS}, LABELS, 1.0283626142668654,
     [0.10584156964693704, -0.13195022570029444, -0.03326042556180289]),
    ({"name": "regression"}, NUMBERS, 1.630277777777778,
     [0.2222222222222222, -0.19999999999999998, -0.31111111111111106]),
    ({"name": "regression", "loss": "absolute"}, NUMBERS, 0.9944444444444444,
     [0.1111111111111111, -0.1111111111111111, -0.1111111111111111]),
    ({"name": "regression", "loss": "huber", "huber_delta": 0.75}, NUMBERS, 0.5231944444444445,
     [0.08333333333333333, -0.08333333333333333, -0.08333333333333333]),
]  # fmt: skip


def loss_and_gradient(options, labels):
    """Of all vertices, which train."""
    kernel, config = KERNELS.get("scipy")("float64"), from_table({"task": options}).task
    known = labels >= 0 if labels.ndim == 1 else ~np.isnan(labels)
    counts = {"train": int(np.count_nonzero(known))}
    targets = Targets(labels, {"train": np.ones(len(labels), bool)}, counts)
    what = LossInputs(LossScheme(kernel, LOGITS.shape), kernel, Place(1), 3, targets, config)
    grad = np.full(LOGITS.shape, 7.0)
    return TASKS.get(config.name).loss(what)(LOGITS.copy(), grad), grad


@pytest.mark.parametrize(("options", "labels", "loss", "second"), PYTORCH, ids=str)
def test_losses_and_gradients_are_those_of_pytorch(options, labels, loss, second):
    found, gradient = loss_and_gradient(options, labels)
    assert found == pytest.approx(loss, rel=1e-14)
    np.testing.assert_allclose(gradient[1], second, rtol=1e-13)
    # And so are those of the oracle.
    config = from_table({"task": options}).task
    field = "labels" if labels.ndim == 1 else "targets"
    found, expected = loss_of(replace(from_arcs(4, []), **{field: labels}), config)(LOGITS)
    assert found == pytest.approx(loss, rel=1e-14)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-16)


def test_labels_that_do_not_fit_are_refused():
    for options, labels, says in (
        ({"class_weights": "1,2"}, CLASSES, "has 2 weights, and there are 3 classes"),
        ({"name": "labels", "class_weights": "1,2"}, LABELS, "2 weights, and there are 3 labels"),
        ({"name": "labels"}, NUMBERS, "takes labels from 0 to 1"),
        ({"class_weights": "0,0,0"}, CLASSES, "are 0"),
    ):
        refuses(says, loss_and_gradient, options, labels)


def test_settings_that_do_not_go_together_are_refused():
    for settings, says in (
        (["task.name=numbers"], "unknown task.name 'numbers'"),
        (["task.class_weights=most"], "none, balanced, or a number for each class"),
        (["task.class_weights=-1,2"], "none, balanced, or a number for each class"),
        (["task.metric=rmse"], "rmse is no metric of task.name = classes"),
        (["task.huber_delta=2"], "task.huber_delta is an option of tasks regression"),
        (["task.name=regression", "task.huber_delta=2"], "no effect with task.loss = squared"),
        (["task.name=regression", "task.label_smoothing=0.1"], "an option of tasks? classes"),
        (["train.schedule=plateau", "train.eval_every=0"], "needs evaluations"),
    ):
        refuses(says, load_config, None, settings)


# Learning rates, from torch.optim.lr_scheduler of torch 2.13, lr 0.5.
VALUES = [0.1, 0.3, 0.3, 0.29, 0.30002, 0.31, *[0.2] * 16]
FALLING = [0.02 + 0.24 * (1 + np.cos(np.pi * k / 10)) for k in range(1, 10)]
RATES = {
    "constant": ({}, [0.5] * 5),
    "cosine": ({"period": 10, "min_lr": 0.02},
               [0.5, *FALLING, 0.02, *reversed(FALLING), 0.5, FALLING[0]]),
    "step": ({"step_epochs": 3, "decay": 0.5},
             np.repeat([0.5, 0.25, 0.125, 0.0625], 3).tolist()),
    "plateau": ({"plateau_patience": 1, "decay": 0.5, "min_lr": 0.1},
                [*[0.5] * 4, *[0.25] * 4, 0.125, 0.125, 0.1, 0.1]),
}  # fmt: skip


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize("name", RATES)
def test_learning_rates_are_those_of_pytorch(name, warmup, lower):
    options, expected = RATES[name]
    table = {"lr": 0.5, "schedule": name, "warmup": warmup, **options}
    config = from_table({"train": table}).train
    values = [1 - value if lower else value for value in VALUES]
    before = [0.7] * warmup
    expected = [0.5 * (k + 1) / 4 for k in range(warmup)] + expected
    rate, found, proved = LearningRate(config), [], []
    for k in range(len(expected)):
        found.append(rate(k + 1))
        seen = (before + values)[:k]
        proved.append(updates.rate(config, k + 1, seen, lower))
        # Each of them, too, from a schedule that was only shown what was before.
        resumed = LearningRate(config)
        for number, value in enumerate(seen, 1):
            resumed.observe(number, value, lower)
        assert resumed(k + 1) == found[-1]
        rate.observe(k + 1, (before + values)[k], lower)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_allclose(proved, expected, rtol=1e-13)
    # The cosine ends with the run.
    of_run = load_config(None, ["train.schedule=cosine", "train.epochs=50", "train.warmup=10"])
    assert of_run.train.period == 40


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), ("rmse", -1)])
def test_the_first_of_the_best_is_kept_and_patience_ends(metric, sign):
    best, over = Best(metric), []
    for k, value in enumerate([None, 0.1, 0.3, 0.3, 0.2, None, 0.1], 1):
        shown = {f"val_{metric}": None if value is None else sign * value}
        best = best.after(Epoch(k, 1.0, shown, 0.1))
        over.append(stops_early(3, best, k))
    assert (best.epoch, best.value) == (3, sign * 0.3)
    assert over == [False, False, False, False, False, True, True]
    assert not stops_early(0, best, 1000)


def test_a_part_of_the_pairs_is_supervised_in_a_step():
    pairs = SimpleNamespace(positives={"train": np.arange(20).reshape(10, 2)})
    for options, size in (({"supervise": 0.31}, 4), ({"batch": 3}, 3), ({}, 10)):
        task = from_table({"task": {"name": "links", **options}}).task
        assert drawer_of(task, pairs, 20, 0, None).sampler.size == size


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("kind", ["uniform", "corrupt", "pool"])
def test_negatives_are_drawn_alike_whoever_asks_and_count_unless_they_are_no_other_pair(
    kind, directed
):
    n, types = 9, VertexTypes(("a", "b"), (0, 4, 9))  # so few that all that is excluded occurs
    every = np.array([(u, v) for u in range(4) for v in range(9) if u != v])
    given = {"positives": {"train": every}, "negatives": {}, "relations": {}, "name": "p"}
    pairs = SimpleNamespace(**given, directed=directed)
    task = from_table({"task": {"name": "links", "negatives": f"{kind},5"}}).task
    drawer, numbers = drawer_of(task, pairs, n, 3, types), np.arange(len(every))
    drawn, some = drawer.draw(2, 0, numbers), drawer.draw(2, 0, numbers[::2])
    np.testing.assert_array_equal(drawn.negatives[::2], some.negatives)
    np.testing.assert_array_equal(drawn.every[len(every) :].reshape(-1, 5, 2), drawn.negatives)
    assert (drawn.negatives != drawer.draw(3, 0, numbers).negatives).any()
    assert not drawn.counts.all()
    for (a, b), negatives, counts in zip(drawn.pairs, drawn.negatives, drawn.counts, strict=True):
        for (u, v), count in zip(negatives, counts, strict=True):
            same = (u, v) == (a, b) or (not directed and (u, v) == (b, a))
            assert count == (u != v and not same)
            assert [(u < 4), (v < 4)] == [(a < 4), (b < 4)]
            assert kind == "uniform" or u == a or (kind == "corrupt" and v == b)
            assert kind != "uniform" or u != v
    if kind != "pool" or directed:
        np.testing.assert_array_equal(drawn.pairs, every)


# Metrics: those of the oracle, which the distributed ones are compared with.


def test_odds_that_are_equal_but_for_rounding_are_ties():
    z = np.array([[0.1, 0.7, 0.2], [0.3, 0.9, 0.4], [1.1, 1.7, 1.2]])
    z += np.array([[0.0], [1e3], [1 / 3]])
    found = [scores.score(name, z, np.arange(3)) for name in ("roc_auc", "average_precision")]
    assert found == [0.5, pytest.approx(1 / 3, rel=1e-15)]


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_metrics_of_the_oracle_are_those_of_scikit_learn(kind, classes):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    random = np.random.default_rng(classes)
    # Each row twice, and ties that rounding does not break.
    z = np.tile(random.standard_normal((40, classes)), (2, 1))
    if kind == "labels" or classes == 2:
        z = np.round(4 * z) / 4
    if kind == "numbers":
        y = random.standard_normal((80, classes))
        expected = {"mae": metrics.mean_absolute_error(y, z), "r2": metrics.r2_score(y, z),
                    "rmse": metrics.root_mean_squared_error(y, z)}  # fmt: skip
    else:
        if kind == "labels":
            y = each = (random.random((80, classes)) < 0.3).astype(float)
            decided, odds, some = z > 0, z, range(classes)
        else:
            y = random.integers(0, classes, 80)
            decided, each, some = z.argmax(axis=1), np.eye(classes)[y], range(classes)
            rest = [np.exp(np.delete(z, c, axis=1)).sum(axis=1) for c in some]
            odds = z - np.log(rest).T
            if classes == 2:
                some, odds = [1], z - z[:, ::-1]
        expected = {"accuracy": np.mean(decided == y)}
        for name in ("roc_auc", "average_precision"):
            score = getattr(metrics, f"{name}_score")
            expected[name] = np.mean([score(each[:, c], odds[:, c]) for c in some])
        for average in ("micro", "macro"):
            expected[f"f1_{average}"] = metrics.f1_score(y, decided, average=average)
    for name, value in expected.items():
        assert scores.score(name, z, y) == pytest.approx(value, abs=1e-12), name


def test_vertices_without_a_label_count_in_no_metric(tmp_path):
    """Also where rows are cut, and whole ones are brought together."""
    path, found = store(tmp_path / "g.graph", small_graph("directed")), []
    options = {"dtype": "float64", "train_epochs": 2, "task_metrics": ["f1_macro"]}
    for scheme in ("p2p", "summa"):
        gcnmpi.train(path, out=tmp_path / scheme, scheme_name=scheme, **options)
        found.append(gcnmpi.Run(tmp_path / scheme).epochs["val_f1_macro"])
    np.testing.assert_allclose(*found, rtol=1e-10)
