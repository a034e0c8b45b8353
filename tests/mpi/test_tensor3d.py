"""The tensor-parallel 3D scheme beyond the serial run: ties, pieces, bits, and mistakes."""

import numpy as np
import pytest
from stored_graphs import store
from words import sets

from partition.importing.synthetic import sbm


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
