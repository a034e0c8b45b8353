"""The record of a run as a file: made, continued, and written to line by line."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gcnmpi.options.requests import LOGS
from gcnmpi.run.logs import Log
from gcnmpi.run.record import (
    RECORD,
    Epoch,
    Line,
    Resume,
    Start,
    epochs_until,
    epochs_until_resume,
    read_lines,
)
from partition.errors import UserError, system_errors
from partition.locks import check_outside_graphs
from partition.records import atomic_file

PREVIOUS = "run.previous.jsonl"


class Writer:
    """Appends lines to a file, each whole or not at all; without a path it does nothing.

    One rank writes, and all must hear of it when it cannot: the first error is kept, and
    :meth:`check` raises it where the ranks agree on errors, with the hint. Beside the file are the
    logs of these names, which have the epochs until one of them already.
    """

    def __init__(
        self,
        path: str | os.PathLike | None,
        hint: str | None = None,
        logs: Sequence[str] = (),
        until: int = 0,
    ) -> None:
        self._path, self._hint = path, hint
        self._error: UserError | None = None
        self._file: int | None = None
        self._logs: list[Log] = []
        if path is None:
            return
        with system_errors(f"cannot write {path}", hint):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            self._folder = os.stat(Path(path).parent)
        before = epochs_until(path, until) if logs and until else []
        with self._first_error():
            self._logs = [LOGS.get(name)(Path(path).parent, before) for name in logs]
        self.check()

    @property
    def failed(self) -> bool:
        """Whether something could not be written; nothing is written after it."""
        return self._error is not None

    def __call__(self, line: Line) -> None:
        if self._file is None or self.failed:
            return
        with self._first_error():
            with system_errors(f"cannot write {self._path}", self._hint):
                _append(self._file, line.text().encode())
            if isinstance(line, Epoch):
                for log in self._logs:
                    log.add(line)

    def check(self) -> None:
        """Raise the error of what could not be written."""
        if self._error is not None:
            raise self._error

    def restore(self) -> bool:
        """Write the record again if it is not there any more; whether its folder was not either.

        Nothing is lost: this process has the file open, wherever it went. Another one that has
        taken its place is put aside. A UserError if another folder is in the place of that of the
        record, or it cannot be written.
        """
        if self._file is None or self._path is None or self.failed:
            return False
        path = Path(self._path)
        with system_errors(f"cannot write {path}", self._hint):
            if _is_there(path, os.fstat(self._file)):
                return False
            moved = not path.parent.exists()
            if not moved and not os.path.samestat(os.stat(path.parent), self._folder):
                raise UserError(
                    f"{path.parent} was renamed or removed during the run, and another folder is "
                    "in its place",
                    "nothing is written to it; resume from the path of the one that was renamed, "
                    "which has the checkpoints",
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                _put_aside(path)
            before, size = self._file, os.fstat(self._file).st_size
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
            for at in range(0, size, _PIECE):
                _append(self._file, os.pread(before, _PIECE, at))
            os.close(before)
        print(
            f"warning: {path} was renamed, removed or replaced during the run: it is written again",
            file=sys.stderr,
            flush=True,
        )
        return moved

    def close(self) -> None:
        """Close the files; some file systems say only then that they could not be written."""
        file, self._file = self._file, None
        with self._first_error(), system_errors(f"cannot write {self._path}", self._hint):
            if file is not None:
                os.close(file)
        for log in self._logs:
            with self._first_error():
                log.close()

    @contextlib.contextmanager
    def _first_error(self) -> Iterator[None]:
        """Keep what goes wrong, unless something has before."""
        try:
            yield
        except UserError as error:
            self._error = self._error or error
        except OSError as error:
            what = f"cannot write {error.filename or 'a log'}: {error.strerror or error}"
            self._error = self._error or UserError(what, self._hint)


_PIECE = 1 << 20


def _is_there(path: Path, file: os.stat_result) -> bool:
    """Whether a path is that of an open file.

    Some file systems give a file another number now and then, but never another size.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, file) or found.st_size == file.st_size


def _append(file: int, data: bytes) -> None:
    """Write all of it, or leave the file as it was."""
    before, left = os.fstat(file).st_size, memoryview(data)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(file, before)
        raise


def _put_aside(path: Path) -> Path:
    """Rename a record to ``run.previous.jsonl``; one that has this name gets a number."""
    kept = path.with_name(PREVIOUS)
    if kept.exists():
        free = (path.with_name(f"run.previous-{number}.jsonl") for number in itertools.count(2))
        kept.replace(next(other for other in free if not other.exists()))
    return path.replace(kept)


def new_folder(parent: Path, name: str) -> Path:
    """Make a folder that nobody else has: ``parent/name``, or ``parent/name-2``, and so on.

    A UserError if no folder can be made there.
    """
    with system_errors(f"cannot write {parent / name}"):
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = parent / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise AssertionError


def make_folder(out: Path) -> None:
    """Make the folder of a run, if need be.

    A UserError if no record could be written there.
    """
    check_outside_graphs(out / RECORD)
    with system_errors(f"cannot write {out / RECORD}"):
        out.mkdir(parents=True, exist_ok=True)


def new_record(out: Path) -> Path:
    """An empty record in the folder of a run; those of earlier runs are kept beside it.

    A UserError if the folder or the file cannot be written.
    """
    path = out / RECORD
    make_folder(out)
    with system_errors(f"cannot write {path}"):
        if path.exists():
            kept = _put_aside(path)
            print(
                f"note: the record of the run before in {out} is now {kept.name}", file=sys.stderr
            )
        path.touch()
    return path


def continued_record(out: Path, start: Start, epochs: Sequence[Epoch]) -> Path:
    """The record of the run in ``out``, to be continued after the last of ``epochs``.

    Epochs that it lacks, or has otherwise, are added: a checkpoint outlives a record that a crash
    has cut off, and may be resumed in another folder. A UserError if it cannot be read or written;
    one that is damaged is put aside.
    """
    path = out / RECORD
    before: list[tuple[dict[str, Any], Line | None]] = []
    make_folder(out)
    with system_errors(f"cannot write {path}"):
        if path.exists():
            with open(path, "rb"):  # what cannot be read now may be whole
                pass
            try:
                before = list(read_lines(path))
            except UserError:  # the checkpoint's copy of the epochs is as good
                _put_aside(path)
    if not any(type(line) is Start for _, line in before):
        before = [(json.loads(start.text()), start), *before]
    there: dict[int, Epoch] = {}
    for _, line in before:
        if isinstance(line, Epoch):
            there[line.epoch] = line
        elif isinstance(line, Resume):
            there = epochs_until_resume(there, line)
    lacking = [epoch for epoch in epochs if not epoch.same_result(there.get(epoch.epoch))]
    with atomic_file(path, "w") as file:
        file.writelines(json.dumps(facts) + "\n" for facts, _ in before)
        file.writelines(epoch.text() for epoch in lacking)
    return path
