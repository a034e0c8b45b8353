"""Many command lines in one launch."""

import json
from collections.abc import Callable, Iterable

import pytest


@pytest.fixture(scope="session")
def gcnmpi_lines(mpirun, tmp_path_factory) -> Callable[..., list[list[str | None]]]:
    """``gcnmpi_lines(nranks, lines, timeout=60)`` → for each line, what each rank complained of.

    A line is the words after "gcnmpi". Ranks that have nothing to complain of say None.
    """

    def run(nranks: int, lines: Iterable, timeout: float = 60) -> list[list[str | None]]:
        folder = tmp_path_factory.mktemp("lines")
        words = [[str(word) for word in line] for line in lines]
        (folder / "lines.json").write_text(json.dumps(words))
        files = (folder / "lines.json", folder / "out.json")
        done = mpirun(nranks, "commands.py", *files, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(files[1].read_text())

    return run
