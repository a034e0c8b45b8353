"""Help with keys: ``gcnmpi config KEY``, and the completion of words by a shell."""

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from gcnmpi.cli.main import cli
from gcnmpi.options.config import keys
from partition.errors import UserError


def test_config_tells_a_key_or_a_table_of_keys():
    said = CliRunner().invoke(cli, ["config", "model.norm"]).output
    assert said.startswith('model.norm = "none"\n    ')
    said = CliRunner().invoke(cli, ["config", "train"]).output
    there = [name for name, _, _ in keys() if name.startswith("train.")]
    assert [line.split(" = ")[0] for line in said.splitlines()[::2]] == there


@pytest.mark.parametrize(
    ("name", "hint"),
    [("model.nrm", "'model.norm'"), ("train.x", "train.lr"), ("foo", "tuned/cora-gcn")],
)
def test_a_key_that_does_not_exist_is_told_beside_those_of_its_table(name, hint):
    with pytest.raises(UserError, match="unknown configuration or key") as found:
        cli.main(["config", name], standalone_mode=False)
    assert hint in found.value.hint


@pytest.mark.parametrize(
    ("words", "begun", "some"),
    [
        ([], "pl", "plan"),
        (["train", "--set"], "model.no", "model.norm="),
        (["train", "G.graph", "--set", "dtype=float64", "--set"], "train.l", "train.lr="),
        (["config", "gcn"], "--h", "--help"),
    ],
)
def test_a_shell_completes_commands_options_and_keys(words, begun, some):
    found = ShellComplete(cli, {}, "gcnmpi", "_GCNMPI_COMPLETE").get_completions(words, begun)
    assert some in [one.value for one in found]
    assert all(one.value.startswith(begun) for one in found)
