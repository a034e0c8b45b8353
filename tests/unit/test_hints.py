"""Command lines: words that are nearly right, help with keys, and what communicates."""

from types import SimpleNamespace

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from refusals import refuses

import gcnmpi
from gcnmpi.cli import main
from gcnmpi.cli.main import cli
from gcnmpi.options.config import keys
from gcnmpi.run import claims
from gcnmpi.run.best import diverged
from gcnmpi.run.record import Epoch
from partition.cli.main import cli as partition_cli

PROGRAMS = {"gcnmpi": cli, "gcn-partition": partition_cli}


def test_what_is_nearly_an_option_or_a_setting_is_told(tmp_path):
    for says, lines in {
        "has no option --": [
            ("gcnmpi train G --lr 0.01", "--set train.lr=0.01"),
            ("gcnmpi train G --model sage", "--set model.name=sage"),
            ("gcnmpi train G --lr", "--set train.lr=VALUE"),
            ("gcnmpi train G --name x", "--set model.name=x or --set task.name=x or"),
            ("gcnmpi sweep G --out D --lr 0.1,0.01", "or --try train.lr=0.1,0.01"),
            ("gcn-partition add G --model hp -k 4 --preset quality", "--set preset=quality"),
            # An option of the command that is nearly right comes before a key that is.
            ("gcnmpi train G --partiton hp-4", "did you mean --partition?"),
            ("gcnmpi train G --whatever", "see gcnmpi train --help"),
        ],
        "not of the form": [
            ("gcnmpi train G --set train.lr=0.1 --set train.epochs 10", "--set train.epochs=10"),
            ("gcn-partition add G --model hp -k 4 --set preset quality", "--set preset=quality"),
            ("gcn-partition refine G hp-4 --weigh total 0.5", "--weigh total=0.5"),
        ],
        "": [
            (f"gcnmpi report --html {tmp_path}", "--html PAGE.html: Write a page"),
            ("gcnmpi train G --split one", "--split K: Split of the masks"),
            ("gcnmpi report D --html page.txt", "such as --html page.html"),
        ],
    }.items():
        for line, hint in lines:
            name, *words = line.split()  # before a file is opened
            named = {"prog_name": name, "standalone_mode": False}
            error = refuses(".", PROGRAMS[name].main, words, **named)
            assert says in error.message
            assert hint in error.hint


def test_keywords_that_are_nearly_keys(tmp_path):
    for keywords, says in (
        ({"lr": 0.01}, "train_lr=0.01"),
        ({"hidden": [64, 64]}, "model_hidden=[64, 64]"),
        ({"train": {"lr": 0.01}}, "config={'train': {'lr': 0.01}}"),
        ({"whatever": 1}, "gcnmpi info"),
    ):
        assert says in refuses(".", gcnmpi.train, tmp_path, **keywords).hint


def test_a_run_whose_loss_rose_far_above_its_first_diverged():
    def told(*losses):
        return diverged([Epoch(k, loss, {}, 0.1) for k, loss in enumerate(losses, 1)], 1e3)

    for losses in ((), (1.9,), (1.9, 700.0, 1.2), (1.9, 18.9)):
        assert told(*losses) is None
    assert told(1.9, 19.1) is not None
    assert "from 1.9 in epoch 1 to 540,931 in epoch 2" in told(1.9, 540931.2)
    assert "lower train.lr, which is 1000" in told(1.9, 540931.2)


def test_config_tells_a_key_or_a_table_of_keys():
    one, section = (CliRunner().invoke(cli, ["config", w]).output for w in ("model.norm", "train"))
    assert one.startswith('model.norm = "none"\n    ')
    there = [name for name in keys() if name.startswith("train.")]
    assert [line.split(" = ")[0] for line in section.splitlines()[::2]] == there
    for name, hint in (("model.nrm", "'model.norm'"), ("foo", "tuned/cora-gcn")):
        refused = refuses("unknown", cli.main, ["config", name], standalone_mode=False)
        assert hint in refused.hint


def test_a_shell_completes_commands_options_and_keys():
    for words, begun, some in (
        ([], "pl", "plan"),
        (["train", "--set"], "model.no", "model.norm="),
        (["train", "G.graph", "--set", "dtype=float64", "--set"], "train.l", "train.lr="),
        (["config", "gcn"], "--h", "--help"),
    ):
        found = ShellComplete(cli, {}, "gcnmpi", "_GCNMPI_COMPLETE").get_completions(words, begun)
        assert some in [one.value for one in found]
        assert all(one.value.startswith(begun) for one in found)


# Commands that communicate obey comm.timeout before they send anything.


COMMANDS = [
    "train G.graph", "infer G.graph --weights w.npz --out y.npy", "verify G.graph", "calibrate",
    "evaluate G.graph --weights w.npz", "score G.graph --weights w.npz --top 3 --out y.csv",
    "propagate G.graph pagerank --out x.npy", "bench-schemes G.graph", "doctor",
    "repeat G.graph --out runs",
    "partition G.graph -k 2", "import links.csv G.graph",
    "sweep G.graph --out runs --try train.lr=0.01,0.1",
]  # fmt: skip


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_watched(monkeypatch, tmp_path, line):
    def watchdog(seconds, rank):
        raise ArithmeticError(seconds, rank)

    monkeypatch.setattr(claims, "watchdog", watchdog)
    monkeypatch.chdir(tmp_path)
    words = [*line.split(), "--set", "comm.timeout=7"]
    job = cli.main(words, prog_name="gcnmpi", standalone_mode=False)
    # Whatever else it asked of a communicator is not there.
    refuses(r"\(7\.0, 3\)", job, SimpleNamespace(rank=3), error=ArithmeticError)
    assert job.timeout == 7  # of MPI's start and end, which are around it


def test_every_command_that_communicates_is_in_the_table():
    """Commands that communicate return a job."""
    commands = {name: cli.get_command(click.Context(cli), name) for name in main.ELSEWHERE}
    found = {
        name
        for name, command in (cli.commands | commands).items()
        if command.callback.__annotations__["return"] in ("Job", "common.Job")
    }
    assert found == {line.split()[0] for line in COMMANDS}
