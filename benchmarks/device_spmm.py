"""SpMM of a kernel with all of M beside a copy: device_spmm.py G.graph [KERNEL] [DTYPE].

Bytes are those that must move: each entry of M, each row of X and of the result once.
"""

import sys
import time

import numpy as np

from gcnmpi.options.kernel import KERNELS
from partition.graph.aggregation import aggregation_matrix
from partition.graph.store import open_graph

WIDTHS, REPEATS = (16, 32, 64, 128, 256), 20


def main(path: str, name: str = "cupy", dtype: str = "float32") -> None:
    """Print a line a width."""
    kernel = KERNELS.get(name)(np.dtype(dtype))
    matrix = aggregation_matrix(open_graph(path).graph, "in", True, "sym")
    n, item = matrix.shape[0], kernel.dtype.itemsize
    sparse = kernel.sparse(matrix)
    stored = matrix.nnz * (item + 4) + (n + 1) * 4
    print(f"{path}: {n} rows, {matrix.nnz} entries, {name}, {dtype}")
    print("width     ms   GB/s  GFLOP/s  copy GB/s")
    for width in WIDTHS:
        x, out = kernel.empty(n, width), kernel.empty(n, width)
        kernel.copy(kernel.from_host(np.ones((n, width))), x)
        seconds = median_seconds(kernel, kernel.spmm, sparse, x, out)
        copied = 2 * n * width * item / median_seconds(kernel, kernel.copy, x, out)
        moved = (stored + 2 * n * width * item) / seconds
        flops = 2 * matrix.nnz * width / seconds
        print(
            f"{width:5} {seconds * 1e3:6.3f} {moved / 1e9:6.0f} {flops / 1e9:8.0f}"
            f" {copied / 1e9:10.0f}"
        )


def median_seconds(kernel, call, *arguments) -> float:
    """Of one call, after two that are not counted: the matrix is analysed in the second."""
    times = []
    for _ in range(REPEATS + 2):
        kernel.finish()
        began = time.perf_counter()
        call(*arguments)
        kernel.finish()
        times.append(time.perf_counter() - began)
    return float(np.median(times[2:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
