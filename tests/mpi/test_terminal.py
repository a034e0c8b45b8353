"""Codes for terminals: in no file and no pipe, whatever mpirun gives ranks; but on terminals."""

import json
import shlex

from stored_graphs import store
from words import line

from partition.importing.synthetic import sbm


def test_codes_are_written_to_terminals_only(mpirun, shell, tmp_path):
    """By every command under mpirun that prints a table or progress."""
    path = store(tmp_path / "g.graph", sbm(60, 3, degree=5, features=4, seed=0), 2)

    def words(verb, out=None, settings=("train.epochs=3",), **options):
        placed = {"partition": "rp-2", "settings": settings, "out": out and tmp_path / out}
        return [str(word) for word in line(verb, path, **placed, **options)]

    lines = [
        words("train", "t"),
        words("repeat", "r", seeds="0..1"),
        [*words("sweep", "s", seeds=0), "--try", "train.lr=0.1,0.01"],
        words("verify"), ["doctor"],
        words("bench-schemes", settings=(), epochs=1, schemes="p2p"),
    ]  # fmt: skip
    done = mpirun(2, "commands.py", json.dumps(lines))
    assert done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    again = words("repeat", "out", seeds="0..1")
    command = shlex.join(["mpirun", "-n", "2", "python", "-P", "-m", "gcnmpi", *again])
    # A terminal that Python makes, as script(1) does; what is written to it is printed here.
    there = shlex.join(["python", "-c", "import pty, sys; pty.spawn(sys.argv[1:])"])
    done = shell(f"TERM=xterm {there} sh -c {shlex.quote(f'{command}; {command} > file')}")
    assert "\x1b[1m" in done.stdout
    assert "seed-1 " in (tmp_path / "file").read_text()
    assert "\x1b" not in (tmp_path / "file").read_text()
