"""Requests of products, attention and maxima to a GPU's memory, as the emulator counts them.

    count_requests.py [WIDTH ...]

For rows with numbers of entries from a Poisson distribution and from a power law, prints a row of
Markdown for each operation and width: launches, sectors of 32 bytes in a request of a warp, the
share of their bytes that is asked for, the share of the lanes that take part in a request, and
how often a thread comes to one place of its source at most. No cache is modelled; a share over 1
means that several lanes read the same bytes. Needs no GPU: it runs on the stand-in for CuPy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = (4, 7, 16, 32, 41, 64, 128)
ROWS, HEADS = 1024, 4
DEGREES = {"Poisson, mean 13": (13, 0.0), "power law, mean 20": (20, 1.5)}
LONGEST = 13_000  # entries of the longest row, of a power law


def main(*widths: str) -> None:
    """Print a table for each distribution."""
    os.environ["FAKE_CHECKS"] = "1000000000"
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "fake")]
    for title, (mean, exponent) in DEGREES.items():
        print(f"{title}\n")
        print("| operation | launches | sectors a request | bytes used | lanes | longest loop |")
        print("|---|---|---|---|---|---|")
        matrix = random_matrix(mean, exponent)
        for width in map(int, widths or WIDTHS):
            for name, call in operations(matrix, width):
                print(f"| {name}, {width} | {counted(call)} |", flush=True)
        print()


def random_matrix(mean: int, exponent: float) -> sp.csr_array:
    """Columns are uniform; with an exponent, row lengths follow a power law, and one is long."""
    random = np.random.default_rng(1)
    lengths = random.poisson(mean, ROWS)
    if exponent:
        lengths = np.floor((random.pareto(exponent, ROWS) + 1) * mean * (1 - 1 / exponent))
        lengths = np.minimum(lengths.astype(np.int64), LONGEST)
        lengths[ROWS // 2] = LONGEST
    starts = np.append(0, np.cumsum(lengths))
    columns = random.integers(0, ROWS, starts[-1])
    return sp.csr_array((np.ones(starts[-1]), columns, starts), shape=(ROWS, ROWS))


def operations(matrix: sp.csr_array, width: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """On arrays of random numbers."""
    from gcnmpi.kernels.interface.neighbours import (
        Attention,
        AttentionBackward,
        AttentionV2,
        AttentionV2Backward,
    )
    from gcnmpi.options.kernel import KERNELS

    kernel = KERNELS.get("cupy")(np.float32)
    random = np.random.default_rng(2)
    heads = HEADS if width % HEADS == 0 else 1

    def dense(columns: int = width) -> Any:
        found = kernel.empty(ROWS, columns)
        kernel.copy(kernel.from_host(random.standard_normal((ROWS, columns)).astype("f4")), found)
        return found

    multiplied, pattern = kernel.sparse(matrix), kernel.pattern(matrix, None)
    x, y, out, grad, dx, dy = (dense() for _ in range(6))
    t, s, shift, total, dt, ds = (dense(heads) for _ in range(6))
    vector, dvector = dense()[0], dense()[0]
    arg = kernel.from_host(np.zeros((ROWS, width), np.int32))
    scratch = kernel.empty(pattern.scratch_rows, heads)
    common = pattern, x, 0.2, None, out, shift, total
    first, second = Attention(*common, t, s), AttentionV2(*common, y, vector, scratch)
    yield "product", lambda: kernel.spmm(multiplied, x, out)
    yield "maximum", lambda: kernel.max_aggregate(pattern, x, out, arg)
    yield "maximum, back", lambda: kernel.max_aggregate_backward(pattern, grad, arg, dx)
    yield "attention", lambda: kernel.attend(first)
    back = AttentionBackward(first, grad, dx, dt, ds, scratch)
    yield "attention, back", lambda: kernel.attend_backward(back)
    yield "attention v2", lambda: kernel.attend_v2(second)
    back_v2 = AttentionV2Backward(second, grad, dx, dy, dvector)
    yield "attention v2, back", lambda: kernel.attend_v2_backward(back_v2)


def counted(call: Callable[[], None]) -> str:
    """Cells of the table; with VERBOSE in the environment, those of each kernel before."""
    import cupy as cp
    from cupy import compiled

    cp.cuda.get_current_stream().synchronize()
    compiled.requests.clear()
    call()
    cp.cuda.get_current_stream().synchronize()
    if "VERBOSE" in os.environ:
        for name, numbers in compiled.requests:
            print(f"|   {name} | {cells(1, np.array([numbers]))} |")
    return cells(len(compiled.requests), np.array([n for _, n in compiled.requests]))


def cells(launches: int, numbers: np.ndarray) -> str:
    requests, lanes, used, sectors, _ = numbers.sum(axis=0)
    shares = (
        f"{sectors / requests:.1f} | {used / (32 * sectors):.2f} | {lanes / (32 * requests):.2f}"
    )
    return f"{launches} | {shares} | {numbers[:, 4].max()}"


if __name__ == "__main__":
    main(*sys.argv[1:])
