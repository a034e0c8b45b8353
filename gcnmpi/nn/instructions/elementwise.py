"""Steps that work entry by entry, or on the columns of a row that are on one rank."""

from __future__ import annotations

from gcnmpi.kernels.interface.kernel import Array, Kernel
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operators import Activate, MeanOfHeads, Scale
from gcnmpi.nn.program import Finish, Step


def finish(binding: Binding, step: Step) -> Run:
    """Bias, activation and dropout where no product takes them along."""
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, Finish)
    x, out = binding.read(step), binding.written(step)
    epilogue = binding.activation(operator, binding.program.values[step.writes].place)

    def run(epoch: int) -> None:
        follows = epilogue(epoch)
        if operator.p and not operator.bias and operator.kind == "none":
            kernel.dropout(x, follows.rows, follows.columns, operator.p, out)  # type: ignore
            return
        _copy(kernel, x, out)
        kernel.follow(out, follows)

    return run


def finish_backward(binding: Binding, step: Step) -> Run:
    """Their gradient."""
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, Finish)
    grad, out = binding.read(step), binding.written(step)
    output = binding.read(step, 1) if len(step.reads) > 1 else None
    epilogue = binding.activation_backward(operator, output, step.writes)

    def run(epoch: int) -> None:
        _copy(kernel, grad, out)
        kernel.follow(out, epilogue(epoch))

    return run


def add(binding: Binding, step: Step) -> Run:
    """x₁ + x₂."""
    kernel = binding.kernel
    x, y, out = binding.read(step), binding.read(step, 1), binding.written(step)
    return lambda epoch: kernel.add(x, y, out)


def scale(binding: Binding, step: Step) -> Run:
    """(factor + ε)·x; also its gradient."""
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, Scale)
    x, out, factor = binding.read(step), binding.written(step), operator.factor
    if not operator.epsilon:
        return lambda epoch: kernel.scale(x, factor, out)
    epsilon = binding.parameters[operator.epsilon]
    return lambda epoch: kernel.scale(x, factor, out, epsilon)


def scale_grad(binding: Binding, step: Step) -> Run:
    """The gradient of ε: the sum of x ⊙ g over entries that count on this rank."""
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, Scale)
    x, grad = binding.read(step), binding.read(step, 1)
    out, counts = binding.gradients[operator.epsilon], binding.block(step).counts_entries
    return lambda epoch: kernel.dot_to(x, grad, out) if counts else out.fill(0.0)


def maximum(binding: Binding, step: Step) -> Run:
    """Entry-wise maximum."""
    kernel, out = binding.kernel, binding.written(step)
    terms = [binding.read(step, i) for i in range(len(step.reads))]
    return lambda epoch: kernel.maximum(terms, out)


def maximum_backward(binding: Binding, step: Step) -> Run:
    """The gradient of one of the inputs."""
    kernel, grad, value = binding.kernel, binding.read(step), binding.read(step, 1)
    terms = [binding.read(step, i) for i in range(2, len(step.reads))]
    out, part = binding.written(step), step.part
    return lambda epoch: kernel.maximum_backward(grad, value, terms, part, out)


def activate(binding: Binding, step: Step) -> Run:
    """An activation whose derivative does not follow from its value."""
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, Activate)
    x, out = binding.read(step), binding.written(step)
    if operator.kind == "gelu":
        return lambda epoch: kernel.gelu(x, out)
    slope = binding.parameters[operator.parameter]
    return lambda epoch: kernel.prelu(x, slope, out)


def activate_backward(binding: Binding, step: Step) -> Run:
    """Its gradient, and that of a trained slope."""
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, Activate)
    x, grad, out = binding.read(step), binding.read(step, 1), binding.written(step)
    if operator.kind == "gelu":
        return lambda epoch: kernel.gelu_backward(x, grad, out)
    slope, counts = binding.parameters[operator.parameter], binding.block(step).counts_entries
    of_slope = binding.gradients[operator.parameter]

    def run(epoch: int) -> None:
        kernel.prelu_backward(x, grad, slope, out, of_slope)
        if not counts:
            of_slope.fill(0.0)

    return run


def mean_of_heads(binding: Binding, step: Step) -> Run:
    """The mean of equally wide groups of columns."""
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, MeanOfHeads)
    x, out, heads = binding.read(step), binding.written(step), operator.heads
    return lambda epoch: kernel.mean_of_heads(x, heads, out)


def mean_of_heads_backward(binding: Binding, step: Step) -> Run:
    """Its gradient."""
    operator, kernel = step.operator, binding.kernel
    assert isinstance(operator, MeanOfHeads)
    grad, out, heads = binding.read(step), binding.written(step), operator.heads
    return lambda epoch: kernel.mean_of_heads_backward(grad, heads, out)


def _copy(kernel: Kernel, x: Array, out: Array) -> None:
    if x is not out:
        kernel.copy(x, out)
