"""Products of the scheme."""

from __future__ import annotations

from gcnmpi.kernels.epilogues import Epilogue
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.nn.binding import Binding, Run
from gcnmpi.nn.operators import Linear
from gcnmpi.nn.program import Product, Program, Step

FEATURES = "0.features"
BLOCK_NUMBERS = 1 << 20  # of a product that is made some rows at a time


def features(binding: Binding, step: Step) -> Run:
    """Trained features, from the shares of the ranks."""
    scheme, out = binding.scheme, binding.written(step)
    share = binding.parameters[FEATURES]
    return lambda epoch: scheme.expand_input(share, out)


def features_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One."""
    return [("expand_input", 1, step.operator.width)]


def share_input(binding: Binding, step: Step) -> Run:
    """This rank's share of the gradient of the features."""
    scheme, grad = binding.scheme, binding.read(step)
    share = binding.gradients[FEATURES]
    return lambda epoch: scheme.share_input(grad, share)


def combine(binding: Binding, step: Step) -> Run:
    """x·W."""
    scheme, k, epilogue = binding.scheme, step.k, binding.epilogue(step)
    x, out = binding.read(step), binding.written(step)
    weight = binding.parameters[_weight(step)]
    add = step.onto >= 0
    if binding.once and scheme.whole_rows:
        return lambda epoch: _in_blocks(binding, k, x, weight, out, epilogue(epoch), add)
    if not (add or step.also):
        return lambda epoch: scheme.combine(k, x, weight, out, epilogue(epoch))
    also = _also(binding, step)
    return lambda epoch: scheme.combine(k, x, weight, out, epilogue(epoch), add, also)


def _in_blocks(
    binding: Binding,
    k: int,
    x: Array,
    weight: Array,
    out: Array,
    epilogue: Epilogue | None,
    add: bool,
) -> None:
    """out = x·W, or out += x·W, some rows at a time; out may be x.

    In an evaluation, where nothing that follows depends on the number of the row. So neither the
    product that is added nor the one that replaces its factor takes a matrix of its own.
    """
    kernel, scheme, (rows, columns) = binding.kernel, binding.scheme, out.shape
    step = max(1, BLOCK_NUMBERS // max(1, columns))
    scratch = kernel.empty(min(step, rows), columns) if x is out else None
    for start in range(0, rows, step):
        some = slice(start, min(start + step, rows))
        target = out[some] if scratch is None else scratch[: some.stop - start]
        if add:
            scheme.combine(k, x[some], weight, target, epilogue, accumulate=True)
        else:
            scheme.combine(k, x[some], weight, target, epilogue)
        if scratch is not None:
            kernel.copy(target, out[some])


def combine_t(binding: Binding, step: Step) -> Run:
    """g·Wᵀ."""
    scheme, k, epilogue = binding.scheme, step.k, binding.epilogue(step)
    grad, out = binding.read(step), binding.written(step)
    weight = binding.parameters[_weight(step)]
    add = step.onto >= 0
    if not (add or step.also):
        return lambda epoch: scheme.combine_t(k, grad, weight, out, epilogue(epoch))
    also = _also(binding, step)
    return lambda epoch: scheme.combine_t(k, grad, weight, out, epilogue(epoch), add, also)


def _also(binding: Binding, step: Step) -> tuple[Array, Array] | None:
    """The factors of the product that is added in the same pass."""
    if step.also is None:
        return None
    return binding.read(step.also), binding.parameters[_weight(step.also)]


def weight_grad(binding: Binding, step: Step) -> Run:
    """xᵀ·g, and the column sums of g for the gradient of a bias that goes along."""
    scheme, k = binding.scheme, step.k
    x, grad = binding.read(step), binding.read(step, 1)
    out = binding.gradients[_weight(step)]
    sums = binding.gradients[step.sums] if step.sums else None
    return lambda epoch: scheme.weight_grad(k, x, grad, out, sums)


def column_sum(binding: Binding, step: Step) -> Run:
    """1ᵀ·g, the gradient of a bias."""
    scheme, k, grad = binding.scheme, step.k, binding.read(step)
    (name,) = step.operator.parameters
    out = binding.gradients[name]
    return lambda epoch: scheme.column_sum(k, grad, out)


def no_effect(binding: Binding, step: Step) -> Run:
    """0, the gradient of a bias that has no effect: see :mod:`gcnmpi.nn.compile.shifts`."""
    out = binding.gradients[step.operator.bias]  # type: ignore[attr-defined]
    return lambda epoch: out.fill(0)


def aggregate(binding: Binding, step: Step) -> Run:
    """M·x."""
    scheme, k, epilogue = binding.scheme, step.k, binding.epilogue(step)
    x, out = binding.matrix(step.reads[0]), binding.written(step)
    return lambda epoch: scheme.aggregate(k, x, out, epilogue(epoch))


def aggregate_t(binding: Binding, step: Step) -> Run:
    """Mᵀ·g."""
    scheme, k, epilogue = binding.scheme, step.k, binding.epilogue(step)
    x, out = binding.matrix(step.reads[0]), binding.written(step)
    return lambda epoch: scheme.aggregate_t(k, x, out, epilogue(epoch))


def move(binding: Binding, step: Step) -> Run:
    """x in another layout."""
    scheme = binding.scheme
    x, out = binding.matrix(step.reads[0]), binding.matrix(step.writes)
    width = step.operator.width
    return lambda epoch: scheme.move(x, out, width)


def aggregate_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One."""
    return [("aggregate", step.k, step.operator.width)]


def aggregate_t_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One."""
    return [("aggregate_t", step.k, step.operator.width)]


def combine_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One, or two that are added."""
    return _dense_products(program, step)


def combine_t_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One, or two that are added."""
    return _dense_products(program, step)


def _dense_products(program: Program, step: Step) -> list[Product]:
    steps = [step] if step.also is None else [step, step.also]
    return [(one.name, one.k, *program.parameters[_weight(one)].shape) for one in steps]


def weight_grad_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One."""
    return [("weight_grad", step.k, *program.parameters[_weight(step)].shape)]


def move_products(program: Program, step: Step, rows: int) -> list[Product]:
    """One, named by the places."""
    before = program.values[step.reads[0]].place
    after = program.values[step.writes].place
    places = before.layer, int(before.aggregated), after.layer, int(after.aggregated)
    return [("move", step.k, step.operator.width, *places)]


def _weight(step: Step) -> str:
    assert isinstance(step.operator, Linear)
    return step.operator.weight
