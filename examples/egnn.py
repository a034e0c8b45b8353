"""A network with states of arcs in a file of one's own, with messages as in EGNN.

mpirun -n 4 gcnmpi train G.graph --partition hp-4 --set model.name=examples/egnn.py:egnn
"""

from gcnmpi.nn.network import Builder


def egnn(model, features, classes, arcs):
    """Satorras et al. 2021, vertices at rest: e ← MLP([l² | e | xⱼ | xᵢ]), weighed by a gate.

    l² is the sum of squares of an arc's features. With the way from one end to the other in these,
    no rotation or reflection of the graph changes what is learned.
    """
    b, width = Builder(features, arcs), model.hidden[0]
    squared = b.row_dots(b.arc_features(), b.arc_features(), 1)
    x, state = b.linear(b.input, width, "embedding", bias=True), []
    for k in range(1, len(model.hidden) + 1):
        ends = [squared, *state, b.source(x), b.target(x)]
        message = b.linear_of_all(ends, width, f"layers.{k}.edge.0", bias=True)
        message = b.linear(b.activate(message, "gelu"), width, f"layers.{k}.edge.2", bias=True)
        state = [b.activate(message, "gelu")]
        gate = b.activate(b.linear(*state, 1, f"layers.{k}.gate", bias=True), "sigmoid")
        sums = b.reduce(b.scale_heads(gate, *state), "sum")
        change = b.linear_of_all([x, sums], width, f"layers.{k}.node.0", bias=True)
        change = b.linear(b.activate(change, "gelu"), width, f"layers.{k}.node.2", bias=True)
        x = b.add(x, b.drop(change, model.dropout, k))
        b.output(x)
    b.output(b.linear(x, classes, "last", bias=True))
    return b.build()


def arcs_alone(model):
    """M has the arcs of the graph, and no self-loops beside them."""
    return "none", False


egnn.matrix = arcs_alone
