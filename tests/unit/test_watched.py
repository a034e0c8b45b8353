"""Every command that communicates obeys ``comm.timeout``, before it sends anything."""

import contextlib
from types import SimpleNamespace

import click
import pytest
from refusals import refuses

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


class Second:
    """A communicator of rank 1, which is told what rank 0 has said."""

    rank, size = 1, 2

    def __init__(self, first=None):
        self.first = first

    def Allreduce(self, _, array, op):
        """This rank's value is the largest."""

    def bcast(self, mine, root=0):
        if root == self.rank:  # an error that this rank tells the other
            return mine
        if self.first is None:
            raise Watched(mine)
        return self.first


def said(words):
    """The words that rank 0 sends to the others, and the job."""
    job = main.cli.main(words.split(), prog_name="gcnmpi", standalone_mode=False)
    with pytest.raises(Watched) as found:
        job(Second())
    return found.value.args[0], job


@pytest.mark.parametrize("name", COMMANDS)
def test_ranks_with_other_words_are_refused(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    _, job = said(COMMANDS[name])
    first, _ = said(COMMANDS[name] + " --set comm.timeout=3")
    refuses("rank 1 has another configuration than rank 0", job, Second(first))
    first, _ = said("doctor" if name != "doctor" else "calibrate")
    refuses("rank 1 has another command than rank 0", job, Second(first))
