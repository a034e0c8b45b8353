"""The command line gcn-partition, from the outside."""

from pathlib import Path

import numpy as np
import pytest
from command_line import as_json, refused, run
from refusals import raising, refuses

from gcnmpi.cli.main import cli as gcnmpi_cli
from partition.graph.store import list_partitions, read_partition
from partition.pipeline import adding


@pytest.fixture
def demo(tmp_path):
    path = tmp_path / "demo.graph"
    run("synth", "sbm", path, "--vertices", 200, "--classes", 3, "--features", 4)
    return path


def test_a_session(demo):
    added = as_json("add", demo, "--model", "gp", "-k", 3)
    assert (added["name"], added["model"], added["tool"], added["k"]) == ("gp-3", "gp", "metis", 3)
    run("add", demo, "--model", "gp", "--objective", "vol", "-k", 3, "--imbalance", 0.2)
    run("add", demo, "--model", "hp", "-k", 3, "--set", "threads=1", "--seed", 4)
    run("add", demo, "--model", "rp", "-k", 3, "--name", "mine")
    names = ["gp-3", "gp-vol-3-e0.2", "hp-3-s4", "mine"]
    assert list_partitions(demo) == [row["name"] for row in as_json("list", demo)] == names
    stored = [read_partition(demo, name) for name in names]
    assert [one.imbalance for one in stored] == [0.01, 0.2, 0.01, None]
    assert stored[2].options["threads"] == 1

    rows = {row["name"]: row for row in as_json("compare", demo)}
    hp, mine = rows["hp-3-s4"], rows["mine"]
    assert (sorted(rows), hp["baseline"]) == (names, "mine")
    assert hp["relative"]["volume"] == hp["volume"] / mine["volume"] < 1
    (one,) = as_json("compare", demo, "gp-3", "--direction", "out")
    assert (one["name"], one["direction"]) == ("gp-3", "out")
    assert hp["mixed_relative"]["volume"] == hp["mixed"]["volume"] / mine["volume"]

    facts = as_json("info", demo, "hp-3-s4")
    assert facts["mixed_summary"]["in"] == hp["mixed"]
    for figures, volume in (("mixed", hp["mixed"]["volume"]), ("metrics", hp["volume"])):
        assert sum(facts[figures]["in"]["send_rows"]) == volume

    run("remove", demo, "mine", "rp-3", code=2)  # all or nothing
    assert as_json("remove", demo, "gp-3", "mine") == {"removed": ["gp-3", "mine"]}
    assert list_partitions(demo) == ["gp-vol-3-e0.2", "hp-3-s4"]
    models = as_json("models")
    assert {row["model"] for row in models} == {"rp", "block", "gp", "hp", "mg", "shp"}
    (metis,) = [row for row in models if row["tool"] == "metis"]
    assert metis["options"]["objective"]["choices"] == ["cut", "vol"]
    run("models")


COUNTED = {"n", "nnz", "vertices", "arcs", "positives", "candidates", "steps", "volume", "max_send"}


def counts(value, key=""):
    """The numbers under the keys of COUNTED, at any depth; of exchanges in one direction."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name not in ("out", "metrics", "mixed", "by_relation", "by_relation_summary"):
                yield from counts(part, key if key in COUNTED else name)
    elif isinstance(value, list):
        for part in value:
            yield from counts(part, key)
    elif key in COUNTED and isinstance(value, int):
        yield f"{value:,}"


def test_tables_have_the_numbers_of_json(tmp_path, monkeypatch):
    """Of types, relations, partitions, pairs and samples."""
    path, states = tmp_path / "g.graph", tmp_path / "states.npy"
    np.save(states, np.zeros((200, 1617, 2)))
    relations = "author-writes-paper:2900,paper-cites-paper:4000"
    run("synth", "hetero", path, "--types", "paper:1300:8,author:317:0", "--relations", relations)
    run("samples", path, "--states", states)
    assert "1,617" not in run("list", path).stdout.partition("samples")[0]
    run("add", path, "--model", "rp", "-k", 3)
    run("add", path, "--model", "gp", "-k", 4, "--ranks-per-node", 2, "--name", "near")
    run("refine", path, "near", "--name", "nearer")
    run("pairs", path, "--candidates", 150)
    monkeypatch.setenv("COLUMNS", "300")
    run("compare", path, "--html", tmp_path / "page.html")
    rows = {row["name"]: row for row in as_json("compare", path)}
    assert f"{rows['rp-3']['volume']:,}" in (tmp_path / "page.html").read_text()
    assert f"{rows['near']['nodes']['inter_volume']:,}" in run("compare", path).stdout
    words = "--model", "block+refined", "--model", "rp", "-k", 3, "--out", tmp_path
    said = run("study", path, *words).stdout
    assert said.strip() == (tmp_path / "comparison.md").read_text().strip()
    names = (), ("rp-3",), ("near",), ("nearer",), ("links",), ("samples",)
    of_earlier_version = Path(__file__).parent / "stored" / "0.1" / "directed.graph"
    commands = [(verb, of) for of in (path, of_earlier_version) for verb in ("list", "compare")]
    commands += [("info", of_earlier_version, "gp-2"), ("info", of_earlier_version)]
    for words in (*commands, *(("info", path, *more) for more in names)):
        said, found = run(*words).stdout, list(counts(as_json(*words)))
        assert found, words
        assert not [number for number in found if number not in said], words


def test_a_partition_that_is_there_need_not_be_made(demo, tmp_path):
    """So several jobs may make the partition that their runs need."""
    bare = ["add", demo, "--model", "rp", "--if-missing"]
    words = [*bare, "-k", 3, "--name", "mine"]
    made, again = as_json(*words, "--seed", 1), as_json(*words, "--seed", 2)
    assert made["id"] == again["id"]
    four = [4 if word == 3 else word for word in words]
    assert "'mine' into 3 parts, not 4" in refused(*four)
    assert "excludes --force" in refused(*words, "--force")
    assert "needs --name" in refused(*bare, "-k", 3)
    other = tmp_path / "other.graph"  # a partition of that name, but of another graph
    run("synth", "sbm", other, "--vertices", 200, "--seed", 9)
    for file in (demo / "partitions").iterdir():
        (other / "partitions" / file.name).write_bytes(file.read_bytes())
    assert "another graph" in refused("add", other, *words[2:])


def test_synth(demo, tmp_path):
    words = ["--scale", 6, "--arcs", 300, "--undirected", "--features", 2, "--classes", 3]
    made = as_json("synth", "rmat", tmp_path / "r.graph", *words)["manifest"]
    assert (made["n"], made["directed"], made["features"]) == (64, False, 2)
    assert made["source"].items() >= {"synthetic": "rmat", "arcs": 300}.items()


ADD = "add DEMO --model"
MISTAKES = {
    "info none.graph": "error: there is no graph folder none.graph\n  hint: gcn-partition",
    f"{ADD} hp -k 201": "201 parts, but demo has 200 vertices",
    f"{ADD} blok -k 2": "hint: did you mean 'block'?",
    f"{ADD} gp -k 2 --objective km1": "unknown objective",
    f"{ADD} gp -k 2 --set seed=1": "option of its own",
    "imprt none.mtx x.graph": "error: No such command 'imprt'",
    f"{ADD} gp -k 2 -k 3": "error: --parts is given twice",
    "add DEMO --model=gp -k2 --objective=vol --set=objective=cut": "give one of them",
    "add DEMO --model=rp -k2 --weigh=total=1 --weigh=total=2": "total is given twice",
    f"{ADD} gp -k 2 --mapping flat": "--ranks-per-node",
    f"{ADD} rp -k 2 --imbalance 0.1": "does not balance",
    f"{ADD} block -k 2 --seed 1": "nothing is random",
    f"{ADD} gp -k 2 --imbalance 3": "0.03 for 3 percent",
    f"{ADD} gp -k 2 --set x": "--set 'x' is not of the form OPTION=VALUE",
    f"{ADD} metis -k 2": "hint: METIS is gp", f"{ADD} hp -k 2 --set max_net=-2": "max_net = -2",
    f"{ADD} rp -k 2 --balance rows": "does not balance anything",
    f"{ADD} gp -k 2 --weigh totl=1": "hint: did you mean 'total'?",
    f"{ADD} rp -k 2 --weigh total=0 --weigh max_send=0": "all weights of the objective are 0",
    f"{ADD} gp -k 2 --weigh total=x": "not of the form NAME=WEIGHT",
    "export-model DEMO x --format metis --seed 1": "nothing is random but the model shp",
    "export-model DEMO x --format hmetis --model hpp": "hint: did you mean 'hp'?",
    "export-model DEMO x --format hmetis -k 201": "k = 201 is not in 1..200",
    "synth hetero x.graph --relations paper-cites:3": "'paper-cites' is no relation of its own",
    "compare DEMO": "hint: make one: gcn-partition add",
}  # fmt: skip


def test_mistakes_end_in_a_message_and_code_2(demo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, message in MISTAKES.items():
        assert message in refused(*words.replace("DEMO", "demo.graph").split()), words
    assert list_partitions(demo) == []


def test_interruption_and_too_little_memory_are_one_line_and_write_nothing(demo, monkeypatch):
    monkeypatch.setattr(adding, "make_parts", raising(KeyboardInterrupt))
    assert "interrupted" in run("add", demo, "--model", "rp", "-k", 2, code=130).stderr
    large = raising(MemoryError("Unable to allocate 7 GiB\nfor an array"))
    monkeypatch.setattr(adding, "make_parts", large)
    said = refused("add", demo, "--model", "rp", "-k", 2)
    assert said.startswith("error: not enough memory: unable to allocate 7 GiB for an array\n")
    assert list((demo / "partitions").iterdir()) == []
    monkeypatch.setattr("gcnmpi.options.requests.read_config", large)
    refuses("not enough memory", gcnmpi_cli.main, ["train", str(demo)], standalone_mode=False)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gp", "mg", "shp"])
def test_every_model_keeps_a_time_limit(tmp_path, model):
    path = tmp_path / "dense.graph"
    run("synth", "sbm", path, "--vertices", 120, "--degree", 30, "--classes", 4)
    facts = as_json("add", path, "--model", model, "-k", 4, "--time-limit", 600)
    assert (facts["options"]["time_limit"], facts["deterministic"]) == (600, True)
    words = ("add", path, "--model", model, "-k", 4, "--name", "x", "--time-limit", 1e-3)
    assert "the tool was stopped after 0 s" in refused(*words)
    assert list_partitions(path) == [f"{model}-4"]
