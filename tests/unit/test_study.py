"""Studies: recipes, the table, the CSV, the plot and the page."""

import csv
import hashlib
import importlib
import json
import math
import re
import sys
from pathlib import Path

import pytest
from refusals import refuses
from small_graphs import make_folder, random_graph

from partition.graph.store import list_partitions, open_graph, read_partition, write_graph
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition
from partition.reporting.comparison import compare, geometric_mean, metrics_of_parts
from partition.reporting.page import comparison_figures, write_comparison
from partition.reporting.plots import plot_comparison
from partition.reporting.study import Recipe, parse_recipe, study, table, write_csv

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_graph(folder / "a.graph", sbm(300, 3, degree=8, seed=3), source={})
    write_graph(folder / "b.graph", random_graph(100, 500), source={})
    return [folder / "a.graph", folder / "b.graph"]


@pytest.fixture(scope="module")
def rows(graphs):
    recipes = [parse_recipe(text) for text in ("block+refined", "block", "gp:objective=vol")]
    return study(graphs, recipes, [2, 4])


def test_recipes():
    text = "gp:objective=vol+refined"
    assert parse_recipe(text) == Recipe(text, "gp", {"objective": "vol"}, True)
    assert parse_recipe("auto:time_limit=9").options == {"time_limit": "9"}
    refuses("given twice", parse_recipe, "gp:objective=vol,objective=cut")
    for text in ("", "gp:", "gp:objective", "gp:objective=", "+refined", "g p"):
        refuses("is not a recipe", parse_recipe, text)


def test_every_case_is_there_and_relative_to_random_rows(graphs, rows):
    assert len(rows) == 2 * 2 * 4
    labels = ["rp", "block+refined", "block", "gp:objective=vol"]
    assert [row["label"] for row in rows[:4]] == labels
    by_case = {(row["graph"], row["k"], row["label"]): row for row in rows}
    for (graph, k, _), row in by_case.items():
        ratio = row["volume"] / by_case[graph, k, "rp"]["volume"]
        assert row["relative"]["volume"] == pytest.approx(ratio)
    assert "gp.objective=vol-4" in list_partitions(graphs[0])
    (stored,) = compare(graphs[0], ["block-2"])
    assert stored["volume"] == by_case["a", 2, "block"]["volume"]
    refuses("time_limit=SECONDS", study, graphs[1:], [parse_recipe("auto:seed=3")], [2])
    refuses("a positive number", study, graphs[1:], [parse_recipe("hp:time_limit=soon")], [2])


def test_partitions_that_are_there_are_not_made_again(graphs, rows):
    ids = {name: read_partition(graphs[0], name).id for name in list_partitions(graphs[0])}
    lines, block = [], [Recipe("block", "block")]
    again = study(graphs, block, [2, 4], report=lines.append)
    volumes = [[r["volume"] for r in of if r["label"] == "block"] for of in (again, rows)]
    assert (lines, volumes[0]) == ([], volumes[1])
    assert ids == {name: read_partition(graphs[0], name).id for name in list_partitions(graphs[0])}
    study(graphs[:1], block, [2], seed=1, imbalance=0.5)  # beside them
    assert {"rp-2-s1-e0.5", "block-2-s1-e0.5"} <= set(list_partitions(graphs[0]))
    add_partition(graphs[0], "gp", 2, imbalance=0.5, name="gp-2")
    refuses("made with imbalance", study, graphs[:1], [Recipe("gp", "gp")], [2])
    study(graphs[:1], block, [2], direction="out")
    assert read_partition(graphs[0], "block-2-out").direction == "out"


def test_the_table_and_the_csv(rows, tmp_path):
    lines = [[c.strip() for c in line.strip("|").split("|")] for line in table(rows).splitlines()]
    assert lines[0][:5] == ["graph", "k", "model", "volume avg", "volume max"]
    # 4 cases of 3 models and 2 ratios, 3 means and 2 ratios of means.
    assert len(lines) == 2 + 4 * (3 + 2) + 3 + 2
    mine = [row for row in rows if row["label"] == "block"]
    mean = math.prod(row["relative"]["max_send"] for row in mine) ** 0.25
    (line,) = [cells for cells in lines if cells[:3] == ["mean", "", "block"]]
    assert float(line[4]) == pytest.approx(mean, abs=0.0051)
    assert any(cells[2] == "block+refined / block" for cells in lines)
    assert geometric_mean([1, 4, None]) == pytest.approx(2)
    assert (geometric_mean([0, 4]), geometric_mean([None])) == (0, None)
    write_csv(rows, tmp_path / "c.csv")
    with open(tmp_path / "c.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert len(written) == len(rows)
    assert (written[1]["label"], int(written[1]["volume"])) == ("block+refined", rows[1]["volume"])
    assert float(written[1]["relative_max_send"]) == rows[1]["relative"]["max_send"]


def test_the_plot(rows, tmp_path):
    pytest.importorskip("matplotlib")
    for ending in ("png", "pdf", "svg"):
        plot_comparison(rows, tmp_path / f"c.{ending}")
        assert (tmp_path / f"c.{ending}").stat().st_size > 1000
    assert "<!-- block+refined -->" in (tmp_path / "c.svg").read_text()
    refuses(r"ends in \.png, \.pdf, \.svg", plot_comparison, rows, tmp_path / "c.bmpp")


def test_the_page_names_exchanges_and_gives_a_kind_one_colour(tmp_path):
    path = make_folder(tmp_path / "g.graph", sbm(60, 3, degree=5, features=2, seed=0))
    for k, models in ((2, ("block", "rp")), (3, ("rp", "block"))):
        for model in models:
            add_partition(path, model, k)
    rows = compare(path)
    parts = metrics_of_parts(path, rows)
    found = {figure.key: figure for figure in comparison_figures(rows, parts)}
    colours = {one.name: one.colour for one in found["sweep-volume"].series}
    assert len(set(colours.values())) == 2
    for k in (2, 3):
        bars, curves = found[f"k{k}-volume"], found[f"k{k}-sends"].series
        assert list(bars.columns) == [one.name for one in curves]
        assert list(bars.own_colours) == [one.colour for one in curves]
        assert {name: colours[name.rpartition("-")[0]] for name in bars.columns} == dict(
            zip(bars.columns, bars.own_colours, strict=True)
        )
    write_comparison(tmp_path / "p.html", open_graph(path).manifest, rows, parts)
    page = (tmp_path / "p.html").read_text()
    tiles = re.findall(r'<dt>least ([a-z ]+), k = 3</dt>.*?small">([^<]+)<', page)
    names = ["volume", "busiest part", "imbalance"]
    assert [name for name, _ in tiles] == names + names[:2]
    kinds = ["exchange of rows"] * 3 + ["mixed exchange"] * 2
    assert all(kind in note for kind, (_, note) in zip(kinds, tiles, strict=True))


# The scripts that make the papers' tables again

SCRIPTS = Path(__file__).parents[2] / "scripts" / "reproduce"
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "reproducing")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_made_with_figure_and_record(name, monkeypatch, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for module in ("reproducing", *NAMES):
        monkeypatch.delitem(sys.modules, module, raising=False)
    importlib.import_module(name).main(["--quick", "--out", str(tmp_path)])
    text = (tmp_path / f"{name}.md").read_text()
    assert text in capsys.readouterr().out
    assert text.count("\n|") > 3  # rows of a table
    record = json.loads((tmp_path / f"{name}.json").read_text())
    assert record["versions"]["numpy"]
    assert sorted(record["files"]) == sorted(f"{name}.{end}" for end in ("csv", "md", "pdf", "png"))
    for file, digest in record["files"].items():
        assert hashlib.sha256((tmp_path / file).read_bytes()).hexdigest() == digest
