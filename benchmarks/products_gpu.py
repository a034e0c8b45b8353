"""Products with all of M on a GPU, timed by events: products_gpu.py G.graph [REPEATS].

Ours, cuSPARSE's by each of its algorithms for CSR, and PyTorch's if there is one for this GPU; a
line of JSON for each width. Bytes are those that must move: each entry of M, each row of X and of
the result once. ``same_bits`` says whether all products of one had the same bits, ``error`` is the
largest difference from ours, relative to the largest number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import cupy as cp
import numpy as np

from gcnmpi.kernels.cuda.cusparse import CusparseMatrix
from gcnmpi.options.kernel import KERNELS
from partition.graph.aggregation import aggregation_matrix
from partition.graph.store import open_graph

WIDTHS = (16, 32, 47, 64, 100, 128, 256)
ALGORITHMS = {"ALG1": 4, "ALG2": 6, "ALG3": 12}  # CUSPARSE_SPMM_CSR_*


def main(path: str, repeats: int = 20) -> None:
    """Print a line a width."""
    kernel = KERNELS.get("cupy")(np.float32)
    matrix = aggregation_matrix(open_graph(path).graph, "in", True, "sym").astype(np.float32)
    n, item = matrix.shape[0], 4
    random = np.random.default_rng(1)
    stored = matrix.nnz * (item + 4) + (n + 1) * 8
    for width in WIDTHS:
        x, out = kernel.empty(n, width), kernel.empty(n, width)
        kernel.copy(kernel.from_host(random.standard_normal((n, width))), x)
        ways = {"own": partial(kernel.spmm, kernel.sparse(matrix), x, out)}
        for name, algorithm in ALGORITHMS.items():
            other = CusparseMatrix(matrix, kernel.dtype, algorithm)
            ways[f"cusparse {name}"] = partial(other.multiply, x, out, False)
        record: dict[str, Any] = {
            "graph": path, "device": kernel.device, "width": width, "rows": n,
            "entries": matrix.nnz, "bytes": stored + 2 * n * width * item,
        }  # fmt: skip
        expected = None
        for name, call in ways.items():
            milliseconds = timed(call, repeats)
            results = {repeated(call, out).tobytes() for _ in range(3)}
            found = kernel.to_host(out)
            expected = found if expected is None else expected
            error = float(np.abs(found - expected).max() / np.abs(expected).max())
            record[name] = {"ms": milliseconds, "same_bits": len(results) == 1, "error": error}
        record["copy"] = {"ms": timed(partial(kernel.copy, x, out), repeats)}
        record["torch"] = by_torch(matrix, kernel.to_host(x), repeats)
        print(json.dumps(record), flush=True)


def timed(call: Callable[[], None], repeats: int) -> float:
    """Median milliseconds of a call, after two that are not counted."""
    for _ in range(2):
        call()
    times = []
    for _ in range(repeats):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(cp.cuda.get_elapsed_time(start, stop))
    return float(np.median(times))


def repeated(call: Callable[[], None], out: Any) -> np.ndarray:
    """The result of another call."""
    out.fill(0)
    call()
    return cp.asnumpy(out)


def by_torch(matrix: Any, x: np.ndarray, repeats: int) -> dict[str, Any]:
    """PyTorch's product of a CSR tensor, or why there is none."""
    try:
        import torch
    except ImportError:
        return {"skipped": "PyTorch is not installed"}
    if not torch.cuda.is_available():
        return {"skipped": "PyTorch sees no GPU"}
    parts = (matrix.indptr, matrix.indices, matrix.data)
    sparse = torch.sparse_csr_tensor(*map(torch.from_numpy, parts), matrix.shape).cuda()
    dense = torch.from_numpy(x).cuda()
    times = []
    for _ in range(repeats + 2):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.mm(sparse, dense)
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return {"ms": float(np.median(times[2:])), "version": torch.__version__}


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
