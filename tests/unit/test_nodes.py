"""Partitions for nodes of several ranks: the pipeline and the command line."""

import pytest
from command_line import as_json, run
from refusals import refuses
from small_graphs import make_folder, random_graph

from partition.graph.store import list_partitions, write_graph
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition
from partition.reporting.comparison import compare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directed graph of 300 vertices."""
    return make_folder(tmp_path_factory.mktemp("nodes") / "g.graph", random_graph(300, 1500))


def test_communities_share_nodes(tmp_path):
    write_graph(tmp_path / "c.graph", sbm(1200, 3, degree=12, intra=0.95, seed=2), source={})
    between = {}
    for mapping in ("nodes-first", "flat"):
        made = add_partition(
            tmp_path / "c.graph", "gp", 12, ranks_per_node=4, mapping=mapping, name=mapping
        )
        between[mapping] = sum(made.nodes["in"].send_rows)
        assert made.options.items() >= {"ranks_per_node": 4, "mapping": mapping}.items()
    random = add_partition(tmp_path / "c.graph", "rp", 12, ranks_per_node=4)
    assert max(between.values()) < 0.4 * sum(random.nodes["in"].send_rows)
    rows = compare(tmp_path / "c.graph", ["flat", "nodes-first"])
    assert {row["name"]: row["nodes"]["inter_volume"] for row in rows} == between


def test_mapping_moves_no_vertex_between_parts(folder):
    plain = add_partition(folder, "hp", 6, name="plain")
    mapped = add_partition(folder, "hp", 6, ranks_per_node=2, mapping="flat", name="mapped")
    pairs = set(zip(plain.parts.tolist(), mapped.parts.tolist(), strict=True))
    assert len(pairs) == 6


def test_mistakes(tmp_path):
    path = make_folder(tmp_path / "g.graph", random_graph(20, 60))
    for options, message in (
        ({"ranks_per_node": 0}, "ranks per node = 0"),
        ({"ranks_per_node": 2, "mapping": "flt"}, "unknown mapping 'flt'"),
    ):
        refuses(message, add_partition, path, "gp", 4, **options)
    assert list_partitions(path) == []


def test_the_command_line_says_what_travels_between_nodes(folder):
    shown = run("add", folder, "--model", "gp", "-k", 4, "--ranks-per-node", 2).output
    assert "2 ranks per node:" in shown
    assert "rows between nodes" in shown
    assert "on nodes of 2 ranks" in run("info", folder, "gp-4-2pernode").output
    assert "between" in run("compare", folder).output
    facts = as_json("info", folder, "gp-4-2pernode")
    assert facts["node_summary"]["in"]["inter_volume"] == sum(facts["nodes"]["in"]["send_rows"])
