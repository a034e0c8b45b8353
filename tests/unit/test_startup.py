"""A start imports nothing from the working directory, and nothing that it does not need."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import small_graph, store

from gcnmpi.cluster.submit import slurm
from partition import PYTHON
from partition.backends.process import run_each
from partition.models.descriptions import RowModel

ROOT = Path(__file__).parents[2]
SPARED = {"numba", "pandas", "pyarrow", "scipy.linalg", "scipy.spatial", "scipy.special", "torch"}
OTHER_TASKS = {f"gcnmpi.{of}.{task}" for of in ("nn.tasks", "run") for task in ("links", "samples")}
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
    start(sys.executable, "-m", package, "--version")


def test_the_process_of_a_tool_does_not_either(trap):
    model = RowModel(np.ones(6, np.int64))
    (parts,) = run_each("partition.backends.rows:BLOCK", model, 2, [{"imbalance": 0, "seed": 0}])
    assert len(parts) == 6


@pytest.mark.parametrize("package", ["gcnmpi", "partition"])
def test_in_a_folder_of_sources_the_installed_program_is_started(tmp_path, monkeypatch, package):
    for name in ("partition", "gcnmpi"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / package / "cli.py").write_text("raise SystemExit('the sources that lie here')\n")
    monkeypatch.chdir(tmp_path)
    start(sys.executable, "-m", package, "--version")


def test_a_job_gets_no_variables_of_the_job_that_submits_it(monkeypatch):
    handed = ("SLURM_MEM_PER_CPU", "SLURM_CPU_BIND", "SBATCH_TIMELIMIT", "SBATCH_SIGNAL")
    for name in (*handed, "SLURM_CONF", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "7")
    seen = slurm("env")
    assert not any(f"{name}=" in seen for name in handed)
    assert all(word in seen for word in ("SLURM_CONF=7", "SBATCH_ACCOUNT=7"))


def test_python_is_started_in_one_way_only():
    files = [path for name in ("gcnmpi", "partition") for path in (ROOT / name).rglob("*.py")]
    assert len(files) > 80
    named = [path.name for path in files if "sys.executable" in path.read_text(encoding="utf-8")]
    assert named == ["__init__.py"]


def test_training_waits_for_no_large_package_that_it_does_not_need(tmp_path):
    """They took every rank half a second."""
    path = store(tmp_path / "g.graph", small_graph("directed"))
    words = ["gcnmpi", "train", path, "--set", "train.epochs=1", "--out", tmp_path / "run"]
    told = start(*PYTHON[:-1], "-X", "importtime", PYTHON[-1], *words, hidden=())
    imported = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert imported >= {"numpy", "gcnmpi.run.trainer", "gcnmpi.report.progress"}
    assert not imported & (SPARED | OTHER_TASKS)


def start(*words, hidden=("PYTHONPATH", "PYTHONSAFEPATH")):
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr
