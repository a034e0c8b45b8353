"""Checkpoints of a run of PyTorch: states of its objects; and files of weights.

A checkpoint is a folder as :mod:`gcnmpi.run.checkpoint` has it, whose ``state.pt`` holds the state
of each object, the best weights so far, and the random generators of every rank. It is read with
``weights_only=True``: nothing in it is run.
"""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from gcnmpi.mpi.comm import Comm, agreed, check_same, from_root
from gcnmpi.run import checkpoint
from gcnmpi.run import checkpoint_files as files
from gcnmpi.run.opening import Opened
from gcnmpi.run.record import Epoch
from partition.errors import UserError
from partition.records import atomic_file

KIND, VERSION = "gcnmpi-torch-run", 1
STATE = "state.pt"
MODEL = "model"  # among the objects that are kept
AFRESH = "start over with resume='never', or use another folder"
# Facts of a manifest, beside those of the graph.
_FACTS = {"epoch": int, "objects": dict, "shapes": dict, "config": dict}


class HasState(Protocol):
    """Anything whose state can be kept: modules, optimizers, schedules."""

    def state_dict(self) -> dict[str, Any]:
        """Its state: tensors, numbers and texts in dicts and lists."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take over such a state."""


@dataclass
class CheckpointObjects:
    """The objects of a run, by name, and the settings that a checkpoint is compared with.

    ``table`` is the configuration of the record; ``best`` the best weights so far, on rank 0.
    """

    opened: Opened
    objects: Mapping[str, HasState]
    table: Mapping[str, Any]
    best: dict[str, Any] | None = None

    @property
    def comm(self) -> Comm:
        """The ranks of the run."""
        return self.opened.runtime.everyone

    def check(self) -> None:
        """Raise a UserError on all ranks if the objects cannot be kept."""
        with agreed(self.comm):
            for name, each in self.objects.items():
                if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                    raise UserError(
                        f"{name} is a {type(each).__name__}, which has no state_dict",
                        "give modules, optimizers, schedules; settings belong into config={…}",
                    )
            if not isinstance(self.objects.get(MODEL), torch.nn.Module):
                raise UserError("the model of a run is a torch.nn.Module")
            _read_back(self._states())
        shapes = {f"shape of {name!r}": shape for name, shape in self._shapes().items()}
        check_same(self.comm, shapes, "checkpoints have the weights that all ranks share")

    def find(self, out: Path, resume: str) -> tuple[checkpoint.Checkpoint | None, list[str]]:
        """As :func:`gcnmpi.run.checkpoint.find`, for the objects of this run."""
        if resume == "never":
            return None, []
        paths = from_root(self.comm, lambda: checkpoint.candidates(out, resume))
        hint = "resume=PATH takes another checkpoint, resume='never' starts over"
        return checkpoint.newest(paths, self._read, hint)

    def restore(self, found: checkpoint.Checkpoint) -> dict[str, object]:
        """Give the objects their states.

        Returns the states of the random generators of this rank; on another number of ranks, those
        of rank 0.
        """
        comm = self.comm
        with agreed(comm):
            content = _load(found.path / STATE)
            for name, each in self.objects.items():
                try:
                    each.load_state_dict(content["objects"][name])
                except (KeyError, RuntimeError, TypeError, ValueError) as error:
                    text = " ".join(str(error).split())[:200]
                    raise UserError(
                        f"the checkpoint {found.path} does not fit {name}: {text}", AFRESH
                    ) from error
            generators = content["generators"]
            mine = generators[comm.rank if len(generators) == comm.size else 0]
        if found.facts["best"]["epoch"]:
            self.best = content["best"]
        return mine

    def keep_best(self) -> None:
        """Remember the weights of now as the best ones, on rank 0, which writes them."""
        if self.comm.rank == 0:
            self.best = self.weights()

    def save(self, folder: Path, facts: Mapping[str, object], epochs: Sequence[Epoch]) -> Path:
        """Write the checkpoint after the last of ``epochs``; the one before is kept.

        ``facts`` has ``best``: epoch and value. On all ranks a UserError if it cannot be written.
        """
        generators = self.comm.gather(_generators())

        def write(path: Path) -> None:
            def on_root() -> None:
                states = {"objects": self._states(), "best": self.best, "generators": generators}
                data = _bytes(states)
                with files.unwritable(path.parent), files.synced(path) as file:
                    file.write(data)

            from_root(self.comm, on_root)

        facts = {
            "format": KIND,
            "version": VERSION,
            **checkpoint.opened_facts(self.opened),
            "objects": self._kinds(),
            "shapes": self._shapes(),
            "config": self.table,
            "epoch": len(epochs),
            **facts,
        }
        path = folder / files.FOLDER / files.name_of(len(epochs))
        return checkpoint.write_checkpoint(self.comm, path, {STATE: write}, {}, facts, epochs)

    def weights(self) -> dict[str, object]:
        """A copy of the state of the model."""
        state = self.objects[MODEL].state_dict()
        return {name: _copy(value) for name, value in state.items()}

    def _states(self) -> dict[str, object]:
        return {name: each.state_dict() for name, each in self.objects.items()}

    def _shapes(self) -> dict[str, list[object]]:
        state = self.objects[MODEL].state_dict()
        return {
            name: [str(value.dtype), *value.shape]
            for name, value in state.items()
            if isinstance(value, torch.Tensor)
        }

    def _kinds(self) -> dict[str, str]:
        return {
            name: "module" if isinstance(each, torch.nn.Module) else type(each).__name__
            for name, each in self.objects.items()
        }

    def _read(self, path: Path) -> checkpoint.Checkpoint:
        facts = checkpoint.intact_facts(self.comm, path, _manifest)
        from_root(self.comm, lambda: self._check_fits(path, facts))
        epochs, state = from_root(self.comm, lambda: files.read_state(path, facts))
        return checkpoint.Checkpoint(path, facts, epochs, state)

    def _check_fits(self, path: Path, facts: Mapping[str, Any]) -> None:
        """Compare a checkpoint with the run that would go on from it."""
        before = facts["shapes"]
        for name, shape in self._shapes().items():
            if before.get(name) != shape:
                there = _shown(before[name]) if name in before else "not there"
                raise UserError(
                    f"the checkpoint {path} is of another network: {name} is {there}, and "
                    f"{_shown(shape)} in this run",
                    AFRESH,
                )
        more = before.keys() - self._shapes()
        if more:
            raise UserError(
                f"the checkpoint {path} is of another network, which has {min(more)}", AFRESH
            )
        different = [*_differences("", facts["objects"], self._kinds())]
        table = dict(checkpoint.flat(self.table))
        different += [
            (name, *values)
            for name, *values in _differences("", dict(checkpoint.flat(facts["config"])), table)
            if not name.startswith(checkpoint.FREE)
        ]
        checkpoint.check_fits(self.opened.source, path, facts, different, AFRESH)


def write_weights(path: Path, state: Mapping[str, object]) -> None:
    """Write a state dict as a file of ``torch.save``, whole or not at all."""
    data = _bytes(dict(state))
    with atomic_file(path) as file:
        file.write(data)


def _manifest(path: Path) -> dict[str, object]:
    hint = "go on with the program that wrote it, or start over with resume='never'"
    facts = files.read_facts(path, KIND, VERSION, hint)
    if not files.is_well_formed(facts, _FACTS, STATE):
        raise files.DamagedError(f"the manifest of the checkpoint {path} is damaged")
    return facts


def _differences(
    prefix: str, before: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Name, value before and value now of what is not the same; None where there is none."""
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            yield prefix + name, before.get(name), now.get(name)


def _shown(shape: list[Any]) -> str:
    return f"{shape[0].removeprefix('torch.')} {tuple(shape[1:])}"


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _bytes(content: Mapping[str, object]) -> memoryview:
    buffer = io.BytesIO()
    try:
        torch.save(content, buffer)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise _unkept(error) from error
    return buffer.getbuffer()


def _read_back(states: dict[str, object]) -> None:
    """Raise a UserError if what is written could not be read without running code of it."""
    try:
        torch.load(io.BytesIO(_bytes(states)), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _unkept(error) from error


def _unkept(error: Exception) -> UserError:
    return UserError(
        f"a state_dict holds something else than tensors, numbers and texts: "
        f"{' '.join(str(error).split())[:200]}",
        "convert it in the state_dict of its object",
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if {"objects", "best", "generators"} <= content.keys():
            return content
    except OSError as error:
        raise files.unreadable(path, error) from error
    except (AttributeError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        text = " ".join(str(error).split())[:200]
        raise UserError(f"{path} cannot be read: {text}", AFRESH) from error
    raise UserError(f"{path} is not the state of a run", AFRESH)


def _generators() -> dict[str, object]:
    """The states of the generators of this process, as tensors and numbers."""
    kind, words, *rest = np.random.get_state()  # type: ignore[misc]  # noqa: NPY002
    keys = torch.from_numpy(np.asarray(words, np.int64))
    version, state, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "numpy": [str(kind), keys, *rest],
        "python": [version, torch.tensor(state), gauss],  # which PyTorch Geometric draws from, too
    }


def set_generators(states: dict[str, Any]) -> None:
    """Have the generators of this process go on as those of a checkpoint."""
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if "python" in states:  # which the first version did not keep
        version, state, gauss = states["python"]
        random.setstate((version, tuple(state.tolist()), gauss))
