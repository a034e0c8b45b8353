"""The emulator of CUDA finds defects that are planted in kernels."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

from gcnmpi.kernels import cuda

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile with")

FOLDER = Path(__file__).parents[1] / "fake" / "cupy" / "emulator"
MISSING = "sums[t] = sum;\n  } TOGETHER"
# A kernel, what is put in place of what in it, and what is found.
PLANTED = {
    "nothing": ("add_losses", "", "", ""),
    "a barrier is missing": ("add_losses", MISSING, MISSING.replace("TOGETHER", ""), "race"),
    "a thread returns before a barrier": (
        "add_losses", "  ADD_UP", "  if (threadIdx.x == 200) return;\n  ADD_UP",
        "not all threads reach a barrier",
    ),
    "threads are at different barriers": (
        "add_losses", "sums[t] = sum;\n  } TOGETHER",
        "sums[t] = sum;\n  }\n  if (threadIdx.x < 9) TOGETHER\n  else TOGETHER",
        "threads wait at different barriers",
    ),
    "shared memory that nobody wrote": (
        "add_losses", "sums[t] = sum;", "if (t < 100) sums[t] = sum;", "read of what nothing wrote",
    ),
    "one after the last": ("add_losses", "k < length", "k <= length", "read out of bounds"),
    "a place in shared memory that is none": (
        "add_losses", "sums[t] = sum;", "sums[t + 1] = sum;", "undefined: out_of_bounds",
    ),
    "no check of rows": ("take_rows", "i >= rows || j", "j", "out of bounds"),
    "a gap between columns": ("take_rows", "AT(x, rows_taken[i], j)", "x[2 * j + 1]", "read out"),
    "two threads write a place": ("put_rows", "rows_put[i]", "i / 2", "race"),
    "memory that nothing wrote": ("pick", "AT(x, i, j)", "x[0]", "read of what nothing wrote"),
    "16 bytes where 4 begin": (
        "row_max", "T best = lowest;", "T best = (*(const Numbers<4>*)(x + 1)).at[0];",
        "misaligned pointer",
    ),
}  # fmt: skip


def text_of(name):
    """A kernel's declaration and body."""
    code = cuda.source("float32")
    first = code.index(f"__global__ void {name}(")
    return 'extern "C" ' + code[first : code.index("\n}\n", first) + 3]


@pytest.fixture(scope="module")
def run():
    """``run(case, grid, block, *arguments)`` → findings."""
    spec = importlib.util.spec_from_file_location("emulator", FOLDER / "__init__.py")
    emulator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(emulator)
    source = cuda.source("float32")
    numbers = "template <int N> struct alignas(N * sizeof(T)) Numbers { T at[N]; };\n"
    code = source[: source.index('extern "C"')] + numbers
    for number, (name, old, new, _) in enumerate(PLANTED.values()):
        text = text_of(name)
        assert old in text
        code += text.replace(old, new, 1).replace(f" {name}(", f" case_{number}(")

    def launch(case, *given):
        return emulator.launch(code, f"case_{list(PLANTED).index(case)}", *given, checked=True)

    launch.poison = np.full(1, emulator.POISON, np.uint32).view(np.float32)
    return launch


def arguments(name, poison):
    """Grid, block and arguments with which nothing is wrong."""
    x, out = np.arange(20, dtype=np.float32).reshape(5, 4), np.zeros((5, 4), np.float32)
    wide = np.arange(40, dtype=np.float32).reshape(5, 8)[:, ::2]
    rows, small, one = np.arange(5), ((1, 1), (4, 8)), ((1, 1), (1, 8))
    size = np.int64(5), np.int64(4)
    if name == "add_losses":
        numbers, total = np.arange(700.0), np.zeros(1)
        return (1, 1), (256, 1), (numbers, total, np.int64(len(numbers)))
    if name in ("take_rows", "put_rows"):
        return *small, (wide, np.int64(8), np.int64(2), rows, out, *strides(out), *size)
    if name == "pick":
        x[0, 0] = poison[0]
        return *one, (x, *strides(x), size[1], rows % 3 + 1, np.int64(0), out[0:5, 0], *size)
    return *one, (x, *strides(x), size[1], np.float32(-9), out.reshape(-1), size[0], np.int64(1))


def strides(array):
    return tuple(np.int64(stride // array.itemsize) for stride in array.strides)


@pytest.mark.parametrize("case", PLANTED)
def test_planted_defects_are_found(run, case):
    name, old, _, expected = PLANTED[case]
    found = run(case, *arguments(name, run.poison))
    assert expected in found
    assert bool(found) == bool(old), found
