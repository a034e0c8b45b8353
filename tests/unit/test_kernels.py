"""Every kernel of the table, in both types, against NumPy, finite differences and PyTorch."""

import importlib
import re
import sys
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import USABLE, all_near, give, having, junk, kept, near, needs_native
from refusals import refuses

import gcnmpi.kernels
from gcnmpi.cli.main import info
from gcnmpi.cli.schemes import calibrate
from gcnmpi.core import rng
from gcnmpi.core.timing import Phases
from gcnmpi.kernels.epilogues import Activation, Product
from gcnmpi.kernels.interface.dense import ENTRY_LOSSES, ClassLoss, EntryLoss
from gcnmpi.nn.optim import Parameters, make_optimizer
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.options.config import from_table
from gcnmpi.options.kernel import KERNELS, SLOWER, resolve
from gcnmpi.proof.verify import STEPS_TOLERANCES, steps_apart
from partition.registry import Registry

FALLBACK = "graphblas" if sys.version_info < (3, 14) else "scipy"  # which needs no compiler
COMPILED = "gcnmpi.kernels._native"


def without_graphblas(monkeypatch):
    """As in Python 3.14."""
    monkeypatch.setitem(sys.modules, "graphblas", None)
    monkeypatch.delitem(sys.modules, "gcnmpi.kernels.host.graphblas_", raising=False)


class Broken:
    """Finds the compiled part, whose libraries are missing."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == COMPILED:
            raise ImportError("libgomp.so.1: cannot open shared object file", name=name)


@pytest.mark.parametrize("why", ["was not built: there is none in /", "cannot be loaded: libgomp."])
def test_without_the_native_kernel_another_is_taken_and_it_is_said(monkeypatch, capsys, why):
    if "native" in USABLE:
        assert resolve("auto") == ("native", None)
    for module in ("gcnmpi.kernels.native.kernel", COMPILED):
        monkeypatch.delitem(sys.modules, module, raising=False)
    if "built" in why:
        monkeypatch.setitem(sys.modules, COMPILED, None)
    monkeypatch.setattr(sys, "meta_path", [Broken, *sys.meta_path])
    found = KERNELS.available()["native"]
    assert found.startswith(why)
    warning = f"the native kernel {found}; {SLOWER.format(FALLBACK)}"
    assert (resolve("auto"), resolve("scipy")) == ((FALLBACK, warning), ("scipy", None))
    refuses("install gcnmpi again" if "built" in why else "libgomp", KERNELS.get, "native")
    refused = refuses("native kernel", calibrate.main, [], standalone_mode=False)
    assert f"kernel={FALLBACK}" in refused.hint
    assert callable(calibrate.main(["--set", "kernel=scipy"], standalone_mode=False))
    assert info.main([], standalone_mode=False) is None
    assert f"kernel = auto: {FALLBACK} ({warning})" in capsys.readouterr().out
    without_graphblas(monkeypatch)
    assert resolve("auto") == ("scipy", f"the native kernel {found}; {SLOWER.format('scipy')}")


@needs_native
def test_without_openmp_the_native_kernel_is_for_one_thread(monkeypatch):
    monkeypatch.setattr(KERNELS.get("native"), "parallel", False)
    serial = "the native kernel was built without OpenMP: it has one thread, not 4"
    assert resolve("auto", 1) == resolve("native") == ("native", None)
    if FALLBACK == "graphblas":
        assert resolve("auto", 4) == ("graphblas", f"{serial}; {SLOWER.format('graphblas')}")
    without_graphblas(monkeypatch)
    assert resolve("native", 4) == resolve("auto", 4) == ("native", serial)


def test_a_library_that_is_installed_in_part_counts_as_missing(tmp_path, monkeypatch):
    (tmp_path / "half.py").write_text("import halflib\nKERNEL = halflib.init()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("gcnmpi.kernels.__path__", [*gcnmpi.kernels.__path__, str(tmp_path)])
    for text, says in (
        ("", "AttributeError: module 'halflib' has no attribute 'init'"),
        ("import halflib_core", "'halflib_core'"),
        ("raise OSError('libhalf.so.9: not found')", "OSError: libhalf.so.9"),
    ):
        (tmp_path / "halflib.py").write_text(text)
        importlib.invalidate_caches()
        for name in ("halflib", "gcnmpi.kernels.half"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        reason = Registry("kernel", {"half": "gcnmpi.kernels.half:KERNEL"}).available()["half"]
        assert re.fullmatch(f"kernel 'half' needs the Python package.*{says}.*", reason)
    mistake = Registry("kernel", {"x": "gcnmpi.kernels.host.scipy_:nothing"})
    refuses(".", mistake.available, error=AttributeError)  # of ours


def test_arrays_begin_with_a_cache_line_and_are_copies(kernel):
    for shape, make in product([(5, 16), (3,), (0, 4), (4, 0)], (kernel.empty, kernel.zeros)):
        array = make(*shape)
        assert array.shape == shape
        if kernel.host_visible:  # the device's allocator has its own rule
            assert (array.flags.c_contiguous, array.flags.writeable) == (True, True)
            assert array.ctypes.data % 64 == 0 or not array.size
    near(kernel, kernel.zeros(2, 3), np.zeros((2, 3)))
    assert kernel.from_host(np.array([1, 2])).dtype.kind == "i"
    for size in (0, 5, 3 << 20):
        source = np.arange(size, dtype=np.float64)
        copied = kernel.from_host64(source)
        source[:] = -1
        np.testing.assert_array_equal(kernel.to_host(copied), np.arange(0.0, size), strict=True)


# Sparse products.


def test_a_matrix_that_is_none_is_refused(kernel):
    for wrong in (-1, 5, 2**31 - 1):
        matrix = sp.random_array((6, 5), density=0.5, rng=np.random.default_rng(0), format="csr")
        matrix.indices[3] = wrong
        refuses("indices", kernel.sparse, matrix, error=ValueError)
    matrix = sp.csr_array(np.eye(6))
    matrix.indptr[2] = 5
    refuses(r"indptr|index pointer", kernel.sparse, matrix, error=ValueError)


WIDTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 41, 63, 64, 65, 71, 96, 128, 129, 200, 256, 300]


SIZES = [((50, 40), width) for width in WIDTHS] + [((4, 5), 0)]
SIZES += [(shape, width) for shape in [(1, 1), (5, 40), (300, 2)] for width in (1, 3, 16)]


@pytest.mark.parametrize(("shape", "width"), [*SIZES, ((0, 5), 3), ((5, 0), 3), ((0, 0), 3)])
def test_spmm(kernel, random, shape, width):
    """Of rows of larger buffers, of which nothing else changes."""
    dense = np.where(random.random(shape) < 0.2, random.standard_normal(shape), 0)
    (rows, columns), matrix = shape, kernel.sparse(sp.csr_array(dense))
    whole, before = (random.standard_normal((n + 7, width)) for n in (columns, rows))
    x, out, expected = give(kernel, whole), give(kernel, before), before.copy()
    product = dense @ whole[5 : 5 + columns]
    for accumulate in (False, True, True):
        kernel.spmm(matrix, x[5 : 5 + columns], out[2 : 2 + rows], accumulate)
        expected[2 : 2 + rows] = product + (expected[2 : 2 + rows] if accumulate else 0)
        all_near(kernel, (out, x), (expected, whole), 2)


@pytest.mark.parametrize("density", [0.0, 0.05, 0.5])  # with few, most rows have no entry
def test_a_matrix_takes_other_values(kernel, random, density):
    pattern = sp.random_array((40, 9), density=density, rng=random, format="csr")
    matrix, x, out = kernel.sparse(pattern), give(kernel, np.ones((9, 3))), kernel.empty(40, 3)
    for _ in range(3):
        values = random.standard_normal(pattern.nnz).astype(kernel.dtype)
        kernel.set_values(matrix, values)
        kernel.spmm(matrix, x, out)
        other = sp.csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)
        near(kernel, out, other @ np.ones((9, 3)))


def test_spmm_keeps_stored_zeros_apart_from_infinities_of_others(kernel):
    """A row without an entry does not see what another row multiplies."""
    matrix, out = kernel.sparse(sp.csr_array(np.diag([1.0, 2.0]))), kernel.empty(2, 1)
    kernel.spmm(matrix, give(kernel, [[np.inf], [3.0]]), out)
    assert kernel.to_host(out).ravel().tolist() == [np.inf, 6.0]


@pytest.fixture
def products(kernel):
    """The kernel, and again with each other way to multiply that it has."""
    more = [type(kernel)(kernel.dtype, spmm="cusparse")] if kernel.name == "cupy" else []
    return [kernel, *more]


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 47, 64, 132])
def test_spmm_of_rows_from_empty_to_long(products, random, width):
    lengths = np.concatenate(([0, 1, 127, 128, 129, 512, 5000, 0], random.integers(0, 9, 40)))
    columns = random.integers(0, 300, lengths.sum())
    parts = random.standard_normal(len(columns)), columns, np.append(0, np.cumsum(lengths))
    matrix = sp.csr_array(parts, shape=(len(lengths), 300))
    x, before = random.standard_normal((300, width)), random.standard_normal((len(lengths), width))
    bias = random.standard_normal(width)
    # Values and the sum of so many have the errors of their dtype.
    for kernel, accumulate in product(products, (False, True)):
        out, then = give(kernel, before), Activation(give(kernel, bias), "relu")
        kernel.spmm_then(kernel.sparse(matrix), give(kernel, x), out, accumulate, then)
        expected = np.maximum(matrix @ x + bias + accumulate * before, 0)
        near(kernel, out, expected, factor=100)


# Dense arithmetic.


# The larger product is added in three pieces where that is how it is done.
@pytest.mark.parametrize(("rows", "columns"), [(7, 5), (2100, 260)])
def test_gemm_and_its_transposes(kernel, random, rows, columns):
    a, b = random.standard_normal((rows, 4)), random.standard_normal((4, columns))
    for ta, tb in product((False, True), repeat=2):
        left, right = give(kernel, a.T if ta else a), give(kernel, b.T if tb else b)
        out = junk(kernel, rows, columns)
        kernel.gemm(left, right, out, ta, tb)
        near(kernel, out, a @ b)
        kernel.gemm(left, right, out, ta, tb, accumulate=True)
        near(kernel, out, 2 * (a @ b))
    out = kernel.empty(4, columns)  # no rows on this rank: a gradient of zeros
    kernel.gemm(kernel.empty(0, 4), kernel.empty(0, columns), out, ta=True)
    near(kernel, out, np.zeros((4, columns)))


@pytest.mark.parametrize("columns", [1, 7, 40])
@pytest.mark.parametrize("accumulate", [False, True])
def test_two_products_in_one_pass(kernel, random, columns, accumulate):
    x, y = (random.standard_normal((230, width)) for width in (9, 13))
    w, v = (random.standard_normal((width, columns)) for width in (9, 13))
    before, bias = random.standard_normal((230, columns)), random.standard_normal(columns)
    truth = np.maximum(x @ w + y @ v + bias + (before if accumulate else 0), 0)
    for transposed in (False, True):
        left, right = (give(kernel, f.T.copy() if transposed else f) for f in (w, v))
        mine, out, also = give(kernel, x), give(kernel, before), (give(kernel, y), right)
        then = Activation(give(kernel, bias))
        kernel.gemm_then(Product(mine, left, out, transposed, then, accumulate, also))
        near(kernel, out, truth, 10)


@pytest.mark.parametrize("shape", [(700, 30, 5), (700, 30, 8), (90, 200, 100), (0, 3, 4)])
def test_a_product_with_sums(kernel, random, shape):
    rows, left, right = shape
    a, b = random.standard_normal((rows, left)), random.standard_normal((rows, right))
    sums = kernel.empty(right)
    for out in (kernel.empty(left, right), kernel.empty_columnwise(left, right)):
        kernel.gemm_and_sums(give(kernel, a), give(kernel, b), out, sums)
        all_near(kernel, (out, sums), (a.T @ b, b.sum(axis=0)), 100)


# The emulator checks the first launches, which takes long where a block adds many rows.
@pytest.mark.parametrize("width", [1000, 70, 1])
def test_long_sums_are_right_in_float32(make, width):
    kernel, rows = make(np.float32), 2 * 10**6 // width
    x, out = give(kernel, np.random.default_rng(1).random((rows, width))), kernel.empty(width)
    kernel.column_sum(x, out)
    exact = kernel.to_host(x).sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(kernel.to_host(out), exact, rtol=2e-7)


def test_rows_and_entries_are_picked_and_put(kernel, random):
    x, rows = random.standard_normal((10, 3)), np.array([9, 0, 4])
    out, back, expected = kernel.empty(3, 3), kernel.zeros(10, 3), np.zeros((10, 3))
    kernel.take_rows(give(kernel, x), rows, out)
    kernel.put_rows(out, rows, back)
    expected[rows] = x[rows]
    all_near(kernel, (out, back), (x[rows], expected))
    kernel.take_rows(give(kernel, x), rows[:0], kernel.empty(0, 3))
    x = give(kernel, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert kernel.to_host(kernel.pick(x, np.array([1, 0, 1]))).tolist() == [[2], [3], [6]]
    columns = np.array([4, 6, 5])  # of a matrix of which x has columns 5 and 6
    assert kernel.to_host(kernel.pick(x, columns, 5)).tolist() == [[0], [4], [5]]
    x = give(kernel, [[1, 3, 3], [2, 2, 2], [-5, -7, -1]])
    assert kernel.to_host(kernel.row_argmax(x)).tolist() == [1, 0, 2]  # the lowest on a tie
    assert kernel.to_host(kernel.row_max(x)).tolist() == [[3], [2], [-1]]
    assert len(kernel.to_host(kernel.row_argmax(kernel.empty(0, 3)))) == 0
    assert kernel.total(give(kernel, np.full((10, 10), 0.5))) == 50.0
    assert kernel.log_sum(give(kernel, np.full((4, 1), np.e))) == pytest.approx(4, rel=1e-6)


# Dropout.


@pytest.mark.parametrize("width", [1, 7, 70_000])
def test_dropout(kernel, random, width):
    """Against the hash of each entry; also where one row is more than a block of hashes."""
    rows, columns = rng.row_keys(1, 2, 3, np.array([4, 0, 17])), rng.column_keys(np.arange(width))
    x = random.standard_normal((3, width))
    mine, out = give(kernel, x), kernel.empty(3, width)
    kernel.dropout(mine, rows, columns, 0.3, out)
    kernel.dropout(mine, rows, columns, 0.3, mine)  # in place
    all_near(kernel, (out, mine), [x * kept(rows, columns, 0.3)] * 2)
    kernel.dropout(kernel.empty(0, width), rows[:0], columns, 0.3, kernel.empty(0, width))


def test_dropout_of_entries_is_that_of_a_dense_matrix(kernel, random):
    """Of values and of their transpose, on the host or where the kernel has them."""
    p, x = 0.3, np.where(random.random((40, 23)) < 0.3, random.standard_normal((40, 23)), 0)
    source = SparseInput(kernel, Phases(), sp.csr_array(x.astype(kernel.dtype)), slice(3, 31))
    dropped, keys = source.copy(), (7, np.arange(40) * 5)
    dropped.drop_from(source, 1, 2, keys, p)
    expected = x * kept(rng.row_keys(1, 2, *keys), rng.column_keys(np.arange(23)), p)
    weight, grad = random.standard_normal((23, 4)), random.standard_normal((40, 4))
    out, also, back = junk(kernel, 40, 4), junk(kernel, 40, 4), junk(kernel, 23, 4)
    dropped.combine(give(kernel, weight), out, False, None)
    dropped.weight_grad(give(kernel, grad), back, None)
    source.combine(give(kernel, weight), also, False, None)
    truth = expected @ weight, x @ weight, expected[3:31].T @ grad[3:31]
    all_near(kernel, (out, also, back), truth)


# Losses.


@having("count_right")
def test_right_predictions_are_counted_where_logits_are(kernel, random):
    for rows, width in ((0, 3), (1, 1), (70, 5), (40000, 11)):
        logits = random.integers(0, 4, (rows, width)).astype(float)  # many ties
        labels = random.integers(-1, width, rows).astype(np.int32)
        masks = random.integers(0, 256, rows).astype(np.uint8)
        right = masks[logits.argmax(axis=1) == labels]
        found = kernel.count_right(give(kernel, logits), labels, masks)
        assert found.tolist() == [np.count_nonzero(right >> bit & 1) for bit in range(8)]


OVER = pytest.mark.parametrize("over", [False, True], ids=["apart", "over the logits"])


OF_LOSS = [(3, 7), (40000, 7), *((3000, width) for width in (1, 2, 7, 8, 9, 16, 41, 100))]


@pytest.mark.parametrize("size", [1, 1e3])
@pytest.mark.parametrize(("rows", "width"), OF_LOSS)
@OVER
@having("softmax_cross_entropy")
def test_loss_of_whole_rows_in_one_pass(kernel, random, rows, width, size, over):
    """Also with weights of classes and smoothed labels, where a kernel has that."""
    z = (size * random.standard_normal((rows, width))).astype(kernel.dtype).astype(np.float64)
    labels, single = random.integers(-1, width, rows).astype(np.int32), kernel.dtype == np.float32
    logs = z - z.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    own = labels[:, np.newaxis] == np.arange(width)
    for weighted in (False, True)[: 1 + (kernel.weighted_cross_entropy is not None)]:
        right, spread = random.random(width), 0.1 * random.random(width)
        right[-1:] = spread[-1:] = 0
        weights = (right * own + spread if weighted else own) * (labels >= 0)[:, np.newaxis]
        logits = give(kernel, z)
        grad = logits if over else junk(kernel, rows, width)
        if weighted:
            of = ClassLoss(labels, right, spread, spread.sum())
            loss = kernel.weighted_cross_entropy(logits, of, 0.5, grad)
        else:
            loss = kernel.softmax_cross_entropy(logits, labels, 0.5, grad)
        exact = 1e-5 if weighted else 1e-6 if single else 1e-13
        assert float(loss) == pytest.approx(-np.sum(weights * logs), rel=exact)
        assert float(loss * 2.0) == 2 * float(loss)
        expected = 0.5 * (np.exp(logs) * weights.sum(axis=1, keepdims=True) - weights)
        tolerance = 1e-6 if weighted else 3e-7 if single else 1e-15
        np.testing.assert_allclose(kernel.to_host(grad), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("rows", [0, 1, 40000])
@pytest.mark.parametrize("kind", ENTRY_LOSSES)
@OVER
@having("entry_losses")
def test_losses_of_numbers_in_one_pass(kernel, random, kind, rows, over):
    width, delta = 7, 0.6
    z, y = random.standard_normal((rows, width)), random.random((rows, width))
    z[::3, 1], z[::5, 2] = 800, -800  # whose exponentials overflow
    z, y = (one.astype(kernel.dtype).astype(float) for one in (z, y))
    y[random.random(y.shape) < 0.3] = np.nan
    weights, logits = 3 * random.random(width), give(kernel, z)
    grad, of = logits if over else kernel.empty(rows, width), EntryLoss(kind, weights, delta)
    found = kernel.entry_losses(logits, y.astype(kernel.dtype), of, 0.5, grad)
    error, (right, wrong) = z - y, (np.logaddexp(0, -z), np.logaddexp(0, z))  # −log σ(z), σ(−z)
    cut = np.clip(error, -delta, delta)
    losses, slopes = {
        "sigmoid": (weights * y * right + (1 - y) * wrong,
                    (1 - y) * np.exp(-right) - weights * y * np.exp(-wrong)),
        "squared": (error**2, 2 * error),
        "absolute": (abs(error), np.sign(error)),
        "huber": (cut * (error - cut / 2), cut),
    }[kind]  # fmt: skip
    assert float(found) == pytest.approx(np.nansum(losses), rel=1e-5)
    near(kernel, grad, 0.5 * np.nan_to_num(slopes))


def test_the_pieces_of_a_softmax(kernel, random):
    """Where a rank has some columns of each row."""
    for rows, width in ((0, 3), (1, 1), (70, 5)):
        z, shift = 9 * random.standard_normal((rows, width)), random.standard_normal((rows, 1))
        out, labelled = junk(kernel, rows, width), np.arange(min(rows, width))
        sums = kernel.exp_shifted(give(kernel, z), give(kernel, shift), out)
        expected = np.exp(z - shift), np.exp(z - shift).sum(axis=1, keepdims=True)
        all_near(kernel, (out, sums), expected, 100)
        kernel.softmax_backward(out, sums, labelled, labelled, 2.5)
        near(kernel, out, 2.5 * (expected[0] / expected[1] - np.eye(rows, width)), 10)


# Optimizer steps.

START, GRADIENTS = [1.0, -2.0, 0.5], ([0.3, -0.1, 2.0], [-1.0, 0.0, 0.25], [0.5, 4.0, -3.0])
TABLES = [
    {}, {"betas": [0.999, 0.99], "weight_decay": 0.01, "lr": 0.3}, {"betas": [0.0, 0.0]},
    {"optimizer": "sgd", "momentum": 0.999, "weight_decay": 0.01},
    {"optimizer": "adamw", "weight_decay": 0.1}, {"optimizer": "sgd"},
]  # fmt: skip


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_many_steps_are_those_of_the_oracle(kernel, table):
    """In float32, factors such as 1 − 0.999 must not come from rounded numbers."""
    measured = steps_apart(kernel, from_table({"train": table}).train)
    assert measured <= STEPS_TOLERANCES[kernel.dtype.name]


# Parameters after each of the three steps, from torch.optim 2 in float64.
OF_ADAM = {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.02}
PYTORCH = {
    "sgd": ({"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, [
        [0.969, -1.988, 0.2995],
        [1.040131, -1.975212, 0.09375049999999999],
        [1.0531087689999998, -2.361727588, 0.20848219950000002],
    ]),
    "adam": (OF_ADAM, [
        [0.9500001562495117, -1.9500003571403062, 0.45000002487560953],
        [0.9773196624245905, -1.908729168338211, 0.41335301794835955],
        [0.9791714419477772, -1.9422627636162708, 0.42792503685725736],
    ]),
    "adamw": (OF_ADAM, [
        [0.9490001666661111, -1.948000499995, 0.4495000249999875],
        [0.9763463751772329, -1.9142151600994262, 0.41253714988593543],
        [0.9786722290819522, -1.9463468959241879, 0.42690408037510974],
    ]),
}  # fmt: skip


@pytest.mark.parametrize("times", [1, 13_337])  # and with all threads
@pytest.mark.parametrize("optimizer", PYTORCH)
def test_optimizers_step_as_pytorch_does(kernel, optimizer, times):
    """And without weight decay for the parameters that have none."""
    settings, states = PYTORCH[optimizer]
    config = from_table({"train": {"optimizer": optimizer, **settings}}).train
    parameters = Parameters(kernel, {"2.weight": (2, 2)}, {"1.weight": (3 * times, 1)})
    parameters.flat[...] = give(kernel, np.append(np.ones(4), np.tile(START, times)))
    penalties = {"1.weight": config.weight_decay, "2.weight": 0.0}
    step = make_optimizer(kernel, parameters, penalties, config).step
    for grad, expected in zip(GRADIENTS, states, strict=True):
        step(give(kernel, np.append(np.zeros(4), np.tile(grad, times))), config.lr)
        near(kernel, parameters["1.weight"], np.tile(expected, times)[:, np.newaxis])
        near(kernel, parameters["2.weight"], np.ones((2, 2)))
