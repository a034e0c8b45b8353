"""Products of a sparse matrix and dense ones, all named by descriptors."""

import itertools

import numpy as np
import scipy.sparse as sp
from cupy.queue import begin, current

from cupy_backends.cuda.libs.cublas import _at

CUSPARSE_OPERATION_NON_TRANSPOSE = 0
CSR_ALGORITHMS = (4, 6, 12)  # CuPy has no name for the last one
CUSPARSE_INDEX_32I, CUSPARSE_INDEX_64I, CUSPARSE_INDEX_BASE_ZERO = 2, 3, 0
CUSPARSE_ORDER_COL, CUSPARSE_ORDER_ROW = 1, 2

TYPES = {0: np.float32, 1: np.float64}
INDICES = {CUSPARSE_INDEX_32I: np.int32, CUSPARSE_INDEX_64I: np.int64}
WORKSPACE = 1000  # bytes
descriptors, numbers = {}, itertools.count(1)


def getVersion(handle):
    return 12509


def createCsr(rows, columns, nnz, indptr, indices, values, first, second, base, kind):
    assert nnz > 0
    assert base == CUSPARSE_INDEX_BASE_ZERO
    arrays = (
        _at(values, nnz, TYPES[kind]), _at(indices, nnz, INDICES[second]),
        _at(indptr, rows + 1, INDICES[first]),
    )  # fmt: skip
    return _new((kind, (rows, columns), arrays))


def createDnMat(rows, columns, apart, address, kind, order):
    assert order == CUSPARSE_ORDER_ROW
    assert apart >= columns
    assert rows
    assert columns
    memory = _at(address, apart * (rows - 1) + columns, TYPES[kind])
    size = memory.itemsize
    view = np.lib.stride_tricks.as_strided(memory, (rows, columns), (apart * size, size))
    return _new((kind, view))


def destroySpMat(descriptor):
    del descriptors[descriptor]


destroyDnMat = destroySpMat


def spMM_bufferSize(handle, op_a, op_b, alpha, matrix, x, beta, out, kind, algorithm):
    assert (handle, op_a, op_b) == (2, 0, 0)
    assert algorithm in CSR_ALGORITHMS
    assert all(descriptors[number][0] == kind for number in (matrix, x, out))
    return WORKSPACE


def spMM(handle, op_a, op_b, alpha, matrix, x, beta, out, kind, algorithm, workspace):
    if current[-1].captured is not None:
        said = "calling cuSPARSE API during stream capture is currently unsupported"
        raise NotImplementedError(said)
    spMM_bufferSize(handle, op_a, op_b, alpha, matrix, x, beta, out, kind, algorithm)
    assert workspace
    alpha, beta = (_at(scalar, 1, TYPES[kind])[0] for scalar in (alpha, beta))
    _, shape, arrays = descriptors[matrix]
    (_, dense_x), (_, dense_out) = descriptors[x], descriptors[out]

    def run():
        product = alpha * (sp.csr_array(arrays, shape=shape) @ dense_x)
        dense_out[...] = product if beta == 0 else product + beta * dense_out

    begin(run)


def _new(described):
    number = next(numbers)
    descriptors[number] = described
    return number
