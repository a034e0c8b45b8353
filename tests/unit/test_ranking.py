"""The ranking of schemes: real partitions, random rows, advice, grids; volumes over ranks."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest
from command_line import gcnmpi_cli, plan, refused, run
from refusals import refuses
from small_graphs import make_folder
from stored_graphs import store

from gcnmpi.options.config import from_table, read_config
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.planner.auto import resolved_grid
from gcnmpi.planner.by_ranks import counted_rows, crossovers, table
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Setting, rank_schemes
from gcnmpi.run.checkpoint import flat
from partition.graph.graph import Graph
from partition.graph.metrics import measure
from partition.graph.store import open_graph
from partition.pipeline.adding import add_partition

N = 600


def two_rings():
    """Two rings of 300: block rows cut each of them nowhere on 2 ranks, random rows everywhere."""
    after = np.roll(np.arange(N).reshape(2, -1), -1, axis=1).ravel().astype(np.int32)
    data = {"features": np.ones((N, 12), np.float32), "labels": (np.arange(N) % 5).astype(np.int32)}
    return Graph(np.arange(N + 1, dtype=np.int64), after, **data)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = store(tmp_path_factory.mktemp("plan") / "rings.graph", two_rings(), 2)
    for k in (2, 4):
        add_partition(path, "block", k)
    return path


def setting(path, machine=None, limit=math.inf, **tables):
    config, given = read_config(values=dict(flat(tables)), schemes=SCHEMES)
    return Setting(open_graph(path), config, machine or Machine(), 4, given=given, limit=limit)


def only_p2p(path, size, limit=math.inf, **options):
    rows = setting(path, limit=limit, scheme={"exchange": "rows"})
    return rank_schemes(rows, size, schemes=["p2p"], **options)[0]


def test_without_a_partition_random_rows_are_estimated(path):
    (line,) = only_p2p(path, 3)
    assert line.candidate.estimated
    assert line.candidate.partition.metrics["in"].rows == [200] * 3
    received = [only_p2p(path, size)[0].cost.received for size in (3, 24, 192, 600)]
    assert received == sorted(received, reverse=True)
    refuses("601 ranks for 600 vertices", only_p2p, path, 601)


@pytest.mark.parametrize(("direction", "k"), [("in", 2), ("out", 7), ("in", 40)])
def test_the_expected_volume_is_the_mean_of_random_partitions(path, direction, k):
    random = np.random.default_rng(5)
    # A hub of 500 arcs among vertices of one.
    indptr = np.concatenate(([0], 500 + np.arange(N)))
    indices = np.concatenate((np.arange(1, 501), random.integers(0, N, N - 1))).astype(np.int32)
    data = {"features": np.ones((N, 3), np.float32), "labels": np.ones(N, np.int32)}
    graph, folder = Graph(indptr, indices, **data), path.with_name(f"hub-{direction}-{k}.graph")
    make_folder(folder, graph)
    expected = setting(folder, graph={"direction": direction}).random_partition(k)
    found = [measure(graph, random.integers(0, k, N), k, direction) for _ in range(60)]
    metrics = expected.metrics[direction]
    volume = np.mean([each.volume for each in found])
    assert sum(metrics.send_rows) == pytest.approx(volume, rel=0.03)
    assert sum(metrics.nnz) == sum(found[0].nnz)
    messages = np.mean([each.messages for each in found])
    # Rows of one hub go to one part, so that fewer pairs meet than rows let expect.
    assert 0.9 * messages < sum(metrics.send_messages) <= k * (k - 1)


def test_products_with_sparse_features_by_hand(path):
    """Where a row of a sparse product's result is all that takes time."""
    sparse = make_folder(path.with_name("sparse.graph"), two_rings(), keep_features="sparse")
    free = {field.name: 0.0 for field in dataclasses.fields(Machine)}
    machine = Machine(**free | {"sparse_row": 1.0, "bandwidth_intra": 1, "bandwidth_inter": 1})
    (line,) = rank_schemes(setting(sparse, machine), 1, schemes=["p2p"])[0]
    # X·W and M·(X·W), 16 columns; M·H·W, 5; back, with Mᵀ of as many; and Xᵀ·G of 12 rows.
    assert line.cost.phases["sparse"] == N * (16 + 16 + 5 + 5 + 16) + 12 * 16


def test_what_needs_too_much_memory_comes_last_with_advice(path):
    whole = only_p2p(path, 2)
    free = whole[0].cost.memory
    base = only_p2p(path, 256)[0].cost.memory
    (*_, line) = only_p2p(path, 2, limit=(free + base) / 2)
    more = int(line.advice.split("-P ")[1])
    assert only_p2p(path, more)[0].cost.memory <= (free + base) / 2
    limit = only_p2p(path, 128)[0].cost.memory  # six times as many are twice as many
    (*_, line) = only_p2p(path, 2, limit=limit)
    assert 2 < int(line.advice.split("-P ")[1]) <= 128
    assert only_p2p(path, 2, limit=1000)[0].advice.endswith("more ranks do not help")


def test_the_best_grid_is_taken_for_auto(path):
    def resolve(**scheme):
        config = from_table({"scheme": {"name": "summa", **scheme}})
        return resolved_grid(open_graph(path), None, config, 4, 4)

    lines, _ = rank_schemes(setting(path, scheme={"name": "summa"}), 4, schemes=["summa"])
    seconds = [line.cost.seconds for line in lines]
    assert seconds == sorted({*seconds})
    assert resolve().grid == lines[0].candidate.options["grid"]
    assert resolve(grid="1x4").grid == "1x4"  # the user's own choice
    refuses("nothere", resolve, machine="/nothere.json")


# The command line.


def test_plan_prints_a_table_and_json(path):
    text = plan(path, "-P", 2, "--memory", "1kB")
    assert all(words in text for words in ("2 ranks, 16 per node", "block-2", "do not help"))
    assert "(random rows, 3)" in plan(path, "-P", 3)
    facts = json.loads(plan(path, "-P", 2, "--schemes", "p2p", "--json"))
    assert [line["partition"] for line in facts["plans"]] == ["block-2", "rp-2"]
    assert facts["plans"][0]["received"] == 0 < facts["plans"][1]["received"]
    assert facts["widths"] == [12, 16, 5]
    without = dataclasses.replace(two_rings(), features=None, labels=None)
    bare = make_folder(path.with_name("bare.graph"), without)
    facts = json.loads(plan(bare, "-P", 2, "--features", 9, "--classes", 4, "--json"))
    assert facts["widths"] == [9, 16, 4]
    for words, says in (
        ([bare], "has no features"),
        ([path, "--partition", "rp-9"], "no partition|unknown partition"),
        ([path, "--memory", "64QB"], "--memory '64QB' is not a size"),
        ([path, "--machine", "/nothere.json"], "cannot read /nothere.json"),
        ([path, "--schemes", "p2p", "--partition", "block-4"], "no scheme takes that"),
    ):
        refuses(says, plan, *words, "-P", 2)


def test_options_that_are_given_leave_other_variants_out(path):
    asked = setting(path, scheme={"replication": 2, "sparse": True})
    found, _ = rank_schemes(asked, 4, schemes=["replicated", "p2p"])
    schemes = [line.candidate.scheme for line in found]
    copies = {(s.replication, s.sparse) for s in schemes if s.name == "replicated"}
    assert ({s.name for s in schemes}, copies) == ({"replicated", "p2p"}, {(2, True)})
    words = [path, "-P", 4, "--json"]
    grid = [*words, "--set", "scheme.grid=[2, 2]"]
    plans = json.loads(plan(*grid))["plans"]
    assert {p["options"].get("grid") for p in plans if p["scheme"] == "summa"} == {"2x2"}
    assert {p["scheme"] for p in plans} >= {"p2p", "bcast", "summa"}
    refuses(r"scheme\.grid is an option of schemes summa, ", plan, *grid, "--schemes", "p2p,bcast")
    assert "--schemes summa" in refuses(".", plan, *words, "--set", "scheme.name=summa").hint


# Volumes over numbers of ranks.


def test_the_crossover_holds_up_to_the_largest_number_of_ranks():
    received = {"p2p": (10, 8, 7), "summa": (5, 9, 4), "bcast": (20, 20, 20)}
    rows = [
        {"ranks": ranks, "scheme": scheme, "options": "", "source": "predicted", "received": one,
         "partition": "hp" if scheme == "p2p" else "", "messages": 1, "seconds": 0.1}
        for scheme, each in received.items() for ranks, one in zip((4, 16, 64), each, strict=True)
    ]  # fmt: skip
    rows.append(rows[3] | {"received": 1, "source": "counted"})
    assert crossovers(rows) == [
        {"partition": "hp", "other": "summa", "from_ranks": 64, "compared": 64},
        {"partition": "hp", "other": "bcast", "from_ranks": None, "compared": 64},
    ]
    assert "| p2p | hp | predicted | 1e-05 | 8e-06 | 7e-06 |\n" in table(rows)


def test_records_of_runs_are_counted(tmp_path):
    file = tmp_path / "bench.jsonl"
    line = {"scheme": "summa", "options": {"grid": "2x2"}, "partition": None, "ranks": 4,
            "received": 7, "messages": 3, "seconds": 0.5}  # fmt: skip
    lines = [json.dumps(each) for each in (line, line | {"skipped": "no"})]
    file.write_text("\n".join(["a word of mpirun", *lines]))
    (found,) = counted_rows([file])
    assert (found["options"], found["received"], found["source"]) == ("grid 2x2", 7, "counted")
    file.write_text('{"other": 1}\n')
    refuses("bench-schemes --json", counted_rows, [file])
    refuses("cannot read", counted_rows, [tmp_path])


def test_the_command(path, tmp_path):
    words = ["volumes", path, "-P", 2, "-P", 3, "--schemes", "p2p,bcast"]
    done = run(*words, "--out", tmp_path / "out", program=gcnmpi_cli)
    assert (tmp_path / "out" / "volumes.md").read_text() in done.stdout
    assert "bcast receives less than p2p block: nowhere up to 2 ranks" in done.stdout
    rows = csv.DictReader((tmp_path / "out" / "volumes.csv").open())
    kinds = {(each["ranks"], each["scheme"], each["partition"]) for each in rows}
    assert {("2", "p2p", "block"), ("2", "p2p", "rp"), ("3", "p2p", "random rows")} <= kinds
    said = refused(*words, "--set", "scheme.grid=2x1", program=gcnmpi_cli)
    assert "scheme.grid is an option of" in said
