"""Where a new graph folder goes: what is looked at before it is made, and its arrays."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from partition.errors import UserError, system_errors, unknown_name
from partition.graph.graph import AGAIN
from partition.graph.manifest import checked, read_json
from partition.graph.relations import STORED_NAME
from partition.locks import folder_inside, folder_lock
from partition.records import (
    NUMBERS,
    TEXTS,
    atomic_file,
    atomic_folder,
    map_npy,
    sweep,
    temporary_name,
)
from partition.resident import forget_pages

REPLACING = "gcn-partition import --force"  # the purpose of the lock on a folder that is replaced


def check_target(path: Path, overwrite: bool = False) -> None:
    """Refuse a path that :func:`write_graph` could not write a graph folder to."""
    if path.suffix != ".graph":
        raise UserError(f"a graph folder's name ends in .graph, not {path.name!r}")
    if path.exists() and not overwrite:
        hint = "choose another name, or replace it: --force, in Python overwrite=True"
        raise UserError(f"{path} is there already", hint)
    if path.exists() and not (path / "manifest.json").exists():
        raise UserError(f"{path} is not a graph folder and is not replaced")
    parent = _parent(path)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {path}: {parent} is not a folder that you may write to")
    if path.exists():
        with folder_lock(path, REPLACING):
            pass


def save_array(file: Path, array: np.ndarray) -> None:
    """Write an array of a graph into a new folder."""
    file.parent.mkdir(exist_ok=True)
    with atomic_file(file) as out:
        np.save(out, array, allow_pickle=False)
    forget_pages(array)


def check_room(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A UserError if the disk has not the room for a folder of these arrays."""
    nbytes = sum(array.nbytes for array in arrays.values())
    free = shutil.disk_usage(_parent(path)).free
    if nbytes > free:
        raise UserError(
            f"cannot write {path}: it takes {nbytes / 2**20:,.0f} MiB, {free / 2**20:,.0f} are free"
        )


def _parent(path: Path) -> Path:
    """The innermost folder around ``path`` that exists."""
    return next(folder for folder in path.absolute().parents if folder.exists())


WAIT = 60.0  # seconds, for others that hold a lock while they write
D = TypeVar("D")


def check_stored_name(kind: str, name: str) -> str:
    """The name, if a thing in a graph folder may be called so; ``kind`` says what it is."""
    if not STORED_NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is not a valid name for {kind}",
            "use at most 200 letters, digits and any of _ . + = -",
        )
    return name


def map_array(
    path: Path, shape: tuple[int, ...], kind: str, *others: tuple[int, ...], again: str = AGAIN
) -> np.ndarray:
    """An array of that shape, or of one of the others, mapped read-only.

    ``kind`` has the kinds of dtypes that it may have, as NumPy calls them; ``again`` is the hint of
    how to make the file again. A UserError if the file is missing, damaged or holds something else.
    """
    if not path.exists():
        raise UserError(f"{path} is missing", again)
    try:
        array = map_npy(path, kinds=NUMBERS + TEXTS)
    except UserError as error:
        raise UserError(f"{path} is damaged or truncated: {error.message}", again) from None
    if array.shape not in (shape, *others) or array.dtype.kind not in kind:
        raise UserError(
            f"{path} holds {array.dtype} {array.shape}, the manifest asks for {shape}", again
        )
    return array


@dataclass(frozen=True)
class Sets(Generic[D]):
    """The sets of a kind in graph folders: folders ``KIND/NAME/``, each described in ``KIND.json``.

    Attributes
    ----------
    kind : str
        "pairs" or "samples".
    description : type
        A dataclass D of what is in such a file; ``format`` and ``version`` have their only value.
    hint : str
        How to make a set where there is none, with {path} and {name} for those of it.
    """

    kind: str
    description: type[D]
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

    def described(self, path: str | os.PathLike[str], name: str) -> D:
        """The description of a set, checked; a UserError if there is no such set."""
        file, names = self.folder(path, name) / f"{self.kind}.json", self.names(path)
        if not file.exists() and names:
            raise unknown_name(f"set of {self.kind} of {path}", name, names)
        if not file.exists():
            raise UserError(
                f"{path} has no {self.kind} {name!r}, nor any others",
                self.hint.format(path=path, name=name),
            )
        usual = {one.name: one.default for one in fields(self.description)}  # type: ignore[arg-type]
        facts = read_json(file)
        if any(facts.get(key) != usual[key] for key in ("format", "version")):
            told = f"{self.kind} of version {usual['version']}"
            raise UserError(f"{file} does not describe {told}", self.again)
        return checked(file, facts, self.description)

    def remove(self, path: str | os.PathLike[str], name: str) -> None:
        """Delete a set at once: who has it open keeps its arrays."""
        if not self.has(path, name):
            raise unknown_name(f"set of {self.kind} of {path}", name, self.names(path))
        folder = self.folder(path, name)
        with self._alone(Path(path), "gcn-partition remove"):
            aside = temporary_name(folder)
            with system_errors(f"cannot remove {folder}"):
                os.rename(folder, aside)
            shutil.rmtree(aside, ignore_errors=True)

    def keep(self, old: Path, new: Path, fits: Callable[[D], bool]) -> list[str]:
        """Bring those sets of one graph folder along into another whose description fits it.

        Returns the names of those that are left behind: they do not fit, or are damaged.
        """
        left = []
        for name in self.names(old):
            fitting = False
            with contextlib.suppress(UserError):
                fitting = fits(self.described(old, name))
            if not fitting:
                left.append(name)
                continue
            shutil.copytree(self.folder(old, name), self.folder(new, name), copy_function=linked)
        return left

    @contextlib.contextmanager
    def writing(self, path: Path, name: str, force: bool) -> Iterator[Path]:
        """A folder that becomes that of a set; a UserError if there is one, without ``force``."""
        folder = self.folder(path, name)
        with self._alone(path, f"gcn-partition {self.kind} {name}"):
            if folder.exists() and not force:
                raise UserError(
                    f"{path} has {self.kind} {name!r} already",
                    "give --name or --force, or remove them first",
                )
            with atomic_folder(folder, overwrite=force) as temporary:
                yield temporary

    @contextlib.contextmanager
    def _alone(self, path: Path, purpose: str) -> Iterator[None]:
        """Keep others from replacing the graph, and from writing or removing sets in it."""
        folder = folder_inside(path, self.kind)
        with folder_lock(path, purpose, exclusive=False):
            with system_errors(f"cannot write {folder}"):
                folder.mkdir(exist_ok=True)
            with folder_lock(folder, purpose, name=".write.lock", patience=WAIT):
                sweep(folder)
                yield


def linked(source: str, target: str) -> None:
    """A second name for a file, or a copy of it where its file system has no such names."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
