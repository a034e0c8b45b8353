"""Networks over time for graphs without samples: the last features of a graph count as frames.

``model.name = FILE:NAME`` takes one; there are as many predicted frames as the graph has classes.
"""

from gcnmpi.nn.networks import chebyshev, dcrnn, gcn, gconvgru, gin, mgn, stgcn
from gcnmpi.nn.rollout import rolled_out
from gcnmpi.options.frames import Frames


def frames_of(features, classes, history, rolled, columns=1, **options):
    """Frames of which one column is predicted, and static columns in front."""
    leads = {"rollout" if rolled else "horizon": classes}
    given = (classes - 1) * (columns - 1) if rolled else 0
    static = features - history * columns - given
    assert static >= 0, "too few features"
    return Frames(static, columns, 1, history, **leads, **options)


def rolled(step, model, features, classes, *arcs, **options):
    """A network of one step, applied to its own results."""
    frames = frames_of(features, classes, rolled=True, **options)
    made = step.build(model, frames.step.features, frames.step.outputs, *arcs)
    return rolled_out(made, frames)


def recurrent(step, model, features, classes, rolls=False, **options):
    """A network that reads several frames."""
    frames = frames_of(features, classes, rolled=rolls, **options)
    of_step = frames.step
    return rolled_out(step.build(model, of_step.features, of_step.outputs, of_step), frames)


def rolled_gcn(model, features, classes):
    return rolled(gcn, model, features, classes, history=2)


def rolled_given(model, features, classes):
    return rolled(gcn, model, features, classes, history=1, columns=2, rollout_gradient="last")


def rolled_mgn(model, features, classes, arcs):
    return rolled(mgn, model, features, classes, arcs, history=1, difference=True)


def frames_gru(model, features, classes):
    return recurrent(gconvgru, model, features, classes, history=2)


def frames_dcrnn(model, features, classes):
    return recurrent(dcrnn, model, features, classes, history=2, difference=True)


def rolled_dcrnn(model, features, classes):
    return recurrent(dcrnn, model, features, classes, rolls=True, history=2)


def frames_stgcn(model, features, classes):
    return recurrent(stgcn, model, features, classes, history=4)


rolled_mgn.matrix = frames_dcrnn.matrix = rolled_dcrnn.matrix = gin.matrix
frames_gru.matrix = frames_stgcn.matrix = chebyshev.matrix
