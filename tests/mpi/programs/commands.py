"""Under mpirun: many gcnmpi command lines in one launch, which costs seconds.

Usage: commands.py LINES.json OUT.json

LINES.json holds a list of command lines (lists of words, without "gcnmpi"). OUT.json gets one
list a line: for every rank null, or the text of the mistake that it and all the others raised.
"""

import json
import sys
from pathlib import Path

import click

from gcnmpi.cli.main import cli
from gcnmpi.mpi.process import run
from partition.errors import UserError


def attempt(comm, words: list[str]) -> str | None:
    try:
        job = cli.main(words, prog_name="gcnmpi", standalone_mode=False)
    except UserError as error:  # found on the command line, by every rank
        return str(error)
    except click.ClickException as error:
        return error.format_message()
    try:
        job(comm)
    except UserError as error:
        if not getattr(error, "agreed", False):
            raise RuntimeError("raised by one rank alone") from error
        return str(error)
    return None


def main(comm) -> int:
    lines = json.loads(Path(sys.argv[1]).read_text())
    outcomes = [comm.allgather(attempt(comm, words)) for words in lines]
    if comm.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(outcomes))
    return 0


if __name__ == "__main__":
    run(main)
