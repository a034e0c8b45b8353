"""Networks with rows of arcs: gradients of the oracle, the operators and what they send."""

import numpy as np
import pytest
from small_arcs import SmallRun, check_oracle

from gcnmpi.layout.place import Space
from gcnmpi.options.memory import Residences

NETWORKS = {
    "gine": {"hidden": [6]},
    "gine trained": {"hidden": [6, 6], "train_eps": True, "norm": "layer", "jk": "cat"},
    "gat": {"hidden": [6], "heads": 2, "out_heads": 3, "arc_features": True},
    "gat dropout": {"hidden": [6], "arc_features": True, "attention_dropout": 0.4},
    "gatv2": {"hidden": [6], "heads": 2, "out_heads": 3, "arc_features": True},
    "gatv2 mean": {"hidden": [6, 6], "heads": 2, "concat": False, "arc_features": True},
    "transformer": {"hidden": [6], "heads": 2, "out_heads": 3},
    "transformer arcs": {
        "hidden": [6, 6], "heads": 2, "beta": True, "arc_features": True, "attention_dropout": 0.3,
        "norm": "layer", "residual": "identity",
    },
    "transformer bare": {"hidden": [6], "root_weight": False, "bias": False, "dropout": 0.2},
    "gatedgcn": {"hidden": [6]},
    "gatedgcn arcs": {"hidden": [6, 6], "arc_features": True, "linear_after": True},
    "pna": {"hidden": [6]},
    "pna towers": {
        "hidden": [6], "towers": 2, "arc_features": True, "pre_layers": 2, "post_layers": 2,
        "scalers": "attenuation+linear+inverse_linear", "aggregators": "sum+std",
        "residual": "linear",
    },
    "mgn": {"hidden": [6, 6]},
    "mgn mean": {"hidden": [6], "mlp_layers": 1, "reduction": "mean", "activation": "prelu"},
    "sage": {"hidden": [6], "aggregation": "mean+max", "normalize_output": True},
    "sage std": {"hidden": [6], "aggregation": "std", "root_weight": False},
}  # fmt: skip


def run_of(case, **more):
    return SmallRun({"name": case.split()[0]} | NETWORKS[case] | more)


@pytest.mark.parametrize("kernel", ["scipy", "native"])
@pytest.mark.parametrize("case", NETWORKS)
def test_the_oracle_gives_the_same(case, kernel):
    check_oracle(SmallRun({"name": case.split()[0]} | NETWORKS[case], kernel))


@pytest.mark.parametrize("case", NETWORKS)
def test_rows_of_arcs_that_are_made_again_give_the_same_bits(case, monkeypatch):
    whole = run_of(case)
    monkeypatch.setattr("gcnmpi.nn.slices.ARCS_AT_ONCE", 7)  # in several slices
    settings = {"name": case.split()[0]} | NETWORKS[case]
    kept, each, none = (
        SmallRun(settings, residences=Residences(recomputes)) for recomputes in (0, 1, 9)
    )
    gradient = kept.gradient()
    np.testing.assert_allclose(gradient, whole.gradient(), rtol=1e-12, atol=1e-13)
    assert np.array_equal(gradient, each.gradient())
    assert np.array_equal(gradient, none.gradient())
    if case == "mgn":  # of several blocks
        wide = [
            sum(b.place.space is Space.ENTRIES and not b.sliced for b in run.program.buffers)
            for run in (kept, each, none)
        ]
        assert wide == sorted(wide, reverse=True)
        assert wide[-1] == 2
