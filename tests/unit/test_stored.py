"""Graph folders, partitions and weights that an earlier version wrote, as they were stored then."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from partition.cli.main import cli
from partition.graph.store import read_partition
from partition.startup import PYTHON

STORED = Path(__file__).parent / "stored"


@pytest.mark.parametrize("version", sorted(path.name for path in STORED.iterdir()))
def test_files_of_an_earlier_version_give_the_same_numbers(version, tmp_path):
    folder = shutil.copytree(STORED / version, tmp_path / "stored")
    for graph in folder.glob("*.graph"):
        checked = CliRunner().invoke(cli, ["check", str(graph)])
        assert checked.exit_code == 0, checked.output
        for partition in graph.glob("partitions/*.json"):
            assert read_partition(graph, partition.stem).k == 2
    out = tmp_path / "found.npy"
    words = ["infer", folder / "directed.graph", "--weights", folder / "weights.npz", "--out", out]
    subprocess.run([*PYTHON, "gcnmpi", *words, "--set", "dtype=float64"], check=True)
    np.testing.assert_allclose(np.load(out), np.load(folder / "logits.npy"), rtol=1e-12)
