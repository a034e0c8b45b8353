"""Under mpirun: gcnmpi command lines, each a list of words without "gcnmpi", as cases of cases.py.

A line gives a list: for every rank null, or the text of the mistake that it and all the others
raised. With "at once" before it, it does not wait for runs that may be about to end; with "N
bytes", a node has so many free. Of a list of two lines, the first is that of rank 0. As a program,
it takes a JSON list of lines that none may complain of.
"""

import json
import sys
from unittest import mock

import click

from gcnmpi.cli.main import cli
from gcnmpi.mpi.process import run
from gcnmpi.run import claims, memory_check
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


def of_case(comm, words: list) -> list[str | None]:
    words = words[comm.rank > 0] if isinstance(words[0], list) else words
    if words[0] == "at once":
        way = mock.patch.object(claims, "PATIENCE", 0.1)
    elif words[0].endswith(" bytes"):
        way = mock.patch.object(memory_check, "free_bytes", return_value=int(words[0].split()[0]))
    else:
        return comm.allgather(attempt(comm, words))
    with way:
        return comm.allgather(attempt(comm, words[1:]))


def main(comm) -> int:
    return int(any(any(of_case(comm, words)) for words in json.loads(sys.argv[1])))


if __name__ == "__main__":
    run(main)
