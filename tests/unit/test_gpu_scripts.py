"""Scripts for GPUs, as far as they go without one."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def compare_cupy(monkeypatch):
    path = ROOT / "scripts" / "compare_cupy.py"
    spec = importlib.util.spec_from_file_location("compare_cupy", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compare_cupy", module)
    spec.loader.exec_module(module)
    return module


def test_the_first_day_tells_its_steps(tmp_path):
    # Its python3 is that of this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", ROOT / "scripts" / "gpu_first_day.sh", "--dry-run", tmp_path / "out"]
    env = {**os.environ, "PATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    steps = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert list(steps)[:3] == ["machine", "versions", "kernels"]
    assert {"memcheck", "racecheck", "schemes", "products", "epoch-pyg", "two-nccl"} < set(steps)
    assert "gpu.graph=yes" in steps["epoch-small-captured"]
    if shutil.which("compute-sanitizer") is None or importlib.util.find_spec("cupy") is None:
        assert steps["memcheck"].startswith("(here: not run, ")
    assert "(here" not in steps["epoch-host"]
    assert not (tmp_path / "out").exists()


def test_parameters_of_cupys_functions_are_read_from_their_text(compare_cupy):
    text = "self, intptr_t handle, tuple sizes=(1, 2), *, bool last=False, **kwargs"
    parameters = compare_cupy.of_text(text)
    assert parameters.names == ("handle", "sizes", "last")
    assert parameters.required == 1
    plain = compare_cupy.of_text("size_t a, int b, int c=0")
    given = compare_cupy.Parameters
    for names, required, takes in (("ab", 2, True), ("abc", 3, True), ("a", 1, False)):
        assert plain.takes(given(tuple(names), required)) == takes, names
    assert not plain.takes(given(tuple("abcd"), 4))


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
