"""Predictions of samples by a network with given weights, written while samples are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gcnmpi.layout.place import Place
from gcnmpi.layout.writing import writing_together
from gcnmpi.mpi.comm import Comm, agreed, from_root, slice_of, told_to
from gcnmpi.nn.tasks.samples import Scales
from gcnmpi.options.requests import InferRequest
from gcnmpi.run.inference import Inference, prepared
from gcnmpi.run.problem import make_model
from gcnmpi.run.results import check_writable
from gcnmpi.run.samples.reading import SampleReader
from gcnmpi.run.samples.step import Ahead, Setup, put_frames, static_features
from gcnmpi.schemes.stacked import StackedScheme
from partition.errors import UserError, unknown_name
from partition.graph.graph import MASKS
from partition.records import atomic_file

EVERY = "all"
WHICH = (*MASKS, EVERY)


@dataclass(frozen=True)
class Predicted:
    """The file that was written: (samples, vertices, columns)."""

    done: Inference
    steps: np.ndarray  # (samples,) int64: the last known step of each


def infer_samples(
    comm: Comm, asked: InferRequest, which: str, tell: Callable[[str], None] = lambda line: None
) -> Predicted:
    """Predict samples, and write ``asked.out``, an ``.npy`` in the numbers of the data.

    Beside it, ``NAME.steps.npy`` has the last known step of each sample. Numbers are standardised
    with the moments that the weights were trained with.

    Parameters
    ----------
    which : {"train", "val", "test", "all"}
        The samples of a mask; or one for each step that has a history, and what is given of later
        ones, whether or not the results are known.

    Raises
    ------
    UserError
        On all ranks: as inference does; if there are no such samples, or the weights are of
        another task.
    """
    out = asked.out
    with agreed(comm):
        if out is None:
            raise UserError("predictions of samples are written to a file", "out='Y.npy'")
        if which not in WHICH:
            raise unknown_name("samples", which, WHICH)
        if out.suffix != ".npy":
            raise UserError(f"--out {out}: predictions of samples are an .npy", "--out Y.npy")
    check_writable(comm, out)
    ready = prepared(comm, asked, tell)
    problem, weights = ready.problem, ready.weights
    with agreed(comm):
        if not isinstance(problem.scheme, StackedScheme):
            raise UserError(
                f"{asked.weights} holds weights of task.name = {problem.config.task.name}",
                "leave --samples out",
            )
    setup = Setup.of(problem)
    steps = _steps(setup, which)
    with agreed(comm):
        if not len(steps):
            raise UserError(f"the samples {setup.samples.name!r} have none of {which!r}")
    with told_to(comm, problem.runtime.comm):
        model = make_model(problem, static_features(problem, setup), ("evaluation",))
    model.load_state(weights.parameters)
    with agreed(comm):
        reader = setup.reader(problem, Scales.within(weights.examples))
    kernel, width, n = problem.runtime.kernel, model.widths[-1], problem.source.stored.manifest.n
    ahead = Ahead(reader, problem.config.train.draw_ahead != "no", labels=False)
    every = setup.scheme.stack.every
    chunks = [steps[start : start + every] for start in range(0, len(steps), every)]
    shape = len(steps), n, width
    with writing_together(comm, out, kernel.dtype, shape, axes=2) as write:
        for number, chunk in enumerate(chunks):
            after = chunks[number + 1] if number + 1 < len(chunks) else None
            then = () if after is None else setup.mine(after)
            with agreed(comm):
                read = ahead.read(setup.mine(chunk), then)
            put_frames(kernel, model, read, setup.frames)
            rows = _in_data(reader, kernel.to_host(model.forward()))
            rows = setup.scheme.original(Place(0), rows, width)
            group = problem.runtime.comm
            first = slice_of(n, group.rank, group.size).start
            for place in range(setup.scheme.stack.count):
                sample = number * every + setup.scheme.stack.first + place
                there = sample < len(steps)
                mine = rows[:, place * width : (place + 1) * width] if there else rows[:0, :width]
                write((sample if there else 0) * n + first, mine)
    from_root(comm, lambda: _write_steps(out, steps))
    return Predicted(ready.inference(shape, kernel.dtype, None), steps)


def _steps(setup: Setup, which: str) -> np.ndarray:
    """The last known step of each sample that is wanted, increasing."""
    if which != EVERY:
        return setup.anchors(which)
    frames, ahead = setup.frames, 0
    if frames.given and setup.samples.targets is None:
        ahead = frames.rollout - 1
    found = [setup.samples.anchors(mask, frames.history, ahead) for mask in MASKS]
    return np.sort(np.concatenate(found))


def _in_data(reader: SampleReader, outputs: np.ndarray) -> np.ndarray:
    """Outputs in the numbers of the data."""
    numbers = outputs.astype(np.float64) * reader.deviations + reader.means
    return numbers.astype(outputs.dtype)


def _write_steps(out: object, steps: np.ndarray) -> None:
    with atomic_file(f"{str(out).removesuffix('.npy')}.steps.npy") as file:
        np.save(file, steps, allow_pickle=False)
