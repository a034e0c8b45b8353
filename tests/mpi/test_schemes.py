"""Every scheme with every option and number of ranks, against the serial run.

The cases are a covering array: each pair of a scheme, a value of its options, a number of ranks, a
graph, a partition, a kernel, a network, its shape meets once. One launch for each number of ranks.
Then what the tensor-parallel 3D scheme has beyond the serial run: ties and mistakes.
"""

from functools import cache, partial
from itertools import takewhile

import numpy as np
import pytest
from axes import ALL, DROPOUT, FEW, KERNELS, SCHEME_KINDS, covering, options_of, places
from stored_graphs import store
from words import latest, line

from partition.importing.synthetic import sbm

NUMBERS = {"loss curve", "first gradient", "final weights", "logits", "M·x", "Mᵀ·y"}
NUMBERS |= {"⟨M·x, y⟩ = ⟨x, Mᵀ·y⟩", "training bytes", "training received", "evaluation received"}

GRAPHS = ("directed", "symmetric", "hubs")
SHAPES = ("model.hidden=[7]", "model.hidden=[11,3,5]")
TRAINED = ("model.train_features=true", "train.clip_norm=0.01", "model.dropout=0.3")
REGULARISED = (DROPOUT, TRAINED, ("loading.max_buffer_mb=0.002",))  # whole rows are a message
MATRICES = ("graph.normalize=sym", "graph.normalize=row", "graph.direction=out")
# Products in a chain, of which tensor3d and columns make something of their own; orders.
COMBINED = ("model.order=combine",)  # which tensor3d refuses
NETWORKS = (
    (),
    ("model.order=aggregate", "model.cache_input=false"),
    COMBINED,
    ("model.name=appnp", "model.hops=3"),
)


MANY = 12  # ranks, which only nightly tests have


def partition_of(nranks: int, kind: str, place: tuple[str, ...]) -> str | None:
    """Uneven parts, one of them empty from three on; several for a rank; or none."""
    copies = [int(s.partition("=")[2]) for s in place if s.startswith("scheme.replication")]
    parts = nranks // copies[0] if copies else nranks
    grouped = parts * 4 if parts < 4 else parts
    return {"own": f"uneven-{parts}", "grouped": f"uneven-{grouped}", "none": None}[kind]


# Settings of two axes that a run refuses together.
APART = (
    ("scheme.transport=shared", "scheme.exchange=mixed"),
    ("scheme.permutation=double", "scheme.name=summa"),
    ("scheme.permutation=double", "scheme.name=split3d"),
    ("scheme.backward=expand", "directed"),
    ("scheme.backward=expand", "hubs"),
    *((f"scheme.permutation={order}", parts) for order in ("none", "single", "double")
      for parts in ("own", "grouped")),
)  # fmt: skip


def together(*case) -> bool:
    """Whether no two values of a case are apart."""
    values = {value for value in case if isinstance(value, str)}
    return not any(values >= {*pair} for pair in APART)


def scheme_of(kind: str) -> str:
    return SCHEME_KINDS[kind][0].partition("=")[2]


@cache
def drawn(kind: str) -> list[tuple]:
    """Values of the axes, with the pairs that no earlier kind has.

    Pairs with a place, or with a value of an option, are each kind's own.
    """
    given, scheme = SCHEME_KINDS[kind], scheme_of(kind)
    parts = ("own",) if scheme in ("p2p", "replicated") else ("own", "grouped", "none")
    networks = [own for own in NETWORKS if scheme != "tensor3d" or own != COMBINED]
    axes = GRAPHS, parts, KERNELS, SHAPES, REGULARISED, MATRICES, networks
    options = options_of(scheme, given)
    earlier = [case for k in takewhile(kind.__ne__, SCHEME_KINDS) for case in drawn(k)]
    met = [(None, *case[1 : 1 + len(axes)], *[None] * len(options)) for case in earlier]
    few = [place for place in places(scheme) if 1 < place[0] <= FEW]
    others = [place for place in places(scheme) if place not in few and place[0] < MANY]
    every, met = (places(scheme), ()) if ALL else (few, met)
    alone = covering(every, *axes, *options, allowed=partial(together, *given), met=met)
    return alone + [(place, *alone[i][1:]) for i, place in enumerate(others) if not ALL]


def cases(kind: str) -> list[tuple[int, str, str | None, list[str]]]:
    """Number of ranks, graph, partition and settings of one of SCHEME_KINDS."""
    given, found = SCHEME_KINDS[kind], []
    for (nranks, place), graph, part, kernel, shape, more, matrix, network, *own in drawn(kind):
        settings = *given, *place, f"kernel={kernel}", shape, matrix, *more, *network, *own
        found.append((nranks, graph, partition_of(nranks, part, place), [*settings]))
    return found


RANKS = {nranks for kind in SCHEME_KINDS for nranks, _ in places(scheme_of(kind))}


@pytest.mark.parametrize("nranks", sorted(n for n in RANKS if ALL or n < MANY))
def test_schemes_equal_the_serial_run(verified, schemes_folder, nranks):
    check_schemes(verified, schemes_folder, nranks)


def check_schemes(verified, folder, nranks, common=(), env=None, most=None, kinds=SCHEME_KINDS):
    """The cases of a number of ranks, each with the common settings after its own.

    Or of each kind of scheme so many at most, or of these kinds.
    """
    asked = []
    for kind in kinds:
        some = [case[1:] for case in cases(kind) if case[0] == nranks]
        for graph, partition, settings in some[:most]:
            settings = latest("train.epochs=3", *settings, *common)
            case = folder / f"{graph}.graph", partition, sorted(settings)
            if case not in asked:  # the common settings may make cases the same
                asked.append(case)
    assert asked
    verified(nranks, asked, *NUMBERS, timeout=20_000 if ALL else 600, env=env)


def test_ties_mistakes_and_output_in_the_original_order(
    run_cases, succeed, hear_mistakes, tmp_path
):
    """Of the tensor-parallel 3D scheme."""
    made = sbm(90, 3, degree=6, features=5, train=0.4, val=0.2)
    path, weights = store(tmp_path / "sbm.graph", made), tmp_path / "weights.npz"
    run_cases("tensor3d", 4, [path])

    def train(name, *own):
        own = ("scheme.name=tensor3d", "train.epochs=3", "dtype=float64", *own)
        return line("train", path, settings=own, out=tmp_path / name, save_weights=weights)

    def infer(out, *own):
        own = ("dtype=float64", *own)
        return line("infer", path, settings=own, weights=weights, out=tmp_path / out)

    mistakes = {
        "scheme.grid=2x2x1": "scheme.grid = '2x2x1' has 4 places, and this run has 2 ranks",
        "scheme.grid=2x1": "scheme.grid = '2x1' is not 3 numbers",
        "scheme.grid=2xax1": "such as '1x1x2' on 2 ranks",
    }
    hear_mistakes(2, [(train("wrong", setting), says) for setting, says in mistakes.items()])
    succeed(2, train("right"), infer("split.npy", "scheme.name=tensor3d", "scheme.grid=1x1x2"))
    succeed(1, infer("whole.npy"))
    split, whole = (np.load(tmp_path / f"{name}.npy") for name in ("split", "whole"))
    np.testing.assert_allclose(split, whole, atol=1e-12)
