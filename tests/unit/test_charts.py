"""Figures as data, as SVG and on a page; studies of partitions."""

import csv
import math
import re
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from refusals import refuses
from small_graphs import make_folder, random_graph

from partition.charts import figures, numbers
from partition.charts.figures import Bars, HeatMap, Lines, Points, Series, binned, groups_of
from partition.charts.page import Section, Table, as_page, draw, legend_of, table_of
from partition.graph.store import list_partitions, write_graph
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition
from partition.reporting import comparison
from partition.reporting.comparison import StudyRecipe, compare, parse_recipe, study, table

EVIL = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&"
LABELS = "About it", "epoch", "loss"


def curve(values, name="one", **more):
    xs = list(range(1, len(values) + 1))
    return Series(name, xs, list(values), **more)


def every_figure(text="plain"):
    return [
        Lines("lines", text, text, text, text, [curve([3.0, 2.0, 1.5], text, dash=1)], marks=True),
        Lines("band", text, text, text, text, [Series(text, [1, 2], [2, 3], [1, 2], [4, 5])]),
        Points("points", text, text, text, text, [curve([1, 2], text)], [[text, text]]),
        Bars("bars", text, text, text, text, [text, "b"], [text, "b"], {text: [1.0, 2.0]}, [3],
             (text, 1.5)),
        HeatMap("heat", text, text, text, text, np.array([[1.0, np.nan], [0.0, 4.0]]),
                [text, "b"], [text, "b"], [text, "b"], [text, "b"], colour_label=text),
        HeatMap("wide", text, text, text, text, np.array([[1.0, 3.0, 2.0]]),
                [text], [text, "b", "c"], [text], ["4", "8", "16"], [0, 4, 8, 16], text),
    ]  # fmt: skip


def test_ticks_are_round_and_around_what_they_measure():
    for least, most in ((0, 1), (-3, 7), (5, 5), (0, 0), (1e-7, 3e-7), (0, 1e9)):
        found = numbers.ticks(least, most)
        assert found[0] <= least <= most <= found[-1]
        assert 2 <= len(found) == len({numbers.number(tick) for tick in found}) <= 8
        assert found == sorted(found)
    assert numbers.log_ticks(1, 10_000) == [1, 10, 100, 1000, 10_000]  # from four decades on


def test_a_long_curve_is_thinned_to_its_mean_and_range():
    values = np.sin(np.arange(10_000))
    values[5000] = 9.0
    points = binned(range(1, 10_001), values)
    assert len(points.mean) <= figures.BINS
    assert ((points.low <= points.mean) & (points.mean <= points.high)).all()
    assert (points.first[0], points.last[-1], points.high.max()) == (1, 10_000, 9.0)
    assert not len(binned([1, 2], [None, float("nan")]).mean)
    assert [len(group) for group in groups_of(300, 128)] == [3] * 100


@pytest.mark.parametrize("figure", every_figure(EVIL), ids=lambda figure: figure.key)
def test_svg_is_xml_that_says_its_texts_and_runs_none(figure):
    tree = ElementTree.fromstring(draw(figure))
    tags = {element.tag for element in tree.iter()}
    assert tags <= {"svg", "path", "text", "circle", "rect", "title"}
    assert EVIL in tree.attrib["aria-label"]
    assert EVIL in "".join(tree.itertext())
    numbers = re.findall(r"[-\d.e]+", " ".join(e.get("d", "") for e in tree.iter()))
    assert all(-500 < float(number) < 1000 for number in numbers)


def test_a_page_is_one_file_whose_texts_are_texts():
    table = Table(EVIL, [EVIL, "n"], [[EVIL, 1.0], [EVIL, 2.0]], EVIL, {1: "low"}, sorts=True)
    section = Section("s", EVIL, EVIL, figures=every_figure(EVIL), tables=[table], notes=[EVIL])
    page = as_page(EVIL, EVIL, [section], EVIL)
    assert [page.count(text) for text in ("<script>", "url(", "@import")] == [1, 0, 0]
    assert "onerror=alert" not in page.replace("onerror=alert(2)&gt;", "")
    links = re.findall(r'<[^>]*\s(?:src|href)="([^"]*)"', page)
    assert {link[:1] for link in links if link != "data:,"} == {"#"}
    assert 'class="number best" data-value="1.0"><b>1<span class="tick"> ✓</span></b></td>' in page
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", page)


def test_every_figure_has_its_numbers_as_a_table():
    tables = {figure.key: table_of(figure) for figure in every_figure()}
    for one in tables.values():
        assert {len(row) for row in one.rows} == {len(one.head)}
    assert tables["heat"].rows[0] == ("b", "b", 4.0)
    assert len(tables["heat"].rows) == 2  # of 0, and of what is not there, none
    assert tables["band"].head[-2:] == ["least", "most"]
    long = table_of(Lines("k", "T", *LABELS, [curve(range(1000))])).rows
    assert (len(long) < 30, long[-1][1]) == (True, 1000)


def test_axes_and_legends_say_what_is_drawn():
    def axes(values, **more):
        figure = Lines("k", "T", *LABELS, [curve(values)], **more)
        return figure.logarithmic, [e.text for e in ElementTree.fromstring(draw(figure))]

    both = {"log_x": True, "log_y": True}
    logarithmic, texts = axes([3.0, 0.1], **both)
    assert logarithmic == (True, True)
    assert {"loss, log scale", "epoch, log scale"} <= set(texts)
    logarithmic, texts = axes([3.0, 0.0], **both)
    assert (logarithmic, "loss" in texts) == ((True, False), True)
    ring = Lines("k", "T", *LABELS, [curve([3.0, 2.0], marked=(2, 2.0))], ring="the best")
    assert draw(ring).count('class="ring f0"') == 1
    assert legend_of(ring) == [("ring", "the best")]
    bars = Bars("k", "T", *LABELS, "ab", "12", {"loss": [1, 2]}, [0], own_colours=[4, 7])
    assert legend_of(bars) == [("f4", "a"), ("f7", "b")]
    assert float(re.search(r"h([\d.]+)V", draw(bars))[1]) <= 72  # they need not fill a figure
    assert ["0.2" in axes([0.6, 0.9], from_zero=zero)[1] for zero in (True, False)] == [1, 0]


# Studies: recipes, the table, the CSV and the page


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
    assert parse_recipe(text) == StudyRecipe(text, "gp", {"objective": "vol"}, True)
    assert parse_recipe("auto:time_limit=9").options == {"time_limit": "9"}
    refuses("given twice", parse_recipe, "gp:objective=vol,objective=cut")
    for text in ("", "gp:", "gp:objective", "gp:objective=", "+refined", "g p"):
        refuses("is not a recipe", parse_recipe, text)


def test_every_case_is_there_and_relative_to_random_rows(graphs, rows):
    assert len(rows) == 2 * 2 * 4
    labels = ["rp", "block+refined", "block", "gp:objective=vol"]
    assert [row["label"] for row in rows[:4]] == labels
    for number, row in enumerate(rows):
        ratio = row["volume"] / rows[number // 4 * 4]["volume"]
        assert row["relative"]["volume"] == pytest.approx(ratio)
    assert "gp.objective=vol-4" in list_partitions(graphs[0])
    refuses("time_limit=SECONDS", study, graphs[1:], [parse_recipe("auto:seed=3")], [2])
    refuses("a positive number", study, graphs[1:], [parse_recipe("hp:time_limit=soon")], [2])


def test_partitions_that_are_there_are_not_made_again(graphs, rows):
    lines, block = [], [StudyRecipe("block", "block")]
    again = study(graphs, block, [2, 4], report=lines.append)
    volumes = [[r["volume"] for r in of if r["label"] == "block"] for of in (again, rows)]
    assert (lines, volumes[0]) == ([], volumes[1])
    add_partition(graphs[0], "gp", 2, imbalance=0.5, name="gp-2")
    refuses("made with imbalance", study, graphs[:1], [StudyRecipe("gp", "gp")], [2])
    study(graphs[:1], block, [2], direction="out")
    assert "block-2-out" in list_partitions(graphs[0])


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
    assert comparison.geometric_mean([1, 4, None]) == pytest.approx(2)
    assert (comparison.geometric_mean([0, 4]), comparison.geometric_mean([None])) == (0, None)
    comparison.write_csv(rows, tmp_path / "c.csv")
    with open(tmp_path / "c.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [int(row["volume"]) for row in written] == [row["volume"] for row in rows]
    assert float(written[1]["relative_max_send"]) == rows[1]["relative"]["max_send"]


def test_figures_without_matplotlib_name_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    refuses("figures need matplotlib", figures.check_figure, tmp_path / "c.png")


def test_the_page_names_exchanges_and_gives_a_kind_one_colour(tmp_path):
    path = make_folder(tmp_path / "g.graph", sbm(60, 3, degree=5, features=2, seed=0))
    for model, k in (("block", 2), ("rp", 2), ("rp", 3), ("block", 3)):
        add_partition(path, model, k)
    rows = compare(path)
    found = {
        figure.key: figure for some in comparison.comparison_figures(path, rows) for figure in some
    }
    colours = {one.name: one.colour for one in found["sweep-volume"].series}
    assert len(set(colours.values())) == 2
    for k in (2, 3):
        bars, curves = found[f"k{k}-volume"], found[f"k{k}-sends"].series
        assert list(bars.columns) == [one.name for one in curves]
        assert list(bars.own_colours) == [one.colour for one in curves]
        of_kinds = [colours[name.rpartition("-")[0]] for name in bars.columns]
        assert of_kinds == list(bars.own_colours)
    comparison.write_comparison(tmp_path / "p.html", path, rows)
    page = (tmp_path / "p.html").read_text()
    tiles = re.findall(r'<dt>least ([a-z ]+), k = 3</dt>.*?small">([^<]+)<', page)
    kinds = ["exchange of rows"] * 3 + ["mixed exchange"] * 2
    assert all(kind in note for kind, (_, note) in zip(kinds, tiles, strict=True))
