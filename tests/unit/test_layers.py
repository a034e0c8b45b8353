"""Layers on one process: the order of products, forward and backward, names of weights."""

import numpy as np
import pytest
import scipy.sparse as sp

from gcnmpi.kernels.epilogues import Activation, ReluBackward
from gcnmpi.kernels.scipy_ import SciPyKernel
from gcnmpi.layout.place import Block, Place
from gcnmpi.nn.layers import (
    GraphConvolution,
    Workspace,
    aggregate_input,
    choose_order,
    layer_products,
)
from gcnmpi.nn.models import from_state, to_state
from partition.errors import UserError

ORDERS = ("combine", "aggregate", "given")


@pytest.mark.parametrize(
    ("k", "d_in", "d_out", "wanted", "constant", "keep", "order"),
    [
        # The features never change: M·H once, whatever the widths.
        (1, 1433, 16, "auto", True, True, "given"),
        (1, 4, 16, "auto", True, True, "given"),
        (1, 1433, 16, "aggregate", True, True, "given"),
        # … unless it may not be kept, or the other order is asked for.
        (1, 1433, 16, "combine", True, True, "combine"),
        (1, 1433, 16, "auto", True, False, "combine"),
        (1, 1433, 16, "aggregate", True, False, "aggregate"),
        # First layer with input dropout: d_in columns forward, or d_out forward and back.
        (1, 1433, 16, "auto", False, True, "combine"),
        (1, 31, 16, "auto", False, True, "aggregate"),
        (1, 32, 16, "auto", False, True, "combine"),
        (1, 16, 16, "auto", False, True, "aggregate"),
        # Hidden layers: the narrow side; combine on a tie, which needs less memory.
        (2, 16, 7, "auto", False, True, "combine"),
        (2, 16, 16, "auto", False, True, "combine"),
        (2, 16, 17, "auto", False, True, "aggregate"),
        (3, 64, 8, "aggregate", False, True, "aggregate"),
        (3, 8, 64, "combine", False, True, "combine"),
    ],
)
def test_the_order_that_moves_fewer_columns(k, d_in, d_out, wanted, constant, keep, order):
    found = choose_order(
        k,
        d_in,
        d_out,
        wanted=wanted,
        possible=("combine", "aggregate"),
        constant_input=constant,
        input_grad=k > 1,
        keep_aggregate=keep,
    )
    assert found == order


def test_an_order_that_the_scheme_cannot_do():
    options = {"constant_input": False, "input_grad": True, "keep_aggregate": True}
    assert choose_order(2, 9, 3, wanted="auto", possible=("aggregate",), **options) == "aggregate"
    with pytest.raises(UserError, match="this scheme aggregates first"):
        choose_order(2, 9, 3, wanted="combine", possible=("aggregate",), **options)


def test_wide_features_are_aggregated_some_columns_at_a_time_where_they_lie():
    random, kernel = np.random.default_rng(0), SciPyKernel(np.float64)
    for width, asked in ((100, [100]), (300, [75] * 4), (8000, [500] * 16)):
        matrix, features = random.random((N, N)), random.random((N, width))
        expected, scheme = matrix @ features, OneProcess(matrix, kernel)
        found = aggregate_input(scheme, kernel, features, width)
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        assert [columns for _, _, columns in scheme.asked] == asked
        assert np.shares_memory(found, features) == (width > 127)


class OneProcess:
    """A scheme without communication that notes which products it was asked for."""

    def __init__(self, matrix, kernel):
        self.matrix, self.kernel, self.asked = matrix, kernel, []

    def layout(self, place):
        return None

    def block(self, place, width):
        return Block(np.arange(N), slice(0, width))

    def empty(self, place, width, exchanged=False):
        return np.full((self.matrix.shape[0], width), np.nan)

    def release(self):
        pass

    def aggregate(self, k, x, out, then=None):
        self.asked.append(("aggregate", k, x.shape[1]))
        out[...] = self.matrix @ x
        self.kernel.follow(out, then)

    def aggregate_t(self, k, x, out, then=None):
        self.asked.append(("aggregate_t", k, x.shape[1]))
        out[...] = self.matrix.T @ x
        self.kernel.follow(out, then)

    def combine(self, k, x, weight, out, then=None):
        self.asked.append(("combine", k, D_IN, D_OUT))
        self.kernel.gemm_then(x, weight, out, False, then)

    def combine_t(self, k, x, weight, out, then=None):
        self.asked.append(("combine_t", k, D_IN, D_OUT))
        self.kernel.gemm_then(x, weight, out, True, then)

    def weight_grad(self, k, x, grad, out, sums=None):
        self.asked.append(("weight_grad", k, D_IN, D_OUT))
        self.kernel.gemm(x, grad, out, ta=True)
        if sums is not None:
            self.column_sum(k, grad, sums)

    def column_sum(self, k, grad, out):
        self.kernel.column_sum(grad, out)


N, D_IN, D_OUT = 11, 5, 3


def random_signs(*shape):
    return np.random.default_rng(4).choice([-1.0, 0.0, 1.0], shape)


@pytest.fixture
def case():
    random = np.random.default_rng(2)
    dense = np.where(random.random((N, N)) < 0.3, random.standard_normal((N, N)), 0)
    values = {
        "h": random.standard_normal((N, D_IN)),
        "weight": random.standard_normal((D_IN, D_OUT)),
        "bias": random.standard_normal(D_OUT),
        "grad": random.standard_normal((N, D_OUT)),
    }
    return sp.csr_array(dense), values


def make(matrix, k, order):
    kernel = SciPyKernel(np.float64)
    scheme = OneProcess(matrix, kernel)
    return scheme, GraphConvolution(scheme, k, D_IN, D_OUT, order, Workspace(scheme))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("k", [1, 2])
def test_forward_backward_and_the_products_announced(case, order, bias, k):
    matrix, v = case
    scheme, layer = make(matrix, k, order)
    given = matrix @ v["h"] if order == "given" else v["h"]
    out = np.empty((N, D_OUT))
    layer.forward(given, v["weight"], Activation(v["bias"], relu=False) if bias else None, out)
    np.testing.assert_allclose(
        out, matrix @ v["h"] @ v["weight"] + (v["bias"] if bias else 0), atol=1e-12
    )
    assert scheme.asked == layer_products(order, k, D_IN, D_OUT, backward=False)

    weight_grad, bias_grad = np.empty((D_IN, D_OUT)), np.empty(D_OUT) if bias else None
    before = np.empty((N, D_IN)) if k > 1 and order != "given" else None
    output = random_signs(N, D_IN)
    then = ReluBackward(output, 2.0)
    layer.backward(given, v["grad"], v["weight"], weight_grad, bias_grad, then, before)
    np.testing.assert_allclose(weight_grad, (matrix @ v["h"]).T @ v["grad"], atol=1e-12)
    if bias:
        np.testing.assert_allclose(bias_grad, v["grad"].sum(axis=0), atol=1e-12)
    if before is not None:
        expected = np.where(output > 0, 2 * (matrix.T @ v["grad"] @ v["weight"].T), 0)
        np.testing.assert_allclose(before, expected, atol=1e-12)
    announced = layer_products(order, k, D_IN, D_OUT, True, input_grad=before is not None)
    assert scheme.asked == announced


def test_what_each_order_multiplies_with_m():
    def widths(order, backward, input_grad):
        products = layer_products(order, 2, D_IN, D_OUT, backward, input_grad)
        return [(name, width) for name, _, width, *_ in products if name.startswith("aggregate")]

    for input_grad in (False, True):
        combine = [("aggregate", D_OUT), ("aggregate_t", D_OUT)]
        aggregate = [("aggregate", D_IN), ("aggregate_t", D_IN)]
        assert widths("combine", False, input_grad) == combine[:1]
        assert widths("combine", True, input_grad) == combine
        assert widths("aggregate", False, input_grad) == aggregate[:1]
        # Where the input needs no gradient, nothing flows back through M.
        assert widths("aggregate", True, input_grad) == aggregate[: 1 + input_grad]
        assert widths("given", True, False) == []


def test_the_workspace_keeps_one_matrix_a_role_and_width(case):
    scheme, _ = make(case[0], 1, "combine")
    workspace = Workspace(scheme)
    one = workspace("product", Place(1), 4)
    assert workspace("product", Place(3), 4) is one
    assert workspace("aside", Place(1), 4) is not one
    assert workspace("product", Place(1), 5).shape == (N, 5)


# Names of weights.


def test_weights_go_out_and_in_under_the_names_of_pytorch_geometric():
    parameters = {
        "1.weight": np.arange(6.0).reshape(2, 3),
        "1.bias": np.ones(3),
        "2.weight": np.arange(12.0).reshape(3, 4),
        "2.bias": np.zeros(4),
    }
    state = to_state(parameters)
    names = ["convs.0.lin.weight", "convs.0.bias", "convs.1.lin.weight", "convs.1.bias"]
    assert list(state) == names
    assert state["convs.1.lin.weight"].shape == (4, 3)
    assert all(array.flags.c_contiguous for array in state.values())
    back = from_state(state)
    assert set(back) == set(parameters)
    for name, array in parameters.items():
        np.testing.assert_array_equal(back[name], array)


@pytest.mark.parametrize(
    "names",
    [
        ("conv1.lin.weight", "conv1.bias", "conv2.lin.weight", "conv2.bias"),
        ("convs.1.lin.weight", "convs.1.bias", "convs.2.lin.weight", "convs.2.bias"),
        ("model.convs.0.lin.weight", "model.convs.0.bias", "model.convs.1.lin.weight",
         "model.convs.1.bias"),
        ("gcn_0.lin.weight", "gcn_0.bias", "gcn_1.lin.weight", "gcn_1.bias"),
    ],
)  # fmt: skip
def test_other_names_are_taken_in_the_order_of_their_numbers(names):
    arrays = (np.ones((3, 2)), np.ones(3), np.ones((4, 3)), np.ones(4))
    state = dict(reversed(list(zip(names, arrays, strict=True))))
    shapes = {name: array.shape for name, array in from_state(state).items()}
    assert shapes == {"1.weight": (2, 3), "1.bias": (3,), "2.weight": (3, 4), "2.bias": (4,)}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({}, "no GCNConv layers"),
        ({"lin.weight": np.ones((2, 2))}, "'lin.weight' is not a weight"),
        ({"convs.0.lin.weight": np.ones(2)}, "is not a weight"),
        ({"convs.0.lin.weight": np.ones((2, 2), int)}, "is not a weight"),
        ({"convs.0.att_src": np.ones((1, 2))}, "is not a weight"),
        ({"convs.0.bias": np.ones(2)}, "a bias but no weight"),
        ({"convs.0.lin.weight": np.ones((2, 3)), "convs.0.bias": np.ones(3)}, "do not fit"),
        # Of PyTorch Geometric's SAGEConv, GATConv, SGConv, JumpingKnowledge and a linear layer.
        (
            {f"convs.0.lin_{side}.weight": np.ones((2, 3)) for side in "lr"},
            "'convs.0.lin_l.weight' is not a weight of a GCNConv layer",
        ),
        ({"conv1.lin.weight": np.ones((2, 3)), "conv1.att_src": np.ones((1, 2))}, "att_src"),
        ({"conv1.lin.weight": np.ones((2, 3)), "conv1.lin.bias": np.ones(2)}, "lin.bias"),
        ({"lins.0.weight": np.ones((2, 3)), "lins.0.bias": np.ones(2)}, "is not a weight"),
        ({"convs.0.lin.weight": np.ones((2, 3)), "convs.01.lin.weight": np.ones((2, 2))}, "01"),
        (
            {"convs.0.lin.weight": np.ones((2, 3)), "other.0.bias": np.ones(2)},
            "two stacks of layers: 'convs.' and 'other.'",
        ),
        # The width of what is left out is that of its neighbours.
        ({f"convs.{k}.lin.weight": np.ones((2, 2)) for k in (0, 2)}, "layer 1 of the weights is"),
        ({f"convs.{k}.lin.weight": np.ones((2, 2)) for k in (2, 3)}, "layer 1 of the weights is"),
        (
            {"convs.0.lin.weight": np.ones((2, 3)), "convs.1.lin.weight": np.ones((2, 3))},
            "shapes of layer 1",
        ),
        (
            {
                "convs.0.lin.weight": np.ones((2, 3)),
                "convs.0.bias": np.ones(2),
                "convs.1.lin.weight": np.ones((4, 2)),
            },
            "only some have a bias",
        ),
    ],
)
def test_weights_that_are_not_a_stack_of_convolutions(state, says):
    with pytest.raises(UserError, match=says):
        from_state(state)
