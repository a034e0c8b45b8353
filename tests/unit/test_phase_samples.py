"""Samples of phases: what has gone by between two epochs, of every rank."""

from types import SimpleNamespace

import numpy as np

from gcnmpi.core.timing import EPOCH_PHASES
from gcnmpi.run.ranks_record import PhaseSamples


class Two:
    """The first of two ranks; the other one takes twice as long."""

    rank, size = 0, 2

    def Gather(self, mine, every, root):
        every[:] = [mine, 2 * mine]


def test_samples_are_what_has_gone_by_since_the_last_one():
    seconds = {"load": 9.0, "spmm": 1.0}
    runtime = SimpleNamespace(everyone=Two(), phases=SimpleNamespace(seconds=seconds))
    samples = PhaseSamples(runtime, 3)
    seconds.update(load=20.0, spmm=1.25, gemm=0.5)
    samples.take(4)
    seconds.update(spmm=1.75, wait=0.125)
    samples.take(8)
    assert samples.taken == [
        {"epoch": 4, "after": 3, "seconds": {"spmm": [0.25, 0.5], "gemm": [0.5, 1.0]}},
        {"epoch": 8, "after": 4, "seconds": {"spmm": [0.5, 1.0], "wait": [0.125, 0.25]}},
    ]


def test_every_sample_together_is_the_whole():
    rng, seconds = np.random.default_rng(0), dict.fromkeys(EPOCH_PHASES, 0.0)
    runtime = SimpleNamespace(everyone=Two(), phases=SimpleNamespace(seconds=seconds))
    samples = PhaseSamples(runtime, 0)
    for epoch in range(1, 9):
        for name in EPOCH_PHASES:
            seconds[name] += rng.random()
        samples.take(epoch)
    for name in EPOCH_PHASES:
        summed = np.sum([sample["seconds"][name] for sample in samples.taken], axis=0)
        np.testing.assert_allclose(summed, [seconds[name], 2 * seconds[name]], rtol=5e-3)
