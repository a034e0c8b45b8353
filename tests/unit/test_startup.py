"""Nothing that lies in the working directory is executed or imported."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from partition.backends.process import run_apart
from partition.models.graph import RowModel

ROOT = Path(__file__).parents[2]
SHADOWED = ("random", "numpy", "click", "json", "mpi4py", "scipy", "typing")


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A working directory with files that would be taken for modules, and leave a trace."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(f'open("{tmp_path}/executed", "a").write("{name} ")\n')
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


@pytest.mark.parametrize("package", ["gcnmpi", "partition"])
def test_a_program_does_not_import_from_the_working_directory(trap, package):
    done = start(sys.executable, "-m", package, "--version")
    assert done.returncode == 0, done.stderr


def test_the_process_of_a_tool_does_not_either(trap):
    model = RowModel(np.ones(6, np.int64))
    assert len(run_apart("partition.backends.rows:BLOCK", model, 2, imbalance=0, seed=0)) == 6


@pytest.mark.parametrize("package", ["gcnmpi", "partition"])
def test_in_a_folder_of_sources_the_installed_program_is_started(tmp_path, monkeypatch, package):
    shutil.copytree(ROOT / "partition", tmp_path / "partition")
    shutil.copytree(ROOT / "gcnmpi", tmp_path / "gcnmpi")
    (tmp_path / package / "cli.py").write_text("raise SystemExit('the sources that lie here')\n")
    monkeypatch.chdir(tmp_path)
    done = start(sys.executable, "-m", package, "--version")
    assert done.returncode == 0, done.stderr


def test_python_is_started_in_one_way_only():
    files = [path for name in ("gcnmpi", "partition") for path in (ROOT / name).rglob("*.py")]
    assert len(files) > 80
    named = [path.name for path in files if "sys.executable" in path.read_text(encoding="utf-8")]
    assert named == ["startup.py"]


def start(*words):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
