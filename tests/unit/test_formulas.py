"""Networks by the formulas of their papers, in NumPy; tests/foreign has outputs of other ones."""

import numpy as np
import pytest
from stored_graphs import small_graph

from gcnmpi.nn.state import to_state
from gcnmpi.options.config import load_config
from gcnmpi.proof.oracle import Problem
from partition.graph.aggregation import aggregation_matrix


def appnp(m, x, w):
    """Klicpera et al. 2019, equation 4, of an MLP of two layers."""
    z = np.maximum(x @ w["lins.0.weight"].T + w["lins.0.bias"], 0)
    z = first = z @ w["lins.1.weight"].T + w["lins.1.bias"]
    for _ in range(3):
        z = 0.9 * m @ z + 0.1 * first
    return z


def gcnii(m, x, w):
    """Chen et al. 2020, equation 5."""
    x = first = np.maximum(x @ w["lins.0.weight"].T + w["lins.0.bias"], 0)
    for k in (1, 2):
        y, beta = 0.8 * m @ x + 0.2 * first, np.log(0.7 / k + 1)
        x = np.maximum((1 - beta) * y + beta * y @ w[f"convs.{k - 1}.weight1"], 0)
    return x @ w["lins.1.weight"].T + w["lins.1.bias"]


def sgc(m, x, w):
    """Wu et al. 2019, equation 7."""
    return m @ m @ m @ x @ w["convs.0.lin.weight"].T + w["convs.0.lin.bias"]


NETWORKS = {
    appnp: ("model.hidden=6", "model.hops=3", "model.alpha=0.1"),
    gcnii: ("model.hidden=6,6", "model.alpha=0.2", "model.theta=0.7"),
    sgc: ("model.hops=3",),
}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_the_oracle_is_the_formula(network):
    settings = [f"model.name={network.__name__}", "dtype=float64", *NETWORKS[network]]
    graph, config = small_graph("directed"), load_config(None, settings)
    problem = Problem(graph, "in", config)
    weights = {name: array + 0.1 for name, array in problem.initial().items()}
    m = aggregation_matrix(graph).toarray()
    expected = network(m, graph.features.astype(float), to_state(problem.network, weights))
    np.testing.assert_allclose(problem.logits(weights), expected, rtol=1e-12, atol=1e-12)
