"""Values that are made again or written to a file: the same bits, on every scheme."""

from itertools import product

import pytest
from axes import WHOLE_ROWS, settings_of
from stored_graphs import store
from words import sets

from gcnmpi.nn.compile.residency import choices
from gcnmpi.options.config import load_config
from gcnmpi.options.memory import Residences
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
from partition.graph.store import open_graph, read_partition
from partition.importing.synthetic import rmat

COMMON = ("train.epochs=3", "train.eval_every=2", "train.lr=0.02")
NETWORKS = ("gcn", "sage", "sage-max", "gat", "gatv2", "gin", "gcnii", "gcn-linear", "gcn-trained")
SCHEMES = {
    1: {"p2p": (None, [])},
    3: {
        "p2p": ("uneven-3", []),
        "p2p float32": ("uneven-3", ["dtype=float32", "scheme.exchange=rows"]),
        "bcast": (None, []),
        "summa": (None, ["scheme.grid=1x3"]),
        "split3d": (None, ["scheme.grid=3x1x1"]),
        "tensor3d": (None, ["scheme.grid=3x1x1"]),
    },
    4: {"replicated": ("uneven-2", []), "p2p": ("uneven-4", ["scheme.transport=shared"])},
}
GRIDS = ("summa", "split3d", "tensor3d")
TURNS = GRIDS, ("p2p float32", "bcast")


def left_by(path, partition, settings, nranks):
    """Values of ``train.memory`` by which all that can be leaves memory, in one way or another."""
    config = load_config(None, (*settings, "train.memory=all"))
    setting = Setting(open_graph(path), config, Machine(), nranks, locality=False)
    parts = None if partition is None else read_partition(path, partition, parts=False)
    program = setting.case(Candidate(config.scheme, {}, 0, parts), nranks).program
    possible = choices(program, repeats=True)
    odd = {value for value in possible.written if sorted(possible.written).index(value) % 2}
    lefts = (
        Residences(again=possible.again),
        Residences(written=possible.written),
        Residences(again=possible.again - odd, written=frozenset(odd)),
    )
    return [str(left) for left in lefts]


def cases(nranks):
    """Networks with schemes that run them, of which some take turns."""
    for (i, network), scheme in product(enumerate(NETWORKS), SCHEMES[nranks]):
        turns = next((turns for turns in TURNS if scheme in turns), (scheme,))
        if i % len(turns) == turns.index(scheme) and not (
            scheme in GRIDS and network in WHOLE_ROWS
        ):
            yield network, scheme


@pytest.mark.parametrize("nranks", SCHEMES)
def test_no_bit_and_no_forecast_changes(trained, schemes_folder, tmp_path, nranks):
    path, wanted = schemes_folder / "directed.graph", {}
    for network, scheme in cases(nranks):
        partition, own = SCHEMES[nranks][scheme]
        more = [*COMMON, *settings_of(network), f"scheme.name={scheme.split()[0]}", *own]
        for memory in ("all", *left_by(path, partition, more, nranks)):
            left = [*more, f"train.memory={memory}", f"train.scratch={tmp_path}"]
            wanted[network, scheme, memory] = (path, partition, left)
    found = trained(nranks, wanted)
    for (network, scheme, memory), record in found.items():
        kept = found[network, scheme, "all"]
        assert record["losses"] == kept["losses"], (network, scheme, memory)
        for counted, predicted in record["traffic"]:
            assert counted == predicted, (network, scheme, memory)
    assert not [*tmp_path.iterdir()]


WIDE = ("model.hidden=256,256,256", "model.dropout=0.5")
DEEP = {
    "gcn": WIDE,
    "gat": ("model.name=gat", *WIDE),
    "sage": ("model.name=sage", "model.norm=batch", *WIDE),
}


def test_memory_is_what_the_forecast_says(run_cases, tmp_path):
    path = tmp_path / "g.graph"
    store(path, rmat(15, 1 << 18, features=64, classes=4), 2)
    cases = [
        {
            "graph": path,
            "partition": "rp-2",
            "settings": [*settings, f"train.memory={memory}", f"train.scratch={tmp_path}"],
        }
        for settings in DEEP.values()
        for memory in ("all", *left_by(path, "rp-2", settings, 2))
    ]
    env = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    found = run_cases("memory", 2, cases, timeout=300, env=env, cold=True)
    for case, one in zip(cases, found, strict=True):
        assert one["forecast"] == pytest.approx(one["peak"], rel=0.1), (case, one)
    for number, kept in enumerate(found[::4]):
        assert min(one["peak"] for one in found[4 * number :][:4]) < kept["peak"]


def test_one_rank_has_no_matrix_that_the_forecast_forgets(run_cases, tmp_path):
    """And none that it has not: one is more than a twentieth of each of these."""
    path = store(tmp_path / "g.graph", rmat(15, 1 << 18, features=64, classes=4))
    networks = DEEP | {"one layer of gat": ("model.name=gat", "model.hidden=[512]")}
    cases = [{"graph": path, "partition": None, "settings": own} for own in networks.values()]
    env = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    for name, one in zip(networks, run_cases("memory", 1, cases, env=env, cold=True), strict=True):
        assert one["forecast"] == pytest.approx(one["peak"], rel=0.05), name


def test_mistakes(hear_mistakes, schemes_folder, tmp_path):
    words = ["train", schemes_folder / "directed.graph", "--partition", "uneven-3"]
    closed = tmp_path / "file"
    closed.touch()
    scratch = f"train.scratch={tmp_path}"
    told = [
        (sets("train.scratch=/nowhere"), ("no folder /nowhere", "local disk")),
        (sets(f"train.scratch={closed}"), "no folder"),
        (sets("train.memory=1MB"), ("a rank needs", "train.scratch=FOLDER")),
        (sets("train.memory=1MB", scratch), ("a rank needs", "or use more ranks")),
        (sets("train.memory=again:99"), "no value 99"),
        (sets("train.batches=vertex,10", scratch), "mini-batches"),
        (sets("train.memory=written:3"), "train.scratch"),
    ]
    hear_mistakes(3, [([*words, *line], says) for line, says in told])
