"""The programs of all networks, as they are: what they compute, send and keep changes on purpose.

``programs/digests.json`` has the first digits of a hash of the listings of each network, for scheme
by scheme; a few listings are beside it as they are. After a change that is meant::

    python tests/unit/test_programs.py        # writes both again; git diff shows which changed
    python tests/unit/test_programs.py DIR    # all listings into DIR: of two commits, for diff -r
"""

import difflib
import hashlib
import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from command_line import gcnmpi_cli, plan, refused, run
from small_graphs import make_folder

from gcnmpi.layout.runtime import Source
from gcnmpi.nn.compile.on_scheme import hops_of, program_of_batches, program_on
from gcnmpi.nn.describe import graph_of, network_of
from gcnmpi.options.config import from_table
from gcnmpi.options.model import NETWORKS
from gcnmpi.options.scheme import SCHEMES
from gcnmpi.report.program import describe, listing
from partition.errors import UserError
from partition.graph.manifest import Manifest
from partition.graph.store import StoredGraph, read_partition
from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "programs"
FEATURES, CLASSES, OF_ARCS, RELATIONS = 12, 3, 4, 3

# Every network as it is, and with what changes its program.
SETTINGS = {name: {} for name in (*NETWORKS, "gcn sparse")} | {
    "gcn combine": {"order": "combine"}, "gcn aggregate": {"order": "aggregate"},
    "gcn uncached": {"cache_input": False}, "gcn trained": {"train_features": True},
    "gcn linear": {"linear_before": True, "linear_after": True},
    "gcn means": {"linear_before": True, "graph": {"normalize": "row"}},
    "gcn bare": {"bias": False, "graph": {"self_loops": False}},
    "sage max": {"aggregation": "max", "linear_after": True},
    "sage self": {"include_self": True, "root_weight": False, "normalize_output": True},
    "sage sparse": {"aggregation": "sum"}, "gin trained": {"eps": 0.5, "train_eps": True},
    "gat heads": {"heads": 2, "out_heads": 3, "attention_dropout": 0.6},
    "gatv2": {"heads": 2, "concat": False, "attention_dropout": 0.6}, "gcnii": {"hidden": [8, 8]},
    "appnp": {"hops": 3}, "sign": {"hidden": [8]}, "gine trained": {"eps": 0.5, "train_eps": True},
    "gat arcs": {"heads": 2, "out_heads": 3, "attention_dropout": 0.6, "arc_features": True},
    "gatv2 arcs": {"heads": 2, "concat": False, "arc_features": True}, "transformer": {"heads": 2},
    "transformer arcs": {"beta": True, "attention_dropout": 0.6, "arc_features": True},
    "gatedgcn arcs": {"arc_features": True}, "pna arcs": {"arc_features": True},
    "sage several": {"aggregation": "mean+max+std"}, "rgcn bases": {"bases": 2},
    "rgat": {"heads": 2}, "rgat bases": {"bases": 2, "softmax": "relation", "concat": False},
    "compgcn bases": {"bases": 2}, "compgcn sub": {"composition": "sub"},
    "hetero gat": {"convolution": "gat", "heads": 2}, "hetero max": {"aggregation": "mean+max"},
    "hetero gatv2": {"convolution": "gatv2", "heads": 2, "relation_reduction": "mean"},
    "hgt": {"heads": 2}, "sehgnn": {"hops": 1}, "gconvgru": {"filter_size": 3},
    "dcrnn": {"filter_size": 3}, "stgcn": {"kernel_size": 1},
}  # fmt: skip
STACKS = {
    "plain": {"hidden": [8]},
    "none": {"hidden": []},
    "dropout": {"hidden": [8, 16], "dropout": 0.5, "input_dropout": 0.4},
    "layer": {"hidden": [8, 8], "norm": "layer", "residual": "linear", "activation": "gelu",
              "jk": "cat", "dropout": 0.5},
    "batch": {"hidden": [8, 8, 8], "norm": "batch", "residual": "identity", "jk": "sum",
              "activation": "leaky_relu"},
    "l2": {"hidden": [8, 8], "norm": "l2", "activation": "prelu", "jk": "max"},
}  # fmt: skip
RANKS = {"p2p": 4, "summa": 4, "tensor3d": 8}
ON_GRIDS = ("plain", "dropout", "batch")  # of the stacks
GRIDS = {"summa": "2x2", "tensor3d": "2x2x2"}
MODES = ("training", "inference", "batches")
# Small ones of every kind, to be read.
WHOLE = [
    ("gcn", "dropout", "p2p", "training"),
    ("gat heads", "plain", "p2p", "training"),
    ("gcn", "plain", "tensor3d", "training"),
    ("sage", "none", "p2p", "batches"),
    ("gine", "none", "p2p", "training"),
    ("gcn", "dropout", "p2p", "blocks"),
]


def manifest(sparse, n=1000):
    return Manifest(
        id="", name="g", n=n, nnz=5000, directed=False, symmetric_pattern=True,
        symmetric_values=True, weighted=False, direction="in", features=FEATURES, classes=CLASSES,
        masks=(), source={}, feature_entries=900 if sparse else 0, arc_features=OF_ARCS,
    )  # fmt: skip


def told(setting, stack, scheme, mode):
    """The listing of a program; None where there is none."""
    name, _, sort = setting.partition(" ")
    own = {key.removeprefix("model.") for key in NETWORKS.keys(name)} | {"input_dropout"}
    model = {key: what for key, what in STACKS[stack].items() if key in own}
    model = {"name": name, **model, **SETTINGS[setting]}
    table = {"graph": model.pop("graph", {}), "model": model}
    table["scheme"] = {"name": scheme, "grid": GRIDS.get(scheme, "auto")}
    try:
        config = from_table(table)
        config = replace(config, graph=graph_of(config))
        if mode == "batches":  # as runs on batches do
            config = replace(config, model=replace(config.model, cache_input=False))
        network = network_of(config.model, FEATURES, CLASSES, OF_ARCS, relations=RELATIONS)
        n = 1 << 24 if mode == "blocks" else 1000  # of many rows
        stored = StoredGraph(Path("g.graph"), manifest(sort == "sparse", n), None)
        given = network, Source(stored, None, "in")
        program, _ = program_on(*given, config, RANKS[scheme], mode != "inference")
        if mode == "batches":
            fanouts = ["neighbor", "9", *["5"] * hops_of(program)]
            config = replace(config, train=replace(config.train, batches=",".join(fanouts)))
            program, _ = program_on(*given, config, RANKS[scheme])
            program = program_of_batches(config, stored, network, program)
    except UserError:
        return None
    return listing(describe(program))


def modes(setting, scheme):
    found = MODES if SCHEMES.get(scheme).asks_for_rows else MODES[:2]
    return (*found, "blocks") if scheme == "p2p" and setting in ("gcn", "sage") else found


def file_of(*names):
    return "-".join(names).replace(" ", "-") + ".txt"


def digests(setting):
    """Scheme → the digest of the listings of all modes, one after the other.

    Of every second stack; every second network has the others.
    """
    found, half = {}, list(STACKS)[list(SETTINGS).index(setting) % 2 :: 2]
    for scheme in RANKS:
        each = product(ON_GRIDS if scheme in GRIDS else half, modes(setting, scheme))
        every = [told(setting, stack, scheme, mode) for stack, mode in each]
        text = "\0".join(one or "refused" for one in every)
        found[scheme] = hashlib.sha256(text.encode()).hexdigest()[:8]
    return found


@pytest.mark.parametrize("setting", SETTINGS)
def test_programs_are_what_they_were(setting):
    wanted, now = json.loads((HERE / "digests.json").read_text("utf-8"))[setting], digests(setting)
    changed = [f"{setting}/{scheme}" for scheme in RANKS if now[scheme] != wanted[scheme]]
    assert not changed, f"listings, to compare those of two commits: python {__file__} DIR"


@pytest.mark.parametrize("names", WHOLE, ids="/".join)
def test_listings_are_what_they_were(names):
    before, now = (HERE / file_of(*names)).read_text("utf-8"), told(*names)
    lines = before.splitlines(), now.splitlines()
    diff = "\n".join(difflib.unified_diff(*lines, "before", "now", lineterm="", n=1))
    assert before == now, f"{diff}\nif that is meant: python {__file__}"


# The command.


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "g.graph"
    add_partition(make_folder(path, sbm(60, 3, degree=6, features=20)), "rp", 4)
    return path


def test_the_command_tells_what_a_plan_predicts(graph):
    words = (graph, "--partition", "rp-4", "--set", "scheme.exchange=rows", "--json")
    facts = json.loads(run("info", "--program", *words, program=gcnmpi_cli).stdout)
    assert (facts["ranks"], facts["partition"], facts["widths"]) == (4, "rp-4", [20, 16, 3])
    program = facts["program"]
    said = run("info", "--program", *words[:-1], program=gcnmpi_cli).stdout
    for entry in program["forward"]:
        assert not entry.get("received") or f"{entry['received']:,}" in said
    (constant,) = program["constants"]
    assert constant["rows"] == max(read_partition(graph, "rp-4").metrics["in"].recv_rows)
    assert constant["received"] == constant["rows"] * 20 * 4
    assert program["values"][constant["writes"]]["kept"]
    (planned,) = json.loads(plan("-P", "4", "--schemes", "p2p", *words))["plans"]
    steps = (*program["forward"], *program["backward"])
    assert sum(step.get("received", 0) for step in steps) == planned["received"] > 0


SUMMA = ("-P", "4", "--set", "scheme.name=summa")


def test_mistakes(graph):
    for words, message in (
        (["--program"], "no GRAPH"),
        (["-P", "3"], "--program"),
        (["G", "--program", "-P", "3"], "gcn-partition add"),
        (["G", "--program", "-P", "2", "--partition", "rp-4"], "mpirun -n 4"),
        (["G", "--program", *SUMMA, "--set", "model.name=gat"], "p2p"),
        (["G", "--program", "--set", "train.batches=neighbor,8,3"], "each layer"),
        (["G", "--program", "--set", "model.name=gine"], "gcn-partition attach"),
    ):  # fmt: skip
        words = [graph if word == "G" else word for word in words]
        assert message in refused("info", *words, program=gcnmpi_cli)


if __name__ == "__main__":
    if folder := sys.argv[1:]:
        Path(folder[0]).mkdir(exist_ok=True)
        for setting, stack, scheme in product(SETTINGS, STACKS, RANKS):
            for mode in modes(setting, scheme):
                names = setting, stack, scheme, mode
                (Path(folder[0]) / file_of(*names)).write_text(told(*names) or "", "utf-8")
    else:
        lines = [f"{json.dumps(a)}: {json.dumps(digests(a))}" for a in SETTINGS]
        (HERE / "digests.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        for names in WHOLE:
            (HERE / file_of(*names)).write_text(told(*names), "utf-8")
