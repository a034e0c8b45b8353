"""An epoch on samples, on paper: its steps are alike."""

from __future__ import annotations

from dataclasses import replace

from gcnmpi.nn.tasks.samples import samples_of
from gcnmpi.options.task import SampleOptions, samples_of_step
from gcnmpi.planner.case import Case
from gcnmpi.planner.costmodel import Cost, predict
from gcnmpi.planner.ranking import Candidate, Epochs
from partition.graph.vertex_pairs import HELD_OUT


class SampleEpochs(Epochs):
    """As many steps as the samples make; without any, one step."""

    def cost(self, candidate: Candidate, case: Case) -> Cost:
        """The cost of an epoch."""
        step, (steps, evaluated) = predict(case), self._passes(case)
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

    def _passes(self, case: Case) -> tuple[int, int]:
        """Steps of an epoch, and passes of an evaluation of all samples that are held out."""
        task, stored = case.work.config.task, self._setting.stored
        assert isinstance(task, SampleOptions)
        if stored.samples is None:
            return 1, 0
        samples, every = samples_of(stored, task), samples_of_step(task)
        evaluated = sum(-(-samples.count(mask) // every) for mask in HELD_OUT)
        return samples.count("train") // every, evaluated
