"""Folders of named arrays and facts about them, in JSON: graphs, and sets of pairs or samples."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import msgspec
import numpy as np

from partition import records
from partition.errors import UserError, require, system_errors, unknown_name
from partition.graph.graph import AGAIN
from partition.graph.relations import STORED_NAME
from partition.locks import folder_inside, folder_lock
from partition.resident import forget_pages

REPLACING = "gcn-partition import --force"  # the purpose of the lock on a folder that is replaced
WAIT = 60.0  # seconds, for others that hold a lock while they write
_MAX_JSON = 1 << 28  # bytes of a file that is read whole
T = TypeVar("T")


def check_target(path: Path, overwrite: bool = False) -> None:
    """Refuse a path that :func:`partition.graph.store.write_graph` could not write to."""
    require(path.suffix == ".graph", f"a graph folder's name ends in .graph, not {path.name!r}")
    if path.exists() and not overwrite:
        hint = "choose another name, or replace it: --force, in Python overwrite=True"
        raise UserError(f"{path} is there already", hint)
    is_graph = not path.exists() or (path / "manifest.json").exists()
    require(is_graph, f"{path} is not a graph folder and is not replaced")
    parent = _parent(path)
    able = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    require(able, f"cannot write {path}: {parent} is not a folder that you may write to")
    if path.exists():
        with folder_lock(path, REPLACING):
            pass


def save_arrays(folder: Path, arrays: Mapping[str, np.ndarray], target: Path | None = None) -> None:
    """Write arrays into a new folder, by the names of their files.

    A UserError if the disk of ``target``, which the folder will become, has no room for them.
    """
    nbytes = sum(array.nbytes for array in arrays.values())
    free = shutil.disk_usage(_parent(target or folder)).free
    if nbytes > free:
        mebibytes = f"it takes {nbytes / 2**20:,.0f} MiB, {free / 2**20:,.0f} are free"
        raise UserError(f"cannot write {target or folder}: {mebibytes}")
    for name, array in arrays.items():
        file = folder / f"{name}.npy"
        file.parent.mkdir(exist_ok=True)
        with records.atomic_file(file) as out:
            np.save(out, array, allow_pickle=False)
        forget_pages(array)


def map_array(file: Path, kinds: str, *shapes: tuple[int, ...], again: str = AGAIN) -> np.ndarray:
    """An array of one of some kinds of dtypes, as NumPy calls them, and of one of some shapes.

    It is mapped read-only; ``again`` is the hint of how to make the file again. A UserError if the
    file is missing, damaged or holds something else.
    """
    if not file.exists():
        raise UserError(f"{file} is missing", again)
    try:
        array = records.map_npy(file, kinds=records.NUMBERS + records.TEXTS)
    except UserError as error:
        raise UserError(f"{file} is damaged or truncated: {error.message}", again) from None
    if array.shape not in shapes or array.dtype.kind not in kinds:
        wanted = f"the manifest asks for {shapes[0]}"
        raise UserError(f"{file} holds {array.dtype} {array.shape}, {wanted}", again)
    return array


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of anybody's.

    A UserError if it cannot be read, is too long, or holds something else.
    """
    try:
        with records.open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            require(
                size <= _MAX_JSON, f"{file} is damaged: it is longer than {_MAX_JSON >> 20} MiB"
            )
            facts = msgspec.json.decode(stream.read(size), type=dict[str, Any])
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged: {error}") from error
    return dict(records.printable(facts))


def dump_json(stream: IO[str], facts: Mapping[str, object]) -> None:
    """The form that JSON files of a graph folder have."""
    json.dump(facts, stream, indent=1, default=records.to_json)
    stream.write("\n")


def checked(file: Path, facts: object, kind: type[T]) -> T:
    """An object of a type, as ``file`` has its facts; a UserError says which is of another type."""
    if is_dataclass(kind) and isinstance(facts, dict):
        unknown = facts.keys() - {entry.name for entry in fields(kind)}
        if unknown:
            raise UserError(f"{file} is damaged: it has an unknown field {min(unknown)[:100]!r}")
    try:
        return msgspec.convert(facts, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{file} is damaged: {error}") from None


def check_stored_name(kind: str, name: str) -> str:
    """The name, if a thing in a graph folder may be called so; ``kind`` says what it is."""
    if not STORED_NAME.fullmatch(name):
        hint = "use at most 200 letters, digits and any of _ . + = -"
        raise UserError(f"{name!r} is not a valid name for {kind}", hint)
    return name


@dataclass(frozen=True)
class Sets(Generic[T]):
    """The sets of a kind in graph folders: folders ``KIND/NAME/``, each described in ``KIND.json``.

    Attributes
    ----------
    kind : str
        "pairs" or "samples".
    description : type
        A dataclass T of what is in such a file.
    hint : str
        How to make a set where there is none, with {path} and {name} for those of it.
    """

    kind: str
    description: type[T]
    hint: str

    @property
    def again(self) -> str:
        """The hint for a set that is damaged."""
        return f"make the {self.kind} again with gcn-partition {self.kind} --force"

    def folder(self, path: str | os.PathLike[str], name: str) -> Path:
        """The folder of a set; a UserError if none could be called so."""
        return folder_inside(folder_inside(path, self.kind), check_stored_name(self.kind, name))

    def names(self, path: str | os.PathLike[str]) -> list[str]:
        """The names of the sets of a graph folder, sorted."""
        found = folder_inside(path, self.kind).glob(f"[!.]*/{self.kind}.json")
        return sorted(file.parent.name for file in found)

    def has(self, path: str | os.PathLike[str], name: str) -> bool:
        """Whether there is a set of that name; a UserError if none could be called so."""
        return (self.folder(path, name) / f"{self.kind}.json").exists()

    def described(self, path: str | os.PathLike[str], name: str) -> T:
        """The description of a set, checked; a UserError if there is no such set."""
        if not self.has(path, name):
            if names := self.names(path):
                raise unknown_name(f"set of {self.kind} of {path}", name, names)
            hint = self.hint.format(path=path, name=name)
            raise UserError(f"{path} has no {self.kind} {name!r}, nor any others", hint)
        file = self.folder(path, name) / f"{self.kind}.json"
        return checked(file, read_json(file), self.description)

    def remove(self, path: str | os.PathLike[str], name: str) -> None:
        """Delete a set at once: who has it open keeps its arrays."""
        if not self.has(path, name):
            raise unknown_name(f"set of {self.kind} of {path}", name, self.names(path))
        folder = self.folder(path, name)
        with self._alone(Path(path), "gcn-partition remove"):
            aside = records.temporary_name(folder)
            with system_errors(f"cannot remove {folder}"):
                os.rename(folder, aside)
            shutil.rmtree(aside, ignore_errors=True)

    def keep(self, old: Path, new: Path, **facts: object) -> list[str]:
        """Bring those sets of one graph folder along into another that have these facts.

        Returns the names of those that are left behind: they do not fit, or are damaged.
        """
        left = self.names(old)
        for name in self.names(old):
            with contextlib.suppress(UserError):
                if facts.items() <= vars(self.described(old, name)).items():
                    folders = self.folder(old, name), self.folder(new, name)
                    shutil.copytree(*folders, copy_function=_linked)
                    left.remove(name)
        return left

    def describe(self, folder: Path, facts: T) -> None:
        """Write the description of a set into the folder of :meth:`writing`."""
        with records.atomic_file(folder / f"{self.kind}.json", "w") as file:
            dump_json(file, vars(facts))

    @contextlib.contextmanager
    def writing(self, path: Path, name: str, force: bool) -> Iterator[Path]:
        """A folder that becomes that of a set; a UserError if there is one, without ``force``."""
        folder = self.folder(path, name)
        with self._alone(path, f"gcn-partition {self.kind} {name}"):
            if folder.exists() and not force:
                hint = "give --name or --force, or remove them first"
                raise UserError(f"{path} has {self.kind} {name!r} already", hint)
            with records.atomic_folder(folder, overwrite=force) as temporary:
                yield temporary

    @contextlib.contextmanager
    def _alone(self, path: Path, purpose: str) -> Iterator[None]:
        """Keep others from replacing the graph, and from writing or removing sets in it."""
        folder = folder_inside(path, self.kind)
        with folder_lock(path, purpose, exclusive=False):
            with system_errors(f"cannot write {folder}"):
                folder.mkdir(exist_ok=True)
            with folder_lock(folder, purpose, name=".write.lock", patience=WAIT):
                records.sweep(folder)
                yield


def _linked(source: str, target: str) -> None:
    """A second name for a file, or a copy of it where its file system has no such names."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _parent(path: Path) -> Path:
    """The innermost folder around ``path`` that exists."""
    return next(folder for folder in path.absolute().parents if folder.exists())
