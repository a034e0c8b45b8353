"""Several mini-batches in a step, divided among groups of ranks: one curve for all groups."""

import numpy as np
import pytest
from words import latest, sets

COMMON = (
    "dtype=float64", "train.epochs=3", "train.eval_every=1", "train.seed=3", "model.hidden=6",
    "model.dropout=0.3", "threads=1",
)  # fmt: skip
CASES = {
    # Six batches: the last step has two.
    "vertex": ["train.batches=vertex,11", "train.step_batches=4"],
    "neighbor": [
        "train.batches=neighbor,7,3,2", "train.step_batches=2", "model.name=sage",
        "train.optimizer=sgd", "train.clip_norm=0.5",
    ],
    "attention": ["train.batches=vertex,17", "train.step_batches=4", "model.name=gat"],
}  # fmt: skip
GROUPED = ((1, 1), (2, 2), (4, 1), (2, 3))
GRIDS = {"summa": ("scheme.grid=1x2", 2), "tensor3d": ("scheme.grid=2x1x2", 4)}


def wanted(ranks, schemes_folder):
    return {
        (name, groups, size): (
            schemes_folder / "directed.graph", f"uneven-{size}",
            [*COMMON, *settings, f"train.groups={groups}"],
        )
        for name, settings in CASES.items()
        for groups, size in GROUPED
        if groups * size == ranks and not (name == "neighbor" and groups == 4)
    }  # fmt: skip


@pytest.mark.parametrize(("groups", "size"), GROUPED[1:])
@pytest.mark.parametrize("name", CASES)
def test_one_curve_for_all_groups(results, name, groups, size):
    if name == "neighbor" and groups == 4:
        pytest.skip("a step has two of these batches")
    expected, found = results(1)[name, 1, 1], results(groups * size)[name, groups, size]
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-10)
    for counted, predicted in found["traffic"]:
        assert counted == predicted


@pytest.mark.parametrize("scheme", GRIDS)
def test_grids_in_groups_have_the_same_curve(results, trained, schemes_folder, scheme):
    grid, size = GRIDS[scheme]
    settings = [*COMMON, *CASES["vertex"], f"scheme.name={scheme}", grid, "train.groups=2"]
    found = trained(2 * size, {"grid": (schemes_folder / "directed.graph", None, settings)})["grid"]
    np.testing.assert_allclose(found["losses"], results(1)["vertex", 1, 1]["losses"], rtol=1e-10)
    for counted, predicted in found["traffic"]:
        assert counted == predicted


def test_a_step_is_by_the_mean_of_the_gradients(gcnmpi_lines, schemes_folder, tmp_path):
    """Beside many updates of a tiny step, whose changes add up to the sum of the gradients.

    An epoch has two batches, fewer than a step.
    """

    def weights(name, lr, batches):
        out = tmp_path / f"{name}.npz"
        settings = latest(
            *COMMON, "train.batches=vertex,31", "train.epochs=1", "train.optimizer=sgd",
            f"train.lr={lr}", f"train.step_batches={batches}", "train.eval_every=0",
        )  # fmt: skip
        words = ["train", schemes_folder / "directed.graph", "--out", tmp_path / name]
        gcnmpi_lines(1, [[*words, "--save-weights", out, *sets(*settings)]])
        return np.load(out)

    small, mean = weights("small", 1e-6, 1), weights("mean", 0.1, 4)
    start = weights("start", 0.0, 1)
    for name in start:
        of_sum, of_mean = (small[name] - start[name]) / 1e-6, (mean[name] - start[name]) / 0.1
        np.testing.assert_allclose(2 * of_mean, of_sum, rtol=1e-3, atol=1e-5)


def test_mistakes_are_told_in_one_line(hear_mistakes, schemes_folder):
    words = ["train", schemes_folder / "directed.graph", "--partition", "uneven-1"]
    vertex = "train.batches=vertex,11"
    told = [
        (["train.groups=2", vertex], "does not divide the 1 mini-batches"),
        (["train.step_batches=2"], "there are no mini-batches"),
        (["train.step_batches=2", vertex, "train.groups=2", "model.norm=batch"], "batch norm"),
    ]
    hear_mistakes(2, [([*words, *sets(*some)], says) for some, says in told])
