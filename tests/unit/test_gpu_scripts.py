"""Scripts for GPUs, as far as they go without one."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def compare_cupy(monkeypatch):
    path = ROOT / "scripts" / "compare_cupy.py"
    spec = importlib.util.spec_from_file_location("compare_cupy", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compare_cupy", module)
    spec.loader.exec_module(module)
    return module


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


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile with")
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


def test_the_stand_in_and_what_is_used_of_cupy_are_found(compare_cupy):
    defined = dict(compare_cupy.defined())
    assert defined["cupy_backends.cuda.libs.cusparse.CUSPARSE_INDEX_64I"] == 3
    assert defined["cupy.ndarray.set"].names == ("arr", "stream")
    graphs = {
        "Stream.begin_capture", "Stream.end_capture", "Stream.is_capturing", "Graph.launch",
        "MemoryPool.malloc", "using_allocator",
    }  # fmt: skip
    assert {f"cupy.cuda.{name}" for name in graphs} <= set(defined)
    used = compare_cupy.used_names()
    assert used["cupy.RawModule"] == {"code", "options"}
    assert "cupy_backends.cuda.libs.cusparse.spMM" in used
