"""Compressed files and archives of one file: their content, out of proportion to them never.

The first bytes of a file tell its kind. Nothing is written to disk, and no name in an archive is
used as a path.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, cast

import pyarrow as pa

from partition.errors import UserError
from partition.importing.readers.files import quoted
from partition.records import DEFLATE_RATIO, open_regular, zip_errors

# Lists of arcs and tables of numbers shrink to a tenth or so in a packed file, hardly further.
TEXT_RATIO = 100
FREE_CONTENT = 1 << 26
ZIP, TAR = "a zip archive", "a tar archive"
_BEGIN = 512  # bytes by which packed content is known
_LAYERS = 4  # of a file that is packed: a gzip'd file in a tar archive in gzip has 3
_BUFFER = 1 << 18
_KINDS = {
    b"\x1f\x8b": "compressed with gzip",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ\0": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"PK\3\4": ZIP,
    b"PK\5\6": ZIP,
}
_OPENERS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    "compressed with gzip": lambda file: cast(IO[bytes], gzip.GzipFile(fileobj=file, mode="rb")),
    "compressed with bzip2": lambda file: cast(IO[bytes], bz2.BZ2File(file)),
    "compressed with xz": lambda file: cast(IO[bytes], lzma.LZMAFile(file)),  # noqa: SIM115
    "compressed with zstd": lambda file: cast(IO[bytes], pa.CompressedInputStream(file, "zstd")),
}
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # ends of names
_SUFFIXES = re.compile(r"(\.(gz|bz2|xz|zst|tar|tgz|tbz2?|txz|tzst|zip))+$", re.IGNORECASE)
_NO_DATA = re.compile(r"(readme|licen[cs]e|\.|__macosx)|.*\.(md|html?|pdf|bib)$", re.IGNORECASE)


def packing_of(path: Path) -> str | None:
    """How a file is packed, "compressed with gzip" or "a zip archive"; None: it is not."""
    with open_regular(path) as file:
        return _packing(file.read(_BEGIN))


def open_unpacked(path: Path, *, ratio: int = TEXT_RATIO) -> IO[bytes]:
    """Open for reading bytes: those of the file, or of what is packed in it.

    Content of more than ``FREE_CONTENT`` that is more than ``ratio`` times as long as the file is
    refused while it is read; and so is an archive of several files, none of which is called like
    it; and a pipe, a device or a folder, from which nothing is read.
    """
    return _opened(path, ratio)[0]


def holds_arrays(path: Path) -> bool:
    """Whether a zip archive is an ``.npz``, or a file that torch wrote: read by other means."""
    with zip_errors(path), open_regular(path) as file, zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    return all(name.endswith(".npy") for name in names) or any(n.endswith(".pkl") for n in names)


def content_name(path: Path) -> str:
    """The name of a file without the suffixes of packing, or of the file in an archive."""
    file, name = _opened(path, TEXT_RATIO)
    file.close()
    return _SUFFIXES.sub("", name)


def position_in(file: IO[bytes]) -> int:
    """How many bytes of the file on disk have been read, of one that the above has opened."""
    raw = getattr(file, "raw", None)
    return raw.below.tell() if isinstance(raw, _Content) else file.tell()


def content_limit(path: Path) -> int:
    """The most bytes that reading a plain or packed file can yield."""
    ratio = 1 if packing_of(path) is None else DEFLATE_RATIO
    return path.stat().st_size * ratio


class _Content(io.RawIOBase):
    """Unpacked content, refused where it is out of proportion to the file ``below``."""

    def __init__(self, path: Path, file: IO[bytes], below: IO[bytes], ratio: int) -> None:
        super().__init__()
        self._path, self._file, self.below, self._ratio = path, file, below, ratio
        self._most, self._count = max(FREE_CONTENT, os.stat(path).st_size * ratio), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = 0
        while count < len(buffer) and (piece := self._file.read(len(buffer) - count)):
            buffer[count : count + len(piece)] = piece
            count += len(piece)
        self._count += count
        if self._count > self._most:
            raise UserError(
                f"{self._path} unpacks to more than {self._ratio} times its size",
                "if you trust it, unpack it and give the unpacked file",
            )
        return count

    def close(self) -> None:
        super().close()
        self.below.close()


def _opened(path: Path, ratio: int, wanted: str | None = None) -> tuple[IO[bytes], str]:
    """The content of a file, and its name; of an archive the member ``wanted``."""
    below = open_regular(path)
    file, name = below, path.name
    try:
        for _ in range(_LAYERS):
            kind = _packing(_begin(file))
            if kind is None:
                return file, name
            name = _SUFFIXES.sub("", name)
            if kind == ZIP:
                file, name = _of_zip(path, file, below)
            elif kind == TAR:
                found, name = _of_tar(path, file, wanted)
                if found is None:  # it was read to its end
                    below.close()
                    return _opened(path, ratio, name)
                file = found
            else:
                file = _OPENERS[kind](file)
            file = io.BufferedReader(_Content(path, file, below, ratio), _BUFFER)
    except BaseException:
        below.close()
        raise
    below.close()
    raise UserError(f"{path} is packed again and again", "unpack it")


def _begin(file: IO[bytes]) -> bytes:
    if isinstance(file, io.BufferedReader) and isinstance(file.raw, _Content):
        return file.peek(_BEGIN)[:_BEGIN]
    begin = file.read(_BEGIN)
    file.seek(0)
    return begin


def _packing(begin: bytes) -> str | None:
    if begin[257:262] == b"ustar":
        return TAR
    return next((kind for magic, kind in _KINDS.items() if begin.startswith(magic)), None)


def _of_zip(path: Path, file: IO[bytes], below: IO[bytes]) -> tuple[IO[bytes], str]:
    if file is not below:
        raise UserError(f"{path} is {ZIP} that is compressed again", "unpack it")
    archive = zipfile.ZipFile(file)
    names = [name for name in archive.namelist() if name and not name.endswith("/")]
    name = _chosen(path, ZIP, names)
    try:
        return archive.open(name), PurePosixPath(name).name
    except (RuntimeError, NotImplementedError) as error:  # it wants a password, or a library
        raise UserError(f"{path}: {quoted(name)} cannot be read: {error}", "unpack it") from error


def _of_tar(path: Path, file: IO[bytes], wanted: str | None) -> tuple[IO[bytes] | None, str]:
    """The member of an archive that is called like it, or the wanted one; None: that name."""
    names, like = list[str](), _stem(path.name)
    archive = tarfile.open(fileobj=file, mode="r|")  # noqa: SIM115
    for member in archive:
        if member.isreg():
            names.append(member.name)
            if wanted in (member.name, None) and (wanted or _stem(member.name) == like):
                return archive.extractfile(member), PurePosixPath(member.name).name
    return None, _chosen(path, TAR, names)


def _chosen(path: Path, kind: str, names: Sequence[str]) -> str:
    """The file of an archive that is meant; a UserError where that is not clear."""
    files = [name for name in names if not _NO_DATA.match(PurePosixPath(name).name)]
    alike = [name for name in files if _stem(name) == _stem(path.name)]
    if len(alike or files) != 1:
        shown = ", ".join(map(quoted, files[:12])) or "nothing"
        raise UserError(f"{path} is {kind} of {shown}", "unpack it, and give one file")
    return (alike or files)[0]


def _stem(name: str) -> str:
    """The name of a file without folders and suffixes."""
    return PurePosixPath(_SUFFIXES.sub("", PurePosixPath(name).name)).stem.lower()
