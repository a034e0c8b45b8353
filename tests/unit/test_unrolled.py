"""Networks that read parameters several times, and rollouts: in one process, against the oracle."""

from dataclasses import replace

import numpy as np
import pytest
from refusals import refuses
from small_arcs import ARC_D, CLASSES, D, SmallRun, check_oracle

from gcnmpi.nn.compile import Target, compile_network
from gcnmpi.nn.describe import network_of
from gcnmpi.nn.network import Builder
from gcnmpi.nn.rollout import rolled_out
from gcnmpi.nn.state import stored_shapes
from gcnmpi.options.config import from_table
from gcnmpi.options.frames import Frames

FRAMES = Frames(1, 2, 1, history=2, rollout=3)  # as wide as the features, of which 2 are given
SEVERAL = Frames(1, 2, 1, history=3, horizon=2)
PLAIN = Frames(0, D, D, rollout=3)


def model_of(**options):
    return from_table({"model": options}).model


def rollout(frames, **options):
    return network_of(model_of(**options), 0, 0, ARC_D, frames=frames)


def twice():
    """All that has parameters, two times; the second time on the first one's result."""
    b = Builder(D, ARC_D)
    x = b.drop(b.input, 0.3, 0)
    with b.shared():
        for time in range(2):
            x = b.linear(x, D, "lin", bias=True)
            x = b.activate(b.batch_norm(x, "norm"), "prelu", "slope")
            y = b.attend(b.linear(x, D, "lin_att", init="glorot"), "att", 1)
            y = b.activate(b.drop(y, 0.4, 1 + time), "elu")
            y = b.layer_norm(b.scale(b.add(y, b.aggregate(x)), 0.5, "eps", 0.25), "layer")
            parts = [b.source(y), b.target(y), b.arc_features()]
            x = b.add(b.reduce(b.linear_of_all(parts, D, "arcs", bias=True), "sum"), x)
    b.output(b.linear(x, CLASSES, "out", bias=True))
    return b.build()


def directions():
    """Both directions of M, rows of sums 1; what stops, and what is joined."""
    b = Builder(D)
    ones = b.fill(b.input, 1.0)
    into, out = (b.reciprocal(made) for made in (b.aggregate(ones), b.aggregate_t(ones)))
    x, parts = b.linear(b.input, 4, "first", bias=True), []
    with b.shared():
        for _ in range(2):
            x = b.activate(b.linear(x, 4, "lin", bias=True), "tanh")
            parts += [b.scale_heads(into, b.aggregate(x)), b.scale_heads(out, b.aggregate_t(x))]
            x = b.mix(b.activate(b.join([b.columns(x, 2, 2), b.columns(x, 0, 2)]), "sigmoid"), x, x)
    stopped = b.stop_gradient(b.linear(b.input, 3, "unlearnt", bias=True))
    b.output(b.linear(b.join([*parts, stopped, b.reciprocal(x)]), CLASSES, "out"))
    return b.build()


CASES = {
    "twice": twice,
    "directions": directions,
    "rollout": lambda: rollout(PLAIN, name="gcn", hidden=[6], norm="batch", dropout=0.4),
    "rollout of frames": lambda: rollout(FRAMES, name="sage", hidden=[4], dropout=0.3),
    "rollout of differences": lambda: rollout(
        replace(FRAMES, difference=True, rollout_gradient="last"), name="gcn", hidden=[4]),
    "differences": lambda: rollout(
        Frames(1, 2, 1, history=2, horizon=3, difference=True), name="gcn", hidden=[4]),
    "rollout of arcs": lambda: rollout(PLAIN, name="mgn", hidden=[4, 4]),
    "recurrent": lambda: rollout(SEVERAL, name="gconvgru", hidden=[4, 3], filter_size=3),
    "recurrent rollout": lambda: rollout(FRAMES, name="gconvgru", hidden=[4], dropout=0.3),
    "diffusion": lambda: rollout(SEVERAL, name="dcrnn", hidden=[4], filter_size=3, dropout=0.2),
    "convolution over time": lambda: rollout(
        SEVERAL, name="stgcn", hidden=[4], kernel_size=2, norm="batch", dropout=0.2),
    "rollout of attention": lambda: rollout(
        PLAIN, name="gat", hidden=[4], heads=2, attention_dropout=0.4, arc_features=True),
}  # fmt: skip


@pytest.mark.parametrize("kernel", ["scipy", "native"])
@pytest.mark.parametrize("case", CASES)
def test_the_oracle_gives_the_same(case, kernel):
    of_m = "gat" if case == "rollout of attention" else "mgn"
    check_oracle(SmallRun({"name": of_m, "hidden": [4]}, kernel, network=CASES[case]()))


def test_a_rollout_by_a_loop():
    """Without dropout: each step is the network itself, on frames that are put together by hand."""
    network = network_of(model_of(hidden=[4]), D, CLASSES)
    assert rolled_out(network, Frames(0, D, CLASSES)) is network  # of one step
    frames, settings = replace(FRAMES, difference=True), {"name": "sage", "hidden": [4]}
    run = SmallRun(settings, network=rollout(frames, **settings))
    step = rollout(replace(frames.step, difference=False), **settings)
    static, given, window = run.x[:, :1], run.x[:, 5:], [run.x[:, 1:3], run.x[:, 3:5]]
    expected = []
    for number in range(3):
        alone = SmallRun(settings, network=step, x=np.hstack([static, *window]))
        alone.model.parameters.flat[...] = run.model.parameters.flat
        last = window[-1][:, :1] + alone.model.forward()
        expected.append(last)
        window = [window[1], np.hstack([last, given[:, number : number + 1]])]
    np.testing.assert_allclose(run.model.forward(), np.hstack(expected), rtol=1e-12)


@pytest.mark.parametrize("name", ["gconvgru", "dcrnn"])
def test_a_gate_that_is_open_keeps_the_state(name):
    """z·h + (1 − z)·h̃ (Cho et al. 2014): where z is 1 the state stays 0, as it begins."""
    network = rollout(SEVERAL, name=name, hidden=[4], filter_size=2)
    run = SmallRun({"name": "mgn", "hidden": [4]}, network=network)
    run.model.parameters["recurrent.conv_x_z.bias"][...] = 1000
    found, bias = run.model.forward(), run.model.parameters["linear.bias"]
    np.testing.assert_allclose(found, np.broadcast_to(bias, found.shape), rtol=1e-12)


def test_names_and_shapes_are_those_of_pytorch_geometric_temporal():
    found = stored_shapes(rollout(SEVERAL, name="gconvgru", hidden=[4], filter_size=2))
    gates = [f"recurrent.conv_{of}_{gate}" for gate in "zrh" for of in "xh"]
    own = [f"{gate}.{of}" for gate in gates for of in ("lins.0.weight", "lins.1.weight", "bias")]
    assert {*found} == {"linear.weight", "linear.bias", *own}
    assert found["recurrent.conv_x_r.lins.1.weight"] == (4, 3)
    found = stored_shapes(rollout(SEVERAL, name="dcrnn", hidden=[4], filter_size=3))
    assert found["recurrent.conv_x_h.weight"] == (2, 3, 3 + 4, 4)
    found = stored_shapes(rollout(SEVERAL, name="stgcn", hidden=[4], kernel_size=2))
    assert found["blocks.0._temporal_conv1.conv_3.weight"] == (4, 3, 1, 2)
    assert found["blocks.0._graph_conv.lins.1.weight"] == (4, 4)


def test_what_cannot_be_written_is_refused():
    refuses("reads at least 5 frames, and there are 3", rollout, SEVERAL, name="stgcn", hidden=[4])
    b = Builder(4)
    with b.shared():
        b.linear(b.input, 3, "lin")
        refuses("is of shape", b.linear, b.input, 2, "lin")
    refuses(r"two parameters are called lin\.weight", b.linear, b.input, 3, "lin", error=ValueError)
    says = r"batch norm.*count them twice\n  hint: b.source and b.target make rows of arcs"
    refuses(says, b.batch_norm, b.expand(b.input), "norm")
    # A weight that is cut by layers is read in one.
    b, other = Builder(4), Builder(4)
    with b.shared():
        x = b.linear(b.aggregate(b.input), 4, "lin")
        b.output(b.linear(b.aggregate(x), 4, "lin"))
    other.output(other.aggregate_t(other.input))
    target = Target(("aggregate",), lambda place: place.layer % 3, whole_rows=False)
    for of, says in ((b, r"lin\.weight is read in several layers"), (other, "M transposed")):
        refuses(says, compile_network, of.build(), target, model_of())
