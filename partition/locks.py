"""Locks on folders that end with the process that holds them.

A lock is a folder, ``.lock`` unless it is named otherwise, inside the folder that it protects::

    .lock/lock                    what the operating system locks (flock)
    .lock/HOST-SPACE-PID-TOKEN    a record of each holder, in JSON, for messages

The operating system releases the lock when its holder dies, however it dies, and network file
systems do so for other hosts too. Where a file system has no locks, the records decide: then the
record of a dead process on another host has to be deleted by hand, and the message says so.
"""

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from partition.errors import UserError, shown

_LOCK = ".lock"
PATIENCE = 0.5  # seconds: locks that are held for an instant only are waited for
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
_HELD = {errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK}
_RECORD_BYTES = 1 << 14


@dataclass(frozen=True)
class Holder:
    """Who holds a lock.

    Attributes
    ----------
    space : str
        Which process numbers ``pid`` is one of: containers have their own.
    born : str
        When the process started, as the kernel counts; process numbers come round again.
    job : str
        Number of the Slurm job; empty outside one.
    restarts : int
        How often Slurm had put that job back into the queue.
    since : float
        Seconds since 1970.
    """

    purpose: str
    exclusive: bool
    host: str = field(default_factory=socket.gethostname)
    space: str = field(default_factory=lambda: process_space())
    pid: int = field(default_factory=os.getpid)
    born: str = field(default_factory=lambda: _born(os.getpid()))
    job: str = field(default_factory=lambda: os.environ.get("SLURM_JOB_ID", ""))
    restarts: int = field(default_factory=lambda: _restarts())
    command: str = field(default_factory=lambda: " ".join(sys.argv)[:1000])
    since: float = field(default_factory=time.time)

    def __str__(self) -> str:
        job = f", job {self.job}" if self.job else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return shown(f"{self.purpose} (host {self.host}, process {self.pid}{job}, since {since})")


@contextlib.contextmanager
def folder_lock(
    path: str | os.PathLike[str],
    purpose: str,
    *,
    exclusive: bool = True,
    name: str = _LOCK,
    patience: float = PATIENCE,
) -> Iterator[None]:
    """Hold a lock on the folder ``path``, which exists; an error says who else holds it.

    ``purpose``, such as "gcnmpi train", tells others what is done meanwhile. Nobody else may hold
    the lock; or, of one that is not ``exclusive``, nobody else exclusively. A shared lock in a
    folder that cannot be written to is not taken: nobody changes that folder. ``name`` is the lock
    of this folder, a file name that begins with a dot; ``patience`` the seconds to wait for others.
    """
    lock = Path(path) / name
    holder = Holder(purpose, exclusive)
    record = lock / f"{holder.host}-{holder.space}-{holder.pid}-{secrets.token_hex(4)}"
    file = _wait(lock, holder, record, time.monotonic() + patience)
    try:
        yield
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                record.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                # Who is the last to leave takes the lock's folder away.
                if _flock(file, fcntl.LOCK_EX) and _is_there(lock, file):
                    shutil.rmtree(lock, ignore_errors=True)
            os.close(file)


def holders(path: str | os.PathLike[str], name: str = _LOCK) -> list[Holder]:
    """Who holds a lock on the folder ``path``, as far as records say; none that is known dead."""
    return [holder for _, holder in _records(Path(path) / name) if not holder_is_dead(holder)]


def holder_is_dead(holder: Holder) -> bool:
    """Whether a process is known to run no more.

    That is so on its own host only, or in a job that Slurm has started again since.
    """
    same_job = holder.job and holder.job == os.environ.get("SLURM_JOB_ID")
    if same_job and holder.restarts < _restarts():
        return True
    if (holder.host, holder.space) != (socket.gethostname(), process_space()):
        return False
    return process_is_dead(holder.pid) or bool(holder.born and _born(holder.pid) != holder.born)


def folder_inside(parent: str | os.PathLike[str], name: str) -> Path:
    """A folder in another; a UserError if it is a link that leads out of that one."""
    folder = Path(parent) / name
    real = Path(os.path.realpath(folder))
    if folder.is_symlink() and not real.is_relative_to(os.path.realpath(parent)):
        raise UserError(f"{folder} is a link that leads out of {parent}", "put a folder there")
    return folder


def check_outside_graphs(path: str | os.PathLike[str]) -> None:
    """Keep results out of graph folders, whose files they could replace, and which imports replace.

    Neither ``path`` itself nor a folder above it may be a graph folder.
    """
    path = Path(path)
    real = Path(os.path.realpath(path.parent)) / path.name
    for folder in (real, *real.parents):
        if all((folder / name).is_file() for name in ("manifest.json", "indptr.npy")):
            raise UserError(
                f"cannot write {path}: {folder.name} is a graph folder",
                "choose a place outside of it",
            )


def process_is_dead(pid: int) -> bool:
    """Whether there is no process of this number on this host."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as error:  # a process of another user's lives
        return isinstance(error, ProcessLookupError)
    return False


def process_space() -> str:
    """Which process numbers this process sees: those of the host, or of a container."""
    with contextlib.suppress(OSError):
        return str(os.stat("/proc/self/ns/pid").st_ino)
    return "0"


def _wait(lock: Path, holder: Holder, record: Path, end: float) -> int | None:
    """Take the lock as soon as it is free, until a time of the clock: its open file.

    None for a shared one where nothing can be written.
    """
    while True:
        taken, file = False, -1
        try:
            file = _open(lock)
            taken = _take(lock, file, holder, record)
            if taken:
                return file
        except FileNotFoundError as error:
            # Otherwise its holder took the lock's folder away between two system calls of ours.
            if not lock.parent.is_dir():
                raise UserError(f"there is no folder {lock.parent}") from error
        except OSError as error:
            if file < 0 and not holder.exclusive and error.errno in _UNWRITABLE:
                return None
            raise UserError(f"cannot lock {lock.parent}: {error.strerror or error}") from error
        finally:
            if file >= 0 and not taken:
                os.close(file)
        if time.monotonic() > end:
            raise _in_use(lock, holder.exclusive)
        time.sleep(0.02)


def _open(lock: Path) -> int:
    if lock.is_symlink():
        raise OSError(errno.ELOOP, f"{lock} is a symbolic link")
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        with contextlib.suppress(FileExistsError):
            lock.mkdir()
        return os.open(lock / "lock", flags | os.O_RDWR | os.O_CREAT, 0o666)
    except FileNotFoundError:
        raise
    except OSError:
        # Network file systems take an exclusive lock only on a file that is open for writing;
        # elsewhere, and for shared ones, reading is enough.
        with contextlib.suppress(OSError):
            return os.open(lock / "lock", flags | os.O_RDONLY)
        raise


def _take(lock: Path, file: int, holder: Holder, record: Path) -> bool:
    """Lock the open file and write the record; False if another has it, or it was removed."""
    locked = _flock(file, fcntl.LOCK_EX if holder.exclusive else fcntl.LOCK_SH)
    if locked is False or not _is_there(lock, file):
        return False
    text = json.dumps(asdict(holder))
    if locked:
        with contextlib.suppress(OSError):  # records are for messages only
            for stale, other in _records(lock):  # of processes that were killed
                if holder.exclusive or holder_is_dead(other):
                    stale.unlink(missing_ok=True)
            record.write_text(text, encoding="utf-8")
        return True
    # No locks here. Of two that write their records and then look, at least one sees the other.
    try:
        record.write_text(text, encoding="utf-8")
    except OSError as error:
        if holder.exclusive or error.errno not in _UNWRITABLE:
            raise
        # Whose folder it is may lock it, this process may not: it sees those that are there now.
    if _conflicting(lock, holder.exclusive, record):
        record.unlink(missing_ok=True)
        return False
    return True


def _flock(file: int, kind: int) -> bool | None:
    """Whether the file was locked; None if there are no locks on its file system."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def _is_there(lock: Path, file: int) -> bool:
    """Whether the open file is still the one that others find."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(lock / "lock", follow_symlinks=False), os.fstat(file))
    return False


def _records(lock: Path) -> list[tuple[Path, Holder]]:
    """The records of a lock that can be read, oldest first."""
    found = []
    with contextlib.suppress(OSError):
        for path in lock.iterdir():
            with contextlib.suppress(OSError, ValueError, RecursionError):
                file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                with os.fdopen(file, "rb") as stream:
                    facts = msgspec.json.decode(stream.read(_RECORD_BYTES), type=dict[str, Any])
                if facts.keys() == Holder.__dataclass_fields__.keys():
                    found.append((path, msgspec.convert(facts, Holder)))
    return sorted(found, key=lambda pair: pair[1].since)


def _conflicting(lock: Path, exclusive: bool, own: Path | None = None) -> list[tuple[Path, Holder]]:
    return [
        (path, holder)
        for path, holder in _records(lock)
        if path != own and (exclusive or holder.exclusive) and not holder_is_dead(holder)
    ]


def _in_use(lock: Path, exclusive: bool) -> UserError:
    hint = "wait until it ends, or choose another name"
    for record, holder in _conflicting(lock, exclusive):
        if holder.host != socket.gethostname():
            hint += f"; if that process has ended, delete {record}"
        return UserError(f"{lock.parent} is in use: {holder}", hint)
    return UserError(f"{lock.parent} is in use by another process", hint)


def _restarts() -> int:
    count = os.environ.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def _born(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    return ""
