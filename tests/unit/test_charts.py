"""Figures as data, as SVG, on a page and on paper."""

import doctest
import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from partition.charts import figures, scales
from partition.charts.figures import Bars, HeatMap, Lines, Points, Series, binned, groups_of
from partition.charts.page import Section, Table, as_page, legend_of, table_of
from partition.charts.svg import draw

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


def test_examples():
    for module in (scales, figures):
        failed, attempted = doctest.testmod(module)
        assert (failed, attempted > 0) == (0, True)


def test_ticks_are_round_and_around_what_they_measure():
    for least, most in ((0, 1), (-3, 7), (5, 5), (0, 0), (1e-7, 3e-7), (0, 1e9)):
        found = scales.ticks(least, most)
        assert found[0] <= least <= most <= found[-1]
        assert 2 <= len(found) <= 8
        assert len({scales.number(tick) for tick in found}) == len(found)
        assert found == sorted(set(found))
    for least, most in ((1, 1), (0.3, 40), (1e-6, 2), (4, 1024), (7, 8)):
        found = scales.log_ticks(least, most)
        assert found[0] <= least <= most <= found[-1]
        assert found == sorted(set(found))
    assert scales.log_ticks(1, 10_000) == [1, 10, 100, 1000, 10_000]  # from four decades on
    assert len(scales.log_ticks(1, 1000)) > 4


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


def test_the_tip_of_a_curve_has_its_numbers():
    drawn = draw(Lines("k", "T", *LABELS, [curve([3.0, 2.0]), curve([1.0], "two")]))
    tip = json.loads(ElementTree.fromstring(drawn).attrib["data-tip"])
    assert tip["rows"] == ["one", "two"]
    assert tip["cells"] == [[3.0, 2.0], [1.0, None]]
    assert len(tip["places"]) == 2


def test_a_page_is_one_file_whose_texts_are_texts():
    table = Table(EVIL, [EVIL, "n"], [[EVIL, 1.0], [EVIL, 2.0]], EVIL, {1: "low"}, sorts=True)
    section = Section("s", EVIL, EVIL, figures=every_figure(EVIL), tables=[table], notes=[EVIL])
    page = as_page(EVIL, EVIL, [section], EVIL)
    assert page.count("<script>") == 1
    assert "onerror=alert" not in page.replace("onerror=alert(2)&gt;", "")
    links = re.findall(r'<[^>]*\s(?:src|href)="([^"]*)"', page)
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert "url(" not in page
    assert "@import" not in page
    assert 'class="number best" data-value="1.0"><b>1<span class="tick"> ✓</span></b></td>' in page
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'", page)


def test_every_figure_has_its_numbers_as_a_table():
    tables = {figure.key: table_of(figure) for figure in every_figure()}
    for table in tables.values():
        assert table.rows
        assert all(len(row) == len(table.head) for row in table.rows)
    assert tables["heat"].rows[0] == ("b", "b", 4.0)
    assert len(tables["heat"].rows) == 2  # of 0, and of what is not there, none
    assert tables["band"].head[-2:] == ["least", "most"]
    long = table_of(Lines("k", "T", *LABELS, [curve(range(1000))]))
    assert len(long.rows) < 30
    assert long.rows[-1][1] == 1000


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
    assert "0.2" in axes([0.6, 0.9])[1]
    assert "0.2" not in axes([0.6, 0.9], from_zero=False)[1]


def test_numbers_of_a_column_have_equal_decimals_and_one_alignment():
    rows = [["a", None, 0.97, "x"], ["b", 12, 0.9569, "y"], ["c", 7000, 1.0, "z"]]
    page = as_page("t", "s", [Section("s", "S", tables=[Table("T", list("abcd"), rows)])], "m")
    cells = re.findall(r"<td( class=\"number\")?[^>]*>([^<]*)</td>", page)
    assert [text for _, text in cells[1::3]] == ["0.970", "0.957", "1.000"]
    assert [text for _, text in cells[0::3]] == ["–", "12", "7,000"]
    assert [bool(number) for number, _ in cells] == [True, True, False] * 3
    assert re.findall(r'<th scope="col"( class="number")?>', page) == ["", *[NUMBER] * 2, ""]


NUMBER = ' class="number"'


def test_the_best_is_marked_within_its_scope():
    rows = [["a", 1.0], ["b", 2.0], ["c", 9.0], ["d", 5.0], ["e", 3.0]]
    best = {1: ["low", "low", "high", "high", "low"]}
    table = Table("T", ["", "n"], rows, best=best, scopes=["g", "g", "h", "h", "alone"])
    page = as_page("t", "s", [Section("s", "S", tables=[table])], "m")
    assert re.findall(r"<b>(\d)<", page) == ["1", "9"]
