"""Every scheme on every number of ranks that its grid allows, against the serial run.

One launch a number of ranks; ``cases_SCHEME.py`` say the cases: a list of (graph, partition or
None, settings) for a number of ranks. Then products and data movement, and what the tensor-parallel
3D scheme has beyond the serial run: ties, pieces, bits, and mistakes.
"""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import store
from words import epochs, latest, sets

from partition.importing.synthetic import sbm

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
QUICK = [pytest.param(nranks, marks=pytest.mark.quick) for nranks in (1, 2)]
RANKS = (*QUICK, 3, 4, 6, 8, 9, 12, 16)
NUMBERS = {"loss curve", "first gradient", "final weights", "logits", "M·x", "Mᵀ·y"}
NUMBERS |= {"⟨M·x, y⟩ = ⟨x, Mᵀ·y⟩", "training bytes", "training received", "evaluation received"}


@pytest.mark.parametrize("nranks", RANKS)
def test_schemes_equal_the_serial_run(verified, schemes_folder, nranks):
    check_schemes(verified, schemes_folder, nranks)


def test_p2p_on_seven_ranks(verified, schemes_folder):
    check_schemes(verified, schemes_folder, 7, modules=["cases_p2p"])


def check_schemes(verified, folder, nranks, common=(), env=None, most=None, modules=MODULES):
    """All cases of a number of ranks, each with the common settings after its own.

    Or of each scheme so many at most, or of these modules.
    """
    cases = []
    for name in modules:
        for graph, partition, settings in import_module(name).cases(nranks)[:most]:
            settings = latest(f"train.epochs={epochs(nranks)}", *settings, *common)
            case = folder / f"{graph}.graph", partition, sorted(settings)
            if case not in cases:  # the common settings may make cases the same
                cases.append(case)
    verified(nranks, cases, *NUMBERS, timeout=600, env=env)


@pytest.mark.parametrize(("nranks", "cases"), [(1, 32), (2, 53), (3, 54), (4, 32), (7, 17)])
def test_products_rows_and_bytes_agree_with_the_serial_matrix(run_cases, tmp_path, nranks, cases):
    assert run_cases("products", nranks, [tmp_path]) == [cases]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = sbm(90, 3, degree=6, features=5, train=0.4, val=0.2)
    return store(tmp_path_factory.mktemp("tensor3d") / "sbm.graph", made)


def test_ties_pieces_and_bits(run_cases, path):
    run_cases("tensor3d", 4, [path])


def test_mistakes_and_output_in_the_original_order(gcnmpi_lines, hear_mistakes, path, tmp_path):
    weights = tmp_path / "weights.npz"

    def line(name, *settings):
        settings = ("scheme.name=tensor3d", "train.epochs=3", "dtype=float64", *settings)
        words = ["train", path, "--quiet", "--out", tmp_path / name, "--save-weights", weights]
        return [*words, *sets(*settings)]

    mistakes = {
        "scheme.grid=2x2x1": "scheme.grid = '2x2x1' has 4 places, and this run has 2 ranks",
        "scheme.grid=2x1": "scheme.grid = '2x1' is not 3 numbers",
        "scheme.grid=2xax1": "such as '1x1x2' on 2 ranks",
        "model.order=combine": "this scheme aggregates first",
        "scheme.permutation=triple": "unknown scheme.permutation",
    }
    hear_mistakes(2, [(line("wrong", setting), says) for setting, says in mistakes.items()])

    def infer(out, *settings):
        words = ["infer", path, "--weights", weights, "--out", tmp_path / out]
        return [*words, *sets("dtype=float64", *settings)]

    lines = [line("right"), infer("split.npy", "scheme.name=tensor3d", "scheme.grid=1x1x2")]
    assert gcnmpi_lines(2, lines) == [[None] * 2] * 2
    assert gcnmpi_lines(1, [infer("whole.npy")]) == [[None]]
    split, whole = (np.load(tmp_path / f"{name}.npy") for name in ("split", "whole"))
    np.testing.assert_allclose(split, whole, atol=1e-12)
