"""Costs of mini-batches: the forecast of one by hand, and the plan of an epoch."""

import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from command_line import gcnmpi_cli, plan, run
from refusals import refuses
from small_graphs import random_graph
from stored_graphs import store

from gcnmpi.options.config import load_config
from gcnmpi.planner.batches import expected_sizes
from gcnmpi.planner.groups import Groups
from gcnmpi.planner.machine import LATER, Machine
from gcnmpi.planner.ranking import Setting, rank_schemes
from partition.graph.samples import write_samples
from partition.graph.sampling import Rule
from partition.graph.store import open_graph, read_partition
from partition.pipeline.adding import add_partition

N = 300
NETWORK = ("model.name=sage", "model.hidden=[6]")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    random, masks = np.random.default_rng(0), {"train": np.arange(N) % 3 > 0}
    features, labels = random.random((N, 8), np.float32), random.integers(0, 3, N).astype(np.int32)
    graph = replace(random_graph(N, 2000), features=features, labels=labels, masks=masks)
    path = store(tmp_path_factory.mktemp("batches") / "some.graph", graph, 3)
    add_partition(path, "block", 3)
    return path


def setting(path, *settings, limit=math.inf):
    config = load_config(None, (*NETWORK, *settings))
    return Setting(open_graph(path), config, Machine(), 4, locality=False, limit=limit)


def test_seconds_of_drawing_by_hand():
    constants = dict.fromkeys(LATER, 0.0) | {"batch_hop": 100.0, "drawn_entry": 2.0}
    some = Machine(**constants)
    drawn, shared, every = Rule(5, 1, False), Rule(5, 1, True), Rule(-1, 1, True)
    assert some.drawing_seconds(10, 50, drawn) == 120
    read = replace(some, read_entry=3.0, hashed_entry=4.0, hashed_call=1000.0)
    assert read.drawing_seconds(10, 50, drawn) == read.drawing_seconds(10, 50, every) == 120
    assert read.drawing_seconds(10, 50, shared) == 120 + 150
    assert read.drawing_seconds(10, 50, None) == 120 + 200 + 1000
    by_relation = replace(read, drawn_arc=5.0, drawn_group=6.0)
    assert by_relation.drawing_seconds(10, 50, drawn, 4) == 100 + 50 + 24
    assert by_relation.drawing_seconds(10, 50, shared, 0) == 100 + 50 + 150


@pytest.mark.parametrize("scheme", ["p2p", "summa", "split3d", "tensor3d"])
def test_a_batch_of_everything_moves_what_a_full_batch_moves(path, scheme):
    given, size, options = ["model.cache_input=false"], 8, {"schemes": [scheme]}
    if scheme == "p2p":
        given += ["scheme.exchange=rows", "scheme.backward=fold"]
        size, options = 3, options | {"partitions": ["rp-3"]}
    ranked, _ = rank_schemes(setting(path, *given), size, **options)
    whole = {str(line.candidate.options): line.cost for line in ranked}
    batches = setting(path, "train.batches=vertex,100%")
    for line in rank_schemes(batches, size, **options)[0]:
        cost, full = line.cost, whole.pop(str(line.candidate.options))
        for name in ("sent", "received", "messages", "reduced_bytes"):
            rel = 0.01 if scheme != "p2p" else 0
            assert getattr(cost, name) == pytest.approx(getattr(full, name), rel=rel)
        if scheme == "p2p":
            assert cost.evaluation == pytest.approx(full.evaluation)
            assert cost.phases["dense"] == pytest.approx(full.phases["dense"])
        assert cost.seconds > full.seconds
        assert cost.memory >= full.memory + (scheme == "p2p")
        assert cost.phases["sample"] > 0
    assert not whole
    assert len(batches.batches.drawn) == 1


@pytest.mark.slow
def test_groups_of_ranks_by_hand(path):
    some = setting(path, "train.batches=vertex,50")  # six batches
    groups = Groups(some, ["tensor3d"])
    found = {division.groups: division for division in groups.divisions(8)}
    sizes = {g: (one.group.size, one.updates) for g, one in found.items()}
    assert sizes == {1: (8, 6), 2: (4, 3), 4: (2, 2), 8: (1, 1)}
    for division in found.values():
        size, batch = division.group.size, division.group.batch
        costs = [line.cost.seconds for line in rank_schemes(some, size, schemes=["tensor3d"])[0]]
        assert batch * 6 == pytest.approx(min(costs))
        assert division.seconds == pytest.approx(division.updates * (batch + division.reduce))
    assert found[1].reduce == 0
    # GraphSAGE 8 → 6 → 3, two weights a layer and a bias; of biases each rank has all.
    weights, biases = 2 * (8 * 6 + 6 * 3), 6 + 3
    one = found[8].group
    assert one.numbers == weights + biases
    # Of eight groups two have no batch; nodes have four ranks.
    assert found[8].reduce == Machine().all_reduce_seconds(8 * one.numbers, 6, 4)
    summed = 8 * found[2].group.numbers
    assert found[2].reduce == Machine().all_reduce_seconds(summed, 2, 4, stride=4)
    assert weights // 4 <= found[2].group.numbers - biases <= weights // 4 + 4
    listed = [one.seconds for one in found.values()]
    assert listed == sorted(listed)
    assert Groups(setting(path, "train.batches=vertex,50", limit=1)).divisions(8) == []
    refuses("a mini-batch each", Groups, setting(path))


def test_drawing_ahead_hides_some_of_it(path):
    def phases(ahead, free):
        some = setting(path, "train.batches=neighbor,50,3,2", f"train.draw_ahead={ahead}")
        some.machine = Machine(free_cores=free)
        (line,) = rank_schemes(some, 2, schemes=["p2p"])[0]
        assert line.cost.seconds == pytest.approx(sum(line.cost.phases.values()))
        return line.cost.phases

    shown, hidden = phases("no", 1), phases("yes", 0)
    assert phases("auto", 0) == shown
    assert phases("auto", 1) == hidden
    sample, others = shown.pop("sample"), sum(shown.values())
    # Three of the four batches are drawn ahead.
    expected = sample - 0.6 * min(sample, others) * 3 / 4
    assert hidden.pop("sample") == pytest.approx(expected, rel=0.02)
    assert hidden == shown


def test_seconds_of_asking_for_rows_by_hand(path):
    """Eight bytes for each row, and three numbers and one of each layer that are summed."""
    some = setting(path, "train.batches=neighbor,100%,3,2")
    free = {field.name: 0.0 for field in fields(Machine)}
    some.machine = Machine(**free | {"bandwidth_intra": 1.0, "bandwidth_inter": 1.0})
    (line,) = rank_schemes(some, 3, schemes=["p2p"], partitions=["rp-3"])[0]
    (sizes,) = some.batches.sizes(read_partition(path, "rp-3").parts, 3)
    moved = [np.maximum(layer.send_rows, layer.recv_rows) for layer in sizes.layers]
    expected = 8 * sum(moved).max() + some.machine.all_reduce_seconds(8 * 5, 3, 4)
    assert line.cost.phases["sample"] == pytest.approx(expected)


def test_a_batch_has_the_expected_size(path):
    def expected(batches):
        some = setting(path, f"train.batches={batches}")
        return expected_sizes(some.stored, some.config), some

    sizes, some = expected("vertex,50")
    drawn = [one.patterns[0].indptr[-1] for one in some.batches.drawn]
    assert (sizes.rows, sizes.entries - 50) == (50, pytest.approx(np.mean(drawn), rel=0.2))
    sizes, some = expected("cluster,block-3,1")  # taken to have no arcs between them
    assert (sizes.rows, sizes.entries) == (100, 100 + round(some.stored.manifest.nnz / 3))
    assert expected("neighbor,50,3,2")[0] is None


def test_an_epoch_on_samples_is_of_equal_steps(path):
    ranges = {"train": [(0, 9)], "val": [(9, 12)]}
    write_samples(path, "samples", np.zeros((12, N, 2)), None, ranges, made="drawn")
    every = {}
    for batch in (1, 2, 4):  # of 8 states that train
        words = [path, "-P", 3, "--set", "task.name=samples", "--set", f"task.batch={batch}"]
        cost, steps = json.loads(plan(*words, "--json"))["plans"][0], 8 // batch
        every[batch] = cost["sent"], cost["messages"] / steps, cost["reduced_bytes"] / steps
        assert cost["evaluation"] > 0
    assert every[1] == every[2] == every[4]


def test_the_plan_says_what_it_is_of(path):
    words = [path, "-P", 3, *(word for one in NETWORK for word in ("--set", one))]
    text = plan(*words, "--set", "train.batches=neighbor,7,3,2", "--set", "train.eval_every=5")
    assert "an epoch is 29 times the mean of 8 that were drawn" in " ".join(text.split())
    words += ["--json", "--set", "train.batches=vertex,50"]
    facts = json.loads(plan(*words))
    assert facts["batches"] == {"an_epoch": 6, "drawn": 6}
    assert facts["plans"][0]["phases"]["sample"] > 0
    facts, table = json.loads(plan(*words, "--groups")), plan(*words[:-3], *words[-2:], "--groups")
    program = run(
        "info", "--program", *words[:-3], *words[-2:], "--partition", "rp-3", program=gcnmpi_cli
    ).stdout
    assert all(part in program for part in ("a mini-batch", "all vertices"))
    assert {(one["groups"], one["ranks_of_a_group"]) for one in facts["groups"]} == {(1, 3), (3, 1)}
    assert all(f" {one['updates']} " in table for one in facts["groups"])
