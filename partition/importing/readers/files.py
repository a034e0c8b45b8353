"""The files of readers, and distrust of their announcements."""

import bz2
import contextlib
import gzip
import io
import lzma
import math
import os
import re
import stat
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike

from partition import records, resident
from partition.errors import DataWarning, UserError, require, shortened
from partition.graph.sparse import sp

_LARGEST_WHOLE = 1 << 24  # up to which float32 has every whole number
_DAMAGED = (
    EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, lzma.LZMAError, tarfile.TarError,
)  # fmt: skip


def check_file(path: str | os.PathLike[str]) -> None:
    """A UserError if ``path`` does not exist or is not a regular file."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        raise UserError(f"there is no file {path}") from None
    if not stat.S_ISREG(mode):
        known = {stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
        kind = known.get(stat.S_IFMT(mode), "a device")
        hint = None if stat.S_ISDIR(mode) else "write its content to a file first"
        raise UserError(f"{path} is {kind}, not a file", hint)


def quoted(text: str, most: int = 60) -> str:
    """A piece of a file for a message: in quotes, shortened, and without control characters."""
    return repr(str(shortened(text, most)))


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading ``path`` into one UserError that names it."""
    try:
        yield
    except _DAMAGED as error:
        message = f"{path} is truncated or damaged: {error}"
        raise UserError(message, "fetch or make the file again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"{path} does not fit into the memory of this machine") from error


def check_vertices(n: int, where: object) -> None:
    """Refuse a graph without vertices, or of more than memory holds."""
    require(n > 0, f"{where} holds a graph without vertices")
    resident.check_memory(16 * n, f"{where}: {n} vertices")


def check_inside(vertices: np.ndarray, n: int, where: object) -> None:
    """A UserError if one of the numbers is not that of a vertex."""
    inside = not len(vertices) or bool(vertices.min() >= 0 and vertices.max() < n)
    require(inside, f"{where} names a vertex outside 0..{n - 1}")


def finite_weights(values: np.ndarray, where: str, before: int = 0) -> np.ndarray:
    """``values``, after ``before`` others, as float64; a UserError names one that is not finite."""
    with np.errstate(over="ignore"):
        values = np.asarray(values, np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        at = int(np.argmin(finite))
        fill = "no weight may be missing: fill it in, or leave the row out"
        raise UserError(
            f"{where}: weight of entry {before + at + 1} is {values[at]}, not a finite number",
            fill if np.isnan(values[at]) else None,
        )
    return values


def narrowed(values: np.ndarray, dtype: DTypeLike, where: object) -> np.ndarray:
    """The values in C order as ``dtype``, with a warning if that rounds whole numbers."""
    if np.dtype(dtype) == np.float32 and values.dtype.itemsize > 2 and values.dtype != np.float32:
        step = max(1, (1 << 20) // max(1, values[:1].size))
        for piece in (values[at : at + step] for at in range(0, len(values), step)):
            large = piece[np.abs(piece) > _LARGEST_WHOLE]
            whole = large[np.isfinite(large) & (large == np.floor(large))]
            with np.errstate(over="ignore"):
                exact = whole.astype(np.longdouble)
                if (whole.astype(np.float32) != exact).any():
                    told = f"whole numbers beyond {_LARGEST_WHOLE:,} are rounded"
                    told = f"{where}: {told}, as features are float32"
                    warnings.warn(told, DataWarning, stacklevel=2)
                    break
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype, order="C")


def finite_features(
    features: np.ndarray, where: str, of: str = "vertex", columns: Sequence[str] = ()
) -> np.ndarray:
    """``features``, (n, d) numbers, as float32 in C order, unchanged where they are that already.

    Messages call rows ``of`` and columns by their names. A UserError if they are none, or an entry
    is not a finite float32.
    """
    if features.ndim != 2 or features.shape[1] < 1 or features.dtype.kind not in "biuf":
        raise UserError(
            f"{where}: features must be rows of numbers, not {features.dtype} {features.shape}"
        )
    features = narrowed(features, np.float32, where)
    # In slices: a test of the whole would take another copy's worth of memory.
    step = max(1, (1 << 24) // features.shape[1])
    for start in range(0, len(features), step):
        finite = np.isfinite(features[start : start + step])
        if not finite.all():
            row, column = np.unravel_index(np.argmin(finite), finite.shape)
            called = quoted(columns[int(column)]) if columns else column
            value = features[start + row, column]
            raise UserError(
                f"{where}: features of {of} {start + row}, column {called} are not finite",
                "features may not be missing: fill them in, or leave the column out"
                if np.isnan(value)
                else "infinities and values beyond float32 are not accepted",
            )
    return features


# Lists of arcs and tables of numbers shrink to a tenth or so in a packed file, hardly further.
TEXT_RATIO = 100
FREE_CONTENT = 1 << 26
ZIP, _TAR = "a zip archive", "a tar archive"
_BEGIN = 512  # bytes by which packed content is known
_LAYERS = 4  # of a file that is packed: a gzip'd file in a tar archive in gzip has 3
_BUFFER = 1 << 18
_OPENERS: dict[bytes, tuple[str, Callable[[Any], Any] | None]] = {
    b"\x1f\x8b": ("compressed with gzip", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    b"BZh": ("compressed with bzip2", bz2.BZ2File),
    b"\xfd7zXZ\0": ("compressed with xz", lzma.LZMAFile),
    b"\x28\xb5\x2f\xfd": (
        "compressed with zstd", lambda file: pa.CompressedInputStream(file, "zstd")
    ),
    b"PK\3\4": (ZIP, None),
    b"PK\5\6": (ZIP, None),
}  # fmt: skip
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")  # ends of names
_SUFFIXES = re.compile(r"(\.(gz|bz2|xz|zst|tar|tgz|tbz2?|txz|tzst|zip))+$", re.IGNORECASE)
_NO_DATA = re.compile(r"(readme|licen[cs]e|\.|__macosx)|.*\.(md|html?|pdf|bib)$", re.IGNORECASE)


def packing_of(path: Path) -> str | None:
    """How a file is packed, "compressed with gzip" or "a zip archive"; None: it is not."""
    with records.open_regular(path) as file:
        return _packing(file.read(_BEGIN))[0]


def open_unpacked(path: Path, *, ratio: int = TEXT_RATIO) -> IO[bytes]:
    """Open for reading bytes: those of the file, or of what is packed in it.

    Content of more than ``FREE_CONTENT`` that is more than ``ratio`` times as long as the file is
    refused while it is read; and so is an archive of several files, none of which is called like
    it; and a pipe, a device or a folder, from which nothing is read.
    """
    return open_content(path, ratio)[0]


def holds_arrays(path: Path) -> bool:
    """Whether a zip archive is an ``.npz``, or a file that torch wrote: read by other means."""
    with (
        records.zip_errors(path),
        records.open_regular(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        names = archive.namelist()
    return all(name.endswith(".npy") for name in names) or any(n.endswith(".pkl") for n in names)


def position_in(file: IO[bytes]) -> int:
    """How many bytes of the file on disk have been read, of one that the above has opened."""
    raw = getattr(file, "raw", None)
    return raw.below.tell() if isinstance(raw, _Content) else file.tell()


def content_limit(path: Path) -> int:
    """The most bytes that reading a plain or packed file can yield."""
    return path.stat().st_size * (1 if packing_of(path) is None else records.DEFLATE_RATIO)


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


def open_content(
    path: Path, ratio: int = TEXT_RATIO, wanted: str | None = None
) -> tuple[IO[bytes], str]:
    """As :func:`open_unpacked`; with the name of the content without suffixes of packing.

    Of a tar archive, the member ``wanted``.
    """
    below = records.open_regular(path)
    file, name = below, path.name
    try:
        for _ in range(_LAYERS):
            kind, opener = _packing(_begin(file))
            name = _SUFFIXES.sub("", name)
            if kind is None:
                return file, name
            if kind == ZIP:
                file, name = _of_zip(path, file, below)
            elif kind == _TAR:
                found, name = _of_tar(path, file, wanted)
                if found is None:  # it was read to its end
                    below.close()
                    return open_content(path, ratio, name)
                file = found
            elif opener is not None:
                file = opener(file)
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


def _packing(begin: bytes) -> tuple[str | None, Callable[[Any], Any] | None]:
    """How content with this begin is packed, and what opens it."""
    if begin[257:262] == b"ustar":
        return _TAR, None
    return next((_OPENERS[magic] for magic in _OPENERS if begin.startswith(magic)), (None, None))


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
    return None, _chosen(path, _TAR, names)


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


class NpzArray:
    """An array of numbers in an ``.npz``, in C order, which is read in pieces.

    A UserError if there is none of that name, it is damaged or out of proportion to the file, or in
    Fortran's order.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name, self.where = path, f"{name}.npy", f"{path}: {name}"
        with records.open_regular(path) as file, zipfile.ZipFile(file) as archive:
            require(self._name in archive.namelist(), f"{path} has no array {name}")
            size, ratio = archive.getinfo(self._name).file_size, records.ARCHIVE_RATIO
            if size > max(records.FREE_ARCHIVE, ratio * os.fstat(file.fileno()).st_size):
                raise UserError(
                    f"{path} unpacks to more than {ratio} times its size",
                    "if you trust it, write it again with numpy.savez",
                )
            with archive.open(self._name) as stream:
                head = stream.read(records.NPY_HEAD)
        header = records.read_npy_header(head, size, self.where, "biuf")
        self._begin, self.shape, fortran, self.dtype = header
        if fortran and len(self.shape) > 1:
            raise UserError(
                f"{self.where} is in Fortran's order, which is not read in pieces",
                "write it again: numpy.savez(FILE, name=numpy.ascontiguousarray(array))",
            )

    def rows(self, at_once: int) -> Iterator[np.ndarray]:
        """All rows, ``at_once`` at a time: arrays of shape (m, …)."""
        for piece in self._numbers(at_once * math.prod(self.shape[1:]), 0, math.prod(self.shape)):
            yield piece.reshape(-1, *self.shape[1:])

    def pairs(self, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The two rows of a (2, E) array side by side, ``at_once`` columns at a time."""
        count = self.shape[1]
        first, second = (self._numbers(at_once, row * count, (row + 1) * count) for row in (0, 1))
        yield from zip(first, second, strict=True)

    def _numbers(self, at_once: int, start: int, stop: int) -> Iterator[np.ndarray]:
        """The numbers of the flat array from ``start`` to ``stop`` − 1, some at a time."""
        size = self.dtype.itemsize
        with (
            records.zip_errors(self._path),
            records.open_regular(self._path) as file,
            zipfile.ZipFile(file) as archive,
            archive.open(self._name) as stream,
        ):
            stream.seek(self._begin + start * size)  # bytes before are unpacked, not kept
            for at in range(start, stop, at_once):
                nbytes = min(at_once, stop - at) * size
                raw = stream.read(nbytes)
                require(len(raw) == nbytes, f"{self.where} is truncated")
                yield np.frombuffer(raw, self.dtype)


# Sparse features may have so many columns without an entry for each.
_SPARSE_WIDTH = 1 << 16


# indptr, indices, data, shape.
Csr = tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int]]


def check_csr(matrix: Csr, where: str) -> Csr:
    """The matrix; a UserError, which names ``where``, unless its arrays fit each other."""
    indptr, indices, data, (rows, columns) = matrix
    for name, array in (("indptr", indptr), ("indices", indices)):
        fits = array.ndim == 1 and array.dtype.kind in "iu"
        require(fits, f"{where}: {name} is not a vector of integers")
    fits = data.ndim == 1 and data.dtype.kind in "biuf"
    require(fits, f"{where}: data is not a vector of numbers")
    fits = rows >= 0 <= columns and len(indptr) == rows + 1
    shape = f"the shape {(rows, columns)}"
    require(fits, f"{where}: {len(indptr)} row pointers do not fit {shape}")
    count = len(indices)
    require(count == len(data), f"{where}: {count} indices but {len(data)} values")
    rising = indptr[0] == 0 and indptr[-1] == count and not (indptr[1:] < indptr[:-1]).any()
    require(rising, f"{where}: row pointers do not rise from 0 to {count}")
    inside = not count or bool(indices.min() >= 0 and indices.max() < columns)
    require(inside, f"{where}: a column index is outside 0..{columns - 1}")
    return matrix


def csr_of(matrix: object, where: str) -> Csr:
    """The checked parts of a matrix of SciPy, whatever its form."""
    csr = sp.csr_array(matrix)
    return check_csr((csr.indptr, csr.indices, csr.data, csr.shape), where)


def csr_arrays(arrays: dict[str, np.ndarray], prefix: str, where: str) -> Csr:
    """The checked matrix of that prefix."""
    keys = [f"{prefix}{part}" for part in ("indptr", "indices", "data", "shape")]
    for key in keys:
        require(key in arrays, f"{where} has no array {key}")
    indptr, indices, data, shape = (arrays[key] for key in keys)
    pair = shape.shape == (2,) and shape.dtype.kind in "iu"
    require(pair, f"{where}: {keys[-1]} is not a pair of integers")
    matrix = indptr, indices, data, (int(shape[0]), int(shape[1]))
    return check_csr(matrix, f"{where}: {prefix.rstrip('_.')}" if prefix else where)


def saved_csr(arrays: dict[str, np.ndarray], where: str) -> Csr:
    """The same of a matrix that ``scipy.sparse.save_npz`` wrote; of its forms, only csr."""
    form = arrays.get("format", np.array(b"csr"))
    name = form.item() if form.size == 1 else None
    name = name.decode("latin1") if isinstance(name, bytes) else name
    if name != "csr":
        raise UserError(
            f"{where} holds a sparse matrix in the form {quoted(str(name))}, only csr is read",
            "scipy.sparse.save_npz(FILE, matrix.tocsr())",
        )
    return csr_arrays(arrays, "", where)


def dense_features(matrix: Csr, where: str) -> np.ndarray:
    """A checked matrix as (n, d) float32; a UserError if that is too large or not finite."""
    indptr, indices, data, shape = matrix
    fits = shape[1] <= max(_SPARSE_WIDTH, len(data))
    require(fits, f"{where}: {shape[1]} columns for only {len(data)} entries")
    resident.check_memory(4 * shape[0] * shape[1], f"{where}: {shape[0]} x {shape[1]} features")
    data = narrowed(data, np.float32, where)
    index = np.int32 if max(len(data), *shape) < 2**31 else np.int64
    dense = sp.csr_array((data, indices.astype(index), indptr.astype(index)), shape=shape)
    return finite_features(dense.toarray(), where)
