"""The folder of a checkpoint on disk: written atomically, and checked when read.

See :mod:`gcnmpi.run.checkpoint` for what is in it. Of its file of epochs the manifest says how many
bytes belong to it: programs before this one appended those of later checkpoints to the same file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.mpi.comm import slice_of
from gcnmpi.run.record import Epoch
from partition.errors import UserError, system_errors
from partition.records import open_regular, read_npz, sync_folder, to_json

FORMAT = "gcnmpi-checkpoint"
VERSION = 4  # before 3, parameters had names of their own: 1.weight; before 4, one metric
FOLDER = "checkpoints"
PREVIOUS = "checkpoints.previous"
KEPT = 2  # the newest, and the one before in case the newest is damaged

MANIFEST, STATE, EPOCHS = "manifest.json", "state.npz", "epochs.jsonl"


class DamagedError(UserError):
    """A checkpoint that is not what was written: truncated, changed, or incomplete."""


def make_folder(path: Path) -> None:
    """The empty folder that a checkpoint is written in; those that a killed run left are removed.

    A UserError if it cannot be made.
    """
    with unwritable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(".*.tmp"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        path.mkdir()


def temporary_of(path: Path) -> Path:
    """The folder that a checkpoint is written in, before it gets its name."""
    return path.with_name(f".{path.name}.tmp")


def finish(
    temporary: Path,
    state: Mapping[str, Any],
    facts: Mapping[str, Any],
    pieces: Sequence[Sequence[Any]] = (),
    epochs: Sequence[Epoch] | None = None,
) -> Path:
    """Write all but rows, the manifest last; then give the folder its name, and return that path.

    The folder is one of :func:`make_folder` with the rows in it, whose checksums are the pieces:
    (name, first byte, bytes, CRC-32) each. All ranks have the state alike; ``epochs`` go up to that
    of this checkpoint. Only it and the one before are kept. A UserError if a file cannot be
    written.
    """
    path = temporary.with_name(temporary.name.removeprefix(".").removesuffix(".tmp"))
    with unwritable(path):
        with synced(temporary / STATE) as file:
            np.savez(file, **state)
        every = [piece_of(temporary / STATE), *map(list, pieces)]
        if epochs is not None:
            with synced(temporary / EPOCHS) as file:
                for epoch in epochs:
                    file.write(json.dumps(epoch.record(), default=to_json).encode() + b"\n")
            every.append(piece_of(temporary / EPOCHS))
        _write_facts(temporary, {**facts, "files": every})
        sync_folder(temporary)
        if path.exists():  # of the same epoch, before the run went on from an earlier one
            shutil.rmtree(path)
        temporary.replace(path)
        sync_folder(path.parent)
        old = stored(path.parent)[KEPT:]
    for folder in old:
        shutil.rmtree(folder, ignore_errors=True)
    return path


@contextlib.contextmanager
def synced(path: Path, mode: str = "xb") -> Iterator[Any]:
    """A new file that is on the disk at the end."""
    with open(path, mode) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def piece_of(path: Path, rank: int = 0, size: int = 1) -> list[object]:
    """A rank's share of the bytes of a file, for the manifest.

    A UserError if it cannot be read.
    """
    with unwritable(path.parent):
        mine = slice_of(path.stat().st_size, rank, size)
        found, _ = checksum_of(path, mine.start, mine.stop - mine.start)
    return [path.name, mine.start, mine.stop - mine.start, found]


def unwritable(path: Path) -> contextlib.AbstractContextManager[None]:
    """A block in which a checkpoint is written; a UserError if it cannot be."""
    hint = "earlier checkpoints are unchanged; the same command goes on from them"
    return system_errors(f"cannot write the checkpoint {path}", hint)


def read_state(path: Path, facts: Mapping[str, Any]) -> tuple[list[Epoch], dict[str, np.ndarray]]:
    """The epochs of a checkpoint, and its arrays.

    A UserError if they are not what the manifest promises.
    """
    size = next(piece[2] for piece in facts["files"] if piece[0] == EPOCHS)
    try:
        with open_regular(path / EPOCHS) as file:
            epochs = [Epoch.parse(json.loads(line)) for line in file.read(size).splitlines()]
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"the checkpoint {path} is damaged: {EPOCHS}: {error}") from error
    except OSError as error:
        raise unreadable(path, error) from error
    numbers = [epoch.epoch for epoch in epochs]
    if numbers != list(range(1, len(epochs) + 1)) or len(epochs) != facts["epoch"]:
        raise DamagedError(f"the checkpoint {path} is damaged: {EPOCHS} lacks epochs")
    return epochs, read_npz(path / STATE)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint; errors as of :func:`read_facts`."""
    hint = "go on with the program that wrote it, or start over with --resume never"
    facts = read_facts(path, FORMAT, VERSION, hint)
    if not is_well_formed(facts, KINDS, STATE) or len(facts["widths"]) < 2:
        raise DamagedError(f"the manifest of the checkpoint {path} is damaged")
    return facts


def read_facts(path: Path, kind: str, version: int, hint: str) -> dict[str, Any]:
    """The facts that a manifest of a kind and version holds; the hint is for another one.

    A DamagedError if it is missing, cut off or changed; a UserError if it has another format or
    version.
    """
    try:
        with open_regular(path / MANIFEST) as file:
            facts = json.loads(file.read())
        checksum = facts.pop("checksum")
    except FileNotFoundError as error:
        raise DamagedError(f"the checkpoint {path} has no readable manifest: none") from error
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"the checkpoint {path} has no readable manifest: {error!r}") from error
    if checksum != _checksum(facts):
        raise DamagedError(f"the manifest of the checkpoint {path} is damaged")
    if facts.get("format") != kind or facts.get("version") != version:
        raise UserError(
            f"{path} is {facts.get('format')} of version {facts.get('version')}, "
            f"this program reads {kind} of version {version}",
            hint,
        )
    return facts


def _write_facts(folder: Path, facts: Mapping[str, object]) -> None:
    """Write a manifest, with its checksum."""
    text = json.dumps({**facts, "checksum": _checksum(facts)}, indent=1)
    with synced(folder / MANIFEST) as file:
        file.write(text.encode())


def is_well_formed(facts: Mapping[str, object], kinds: Mapping[str, type], state: str) -> bool:
    """Whether a manifest has all fields that are read, of their kinds, and its state's file."""
    best, pieces = facts.get("best"), facts.get("files")
    return (
        all(type(facts.get(name)) is kind for name, kind in kinds.items())
        and isinstance(best, dict)
        and set(best) == {"epoch", "value"}
        and type(best["epoch"]) is int
        and type(best["value"]) in (int, float, type(None))
        and isinstance(pieces, list)
        and all(isinstance(piece, list) and len(piece) == 4 for piece in pieces)
        and {state, EPOCHS} <= {piece[0] for piece in pieces if isinstance(piece[0], str)}
        and all(type(number) is int for piece in pieces for number in piece[1:])
    )


KINDS: dict[str, type] = {
    "epoch": int, "steps": int, "graph_id": str, "data_id": str, "direction": str, "widths": list,
    "config": dict,
}  # fmt: skip


def check(path: Path, pieces: Iterable[Sequence[Any]]) -> None:
    """Compare pieces of files with their checksums: (name, first byte, bytes, CRC-32) each.

    A DamagedError if one is missing, truncated or changed.
    """
    for piece in pieces:
        try:
            name, start, size, checksum = piece
            if Path(name).name != name:
                raise ValueError(f"{name!r} is not a file of this folder")
            found, left = checksum_of(path / name, start, size)
        except (FileNotFoundError, ValueError, TypeError, OverflowError) as error:
            raise DamagedError(f"the checkpoint {path} is damaged: {error}") from error
        except OSError as error:
            raise unreadable(path, error) from error
        if left:
            raise DamagedError(f"the checkpoint {path} is damaged: {name} is truncated")
        if found != checksum:
            raise DamagedError(f"the checkpoint {path} is damaged: {name} was changed")


def checksum_of(path: Path, start: int, size: int) -> tuple[int, int]:
    """The CRC-32 of some bytes of a file, and how many of them there are not."""
    found, left = 0, size
    with open_regular(path) as file:
        file.seek(start)
        while left > 0 and (data := file.read(min(left, _BLOCK))):
            found, left = zlib.crc32(data, found), left - len(data)
    return found, left


_BLOCK = 1 << 22


def discard_after(out: Path, newest: Path) -> None:
    """Remove the checkpoints after one, of what will be run again, or damaged ones.

    A UserError if one cannot be removed: a later launch would go on from it.
    """
    for path in stored(out / FOLDER):
        if place_of(path) > place_of(newest):
            with _moving(path):
                shutil.rmtree(path)


def set_aside(out: Path) -> None:
    """Put the checkpoints of an earlier run beside those of one that starts afresh.

    A UserError if that cannot be done.
    """
    if os.path.lexists(out / FOLDER):
        with _moving(out / FOLDER):
            if os.path.lexists(out / PREVIOUS):
                shutil.rmtree(out / PREVIOUS)
            (out / FOLDER).replace(out / PREVIOUS)


def _moving(path: Path) -> contextlib.AbstractContextManager[None]:
    return system_errors(f"cannot rename the old {path}", "remove it, or use another folder")


def stored(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first; none if there is no such folder.

    A UserError if it cannot be read: what is in it must not be taken for nothing.
    """
    try:
        names = os.listdir(folder)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not folder.is_symlink():
            return []
        raise unreadable(folder, error) from error
    found = [folder / name for name in names if _NAME.fullmatch(name)]
    return sorted(found, key=place_of, reverse=True)


def unreadable(path: Path, error: OSError) -> UserError:
    """The error for checkpoints that are there and, at the moment, cannot be read."""
    return UserError(
        f"cannot read {path}: {error.strerror or error}",
        "make it readable and start the same command; resume takes another checkpoint by its path, "
        "and never starts over",
    )


def name_of(epoch: int, batch: int = 0) -> str:
    """Name of the folder of a checkpoint: after an epoch, and some batches of the next one."""
    return f"epoch-{epoch:06d}" + (f"+{batch:06d}" if batch else "")


def place_of(path: Path) -> tuple[int, int]:
    """The inverse of :func:`name_of`; (0, 0) of a folder that has another name."""
    found = _NAME.fullmatch(path.name)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


_NAME = re.compile(r"(?:epoch|step)-(\d{6,})(?:\+(\d{6,}))?")


def _checksum(facts: Mapping[str, object]) -> int:
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())
