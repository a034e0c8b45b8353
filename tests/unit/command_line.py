"""The command lines, run in this process."""

import json

import click
from click.testing import CliRunner, Result

from gcnmpi.cli.main import cli as gcnmpi_cli
from partition.cli.main import cli as partition_cli


def run(*words: object, code: int = 0, program: click.Command = partition_cli) -> Result:
    """Run gcn-partition, or another program; its result, if it ends with ``code``."""
    result = CliRunner().invoke(program, [str(word) for word in words], prog_name="gcn-partition")
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def as_json(*words: object) -> object:
    """The one JSON value that gcn-partition prints with ``--json``."""
    return json.loads(run(*words, "--json").stdout)


def refused(*words: object, program: click.Command = partition_cli) -> str:
    """The messages of a command that must end with code 2 and print nothing else."""
    result = run(*words, code=2, program=program)
    assert result.stdout == ""
    return result.stderr


def plan(*words: object) -> str:
    """The output of ``gcnmpi plan``; its errors are raised."""
    done = CliRunner().invoke(
        gcnmpi_cli, ["plan", *map(str, words)], standalone_mode=False, catch_exceptions=False
    )
    return done.output
