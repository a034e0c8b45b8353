"""Every kernel of the table, in both types, against NumPy, finite differences and PyTorch."""

import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_cases import USABLE, give, having, junk, near, needs_native
from one_process import LossScheme
from refusals import refuses

import gcnmpi.kernels
from gcnmpi.cli.bench import bench
from gcnmpi.cli.info import info
from gcnmpi.cli.schemes import calibrate
from gcnmpi.core import rng
from gcnmpi.core.timing import Phases
from gcnmpi.kernels.epilogues import Activation, ActivationBackward, Product
from gcnmpi.kernels.interface.dense import ENTRY_LOSSES, ClassLoss, EntryLoss
from gcnmpi.layout.place import Place
from gcnmpi.nn.loss import SoftmaxCrossEntropy
from gcnmpi.nn.optim import Parameters, make_optimizer
from gcnmpi.nn.sparse_input import SparseInput
from gcnmpi.nn.tasks.interface import Made, Targets
from gcnmpi.options.config import from_table
from gcnmpi.options.kernel import KERNELS, SLOWER, resolve
from gcnmpi.options.task import ClassOptions
from gcnmpi.proof.parts import STEPS_TOLERANCES, steps_apart
from partition.registry import Registry


def address_of(array):
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def test_copies_in_float64_do_not_follow_their_source(kernel):
    for size in (0, 5, 3 << 20):
        source = np.arange(size, dtype=np.float64)
        copied = kernel.from_host64(source)
        source[:] = -1
        found = kernel.to_host(copied)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.arange(size))


FALLBACK = "graphblas" if sys.version_info < (3, 14) else "scipy"  # which needs no compiler


def test_the_native_kernel_is_taken_where_it_was_built(monkeypatch, capsys):
    if "native" in USABLE:
        assert resolve("auto") == ("native", None)
    monkeypatch.delitem(sys.modules, "gcnmpi.kernels.native.kernel", raising=False)
    monkeypatch.setitem(sys.modules, "gcnmpi.kernels._native", None)  # as if not compiled
    assert KERNELS.available()["native"].startswith("was not built: there is none in /")
    name, warning = resolve("auto")
    assert name == FALLBACK
    assert "native kernel was not built" in warning
    assert resolve("scipy") == ("scipy", None)
    refuses("install gcnmpi again", KERNELS.get, "native")
    for command, words in ((bench, ["epoch", "g.graph"]), (calibrate, []), (bench, ["spmm"])):
        refused = refuses("native kernel", command.main, words, standalone_mode=False)
        assert f"kernel={FALLBACK}" in refused.hint or words == ["spmm"]
        taken = ["--kernels", "scipy"] if words == ["spmm"] else ["--set", "kernel=scipy"]
        assert callable(command.main([*words, *taken], standalone_mode=False))
    assert info.main([], standalone_mode=False) == 0
    assert f"kernel = auto: {FALLBACK} ({warning})" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "AttributeError: module 'halflib' has no attribute 'init'"),
        ("import halflib_core", "'halflib_core'"),
        ("raise OSError('libhalf.so.9: not found')", "OSError: libhalf.so.9"),
    ],
    ids=["empty", "lacks a module", "lacks a library"],
)
def test_a_library_that_is_installed_in_part_counts_as_missing(tmp_path, monkeypatch, text, says):
    (tmp_path / "halflib.py").write_text(text)
    (tmp_path / "half.py").write_text("import halflib\nKERNEL = halflib.init()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("halflib", "gcnmpi.kernels.half"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("gcnmpi.kernels.__path__", [*gcnmpi.kernels.__path__, str(tmp_path)])
    reason = Registry("kernel", {"half": "gcnmpi.kernels.half:KERNEL"}).available()["half"]
    assert reason.startswith("kernel 'half' needs the Python package")
    assert says in reason
    assert "\n" not in reason
    with pytest.raises(AttributeError):  # a mistake of ours
        Registry("kernel", {"x": "gcnmpi.kernels.host.scipy_:nothing"}).available()


def test_why_the_native_kernel_cannot_be_loaded_is_said(monkeypatch):
    class Broken:
        """Finds the compiled part, whose libraries are missing."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "gcnmpi.kernels._native":
                raise ImportError("libgomp.so.1: cannot open shared object file", name=name)

    monkeypatch.delitem(sys.modules, "gcnmpi.kernels.native.kernel", raising=False)
    monkeypatch.delitem(sys.modules, "gcnmpi.kernels._native", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken, *sys.meta_path])
    said = "cannot be loaded: libgomp.so.1: cannot open shared object file"
    assert KERNELS.available()["native"] == said
    assert resolve("auto") == (FALLBACK, f"the native kernel {said}; {SLOWER.format(FALLBACK)}")
    without_graphblas(monkeypatch)
    assert resolve("auto") == ("scipy", f"the native kernel {said}; {SLOWER.format('scipy')}")


def without_graphblas(monkeypatch):
    """As in Python 3.14."""
    monkeypatch.setitem(sys.modules, "graphblas", None)
    monkeypatch.delitem(sys.modules, "gcnmpi.kernels.host.graphblas_", raising=False)


@needs_native
def test_without_openmp_the_native_kernel_is_for_one_thread(monkeypatch):
    monkeypatch.setattr(KERNELS.get("native"), "parallel", False)
    serial = "the native kernel was built without OpenMP: it has one thread, not 4"
    assert resolve("auto", 1) == ("native", None)
    if FALLBACK == "graphblas":
        assert resolve("auto", 4) == ("graphblas", f"{serial}; {SLOWER.format('graphblas')}")
    assert resolve("native", 4) == ("native", serial)
    assert resolve("native") == ("native", None)
    without_graphblas(monkeypatch)
    assert resolve("auto", 4) == ("native", serial)


@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("make")), reason="needs CMake")
def test_without_a_compiler_nothing_is_compiled(tmp_path):
    source = Path(__file__).parents[2]
    done = subprocess.run(
        ["cmake", "-S", source, "-B", tmp_path],
        env={**os.environ, "CXX": "/nowhere/c++"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "no C++ compiler" in done.stderr


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


@pytest.mark.parametrize(
    ("shape", "width"),
    [
        *(((50, 40), width) for width in WIDTHS),
        *((shape, width) for shape in [(1, 1), (5, 40), (300, 2)] for width in (1, 3, 16)),
        *((shape, 3) for shape in [(0, 5), (5, 0), (0, 0)]),
        ((4, 5), 0),
    ],
)
def test_spmm(kernel, random, shape, width):
    dense = np.where(random.random(shape) < 0.2, random.standard_normal(shape), 0)
    x, before = random.standard_normal((shape[1], width)), random.standard_normal((shape[0], width))
    matrix = kernel.sparse(sp.csr_array(dense))
    out = give(kernel, before)
    kernel.spmm(matrix, give(kernel, x), out)
    near(kernel, out, dense @ x)
    kernel.spmm(matrix, give(kernel, x), out, accumulate=True)
    near(kernel, out, 2 * (dense @ x))
    kernel.spmm(matrix, give(kernel, -x), out, accumulate=True)
    near(kernel, out, dense @ x)


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


def test_spmm_on_rows_of_a_larger_buffer_touches_nothing_else(kernel, random):
    dense = np.where(random.random((6, 9)) < 0.4, random.standard_normal((6, 9)), 0)
    matrix = kernel.sparse(sp.csr_array(dense))
    whole, results = random.standard_normal((20, 4)), random.standard_normal((15, 4))
    x, out = give(kernel, whole), give(kernel, results)
    address = address_of(out)
    kernel.spmm(matrix, x[5:14], out[2:8])
    expected = results.copy()
    expected[2:8] = dense @ whole[5:14]
    near(kernel, out, expected)
    kernel.spmm(matrix, x[11:20], out[9:15], accumulate=True)
    expected[9:15] += dense @ whole[11:20]
    near(kernel, out, expected)
    near(kernel, x, whole)
    assert address_of(out) == address  # requests of MPI hold this address


def test_spmm_keeps_stored_zeros_apart_from_infinities_of_others(kernel):
    """A row without an entry does not see what another row multiplies."""
    matrix = kernel.sparse(sp.csr_array(np.array([[1.0, 0.0], [0.0, 2.0]])))
    out = kernel.empty(2, 1)
    kernel.spmm(matrix, give(kernel, [[np.inf], [3.0]]), out)
    assert kernel.to_host(out).ravel().tolist() == [np.inf, 6.0]


# Dense arithmetic.


# The larger product is added in three pieces where that is how it is done.
@pytest.mark.parametrize(("rows", "columns"), [(7, 5), (2100, 260)])
def test_gemm_and_its_transposes(kernel, random, rows, columns):
    a, b = random.standard_normal((rows, 4)), random.standard_normal((4, columns))
    for left, right, transposes in (
        (a, b, {}),
        (a.T, b, {"ta": True}),
        (a, b.T, {"tb": True}),
        (a.T, b.T, {"ta": True, "tb": True}),
    ):
        out = kernel.empty(rows, columns)
        kernel.gemm(give(kernel, left), give(kernel, right), out, **transposes)
        near(kernel, out, a @ b)
        kernel.gemm(give(kernel, left), give(kernel, right), out, **transposes, accumulate=True)
        near(kernel, out, 2 * (a @ b))
    out = kernel.empty(4, columns)  # no rows on this rank: a gradient of zeros
    kernel.gemm(kernel.empty(0, 4), kernel.empty(0, columns), out, ta=True)
    near(kernel, out, np.zeros((4, columns)))


def test_sums_biases_and_copies(kernel, random):
    x, bias = random.standard_normal((9, 3)), random.standard_normal(3)
    mine, out = give(kernel, x), kernel.empty(3)
    kernel.column_sum(mine, out)
    near(kernel, out, x.sum(axis=0), 10)
    kernel.column_sum(kernel.empty(0, 3), out)
    near(kernel, out, np.zeros(3))
    kernel.column_sum(kernel.empty(9, 0), kernel.empty(0))
    kernel.follow(mine, Activation(give(kernel, bias), "none"))
    near(kernel, mine, x + bias)
    near(kernel, kernel.zeros(2, 3), np.zeros((2, 3)))
    assert kernel.from_host(np.array([1, 2])).dtype.kind == "i"
    assert kernel.total(give(kernel, np.full((10, 10), 0.5))) == 50.0
    assert kernel.log_sum(give(kernel, np.full((4, 1), np.e))) == pytest.approx(4, rel=1e-6)


# The emulator checks the first launches, which takes long where a block adds many rows.
@pytest.mark.parametrize("width", [1000, 70, 1])
def test_long_sums_are_right_in_float32(make, width):
    kernel, rows = make(np.float32), 2 * 10**6 // width
    x, out = give(kernel, np.random.default_rng(1).random((rows, width))), kernel.empty(width)
    kernel.column_sum(x, out)
    exact = kernel.to_host(x).sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(kernel.to_host(out), exact, rtol=2e-7)


@pytest.mark.parametrize("width", [1, 7, 70_000])
def test_dropout(kernel, random, width):
    """Against the hash of each entry; also where one row is more than a block of hashes."""
    vertices, p = np.array([4, 0, 17]), 0.3
    rows, columns = rng.row_keys(1, 2, 3, vertices), rng.column_keys(np.arange(width))
    x = random.standard_normal((3, width))
    hashes = np.empty((3, width), np.uint32)
    rng.hash_block(rows, columns, hashes, np.empty_like(hashes))
    expected = np.where(hashes >= rng.threshold(p), x / (1 - p), 0)
    mine, out = give(kernel, x), kernel.empty(3, width)
    kernel.dropout(mine, rows, columns, p, out)
    near(kernel, out, expected)
    kernel.dropout(mine, rows, columns, p, mine)  # in place
    near(kernel, mine, expected)
    kernel.dropout(kernel.empty(0, width), rows[:0], columns, p, kernel.empty(0, width))


def test_dropout_of_entries_is_that_of_a_dense_matrix(kernel, random):
    """Of values and of their transpose, on the host or where the kernel has them."""
    p, x = 0.3, np.where(random.random((40, 23)) < 0.3, random.standard_normal((40, 23)), 0)
    source = SparseInput(kernel, Phases(), sp.csr_array(x.astype(kernel.dtype)), slice(3, 31))
    dropped, keys = source.copy(), (7, np.arange(40) * 5)
    dropped.drop_from(source, 1, 2, keys, p)
    expected = kernel.empty(40, 23)
    rows = kernel.row_keys(1, 2, *keys)
    kernel.dropout(give(kernel, x), rows, rng.column_keys(np.arange(23)), p, expected)
    expected = kernel.to_host(expected).astype(np.float64)
    weight, out = random.standard_normal((23, 4)), junk(kernel, 40, 4)
    dropped.combine(give(kernel, weight), out, False, None)
    near(kernel, out, expected @ weight)
    grad, out = random.standard_normal((40, 4)), junk(kernel, 23, 4)
    dropped.weight_grad(give(kernel, grad), out, None)
    near(kernel, out, expected[3:31].T @ grad[3:31])
    source.combine(give(kernel, weight), out := junk(kernel, 40, 4), False, None)
    near(kernel, out, x @ weight)


@pytest.fixture
def products(kernel):
    """The kernel, and again with each other way to multiply that it has."""
    return (
        [kernel, type(kernel)(kernel.dtype, spmm="cusparse")] if kernel.name == "cupy" else [kernel]
    )


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 47, 64, 132])
def test_spmm_of_rows_from_empty_to_long(products, random, width):
    lengths = np.concatenate(([0, 1, 127, 128, 129, 512, 5000, 0], random.integers(0, 9, 40)))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    columns = random.integers(0, 300, len(rows))
    matrix = sp.csr_array(
        (random.standard_normal(len(rows)), columns, np.append(0, np.cumsum(lengths))),
        shape=(len(lengths), 300),
    )
    x, before = random.standard_normal((300, width)), random.standard_normal((len(lengths), width))
    bias = random.standard_normal(width)
    # Values and the sum of so many have the errors of their dtype.
    for kernel in products:
        for accumulate in (False, True):
            out = give(kernel, before)
            then = Activation(give(kernel, bias), "relu")
            kernel.spmm_then(kernel.sparse(matrix), give(kernel, x), out, accumulate, then)
            expected = np.maximum(matrix @ x + bias + accumulate * before, 0)
            near(kernel, out, expected, factor=100)


@having("count_right")
def test_right_predictions_are_counted_where_logits_are(kernel, random):
    for rows, width in ((0, 3), (1, 1), (70, 5), (40000, 11)):
        logits = random.integers(0, 4, (rows, width)).astype(float)  # many ties
        labels = random.integers(-1, width, rows).astype(np.int32)
        masks = random.integers(0, 256, rows).astype(np.uint8)
        right = logits.argmax(axis=1) == labels
        expected = [np.count_nonzero(right & (masks >> bit & 1 > 0)) for bit in range(8)]
        found = kernel.count_right(give(kernel, logits), labels, masks)
        assert found.tolist() == expected


OVER = pytest.mark.parametrize("over", [False, True], ids=["apart", "over the logits"])


@pytest.mark.parametrize("size", [1, 1e3])
@pytest.mark.parametrize(
    ("rows", "width"),
    [(3, 7), (40000, 7), *((3000, width) for width in (1, 2, 7, 8, 9, 16, 41, 100))],
)
@OVER
@having("softmax_cross_entropy")
def test_loss_of_whole_rows_in_one_pass(kernel, random, rows, width, size, over):
    z = (size * random.standard_normal((rows, width))).astype(kernel.dtype).astype(np.float64)
    labels, logits = random.integers(-1, width, rows).astype(np.int32), give(kernel, z)
    grad = logits if over else junk(kernel, rows, width)
    loss = kernel.softmax_cross_entropy(logits, labels, 0.5, grad)
    z -= z.max(axis=1, keepdims=True)
    sums, known = np.exp(z).sum(axis=1, keepdims=True), np.flatnonzero(labels >= 0)
    logs = (z - np.log(sums))[known, labels[known]]
    single = kernel.dtype == np.float32
    assert float(loss) == pytest.approx(-logs.sum(), rel=1e-6 if single else 1e-13)
    assert float(loss * 2.0) == 2 * float(loss)
    soft = np.exp(z) / sums
    soft[known, labels[known]] -= 1
    expected = 0.5 * soft * (labels >= 0)[:, np.newaxis]
    tolerance = 3e-7 if single else 1e-15
    np.testing.assert_allclose(kernel.to_host(grad), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 70, 40000])
@OVER
@having("weighted_cross_entropy")
def test_loss_with_weights_and_smoothed_labels_in_one_pass(kernel, random, rows, over):
    width = 11
    z, labels = 20 * random.standard_normal((rows, width)), random.integers(-1, width, rows)
    right, spread = random.random(width), 0.1 * random.random(width)
    right[2] = spread[2] = 0
    known, logits = labels >= 0, give(kernel, z)
    grad = logits if over else kernel.empty(rows, width)
    weights = right * (labels[:, np.newaxis] == np.arange(width)) + spread
    weights[~known] = 0
    z = z.astype(kernel.dtype).astype(float)
    logs = z.copy()
    logs -= logs.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    labels = labels.astype(np.int32)
    of = ClassLoss(labels, right, spread, spread.sum())
    loss = kernel.weighted_cross_entropy(logits, of, 0.5, grad)
    assert float(loss) == pytest.approx(-np.sum(weights * logs), rel=1e-5)
    expected = np.exp(logs) * weights.sum(axis=1, keepdims=True) - weights
    near(kernel, grad, 0.5 * expected)


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
    error = z - y
    both = np.logaddexp(0, -z), np.logaddexp(0, z)  # −log σ(z), −log(1 − σ(z))
    cut = np.clip(error, -delta, delta)
    losses, slopes = {
        "sigmoid": (
            weights * y * both[0] + (1 - y) * both[1],
            (1 - y) * np.exp(-both[0]) - weights * y * np.exp(-both[1]),
        ),
        "squared": (error**2, 2 * error),
        "absolute": (abs(error), np.sign(error)),
        "huber": (cut * (error - cut / 2), cut),
    }[kind]
    assert float(found) == pytest.approx(np.nansum(losses), rel=1e-5)
    near(kernel, grad, 0.5 * np.nan_to_num(slopes))


@pytest.mark.parametrize("columns", [1, 7, 40])
@pytest.mark.parametrize("accumulate", [False, True])
def test_two_products_in_one_pass(kernel, random, columns, accumulate):
    x, y = (random.standard_normal((230, width)) for width in (9, 13))
    w, v = (random.standard_normal((width, columns)) for width in (9, 13))
    before, bias = random.standard_normal((230, columns)), random.standard_normal(columns)
    truth = np.maximum(x @ w + y @ v + bias + (before if accumulate else 0), 0)
    epilogue = Activation(give(kernel, bias))
    for transposed in (False, True):
        factors = [np.ascontiguousarray(f.T) if transposed else f for f in (w, v)]
        left, right = (give(kernel, factor) for factor in factors)
        out, also = give(kernel, before), (give(kernel, y), right)
        mine = give(kernel, x)
        kernel.gemm_then(Product(mine, left, out, transposed, epilogue, accumulate, also))
        near(kernel, out, truth, 10)


@pytest.mark.parametrize("way", ["sparse", "dense"])
def test_what_is_added_before_the_epilogue(kernel, random, way):
    left, right = random.standard_normal((80, 9)), random.standard_normal((9, 7))
    plus, bias = random.standard_normal((80, 7)), random.standard_normal(7)
    total, more = left @ right + plus, {"plus": give(kernel, plus)}
    output = give(kernel, np.maximum(random.standard_normal((80, 7)), 0))
    elu = give(kernel, np.expm1(np.minimum(total, 0)) + np.maximum(total, 0))
    for epilogue, truth in (
        (Activation(kind="none", **more), total),
        (Activation(give(kernel, bias), **more), np.maximum(total + bias, 0)),
        (ActivationBackward(output, scale=2.5, **more), 2.5 * total * (kernel.to_host(output) > 0)),
        (
            ActivationBackward(elu, "elu", **more),
            total * np.where(total > 0, 1, np.exp(np.minimum(total, 0))),
        ),
    ):
        out = kernel.empty(80, 7)
        if way == "sparse":
            matrix = kernel.sparse(sp.csr_array(left))
            kernel.spmm_then(matrix, give(kernel, right), out, False, epilogue)
        else:
            factors = give(kernel, left), give(kernel, right)
            kernel.gemm_then(Product(*factors, out, False, epilogue))
        near(kernel, out, truth, 40)


@pytest.mark.parametrize("shape", [(700, 30, 5), (700, 30, 8), (90, 200, 100), (0, 3, 4)])
def test_a_product_with_sums(kernel, random, shape):
    rows, left, right = shape
    a, b = random.standard_normal((rows, left)), random.standard_normal((rows, right))
    out, sums = kernel.empty(left, right), kernel.empty(right)
    kernel.gemm_and_sums(give(kernel, a), give(kernel, b), out, sums)
    near(kernel, out, a.T @ b, 100)
    near(kernel, sums, b.sum(axis=0), 100)
    turned = kernel.empty_columnwise(left, right)
    kernel.gemm_and_sums(give(kernel, a), give(kernel, b), turned, sums)
    near(kernel, turned, a.T @ b, 100)


def test_entries_are_picked_where_there_are_some(kernel):
    x = give(kernel, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert kernel.to_host(kernel.pick(x, np.array([1, 0, 1]))).tolist() == [[2], [3], [6]]
    columns = np.array([4, 6, 5])  # of a matrix of which x has columns 5 and 6
    assert kernel.to_host(kernel.pick(x, columns, 5)).tolist() == [[0], [4], [5]]


def test_rows_are_taken_and_put(kernel, random):
    x, rows = random.standard_normal((10, 3)), np.array([9, 0, 4])
    out = kernel.empty(3, 3)
    kernel.take_rows(give(kernel, x), rows, out)
    near(kernel, out, x[rows])
    back = kernel.zeros(10, 3)
    kernel.put_rows(out, rows, back)
    expected = np.zeros((10, 3))
    expected[rows] = x[rows]
    near(kernel, back, expected)
    kernel.take_rows(give(kernel, x), rows[:0], kernel.empty(0, 3))


# Softmax.


# Of the second case, torch.nn.functional.cross_entropy and its gradient, float64, version 2.
ENTROPIES = [
    ([[1e17, 0.0], [0.0, 0.0], [0.0, -1.0]], [0, 1, 1], (np.log(2) + 1 + np.log1p(np.exp(-1))) / 3,
     None),
    ([[1.0, -2.0, 3.0], [0.5, 0.5, 0.5]], [2, 0], 0.6157287611978427,
     [[0.05924982726750479, 0.00294987520095139, -0.062199702468456186], [-1 / 3, 1 / 6, 1 / 6]]),
    ([[1e4, -1e4], [1e4, -1e4], [-1e4, -1e4]], [0, 1, 0], (2e4 + np.log(2)) / 3,
     np.array([[0, 0], [1, -1], [-0.5, 0.5]]) / 3),
]  # fmt: skip


def test_softmax_and_its_loss_in_several_passes(kernel):
    """As gcnmpi.nn.loss puts the pieces together, of huge and of equal logits too."""
    for logits, labels, loss, gradient in ENTROPIES:
        x, grad, labels = give(kernel, logits), kernel.empty(*np.shape(logits)), np.array(labels)
        targets = Targets(labels, {"train": labels >= 0}, {"train": len(labels)})
        facts = kernel, Place(1), x.shape[1], targets, ClassOptions()
        of = SoftmaxCrossEntropy(Made(LossScheme(kernel, x.shape), *facts))
        assert of(x, grad) == pytest.approx(loss, rel=1e-6)
        if gradient is not None:
            near(kernel, grad, np.array(gradient))


def test_predictions_take_the_lowest_class_on_a_tie(kernel):
    x = give(kernel, [[1, 3, 3], [2, 2, 2], [-5, -7, -1]])
    assert kernel.to_host(kernel.row_argmax(x)).tolist() == [1, 0, 2]
    assert kernel.to_host(kernel.row_max(x)).tolist() == [[3], [2], [-1]]
    assert len(kernel.to_host(kernel.row_argmax(kernel.empty(0, 3)))) == 0


# Optimizer steps.

START, GRADIENTS = [1.0, -2.0, 0.5], ([0.3, -0.1, 2.0], [-1.0, 0.0, 0.25], [0.5, 4.0, -3.0])


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"betas": [0.999, 0.99], "weight_decay": 0.01, "lr": 0.3},
        {"betas": [0.0, 0.0]},
        {"optimizer": "sgd", "momentum": 0.999, "weight_decay": 0.01},
        {"optimizer": "adamw", "weight_decay": 0.1},
    ],
    ids=str,
)
def test_many_steps_are_those_of_the_oracle(kernel, table):
    """In float32, factors such as 1 − 0.999 must not come from rounded numbers."""
    measured = steps_apart(kernel, from_table({"train": table}).train)
    assert measured <= STEPS_TOLERANCES[kernel.dtype.name]


# Parameters after each of the three steps, from torch.optim 2 in float64.
PYTORCH = {
    # SGD(lr=0.1, momentum=0.9, weight_decay=0.01)
    "sgd": [
        [0.969, -1.988, 0.2995],
        [1.040131, -1.975212, 0.09375049999999999],
        [1.0531087689999998, -2.361727588, 0.20848219950000002],
    ],
    # Adam(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02)
    "adam": [
        [0.9500001562495117, -1.9500003571403062, 0.45000002487560953],
        [0.9773196624245905, -1.908729168338211, 0.41335301794835955],
        [0.9791714419477772, -1.9422627636162708, 0.42792503685725736],
    ],
    # AdamW(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02)
    "adamw": [
        [0.9490001666661111, -1.948000499995, 0.4495000249999875],
        [0.9763463751772329, -1.9142151600994262, 0.41253714988593543],
        [0.9786722290819522, -1.9463468959241879, 0.42690408037510974],
    ],
}
SETTINGS = {
    "sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "adam": {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.02},
    "adamw": {"lr": 0.05, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.02},
}


@pytest.mark.parametrize("times", [1, 13_337])  # and with all threads
@pytest.mark.parametrize("optimizer", PYTORCH)
def test_optimizers_step_as_pytorch_does(kernel, optimizer, times):
    config = from_table({"train": {"optimizer": optimizer, **SETTINGS[optimizer]}}).train
    parameters = Parameters(kernel, {}, {"1.weight": (3 * times, 1)})
    parameters.flat[...] = give(kernel, np.tile(START, times))
    step = make_optimizer(kernel, parameters, {"1.weight": config.weight_decay}, config).step
    for grad, expected in zip(GRADIENTS, PYTORCH[optimizer], strict=True):
        step(give(kernel, np.tile(grad, times)), config.lr)
        near(kernel, parameters.flat, np.tile(expected, times))


def test_weight_decay_of_some_parameters_only(kernel):
    table = {"optimizer": "sgd", "lr": 1.0, "weight_decay": 0.5}
    parameters = Parameters(kernel, {"1.weight": (2, 2)}, {"2.weight": (2, 1)})
    parameters.flat[...] = 1
    penalties = {"1.weight": 0.5, "2.weight": 0.0}
    make_optimizer(kernel, parameters, penalties, from_table({"train": table}).train).step(
        kernel.zeros(6), 1.0
    )
    near(kernel, parameters["1.weight"], np.full((2, 2), 0.5))
    near(kernel, parameters["2.weight"], np.ones((2, 1)))


def test_arrays_begin_with_a_cache_line(kernel):
    for shape, make in product([(5, 16), (3,), (0, 4), (4, 0)], (kernel.empty, kernel.zeros)):
        array = make(*shape)
        assert array.shape == shape
        if kernel.host_visible:  # the device's allocator has its own rule
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert array.ctypes.data % 64 == 0 or not array.size
