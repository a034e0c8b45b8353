"""Pages in a real browser: no mistakes, no network, no sideways scrolling, keys that work."""

import browser
import pytest
from made_runs import make_run
from small_graphs import make_folder

from gcnmpi.report.page import write_report
from gcnmpi.report.run_facts import facts_of
from gcnmpi.run.record import read_run
from partition.graph.store import open_graph
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition
from partition.reporting.comparison import compare, metrics_of_parts
from partition.reporting.page import write_comparison

pytestmark = pytest.mark.slow
WIDTHS = (1280, 400)
EVIL = "</script><script>document.title = 'taken'</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def chromium():
    program = browser.find()
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(browser.NAMES)} is installed")
    with browser.Browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    names = ("a-rather-long-name-of-a-run-without-blanks-0123456789", "b", EVIL)
    runs = []
    for place, name in enumerate(names):
        run = make_run(folder / str(place), 30, 5, seed=place, graph=EVIL, warnings=[EVIL])
        runs.append(facts_of(name, str(run), read_run(run)))
    write_report(folder / "runs.html", runs)
    write_report(folder / "run.html", runs[:1])
    graph = make_folder(folder / "g.graph", sbm(200, 3, degree=8, features=2, seed=0))
    for k in (2, 3, 5):
        for model in ("gp", "block"):
            add_partition(graph, model, k)
    rows = compare(graph)
    made = folder / "partitions.html"
    write_comparison(made, open_graph(graph).manifest, rows, metrics_of_parts(graph, rows))
    return [folder / "runs.html", folder / "run.html", made]


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_ask_for_nothing_and_make_no_mistakes(chromium, pages, width):
    for page in pages:
        for dark in (False, True):
            chromium.open(page, width, dark)
            # All that is folded is unfolded: it must fit, too.
            chromium.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
            scrolled = chromium.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert scrolled == [width, width], page
            assert chromium.requests == [page.resolve().as_uri()]
            assert chromium.mistakes == []
            assert chromium.evaluate("document.title") != "taken"
            ink = chromium.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, ink[4:-1].split(","))) < 150) is dark


def test_texts_do_not_leave_their_figures(chromium, pages):
    outside = """[...document.querySelectorAll('svg.chart text')].filter(text => {
        const a = text.getBoundingClientRect(), b = text.ownerSVGElement.getBoundingClientRect();
        return a.width && (a.left < b.left - 2 || a.right > b.right + 2 || a.bottom > b.bottom + 2);
    }).map(text => text.textContent)"""
    for page in pages:
        chromium.open(page, 1280)
        assert chromium.evaluate(outside) == []


def test_keys_and_pointer_show_the_numbers_of_a_figure(chromium, pages):
    chromium.open(pages[1], 1280)
    chromium.evaluate("document.querySelector('#figure-loss svg').focus()")
    assert chromium.evaluate("document.getElementById('tip').hidden")
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        chromium.press(key)
    assert chromium.evaluate("document.getElementById('tip').textContent").startswith(
        "epoch 3\nloss: "
    )
    chromium.press("Escape")
    assert chromium.evaluate("document.getElementById('tip').hidden")
    place = """(() => { const c = document.querySelector('#figure-bytes svg');
        c.scrollIntoView({behavior: 'instant', block: 'center'});
        const r = c.getBoundingClientRect(); return [r.left + r.width * .5, r.top + 60]; })()"""
    chromium.point(*chromium.evaluate(place))
    text = chromium.evaluate("document.getElementById('tip').textContent")
    assert text.startswith("from rank 0, to rank 2\n")
