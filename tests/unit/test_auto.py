"""The choice of ``scheme.exchange = "auto"``: rows or the mixed exchange, by the cost model."""

import dataclasses

import numpy as np
import pytest
from refusals import refuses
from small_graphs import from_arcs, make_folder

from gcnmpi.layout import runtime as layout
from gcnmpi.options.config import from_table
from gcnmpi.planner import auto
from gcnmpi.planner.machine import Machine, write_machine
from gcnmpi.planner.ranking import Setting, rank_schemes
from gcnmpi.schemes.forecast import make_facts
from partition.graph.graph import Graph
from partition.graph.store import (
    members,
    open_graph,
    read_partition,
    remove_partition,
    write_partition,
)
from partition.pipeline.adding import add_partition

HALF = 1000
FAST, SLOW = (Machine(bandwidth_intra=rate, bandwidth_inter=rate) for rate in (1e15, 1e6))


def hub() -> Graph:
    """All of part 0, which is a ring, have an arc to a vertex of part 1.

    As rows, part 0 sends all it has; mixed, it sends one sum, and adds up what part 1 would.
    """
    ring, n = range(HALF), 2 * HALF
    graph = from_arcs(n, [(v, to) for v in ring for to in ((v - 1) % HALF, HALF)])
    data = {"features": np.ones((n, 8), np.float32), "labels": np.arange(n, dtype=np.int32) % 3}
    return dataclasses.replace(graph, **data)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = make_folder(tmp_path_factory.mktemp("auto") / "hub.graph", hub())
    add_partition(path, "block", 2)
    for name, machine in (("fast", FAST), ("slow", SLOW)):
        write_machine(path.with_name(name), machine, {})
    return open_graph(path)


def resolve(stored, machine=None, per_node=1, partition=None, model=None, size=2, **scheme):
    if machine is not None:
        scheme["machine"] = str(stored.path.with_name(machine))
    config = from_table({"scheme": scheme, "model": {"name": model} if model else {}})
    partition = partition or read_partition(stored.path, "block-2")
    return auto.resolved_exchange(
        lambda: auto.setting_of(stored, config, per_node), partition, config, size
    )


def test_the_shorter_epoch_is_taken(stored):
    copies, old = {"name": "replicated", "size": 4}, read_partition(stored.path, "block-2")
    for exchange, given in (
        ("mixed", {"machine": "slow"}),
        ("rows", {"machine": "fast"}),  # part 0 has more to do: a longer epoch
        ("mixed", {"machine": "fast", "exchange": "mixed"}),  # the user's own choice
        ("rows", {"machine": "slow", "exchange": "rows"}),
        # Without a file, a thousand rows on 1 Gbit/s take longer than the ring's part takes for as
        # many entries; on one host they take less.
        ("mixed", {}),
        ("rows", {"per_node": 2}),
        # Networks and transports that cannot mix take rows; copies mix where they send rows.
        ("rows", {"machine": "slow", "model": "gat"}),
        ("rows", {"machine": "slow", "transport": "shared"}),
        ("rows", {"machine": "slow", "partition": dataclasses.replace(old, mixed={})}),
        ("mixed", {"machine": "slow", **copies}),
        ("rows", {"machine": "fast", **copies}),
        ("rows", {"machine": "slow", "sparse": False, **copies}),
    ):
        assert resolve(stored, **given).exchange == exchange, given
    refuses("nothere", resolve, stored, "nothere")
    other = from_table({"scheme": {"name": "summa"}})
    assert auto.resolved_exchange(None, None, other, 2) == other.scheme
    config = from_table({"scheme": {"name": "replicated", "exchange": "mixed"}})
    config = dataclasses.replace(config, scheme=dataclasses.replace(config.scheme, sparse=False))
    source = layout.Source(stored, old, "in")
    refuses("sends whole blocks", make_facts, source, config, layout.Demand())


@pytest.fixture
def pair(stored):
    """One partition as both of a pair, and as one for the mixed exchange that is alone."""
    partition = read_partition(stored.path, "block-2")
    for name, exchange in (("two-rows", "rows"), ("two-mixed", "mixed"), ("lone", "mixed")):
        made = dataclasses.replace(partition, name=name, options={"exchange": exchange})
        write_partition(stored.path, made)
    yield [read_partition(stored.path, name) for name in members(stored.path, "two")]
    remove_partition(stored.path, "two-rows", "two-mixed", "lone")


def test_of_a_pair_the_one_is_taken_that_the_run_can_use(stored, pair):
    def taken(machine="slow", model="gcn", whole_rows=False, **scheme):
        scheme["machine"] = str(stored.path.with_name(machine))
        config = from_table({"scheme": scheme, "model": {"name": model}})
        setting = lambda: auto.setting_of(stored, config, 1)  # noqa: E731
        return auto.resolved_partition(setting, pair, config, 2, whole_rows).name

    assert taken() == taken("fast", exchange="mixed") == "two-mixed"
    for how in ({"machine": "fast"}, {"model": "gat"}, {"exchange": "rows"}, {"name": "bcast"},
                {"transport": "shared"}, {"whole_rows": True}):  # fmt: skip
        assert taken(**how) == "two-rows", how
    config = from_table({})
    assert auto.resolved_partition(None, pair[1:], config, 2, True).name == "two-mixed"
    setting = Setting(stored, config, SLOW, 1)
    ranked, _ = rank_schemes(setting, 2, schemes=["p2p"], partitions=["two"])
    assert {line.candidate.partition.name for line in ranked} == {"two-rows", "two-mixed"}


def test_a_partition_for_the_mixed_exchange_that_sends_rows_is_told_of(stored, pair):
    rows, mixed, bcast = (
        from_table({"scheme": scheme}).scheme
        for scheme in ({"exchange": "rows"}, {"exchange": "mixed"}, {"name": "bcast"})
    )
    for of, scheme in ((pair[0], rows), (pair[1], mixed), (None, rows), (pair[1], bcast)):
        assert auto.other_exchange(stored, of, "in", scheme) == []
    (told,) = auto.other_exchange(stored, pair[1], "in", rows)
    assert [told] == auto.other_exchange(stored, pair[1], "in", mixed, whole_rows=True)
    assert "'two-mixed' was made for the mixed exchange, but this run sends whole rows: " in told
    rows_told = f"{HALF:,} at an imbalance of 0.00, not 1 at 0.50; take --partition two-rows"
    assert told.endswith(rows_told)
    (told,) = auto.other_exchange(stored, read_partition(stored.path, "lone"), "in", rows)
    words = f"gcn-partition add {stored.path} --model auto --exchange rows -k 2, then auto-2-rows"
    assert told.endswith(words)
