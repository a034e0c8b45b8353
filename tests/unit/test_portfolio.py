"""The portfolio: what it tries, what it keeps, what it says; refinement of stored partitions."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import as_json, refused, run
from refusals import raising, refuses
from small_graphs import from_arcs, make_folder, random_graph

from partition.backends.process import TimeIsUp
from partition.deadline import Deadline
from partition.errors import UserError
from partition.graph.metrics import measure
from partition.graph.store import (
    list_partitions,
    member,
    members,
    open_graph,
    read_partition,
    write_partition,
)
from partition.importing.synthetic import rmat, sbm
from partition.pipeline import adding, portfolio
from partition.pipeline.adding import add_partition, make_parts, refine_partition
from partition.pipeline.balance import Recipe
from partition.pipeline.portfolio import Facts, Network, add_best, candidates
from partition.refinement.objective import Objective

pytestmark = pytest.mark.slow

BY_NAME = {candidate.name: candidate for candidate in candidates(Facts(1e4, 8))}


@pytest.fixture
def folder(tmp_path):
    """Two communities, 200 vertices."""
    return make_folder(tmp_path / "g.graph", sbm(200, 2, degree=8, seed=3))


@pytest.fixture
def cheap(monkeypatch):
    """Two candidates that take no time."""
    both = [BY_NAME["gp"], replace(BY_NAME["gp"], name="rows", model="rp", options={})]
    monkeypatch.setattr(portfolio, "candidates", lambda facts: both)


def planned(facts, seconds=24.0):
    """Names of what is tried, in order, and the effort that both refinements get."""
    costs = [portfolio.refinement_cost(facts, exchange) for exchange in ("rows", "mixed")]
    tried = portfolio.schedule(seconds, costs, candidates(facts)[1:])
    left = seconds - sum(candidate.seconds for candidate in tried)
    effort = (left - sum(cost.fixed for cost in costs)) / sum(cost.full for cost in costs)
    return [candidate.name for candidate in tried], effort


def test_facts_and_time_decide_what_is_tried():
    # Of web graphs, METIS and KaMinPar see too little; where there is no locality, no start is
    # better than another one; partitions of roads differ from seed to seed.
    small, _ = planned(Facts(1e4, 8))
    assert set(small) == BY_NAME.keys() - {"gp", "kaminpar-largek"}
    assert small.index("kaminpar") < small.index("hp") < small.index("hp+1"), "gain per second"
    assert planned(Facts(1e9, 64))[0] == []
    assert planned(Facts(4e5, 16, 0.1, directed=True))[0][:2] == ["mg", "hp"]
    assert planned(Facts(4e5, 16, 0.5))[0][:2] == ["kaminpar", "gp-vol"]
    assert {"kaminpar+1", "gp-vol+2"} < set(planned(Facts(1e6, 16, 0.004))[0])
    assert "kaminpar-largek" in planned(Facts(1e6, 512, 3.0), 120)[0]
    for facts in (Facts(*each) for each in product((1e4, 1e6), (4, 64), (0.01, 1.0, 3.0))):
        for seconds in (12.0, 120.0):
            tried, effort = planned(facts, seconds)
            assert effort > 0.02 or not tried, "some is left to refine"
            assert set(tried) <= set(planned(facts, 10 * seconds)[0])


def test_predicted_time_by_hand():
    rows = measure(random_graph(30, 100), np.arange(30) % 3, 3)
    each = zip(rows.send_messages, rows.send_rows, strict=True)
    times = [1e-3 * messages + 1e-6 * 40 * sent for messages, sent in each]
    assert Network(alpha=1e-3, beta=1e-6, width=10).seconds(rows) == pytest.approx(max(times))
    mixed, network = replace(rows, nnz=[max(rows.nnz) + 1000, 0, 0]), Network(0, 1e-6, 10)
    more = 1000 * (2e-9 + 10 * 2e-10)
    assert network.mixed_seconds(rows, mixed) == pytest.approx(network.seconds(rows) + more)
    assert network.mixed_seconds(mixed, rows) == network.seconds(rows)


def test_of_those_that_are_balanced_and_as_fast_the_least_volume_is_kept():
    def trial(volume, seconds, imbalance=0.0):
        figures = SimpleNamespace(volume=volume, imbalance=imbalance)
        return SimpleNamespace(figures={"rows": (figures, seconds)})

    trials = [trial(9, 1.0), trial(8, 1.049), trial(7, 1.06), trial(1, 1.0, 0.012)]
    run, light = SimpleNamespace(recipe=Recipe(0.01)), trial(2, 1.0, 0.0109)
    assert portfolio._Run._kept(run, trials, "rows") is trials[1]
    assert portfolio._Run._kept(run, [*trials, light], "rows") is light


@pytest.fixture
def hubs(tmp_path, monkeypatch):
    """A graph whose mixed exchange is much shorter, and two candidates."""
    monkeypatch.setattr(portfolio, "candidates", lambda facts: [BY_NAME["gp"], BY_NAME["mg"]])
    return make_folder(tmp_path / "hubs.graph", rmat(9, 3000, seed=2))


SLOW = Network(alpha=0, beta=1e-6)


def test_the_best_for_each_exchange_is_kept_as_a_pair(hubs):
    rows, mixed = add_best(hubs, 4, network=SLOW)
    assert list_partitions(hubs) == [mixed.name, rows.name] == ["auto-4-mixed", "auto-4-rows"]
    both = ("rows", rows, rows.metrics), ("mixed", mixed, mixed.mixed)
    for exchange, partition, figures in both:
        (kept,) = [row for row in partition.history if row["chosen"]]
        assert kept["max_send"] == max(figures["in"].send_rows)
        assert partition.exchange == partition.options["exchange"] == exchange
        assert partition.options["refine"]["exchange"] == exchange
    # The partition made for rows is balanced for rows, and sends fewer of them.
    graph = open_graph(hubs).graph
    one, other = (measure(graph, each.parts, 4) for each in (rows, mixed))
    assert one.imbalance < 0.02 < other.imbalance
    assert one.volume < other.volume
    # The name of the pair stands for both, or the one that suits.
    names = ["auto-4-rows", "auto-4-mixed"]
    assert members(hubs, "auto-4") == names
    assert member(hubs, "auto-4", "mixed") == "auto-4-mixed"
    add = ["add", hubs, "--model", "auto", "-k", 4]
    assert "already" in refused(*add)
    there = as_json(*add, "--name", "auto-4", "--if-missing")["partitions"]
    assert [each["id"] for each in there] == [rows.id, mixed.id]
    assert {row["name"] for row in as_json("compare", hubs, "auto-4")} == set(names)
    refined = refine_partition(hubs, "auto-4", objective=Objective(exchange="mixed"), effort=0.01)
    assert refined.options["start"]["name"] == "auto-4-mixed"

    # One that is called so itself is what the name means, until a new pair replaces it.
    write_partition(hubs, replace(rows, name="auto-4"))
    assert members(hubs, "auto-4") == ["auto-4"]
    run("remove", hubs, "auto-4-mixed+mixed")
    (of_rows,) = add_best(hubs, 4, network=SLOW, exchange="rows", name="rows")
    assert {row.get("exchange") for row in of_rows.history} == {"rows", None}
    (of_mixed,) = add_best(hubs, 4, network=SLOW, exchange="mixed", name="mixed", overwrite=True)
    assert {row.get("exchange") for row in of_mixed.history} == {"mixed"}
    run("remove", hubs, "mixed")
    refuses("unknown exchange 'sums'", add_best, hubs, 4, exchange="sums", name="x")
    add_best(hubs, 4, network=SLOW, overwrite=True)
    assert list_partitions(hubs) == ["auto-4-mixed", "auto-4-rows", "rows"]
    run("remove", hubs, "auto-4")
    assert list_partitions(hubs) == ["rows"]


def test_no_tool_tries_to_mix_where_nothing_is_gained(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(portfolio, "candidates", lambda facts: [BY_NAME["gp"], BY_NAME["mg"]])
    ring = from_arcs(300, [(i, (i + 1) % 300) for i in range(300)])
    path = make_folder(tmp_path / "ring.graph", ring)
    (made,) = add_best(path, 3)
    assert "which gains nothing" in made.history[1]["note"]
    assert members(path, "auto-3") == [made.name] == ["auto-3-rows"]  # for both exchanges
    (made,) = add_best(folder, 4)  # of 200 vertices
    assert "rows take next to no time" in made.history[1]["note"]


def test_what_is_stopped_or_fails_is_told_and_is_not_deterministic(folder, cheap, monkeypatch):
    monkeypatch.setattr(adding, "make_parts", raising(UserError("out of luck")))
    refuses("out of luck", add_best, folder, 3)
    monkeypatch.setattr(adding, "make_parts", raising(KeyboardInterrupt))
    assert "interrupted" in run("add", folder, "--model", "auto", "-k", 3, code=130).stderr
    assert list((folder / "partitions").iterdir()) == []

    def failing(graph, model, *args, **kwargs):
        if model == "gp":
            raise TimeIsUp("the tool was stopped after 3 s")
        return make_parts(graph, model, *args, **kwargs)

    monkeypatch.setattr(adding, "make_parts", failing)
    (made,) = add_best(folder, 3)
    assert (made.tool, made.deterministic) == ("random", False)
    notes = {row["step"]: row["note"] for row in made.history}
    assert notes == {"gp": "the tool was stopped after 3 s", "rows": ""}


def test_a_clock_that_runs_out(folder, cheap, monkeypatch):
    monkeypatch.setattr(portfolio, "schedule", lambda seconds, costs, able: able)
    refuses("no time was left", add_best, folder, 4, time_limit=1e-6)
    assert list_partitions(folder) == []

    def slowly(*args, **kwargs):  # the first candidate takes all of the time
        parts = make_parts(*args, **kwargs)
        monkeypatch.setattr(Deadline, "left", lambda self: 0.0)
        return parts

    monkeypatch.setattr(adding, "make_parts", slowly)
    (made,) = add_best(folder, 4, exchange="rows")
    assert not made.deterministic
    assert made.options["refine"] is None


AUTO, GP = "--model auto -k 2 ", "--model gp -k 2 "
MISTAKES = {
    AUTO + "--time-limit 0": "time limit = 0", AUTO + "--alpha -1": "alpha = -1",
    AUTO + "--width 0": "width = 0", AUTO + "--tool metis": "chooses tools",
    AUTO + "--ranks-per-node 0": "ranks per node = 0",
    AUTO + "--exchange row": "did you mean 'rows'",
    GP + "--exchange rows": "options of --model auto", GP + "--weigh total=-1": "not negative",
}  # fmt: skip


def test_mistakes(folder):
    for words, message in MISTAKES.items():
        assert message in refused("add", folder, *words.split()), words


def test_refine_on_the_command_line(folder):
    run("add", folder, "--model", "rp", "-k", 4)
    run("refine", folder, "rp-4", "--imbalance", "0.05")
    start, made = read_partition(folder, "rp-4"), read_partition(folder, "rp-4+refined-e0.05")
    assert (made.model, made.tool, made.imbalance) == ("rp", "refine", 0.05)
    assert (made.options["start"]["name"], made.options["start"]["id"]) == ("rp-4", start.id)
    assert [row["step"] for row in made.history] == ["rp-4", "refine"]
    before, after = (row["volume"] for row in made.history)
    assert before == sum(start.metrics["in"].send_rows)
    assert after == sum(made.metrics["in"].send_rows) < before
    facts = as_json("refine", folder, "rp-4", "--name", "x", "--weigh", "max_recv=2")
    assert facts["options"]["refine"]["max_recv"] == 2
    for words, told in (("rp-4 --imbalance 0.05", "already"), ("rp-4 --effort 0 --name y", "= 0")):
        assert told in refused("refine", folder, *words.split())


def test_parts_are_joined_into_fewer(folder):
    before = add_partition(folder, "gp", 12)
    made = refine_partition(folder, "gp-12", k=4)
    assert (made.name, made.k, made.options["start"]["k"]) == ("gp-12-in-4+refined", 4, 12)
    assert made.deterministic
    assert not refine_partition(folder, "gp-12", k=1, name="whole").parts.any()
    for k in (5, 24):
        refuses("12 parts of 'gp-12' cannot be joined", refine_partition, folder, "gp-12", k=k)
    # A refinement of no time at all shows what was joined: whole parts, three into each.
    quick = refine_partition(folder, "gp-12", k=4, time_limit=1e-6, name="quick")
    pairs = np.unique(np.stack((before.parts, quick.parts)), axis=1)
    assert pairs.shape == (2, 12)
    np.testing.assert_array_equal(np.bincount(pairs[1]), [3, 3, 3, 3])
