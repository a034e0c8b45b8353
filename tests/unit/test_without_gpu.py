"""Without a GPU: CUDA's emulator finds defects that are planted in kernels; scripts for GPUs."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gcnmpi.kernels import cuda

pytestmark = pytest.mark.slow
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile with")

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


@needs_compiler
@pytest.mark.parametrize("case", PLANTED)
def test_planted_defects_are_found(run, case):
    name, old, _, expected = PLANTED[case]
    found = run(case, *arguments(name, run.poison))
    assert expected in found
    assert bool(found) == bool(old), found


# Scripts for GPUs.

ROOT = Path(__file__).parents[2]


def first_day(tmp_path, *words, **variables):
    """Its exit status, the lines that it prints, and the folder of its results."""
    # Its python3 is that of this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    folders = {"OUT": str(tmp_path / "out"), "WORK": str(tmp_path / "work")}
    env = {**os.environ, "PATH": path, **folders, "VERTICES": "60", **variables}
    command = ["bash", ROOT / "scripts" / "gpu_first_day.sh", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines(), tmp_path / "out"


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_the_first_day_ends_on_a_bare_machine(tmp_path):
    steps = "kernels", "*check", "graph", "products", "epoch-*", "two-*", "profile"
    code, lines, out = first_day(tmp_path, *steps)
    assert code == 0, lines
    records = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    results = {record["step"]: (record["status"], record["said"]) for record in records}
    assert results.pop("graph")[0] == "passed"
    skipped = ("skipped", "kernel 'cupy' needs the Python package 'cupy'")
    assert len(results) > 15
    assert set(results.values()) == {skipped}
    assert sorted(file.name for file in out.iterdir()) == [
        "log.txt", "results.jsonl", "summary.txt", "tables.md",
    ]  # fmt: skip


@needs_compiler
def test_the_first_day_on_the_stand_in(tmp_path):
    path = os.pathsep.join([str(ROOT / "tests" / "fake"), os.environ.get("PYTHONPATH", "")])
    steps = "graph", "epoch-own", "two-mpi"
    code, lines, out = first_day(tmp_path, *steps, PYTHONPATH=path)
    assert code == 0, lines
    assert "two-mpi               skipped         0 s  one GPU" in lines
    assert (out / "summary.txt").read_text().splitlines() == lines[:-1]
    assert "| epoch-own |" in (out / "tables.md").read_text()
    # A later call finds the graph, and adds to the results; what takes too long is stopped.
    slow = tmp_path / "nvidia-smi"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    more = {"PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]]), "LIMIT": "1"}
    code, lines, out = first_day(tmp_path, "machine", **more)
    assert code == 1
    assert lines[0].split()[:4] == ["machine", "out", "of", "time"]
    assert len((out / "summary.txt").read_text().splitlines()) == len(steps) + 1
