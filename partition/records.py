"""Files: records of one JSON object a line, files written whole or not at all, distrusted npz."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Container, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from partition.errors import UserError


def to_json(value: Any) -> Any:
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


def append_record(file: IO[str], event: str, **values: Any) -> None:
    """Write one record to an open file and flush it, so that a reader sees it at once."""
    file.write(json.dumps({"event": event, **values}, default=to_json) + "\n")
    file.flush()


def read_records(path: str | os.PathLike) -> list[dict[str, Any]]:
    """All records of a JSON-lines file; a last line cut off by a crash is left out.

    Raises
    ------
    UserError
        If the file is missing or a line before the last is not JSON.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise UserError(f"{path}, line {number}: not a JSON record") from error
    return records


def make_room_for(path: str | os.PathLike) -> None:
    """Make the folder of a file that a long run will write at its end.

    Raises
    ------
    UserError
        If that cannot be, or no file can be written at ``path``: before the run, not after it.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    if path.is_dir():
        raise UserError(f"cannot write {path}: it is a folder")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write {path}: the folder {path.parent} is not writable")


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a temporary neighbour of ``path``; on success sync it and rename it to ``path``.

    Raises
    ------
    UserError
        If the file cannot be written (no such folder, no permission, disk full).
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(path: str | os.PathLike) -> None:
    """Make what was created and renamed in a folder survive a power cut."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# Deflate cannot expand a byte to more than this (RFC 1951: 258 bytes out of 2 bits).
DEFLATE_RATIO = 1032


def read_npz(
    path: str | os.PathLike, wanted: Container[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file of anybody's: no pickles, nothing allocated on its word.

    Parameters
    ----------
    wanted : container of str, optional
        Names of the arrays to read; others are not touched. Without it, all of them.

    Raises
    ------
    UserError
        If the file is missing, no npz, damaged, or announces more than its bytes can hold.
    """
    path = Path(path)
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if wanted is None or name in wanted:
                    arrays[name] = _read_member(path, name, archive, member)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        raise UserError(f"{path} is truncated or damaged: {error}") from error
    return arrays


def _read_member(
    path: Path, name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> np.ndarray:
    if member.file_size > member.compress_size * DEFLATE_RATIO + DEFLATE_RATIO:
        raise UserError(f"{path}: {name} announces more than its bytes can hold")
    try:
        with archive.open(member) as file:
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }.get(np.lib.format.read_magic(file), np.lib.format.read_array_header_2_0)
            shape, _, dtype = read_header(file)
        count = 1
        for extent in shape:
            count *= extent
        if min(shape, default=0) < 0 or count * dtype.itemsize > member.file_size:
            raise UserError(f"{path}: {name} is truncated: its header announces {dtype} {shape}")
        with archive.open(member) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, SyntaxError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot read {name}: {reason}") from error
    except MemoryError as error:
        raise UserError(f"{path}: {name} does not fit into this machine's memory") from error
