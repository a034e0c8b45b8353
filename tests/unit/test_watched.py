"""Every command that communicates obeys ``comm.timeout``, before it sends anything."""

import contextlib
from types import SimpleNamespace

import click
import pytest

from gcnmpi.cli import common, main
from gcnmpi.run import training

COMMANDS = {
    "train": "train G.graph",
    "infer": "infer G.graph --weights w.npz --out y.npy",
    "evaluate": "evaluate G.graph --weights w.npz",
    "score": "score G.graph --weights w.npz --top 3 --out y.csv",
    "propagate": "propagate G.graph pagerank --out x.npy",
    "verify": "verify G.graph",
    "calibrate": "calibrate",
    "bench-schemes": "bench-schemes G.graph",
    "bench spmm": "bench spmm --rmat 4",
    "bench epoch": "bench epoch G.graph",
    "bench exchange": "bench exchange G.graph",
    "doctor": "doctor",
    "repeat": "repeat G.graph --out runs",
    "partition": "partition G.graph -k 2",
    "import": "import links.csv G.graph",
    "sweep": "sweep G.graph --out runs --try train.lr=0.01,0.1",
}


class Watched(Exception):
    """Raised where the watch begins."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_watched(monkeypatch, tmp_path, name):
    @contextlib.contextmanager
    def watchdog(seconds, rank):
        raise Watched(seconds, rank)
        yield

    for module in (main, common, training):
        monkeypatch.setattr(module, "watchdog", watchdog)
    monkeypatch.chdir(tmp_path)
    words = [*COMMANDS[name].split(), "--set", "comm.timeout=7"]
    job = main.cli.main(words, prog_name="gcnmpi", standalone_mode=False)
    with pytest.raises(Watched) as found:
        job(SimpleNamespace(rank=3))  # whatever else it asked of a communicator is not there
    assert found.value.args == (7, 3)
    assert job.timeout == 7  # of MPI's start and end, which are around it


def test_every_command_that_communicates_is_in_the_table():
    """Commands that communicate return a job."""
    context = click.Context(main.cli)
    commands = {name: main.cli.get_command(context, name) for name in main.ELSEWHERE}
    groups = {"": main.cli.commands, "bench ": commands.pop("bench").commands}
    found = {
        f"{group}{name}"
        for group, members in groups.items()
        for name, command in members.items()
        if command.callback.__annotations__["return"] == "common.Job"
    }
    assert found == set(COMMANDS)
