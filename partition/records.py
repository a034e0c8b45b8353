"""Files: JSON lines, files and folders written whole or not at all, untrusted npy and npz."""

import contextlib
import errno
import io
import json
import math
import os
import re
import secrets
import shutil
import socket
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np

from partition.errors import UserError, report_as, require, shortened, shown, system_errors
from partition.locks import check_outside_graphs, process_is_dead, process_space
from partition.resident import check_memory


def to_json(value: object) -> object:
    """``default=`` of :func:`json.dumps` for NumPy values, dataclasses and paths."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


# Types of numbers in JSON files, with the values that they may have.
Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=1 << 48)]


def one_of(names: Iterable[str]) -> msgspec.Meta:
    """Of a text in a JSON file: it is one of these names."""
    return msgspec.Meta(pattern=rf"^({'|'.join(names)})\Z")


def printable(value: Any) -> Any:
    """A JSON value whose texts steer no terminal, wherever they are printed."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown(key): printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) is int else printable(item) for item in value]
    return value


def append_record(file: IO[str], event: str, **values: object) -> None:
    """Write one record to an open file and flush it, so that a reader sees it at once."""
    file.write(json.dumps({"event": event, **values}, default=to_json) + "\n")
    file.flush()


def read_records(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All records of a JSON-lines file; a last line cut off by a crash is left out."""
    with system_errors(f"cannot read {path}"), open_regular(path) as file:
        lines = file.read().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            if number < len(lines):
                raise UserError(f"{path}, line {number}: not a JSON record") from error
    return records


def make_room_for(path: str | os.PathLike[str]) -> None:
    """Make the folder of a file that a long run will write at its end.

    A file that cannot be written, or lies in a graph folder, is refused before the run.
    """
    path = Path(path)
    check_outside_graphs(path)
    with system_errors(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    _check_is_no_device(path)
    probe = temporary_name(path)  # permissions alone do not tell: of root, and on read-only mounts
    with system_errors(f"cannot write {path}: no file can be made in {path.parent}"):
        probe.touch(exist_ok=False)
        probe.unlink()


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary neighbour of ``path``; on success sync it and rename it to ``path``."""
    path = Path(path)
    _check_is_no_device(path)
    temporary = temporary_name(path)
    new = mode.replace("w", "x")  # and so through no link
    try:
        with system_errors(f"cannot write {path}"):
            with open(temporary, new, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a temporary neighbour of ``path``, empty; on success sync it, rename it to ``path``.

    A folder that is overwritten is renamed aside, and deleted when the new one is in its place.
    """
    path = Path(path)
    temporary = temporary_name(path)
    aside = temporary.with_name(f"{temporary.stem}.{path.name}.old")
    try:
        with system_errors(f"cannot write {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            sweep(path.parent)
            temporary.mkdir()
            with report_as(temporary, path):
                yield temporary
            sync_folder(temporary)
            if overwrite and os.path.lexists(path):
                os.rename(path, aside)
            os.rename(temporary, path)
            sync_folder(path.parent)
    finally:
        if os.path.lexists(aside) and not os.path.lexists(path):
            os.rename(aside, path)
        _delete(temporary)
        _delete(aside)


def temporary_name(path: str | os.PathLike[str]) -> Path:
    """A new name beside ``path`` that nobody can foresee, and that says which process uses it."""
    who = f"{_host()}-{process_space()}-{os.getpid()}"
    return Path(path).with_name(f".{who}-{secrets.token_hex(8)}.tmp")


def sweep(folder: str | os.PathLike[str]) -> None:
    """Delete what processes of this host left under temporary names when they were killed.

    A file or folder that was renamed aside, and not replaced yet, gets its name back.
    """
    here = re.escape(f".{_host()}-{process_space()}-")
    pattern = re.compile(here + r"(?P<pid>\d{1,9})-[0-9a-f]{16}(\.tmp|\.(?P<name>.+)\.old)")
    with contextlib.suppress(OSError):
        for path in Path(folder).iterdir():
            found = pattern.fullmatch(path.name)
            if not found or not process_is_dead(int(found["pid"])):
                continue
            original = path.with_name(found["name"] or path.name)
            if found["name"] and not os.path.lexists(original):
                os.rename(path, original)
            else:
                _delete(path)


def _check_is_no_device(path: Path) -> None:
    kind = "a folder" if path.is_dir() else "no regular file"
    require(path.is_file() or not path.exists(), f"cannot write {path}: it is {kind}")


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())[:64]


def _delete(path: Path) -> None:
    """Delete a file, a link or a folder, if it is there; what cannot be deleted stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make what was created and renamed in a folder survive a power cut."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open an untrusted file for reading; pipes and devices, which may have no end, are refused."""
    # Without O_NONBLOCK, opening a pipe waits for who writes to it.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UserError(f"cannot read {path}: it is not a regular file")
    return os.fdopen(file, "rb")


# Deflate cannot expand a byte to more than this (RFC 1951: 258 bytes out of 2 bits).
DEFLATE_RATIO = 1032


# An archive of up to so many bytes is read however small the file is, a larger one if it is not
# more than so many times as long as the file.
FREE_ARCHIVE = 1 << 30
ARCHIVE_RATIO = 200
# Kinds of dtypes, as NumPy calls them.
NUMBERS = "biufc"
TEXTS = "SU"


def read_npz(
    path: str | os.PathLike[str],
    wanted: Container[str] | None = None,
    *,
    kinds: str = NUMBERS,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, np.ndarray]:
    """Read an untrusted ``.npz``.

    Pickles are refused, and sizes in headers are checked before memory is allocated.

    Parameters
    ----------
    wanted : container of str, optional
        Names of the arrays to read; others are not touched. Without it, all of them.
    kinds : str
        What arrays may hold.
    shapes : mapping of str to tuple, optional
        What shape an array must have: another is refused before anything is allocated.

    Raises
    ------
    UserError
        If the file is missing, no npz, damaged, or announces more than its bytes can hold, or
        an array of another shape than is asked for.
    """
    arrays = {}
    with _open_npz(path) as (archive, members, size):
        chosen = {name: m for name, m in members.items() if wanted is None or name in wanted}
        nbytes = sum(member.file_size for member in chosen.values())
        if shapes is None and nbytes > max(FREE_ARCHIVE, ARCHIVE_RATIO * size):
            many = f"unpacks to more than {ARCHIVE_RATIO} times its size, {nbytes:,} bytes"
            raise UserError(f"{path} {many}", "if you trust it, write it again with numpy.savez")
        for name, member in chosen.items():
            where, shape = f"{path}: {name}", (shapes or {}).get(name)
            if member.file_size > member.compress_size * DEFLATE_RATIO + DEFLATE_RATIO:
                raise UserError(f"{where} announces more than its bytes can hold")
            opened = partial(archive.open, member)
            arrays[name] = read_npy(opened, member.file_size, where, kinds=kinds, wanted=shape)
    return arrays


@contextlib.contextmanager
def zip_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what goes wrong in reading a zip archive into one UserError that names it."""
    damaged = EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, UnicodeError, struct.error
    try:
        with system_errors(f"cannot read {path}"):
            yield
    # A RuntimeError is a member that wants a password, or is compressed in an unknown way.
    except damaged as error:
        what = "cannot be read" if isinstance(error, RuntimeError) else "is truncated or damaged"
        raise UserError(f"{path} {what}: {shortened(str(error), 100)}") from error


@contextlib.contextmanager
def _open_npz(
    path: str | os.PathLike[str],
) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo], int]]:
    """Open an ``.npz``: the archive, its members by name, and the bytes of the file."""
    with zip_errors(path), open_regular(path) as file:
        if file.read(2) != b"PK" and not zipfile.is_zipfile(file):
            raise UserError(f"{path} is not an npz file")
        members: dict[str, zipfile.ZipInfo] = {}
        with zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                require(name not in members, f"{path} holds {name!r} twice")
                members[name] = entry
            yield archive, members, os.fstat(file.fileno()).st_size


def npz_names(path: str | os.PathLike[str]) -> set[str]:
    """Names of the arrays of an ``.npz``; a UserError if it is none, or two have one name."""
    with _open_npz(path) as (_, members, _):
        return set(members)


def map_npy(path: str | os.PathLike[str], *, kinds: str = NUMBERS) -> np.ndarray:
    """Map an untrusted ``.npy`` file read-only: see :func:`read_npz`."""
    with system_errors(f"cannot read {path}"), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(NPY_HEAD)
        start, shape, fortran, dtype = read_npy_header(head, size, str(path), kinds)
        if 0 in shape:  # which cannot be mapped
            return np.empty(shape, dtype)
        try:
            return np.memmap(file, dtype, "r", start, shape, "F" if fortran else "C")
        except OSError as error:
            if error.errno == errno.ENOMEM:  # of addresses: the file is as it should be
                raise MemoryError(f"cannot map {path} of {size:,} bytes") from error
            raise


def read_npy(
    open_file: Callable[[], IO[bytes]],
    size: int,
    where: str,
    *,
    kinds: str = NUMBERS,
    wanted: tuple[int, ...] | None = None,
) -> np.ndarray:
    """The array of an ``.npy`` that cannot be mapped, of ``size`` bytes at most.

    ``open_file`` opens it at its begin, and is called twice; ``where`` names it in messages;
    ``wanted`` is the shape that it must have.
    """
    with open_file() as file:
        _, shape, _, dtype = read_npy_header(file.read(NPY_HEAD), size, where, kinds)
    require(wanted in (None, shape), f"{where} is of shape {shape}, not {wanted}")
    check_memory(math.prod(shape) * dtype.itemsize, where)
    with open_file() as file:
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except ValueError as error:
            raise UserError(f"{where} is truncated") from error


NPY_HEAD = 1 << 16  # bytes that hold any header of an .npy that NumPy accepts


def read_npy_header(
    head: bytes, size: int, where: str, kinds: str
) -> tuple[int, tuple[int, ...], bool, np.dtype]:
    """Length of the header of an ``.npy``, shape, order and dtype.

    A header that is damaged, or announces more than a file of ``size`` can hold, is refused.
    """
    require(head.startswith(b"\x93NUMPY"), f"{where} is not a .npy array")
    stream, form = io.BytesIO(head), np.lib.format  # it has what it has, whatever is announced
    try:
        first = form.read_magic(stream) == (1, 0)
        read = form.read_array_header_1_0 if first else form.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except Exception as error:  # a damaged header can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{where} is truncated or damaged: {reason}") from error
    if dtype.hasobject:
        raise UserError(f"{where}: Object arrays are not read, as they can run programs")
    sizes = all(type(extent) is int and extent >= 0 for extent in shape)
    if dtype.kind not in kinds or not dtype.itemsize or not sizes:
        texts = " or texts" if "U" in kinds else ""
        raise UserError(f"{where} holds no numbers{texts}, but {dtype} {shape}")
    # Without its zeros, because NumPy has no empty array of 2⁶³ rows either.
    extent = math.prod(filter(None, shape)) * dtype.itemsize
    if extent > size - stream.tell() and (all(shape) or extent >= 2**63):
        raise UserError(f"{where} is truncated: its header announces {dtype} {shape}")
    return stream.tell(), shape, fortran, dtype
