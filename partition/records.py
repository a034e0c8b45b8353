"""Files: records of one JSON object a line, files written whole or not at all, distrusted npz."""

from __future__ import annotations

import contextlib
import io
import json
import math
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
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError) as error:
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
                if name in arrays:
                    raise UserError(f"{path} is damaged: it holds {name} twice")
                if wanted is None or name in wanted:
                    arrays[name] = _read_member(path, name, archive, member)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    # zipfile raises the fourth for a compression that it does not know.
    except (
        EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError
    ) as error:  # fmt: skip
        raise UserError(f"{path} is truncated or damaged: {error}") from error
    return arrays


def map_npy(path: str | os.PathLike) -> np.ndarray:
    """The array of an ``.npy`` file of anybody's, mapped read-only: see :func:`read_npz`."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start, shape, fortran, dtype = _read_header(file.read(_HEAD), size, str(path))
            if 0 in shape:  # which cannot be mapped
                return np.empty(shape, dtype)
            order: Any = "F" if fortran else "C"
            return np.memmap(file, dtype, "r", start, shape, order)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _read_member(
    path: Path, name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> np.ndarray:
    if member.file_size > member.compress_size * DEFLATE_RATIO + DEFLATE_RATIO:
        raise UserError(f"{path}: {name} announces more than its bytes can hold")
    try:
        with archive.open(member) as file:
            header = _read_header(file.read(_HEAD), member.file_size, f"{path}: {name}")
        start, shape, fortran, dtype = header
        flat = np.empty(math.prod(shape), dtype)
        with archive.open(member) as file:
            file.read(start)
            raw = flat.view(np.uint8)
            for at in range(0, len(raw), _HEAD):
                piece = file.read(min(_HEAD, len(raw) - at))
                if len(piece) < min(_HEAD, len(raw) - at):
                    raise UserError(f"{path}: {name} is truncated")
                raw[at : at + _HEAD] = np.frombuffer(piece, np.uint8)
        return flat.reshape(shape, order="F" if fortran else "C")
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{path}: cannot read {name}: {error}") from error
    except MemoryError as error:
        raise UserError(f"{path}: {name} does not fit into this machine's memory") from error


_HEAD = 1 << 16  # bytes that hold any header that NumPy accepts


def _read_header(head: bytes, size: int, where: str) -> tuple[int, tuple[int, ...], bool, np.dtype]:
    """Length of the header of an ``.npy``, shape, order and dtype.

    Raises
    ------
    UserError
        If it is damaged, or announces more than a file of ``size`` can hold.
    """
    stream = io.BytesIO(head)  # which gives what it has, whatever length is announced
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        else:
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    except Exception as error:  # a damaged header can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{where} is truncated or damaged, or no array: {reason}") from error
    if dtype.hasobject:
        raise UserError(f"{where}: Object arrays are not read, they are programs")
    if dtype.kind not in "biufc" or any(type(extent) is not int or extent < 0 for extent in shape):
        raise UserError(f"{where} holds no numbers, but {dtype} {shape}")
    # Without its zeros, because NumPy has no empty array of 2⁶³ rows either.
    extent = math.prod(filter(None, shape)) * dtype.itemsize
    if extent > size - stream.tell() and (all(shape) or extent >= 2**63):
        raise UserError(f"{where} is truncated: its header announces {dtype} {shape}")
    return stream.tell(), shape, fortran, dtype
