"""An epoch on samples, on paper: its steps are alike."""

from __future__ import annotations

from dataclasses import replace

from gcnmpi.options.frames import frames_in
from gcnmpi.options.task import SampleOptions, samples_of_step
from gcnmpi.planner.case import Case
from gcnmpi.planner.costmodel import Cost, predict
from partition.graph.samples import SampleSet, list_samples, read_samples
from partition.graph.store import StoredGraph
from partition.graph.vertex_pairs import HELD_OUT


def with_samples(stored: StoredGraph, task: SampleOptions) -> StoredGraph:
    """A folder with the samples that a task names, if it has some that are called so."""
    if task.samples not in list_samples(stored.path) and task.columns:
        return stored  # a step of samples that are not there yet
    return replace(stored, samples=read_samples(stored.path, task.samples))


def predict_samples(case: Case, samples: SampleSet | None) -> Cost:
    """The cost of an epoch, of as many steps as the samples make; without any, of one step."""
    step, (steps, evaluated) = predict(case), passes_of(case, samples)
    return replace(
        step,
        seconds=steps * step.seconds,
        phases={name: steps * seconds for name, seconds in step.phases.items()},
        sent=steps * step.sent,
        received=steps * step.received,
        messages=steps * step.messages,
        reduced_bytes=steps * step.reduced_bytes,
        evaluation=evaluated * step.evaluation,
    )


def passes_of(case: Case, samples: SampleSet | None) -> tuple[int, int]:
    """Steps of an epoch, and passes of an evaluation of all samples that are held out."""
    task = case.work.config.task
    assert isinstance(task, SampleOptions)
    if samples is None:
        return 1, 0
    frames, every = frames_in(task, case.work.network.operators[0].width), samples_of_step(task)
    ahead = 0 if samples.targets is not None else frames.leads
    counts = {
        mask: len(samples.anchors(mask, frames.history, ahead)) for mask in ("train", *HELD_OUT)
    }
    return counts["train"] // every, sum(-(-counts[mask] // every) for mask in HELD_OUT)
