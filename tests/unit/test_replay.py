"""Messages that share links: fair rates, seconds, networks; plans replayed on them."""

import numpy as np
import pytest
from stored_graphs import store

from gcnmpi.options.config import load_config
from gcnmpi.planner.costmodel import step_seconds
from gcnmpi.planner.fluid import Dragonfly, FatTree, fair_rates, fluid_seconds, networks_of
from gcnmpi.planner.machine import Machine, read_machine, shipped_machines
from gcnmpi.planner.ranking import Setting, rank_schemes
from gcnmpi.planner.replay import Replay
from partition.graph.metrics import exchange_matrix
from partition.graph.store import open_graph, read_partition
from partition.importing.synthetic import sbm


def test_rates_are_fair_link_by_link_and_rise_when_a_message_ends():
    # A long message over both links, one over each: the fuller link gives the long one its rate.
    links = np.array([[1, 2], [1, 0], [1, 0], [2, 0]])
    np.testing.assert_allclose(fair_rates(links, np.array([np.inf, 3.0, 10.0])), [1, 1, 1, 9])
    links, room = np.array([[1], [1]]), np.array([np.inf, 2.0])
    found = [fluid_seconds(np.array(sizes), links, room) for sizes in ([1.0, 3.0], [0.0, 0.0])]
    assert found == [2.0, 0.0]


def test_a_tree_is_narrower_to_its_core_and_a_dragonfly_between_two_groups():
    ends = np.arange(4)
    tree = FatTree(nodes=8, a_switch=4, bandwidth=1.0, taper=4.0)
    flies = [Dragonfly(8, 4, 5, bandwidth=1.0, outside=0.5, spread=s) for s in (False, True)]
    for network, to, seconds in (
        (tree, ends[::-1] ^ 1, 1.0),
        (tree, ends + 4, 4.0),
        (flies[0], ends + 4, 8.0),  # a quarter of 2 bytes a second,
        (flies[1], ends + 4, 4.0),  # or a half of it, by a third group
    ):
        found = fluid_seconds(np.ones(4), network.links(ends, to), network.capacities)
        assert found == pytest.approx(seconds)


@pytest.fixture(scope="module")
def case_of(tmp_path_factory):
    """A graph with four random parts, on nodes of one rank."""
    graph = sbm(2000, 4, degree=8, features=16, seed=0)
    path = store(tmp_path_factory.mktemp("replay") / "g.graph", graph, 4)

    def make(scheme, **constants):
        config = load_config(None, (f"scheme.name={scheme}", "model.hidden=[32,32]"))
        given = Setting(open_graph(path), config, Machine(**constants), 1)
        (line, *_), _ = rank_schemes(given, 4, schemes=[scheme])
        return given.case(line.candidate, 4), given, line.candidate.partition

    return make


@pytest.mark.parametrize("scheme", ["p2p", "bcast", "split3d", "columns"])
def test_a_network_that_is_never_full_adds_nothing(case_of, scheme):
    (case, given, partition), exchange = case_of(scheme, bandwidth_inter=1e6), None
    if scheme == "p2p":
        parts = read_partition(given.stored.path, partition.name).parts
        exchange = exchange_matrix(given.stored.graph, parts, 4, given.direction)
    phases, _ = step_seconds(case)
    expected = phases["transfer"] + phases["reduce"]
    wide, narrow = (FatTree(4, a_switch, 1e6, taper) for a_switch, taper in ((4, 1), (2, 8)))
    found, more = (sum(Replay(case, one, exchange).seconds().values()) for one in (wide, narrow))
    # Fair shares are not always the fastest, and ranks of a node share its link as they need it.
    assert found == pytest.approx(expected, rel=0.15)
    assert more > 2 * found


def test_a_reduction_is_a_ring_or_doubling(case_of):
    for latency in (0.0, 1.2, 1e3):
        case, *_ = case_of("p2p", bandwidth_inter=1e3, latency_inter=latency)
        expected = step_seconds(case)[0]["reduce"]
        found = Replay(case, FatTree(4, 4, 1e3, 1.0)).seconds()["reduce"]
        assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("name", sorted(shipped_machines()))
def test_published_machines_have_sources_and_a_network(name):
    machine, facts = read_machine(name)
    assert all(facts[key] for key in ("sources", "assumed"))
    for network in networks_of(facts["network"], 300, machine.bandwidth_inter):
        source, target = np.divmod(np.arange(300 * 7), 7)
        links = network.links(source, target)
        assert links.max() < len(network.capacities)
