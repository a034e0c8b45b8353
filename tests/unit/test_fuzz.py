"""Damaged files of every kind are read or refused, soon and in little memory.

``scripts/fuzz.py`` does the same for as long as one likes, and keeps what finds new code.
"""

import random
import time

import numpy as np
import pytest
from fuzzing import PICKLES, READERS, mutated, outcome, reprogrammed, targets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traced import takes_less_than

pytestmark = pytest.mark.slow

SECONDS = 10.0  # of processor time for a file of a few kilobytes
MEMORY = 4 << 20  # bytes that reading one may take however small it is; and ten times its size


@pytest.fixture(scope="module")
def target_of(tmp_path_factory):
    found = targets(tmp_path_factory.mktemp("targets"))
    return found.__getitem__  # not the files themselves, which a failure would print


def in_time(target, folder, file, data):
    """Read it within the limit: a refusal, or None."""
    began = time.process_time()
    with np.errstate(all="ignore"):
        found = outcome(target, folder, file, data)
    assert time.process_time() - began < SECONDS
    return found


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=25, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_damaged_files_are_read_or_refused(target_of, tmp_path, name, seed):
    target, rng = target_of(name), random.Random(seed)
    file, valid, pack = rng.choice(target.seeds)
    data = pack(mutated(valid, rng))
    limit = MEMORY + 10 * len(data)
    assert takes_less_than(limit, lambda: in_time(target, tmp_path / "damaged", file, data))


@pytest.mark.parametrize("name", PICKLES)
def test_hostile_programs_of_pickles_are_read_or_refused(target_of, tmp_path, name):
    """Changed by instructions, not by bytes: nested by reference, called, announced."""
    target, rng, found = target_of(name), random.Random(name), []
    seeds = [seed for seed in target.seeds if seed[1].startswith(b"\x80")]

    def every():
        for _ in range(40):
            file, valid, pack = rng.choice(seeds)
            data = pack(reprogrammed(valid, rng))
            found.append(in_time(target, tmp_path / "damaged", file, data))

    assert takes_less_than(16 * MEMORY, every)
    assert None in found  # not everything is refused at once: those programs run to their end


SHAPES = ["(10**13,)", "(1000000000000,)", "(4, 99999999999)", "(-1,)", "(" * 90 + ")" * 90]


@pytest.mark.parametrize("name", ["vertex data", "graph folder", "npz", "weights"])
def test_a_header_allocates_nothing_on_its_word(target_of, tmp_path, name):
    target = target_of(name)
    seeds = [(f, pack) for f, data, pack in target.seeds if data.startswith(b"\x93NUMPY")]
    seeds = [(f, pack) for f, pack in seeds if "partitions" not in f]
    assert seeds
    for shape in SHAPES:
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
        header = header.ljust(117) + b"\n"
        array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
        for file, data in [(file, pack(array)) for file, pack in seeds]:

            def read(file=file, data=data):
                assert outcome(target, tmp_path / "damaged", file, data) is not None

            assert takes_less_than(MEMORY, read)
