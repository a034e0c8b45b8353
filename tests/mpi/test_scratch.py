"""Values that are made again or written to a file: the same bits, on every scheme."""

import pytest
from axes import WHOLE_ROWS, daily, settings_of
from words import sets

from gcnmpi.nn.compile.residency import choices
from gcnmpi.options.config import load_config
from gcnmpi.options.train import Residences
from gcnmpi.planner.machine import Machine
from gcnmpi.planner.ranking import Candidate, Setting
from partition.graph.store import open_graph, read_partition

COMMON = ("train.epochs=3", "train.eval_every=2", "train.lr=0.02")
NETWORKS = ("gcn", "sage", "gat", "gatv2", "gin", "gcnii", "gcn-linear", "gcn-trained")
# Ranks → what the networks take in turn: scheme, partition and settings.
SCHEMES = {
    3: [
        ("p2p", "uneven-3", []),
        ("summa", None, ["scheme.grid=1x3"]),
        ("p2p", "uneven-3", ["dtype=float32", "scheme.exchange=rows"]),
        ("split3d", None, ["scheme.grid=3x1x1"]),
        ("bcast", None, []),
        ("tensor3d", None, ["scheme.grid=3x1x1"]),
    ],
    4: [("replicated", "uneven-2", []), ("p2p", "uneven-4", ["scheme.transport=shared"])],
}
GRIDS = ("summa", "split3d", "tensor3d")


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


@pytest.mark.parametrize("nranks", daily(*SCHEMES))
def test_no_bit_and_no_forecast_changes(trained, schemes_folder, tmp_path, nranks):
    path, wanted = schemes_folder / "directed.graph", {}
    for i, network in enumerate(NETWORKS[nranks - 3 :: nranks - 2]):
        turns = SCHEMES[nranks]
        scheme, partition, own = turns[i % len(turns)]
        if scheme in GRIDS and network in WHOLE_ROWS:
            scheme, partition, own = turns[0]
        more = [*COMMON, *settings_of(network), f"scheme.name={scheme}", *own]
        for memory in ("all", *left_by(path, partition, more, nranks)):
            left = [*more, f"train.memory={memory}", f"train.scratch={tmp_path}"]
            wanted[network, memory] = (path, partition, left)
    found = trained(nranks, wanted)
    for (network, memory), record in found.items():
        assert record["losses"] == found[network, "all"]["losses"], (network, memory)
        for counted, predicted in record["traffic"]:
            assert counted == predicted, (network, memory)
    assert not [*tmp_path.iterdir()]


def test_mistakes(hear_mistakes, schemes_folder, tmp_path):
    words = ["train", schemes_folder / "directed.graph", "--partition", "uneven-3"]
    scratch = f"train.scratch={tmp_path}"
    told = [
        (sets("train.scratch=/nowhere"), ("no folder /nowhere", "local disk")),
        (sets("train.memory=1MB"), ("a rank needs", "train.scratch=FOLDER")),
        (sets("train.batches=vertex,10", scratch), "mini-batches"),
        (sets("train.memory=written:3"), "train.scratch"),
    ]
    hear_mistakes(3, [([*words, *line], says) for line, says in told])
