"""The folder of a checkpoint on disk: written whole, and read with distrust.

See :mod:`gcnmpi.checkpoint` for what is in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from gcnmpi.record import Epoch
from partition.errors import UserError
from partition.records import read_npz, read_records, sync_folder, to_json

FORMAT = "gcnmpi-checkpoint"
VERSION = 1
FOLDER = "checkpoints"
PREVIOUS = "checkpoints.previous"
KEPT = 2  # the newest, and the one before in case the newest is damaged

MANIFEST, STATE, EPOCHS = "manifest.json", "state.npz", "epochs.jsonl"


class DamagedError(UserError):
    """A checkpoint that is not what was written: truncated, changed, or incomplete."""


def make_folder(path: Path) -> None:
    """The empty folder that a checkpoint is written in; those that a killed run left are removed.

    Raises
    ------
    UserError
        If it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(".epoch-*.tmp"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        path.mkdir()
    except OSError as error:
        raise unwritable(path, error) from error


def finish(
    temporary: Path,
    whole: Mapping[str, Mapping[str, np.ndarray]],
    epochs: Sequence[Epoch],
    facts: Mapping[str, Any],
    pieces: Sequence[Sequence[Any]],
) -> Path:
    """Write all but the features, the manifest last; then give the folder its name.

    Parameters
    ----------
    temporary : path
        As made by :func:`make_folder`, with the features in it.
    whole : mapping of array to mapping of parameter to array
    facts : mapping
        What the manifest is to say.
    pieces : sequence of (name, first byte, bytes, CRC-32)
        Checksums of the features.

    Returns
    -------
    path
        Of the checkpoint; only it and the one before are left.

    Raises
    ------
    UserError
        If a file cannot be written.
    """
    path = temporary.with_name(name_of(epochs[-1].epoch))
    state: dict[str, Any] = {
        f"{a}/{name}": v for a, parts in whole.items() for name, v in parts.items()
    }
    lines = "".join(json.dumps(asdict(epoch), default=to_json) + "\n" for epoch in epochs)
    try:
        with _synced(temporary / STATE) as file:
            np.savez(file, **state)
        with _synced(temporary / EPOCHS) as file:
            file.write(lines.encode())
        own = [_whole_file(temporary / name) for name in (STATE, EPOCHS)]
        facts = {**facts, "files": [*own, *map(list, pieces)]}
        text = json.dumps({**facts, "checksum": _checksum(facts)}, indent=1)
        with _synced(temporary / MANIFEST) as file:
            file.write(text.encode())
        sync_folder(temporary)
        if path.exists():  # of the same epoch, before the run went on from an earlier one
            shutil.rmtree(path)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    for old in stored(path.parent)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return path


@contextlib.contextmanager
def _synced(path: Path) -> Iterator[Any]:
    with open(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _whole_file(path: Path) -> list[Any]:
    data = path.read_bytes()
    return [path.name, 0, len(data), zlib.crc32(data)]


def unwritable(path: Path, error: OSError) -> UserError:
    """What to raise when a checkpoint cannot be written."""
    return UserError(
        f"cannot write the checkpoint {path}: {error.strerror or error}",
        "the checkpoints before it are as they were",
    )


def read_state(path: Path, facts: Mapping[str, Any]) -> tuple[list[Epoch], dict[str, np.ndarray]]:
    """The epochs of a checkpoint, and its arrays.

    Raises
    ------
    UserError
        If they are not what the manifest promises.
    """
    names = {field.name for field in fields(Epoch)}
    records = read_records(path / EPOCHS)
    if any(not isinstance(record, dict) or set(record) != names for record in records):
        raise DamagedError(f"the checkpoint {path} is damaged: {EPOCHS} lists no epochs")
    epochs = [Epoch(**record) for record in records]
    numbers = [epoch.epoch for epoch in epochs]
    if numbers != list(range(1, len(epochs) + 1)) or len(epochs) != facts["epoch"]:
        raise DamagedError(f"the checkpoint {path} is damaged: {EPOCHS} lacks epochs")
    return epochs, read_npz(path / STATE)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint.

    Raises
    ------
    DamagedError
        If it is missing, cut off or changed.
    UserError
        If it has another version.
    """
    try:
        facts = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        checksum = facts.pop("checksum")
        kinds = {name: type(facts[name]) for name in KINDS}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"the checkpoint {path} has no readable manifest: {error!r}") from error
    if checksum != _checksum(facts) or kinds != KINDS:
        raise DamagedError(f"the manifest of the checkpoint {path} is damaged")
    if facts.get("format") != FORMAT or facts.get("version") != VERSION:
        raise UserError(
            f"{path} is a checkpoint of version {facts.get('version')}, "
            f"this program reads {VERSION}",
            "go on with the program that wrote it, or start over with --resume never",
        )
    return facts


KINDS: dict[str, type] = {
    "epoch": int, "steps": int, "graph_id": str, "direction": str, "widths": list,
    "config": dict, "files": list,
}  # fmt: skip


def check(path: Path, pieces: Iterable[Sequence[Any]]) -> None:
    """Compare pieces of files with their checksums: (name, first byte, bytes, CRC-32) each.

    Raises
    ------
    DamagedError
        If one is missing, truncated or changed.
    """
    for piece in pieces:
        try:
            name, start, size, checksum = piece
            if Path(name).name != name:
                raise ValueError(f"{name!r} is not a file of this folder")
            with open(path / name, "rb") as file:
                file.seek(start)
                found, left = 0, size
                while left > 0 and (data := file.read(min(left, _BLOCK))):
                    found, left = zlib.crc32(data, found), left - len(data)
        except (OSError, ValueError, TypeError, OverflowError) as error:
            raise DamagedError(f"the checkpoint {path} is damaged: {error}") from error
        if left:
            raise DamagedError(f"the checkpoint {path} is damaged: {name} is truncated")
        if found != checksum:
            raise DamagedError(f"the checkpoint {path} is damaged: {name} was changed")


_BLOCK = 1 << 22


def discard_after(out: Path, epoch: int) -> None:
    """Remove the checkpoints of epochs that will be run again, or were damaged."""
    for path in stored(out / FOLDER):
        if epoch_of(path) > epoch:
            shutil.rmtree(path, ignore_errors=True)


def set_aside(out: Path) -> None:
    """Put the checkpoints of an earlier run beside those of one that starts afresh."""
    if (out / FOLDER).exists():
        shutil.rmtree(out / PREVIOUS, ignore_errors=True)
        (out / FOLDER).replace(out / PREVIOUS)


def stored(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    found = [path for path in folder.glob("epoch-*") if re.fullmatch(r"epoch-\d{6,}", path.name)]
    return sorted(found, key=epoch_of, reverse=True)


def name_of(epoch: int) -> str:
    """Name of the folder of a checkpoint."""
    return f"epoch-{epoch:06d}"


def epoch_of(path: Path) -> int:
    """The inverse of :func:`name_of`."""
    return int(path.name.removeprefix("epoch-"))


def _checksum(facts: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())
