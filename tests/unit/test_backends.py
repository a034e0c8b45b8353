"""Tools and the pipeline around them, on small graphs; fake tools that misbehave."""

import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refuses
from small_graphs import from_arcs, make_folder, random_graph

from partition.backends import HUGE, TOOLS, process
from partition.backends.catalogue import MODELS, describe
from partition.backends.process import run_each
from partition.deadline import Deadline
from partition.graph.graph import arcs as sources_of
from partition.graph.metrics import measure
from partition.graph.store import list_partitions, read_partition
from partition.importing.readers.metis_files import read_parts
from partition.models.descriptions import HypergraphModel
from partition.pipeline import adding
from partition.pipeline.adding import PartitionWarning, add_partition, make_parts, refine_partition
from partition.pipeline.portfolio import add_best
from partition.refinement.objective import Objective

pytestmark = pytest.mark.slow


def variants():
    """Every model with every tool and objective; those whose library is missing are skipped."""
    missing = TOOLS.available()
    for model, tool in ((m, tool) for m in MODELS for tool in MODELS[m].tools):
        marks = [pytest.mark.skip(reason=missing[tool])] if missing[tool] else []
        yield pytest.param(model, tool, {}, id=f"{model}-{tool}", marks=marks)
        if model == "shp":
            more = {"sampler": "neighbor", "batch": "50%", "fanouts": "2,2"}
            yield pytest.param(model, tool, more, id="shp-neighbor", marks=marks)
        options = {} if missing[tool] else TOOLS.get(tool).options
        objective = options.get("objective")
        for value in {*objective.choices} - {objective.default} if objective else ():
            yield pytest.param(model, tool, {"objective": value}, id=f"{model}-{value}")


SMALL = random_graph(40, 150)


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "small.graph", SMALL)


@pytest.mark.parametrize(("model", "tool", "options"), list(variants()))
def test_every_model_makes_k_parts_again_and_again(model, tool, options):
    graph, asked = random_graph(60, 300), {"tool": tool, "options": options}
    for k in (1, 3):
        parts = make_parts(graph, model, k, **asked)
        assert (parts.dtype, np.unique(parts).tolist()) == (np.int32, list(range(k)))
    np.testing.assert_array_equal(parts, make_parts(graph, model, 3, **asked))
    without_edges = make_parts(from_arcs(7, []), model, 3, **asked)
    assert np.unique(without_edges).tolist() == [0, 1, 2]
    if model in ("rp", "block"):
        assert {*np.bincount(make_parts(graph, model, 7)).tolist()} == {8, 9}
    assert model != "block" or (np.diff(parts) >= 0).all()


def test_tools_are_spared_work_on_huge_graphs():
    for model, option, usual, beyond in (("gp", "passes", 10, 1), ("hp", "max_net", 0, 100)):
        of = TOOLS.get(MODELS[model].tools[0]).options[option]
        for arcs, expected in ((HUGE, usual), (HUGE + 1, beyond)):
            assert of.decided(of.default, arcs) == expected
            assert of.decided(7, arcs) == 7, "what is asked for stays"


SEEDED = {
    "metis gp": {"objective": "cut", "passes": 10},
    "kaminpar gp": {"preset": "default", "threads": 1}, "kahypar hp": {"preset": "default"},
    "mtkahypar hp": {"preset": "fast", "threads": 2, "max_net": 0},
    "mtkahypar gp": {"preset": "fast", "threads": 1, "max_net": 0}, "random rp": {},
}  # fmt: skip


@pytest.mark.parametrize("case", SEEDED)
def test_a_seed_makes_a_difference(case):
    (tool, model), missing = case.split(), TOOLS.available()
    if missing[tool]:
        pytest.skip(missing[tool])
    entry, graph = TOOLS.get(tool), random_graph(300, 1500)
    description = describe(graph, model, 4)
    seeds = (0, 1, 2, 2**31 - 1, 0)
    tries = [{"imbalance": 0.05, "seed": seed, **SEEDED[case]} for seed in seeds]
    if entry.distribution is None:
        made = [entry.partition(description, 4, **each) for each in tries]
    else:
        made = run_each(TOOLS.entries[tool], description, 4, tries)
    assert len({parts.tobytes() for parts in made}) == 4
    np.testing.assert_array_equal(made[0], made[-1])
    if case == "mtkahypar gp":  # parts are those of the vertices, whatever their order
        cut = [(parts[sources_of(graph)] != parts[graph.indices]).sum() for parts in made]
        assert max(cut) < 1.2 * min(cut)


def test_what_is_recorded(folder):
    made = add_partition(folder, "gp", 3, objective="vol", seed=5, imbalance=0.2)
    assert made.name == "gp-vol-3-s5-e0.2"
    stored = read_partition(folder, made.name)
    np.testing.assert_array_equal(stored.parts, made.parts)
    assert replace(stored, parts=None) == replace(made, parts=None)
    options = {"max_net": 0, "objective": "vol", "passes": 10}
    assert (stored.tool, stored.options, stored.seed) == ("metis", options, 5)
    assert (stored.direction, stored.imbalance, stored.deterministic) == ("in", 0.2, True)
    assert stored.metrics["out"] == measure(SMALL, stored.parts, 3, "out")
    made = add_partition(folder, "hp", 2, direction="out", preset="default", threads=1)
    assert (made.direction, made.deterministic, made.imbalance) == ("out", False, 0.01)
    # Default names tell seeds and imbalances apart, so that a study of them needs one folder.
    refined = add_partition(folder, "block", 2, seed=1, imbalance=0.1, refine=Objective())
    assert refined.name == "block-2-s1-e0.1+refined"
    name = add_partition(folder, "rp", 2, seed=1).name
    assert refine_partition(folder, name, seed=2).name == "rp-2-s1+refined-s2"


MISTAKES = [
    ("hp", 2, {"tool": "metis"}, "does not take the model 'hp'"),
    ("hp", 2, {"tool": "mtkahyper"}, "unknown tool"),
    ("hp", 2, {"objective": "vol"}, "unknown option of the tool 'mtkahypar' 'objective'"),
    ("rp", 2, {"preset": "default"}, "has no options"),
    ("gp", 2, {"objective": "volume"}, "unknown objective of the tool 'metis'"),
    ("hp", 2, {"threads": "two"}, "'two' is not of type int"),
    ("gp", 2, {"passes": -1}, "passes = -1"), ("hp", 2, {"imbalance": -0.1}, "it is a fraction"),
    ("hp", 2, {"imbalance": float("nan")}, "it is a fraction"),
    ("rp", 8, {"imbalance": 3}, r"4 times the average\n  hint: .* 0.03 for 3 percent"),
    ("rp", 2, {"seed": -1}, "seed = -1"), ("rp", 2, {"seed": 2**31}, "seed = 2147483648"),
]  # fmt: skip


def test_mistakes_are_told_and_nothing_is_written(folder):
    for model, k, options, message in MISTAKES:
        refuses(message, add_partition, folder, model, k, **options)
    refuses("0.03 for 3 percent", add_best, folder, 8, imbalance=3)
    assert list_partitions(folder) == []
    assert list((folder / "partitions").iterdir()) == []


def test_a_row_heavier_than_a_part_is_reported(tmp_path):
    path = make_folder(tmp_path / "star.graph", from_arcs(12, [(i, 0) for i in range(1, 12)]))
    with pytest.warns(PartitionWarning, match=r"imbalance .* vertex 0 alone has 12 entries, 2.09"):
        made = add_partition(path, "hp", 4)
    assert np.unique(made.parts).size == 4
    # Its own part is as heavy as it must be, and no other is heavier.
    assert max(made.metrics["in"].nnz) == 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add_partition(path, "hp", 4, imbalance=1.1, name="loose")


FAKES = {
    "return [0]": r"fake returned int64 \(1,\) for 40 vertices",
    "return [k] * len(model.weights)": "part numbers outside 0..4",
    "return [-1] * len(model.weights)": "part numbers outside 0..4",
    "return [0] * len(model.weights)": "returned only 1 of 5 parts",
    "raise RuntimeError('no luck')": "the tool failed: RuntimeError: no luck",
    "from partition.errors import UserError; raise UserError('no room', 'a hint')": "no room",
    "import os; print('going', flush=True); os.kill(os.getpid(), 9)":
        "the tool was killed by SIGKILL: going",
    "import os; os.abort()": "the tool was killed by SIGABRT",
}  # fmt: skip


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Puts a tool with the given body into the tables, as a plug-in would be."""

    def install(body):
        lines = "import numpy as np\nfrom partition.backends import Tool\n"
        lines += f"def partition(model, k, *, imbalance, seed):\n    def body():\n        {body}\n"
        lines += "    return np.array(body())\nTOOL = Tool(partition, distribution='numpy')\n"
        (tmp_path / "fake_tool.py").write_text(lines)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.delitem(sys.modules, "fake_tool", raising=False)
        entries = {"fake": "fake_tool:TOOL"}
        monkeypatch.setattr(adding, "TOOLS", replace(TOOLS, entries=entries))
        monkeypatch.setitem(MODELS, "fake", replace(MODELS["rp"], tools=("fake",)))

    return install


@pytest.mark.parametrize("body", FAKES)
def test_a_tool_that_fails_is_reported_and_nothing_is_written(folder, fake, monkeypatch, body):
    fake(body)
    refuses(FAKES[body], add_partition, folder, "fake", 5)
    assert list((folder / "partitions").iterdir()) == []
    if "no luck" in body:  # in this process, it is one line too
        tool = replace(adding.TOOLS.get("fake"), distribution=None)
        monkeypatch.setattr(adding, "choose_tool", lambda model, name: ("fake", tool))
        message = r"the tool 'fake' failed: RuntimeError: no luck \(fake_tool.py, line 5\)"
        refuses(message, make_parts, SMALL, "fake", 2)


def test_a_part_left_empty_is_filled_and_noise_is_swallowed(folder, fake, capfd):
    fake("print('noise'); import os; os.system('echo noise'); return [0] * 3 + [1] * 37")
    with pytest.warns(PartitionWarning, match="imbalance"):
        made = add_partition(folder, "fake", 3)
    assert np.bincount(made.parts).tolist() == [3, 36, 1]
    assert capfd.readouterr() == ("", "")


def test_a_time_limit_leaves_time_for_what_follows_a_tool(monkeypatch):
    shares = []
    monkeypatch.setattr(Deadline, "part", lambda self, share, **_: shares.append(share) or self)
    for model, share in (("gp", 1.0), ("mg", 0.7), ("shp", 0.3)):
        shares.clear()
        make_parts(SMALL, model, 2)
        assert shares[0] == share


def test_too_little_room_for_a_model_and_too_many_pins_are_told_before(folder, monkeypatch):
    monkeypatch.setattr(process.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    refuses("MiB are needed, 0 are free", add_partition, folder, "hp", 2)
    model = HypergraphModel(np.array([2**31, 1]), np.array([0, 2]), np.array([0, 1]))
    how = {"imbalance": 0.1, "seed": 0, "preset": "default", "threads": 1, "max_net": 0}
    refuses("32 bits", TOOLS.get("mtkahypar").partition, model, 2, **how)


PARTS = [  # the text, k, first, and the parts or what is told
    ("0\n2\r\n 1 \n\n", None, 0, [0, 2, 1]),
    ("1\n3\n2\n", 3, 1, [0, 2, 1]),
    ("1\n3\n2\n", None, 1, [0, 2, 1]),
    ("1\n3\n2\n", None, 0, "no vertex in part 0\n  hint: --first 1 if"),
    ("1\n3\n2\n", 3, 0, "part 3 is not one of 0..2\n  hint: --first 1"),
    ("1\n3\n2\n", 2, 1, "part 3 is not one of 1..2"),
    ("0 2 4", None, 0, "no vertex in part 1\n  hint: -k 5 if part 1 is meant to be empty"),
    ("5 5 5", None, 0, "no vertex in part 0\n  hint: -k 6 if part 0 is meant to be empty"),
    ("1 2 4", None, 1, "no vertex in part 3\n  hint: -k 4 if part 3 is meant to be empty"),
    ("0\n1\n", 3, 0, "has 2 part numbers, the graph has 3"),
    ("", 3, 0, "has 0 part numbers"),
    ("0 1\n2 0\n", 3, 0, "has 4 part numbers"),
    ("0 1\nx 2\n", 3, 0, "line 2: 'x' is not a part number"),
    ("0\n\n1\n", 3, 0, "line 2: '' is not a part number"),
    ("0\n1\n-1\n", 3, 0, "line 3: part -1 is not one of 0..2"),
    ("0\n3\n1\n", 3, 0, "line 2: part 3 is not one of 0..2"),
    ("0\n99999999999999999999\n1\n", 3, 0, "line 2: '99999999999999999999' is not a part"),
]


def test_files_of_parts(tmp_path):
    for text, k, first, found in PARTS:
        (file := tmp_path / "parts.txt").write_text(text)
        if isinstance(found, str):
            refuses(found, read_parts, file, 3, k, first)
        else:
            assert read_parts(file, 3, k, first).tolist() == found
    refuses("cannot read", read_parts, tmp_path / "none", 3)
