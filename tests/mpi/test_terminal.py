"""Codes for terminals: in no file and no pipe, whatever mpirun gives ranks; but on terminals."""

import json
import re
import shlex

import pytest
from stored_graphs import store

from partition.importing.synthetic import sbm

FEW = ("--set", "train.epochs=3")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    made = sbm(60, 3, degree=5, features=4, seed=0)
    return store(tmp_path_factory.mktemp("graph") / "g.graph", made, 2)


@pytest.fixture(scope="module")
def lines(graph, tmp_path_factory):
    """Every command under mpirun that prints a table or progress."""
    folder = tmp_path_factory.mktemp("lines")
    parts = (graph, "--partition", "rp-2")
    return {
        "train": ("train", *parts, *FEW, "--out", folder / "t"),
        "repeat": ("repeat", *parts, *FEW, "--seeds", "0..1", "--out", folder / "r"),
        "sweep": ("sweep", *parts, *FEW, "--seeds", "0", "--try", "train.lr=0.1,0.01", "--out",
                  folder / "s"),
        "verify": ("verify", *parts, *FEW),
        "doctor": ("doctor",),
        "bench-schemes": ("bench-schemes", *parts, "--epochs", "1", "--schemes", "p2p"),
    }  # fmt: skip


def test_no_command_under_mpirun_writes_codes_into_files(mpirun, lines):
    done = mpirun(2, "commands.py", json.dumps(list(lines.values()), default=str))
    for printed in ("record ", "seed-1 ", "train.lr=0.01/seed-0 ", "checks passed", "s/epoch"):
        assert printed in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_terminal_that_mpirun_writes_to_shows_progress_and_styles(shell, lines, tmp_path):
    words = [str(word) for word in lines["repeat"]]
    words[words.index("--out") + 1] = str(tmp_path / "out")
    command = shlex.join(["mpirun", "-n", "2", "python", "-P", "-m", "gcnmpi", *words])
    # A terminal that Python makes, as script(1) does; what is written to it is printed here.
    there = shlex.join(["python", "-c", "import pty, sys; pty.spawn(sys.argv[1:])"])
    done = shell(f"TERM=xterm {there} sh -c {shlex.quote(f'{command}; {command} > file')}")
    assert re.search("run 2 of 2: seed-1\r?\n", done.stdout)
    assert re.search("epoch +3/3  loss ", done.stdout)
    assert "\x1b[1m" in done.stdout
    assert "seed-1 " in (tmp_path / "file").read_text()
    assert "\x1b" not in (tmp_path / "file").read_text()
