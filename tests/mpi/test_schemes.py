"""Every scheme on every number of ranks that its grid allows, against the serial run.

One launch a number of ranks; ``cases_SCHEME.py`` say the cases: a list of (graph, partition or
None, settings) for a number of ranks.
"""

from importlib import import_module
from pathlib import Path

import pytest
from words import epochs, latest

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
QUICK = [pytest.param(nranks, marks=pytest.mark.quick) for nranks in (1, 2)]
RANKS = (*QUICK, 3, 4, 6, 8, 9, 12, 16)
NUMBERS = {"loss curve", "first gradient", "final weights", "logits", "M·x", "Mᵀ·y"}
NUMBERS |= {"⟨M·x, y⟩ = ⟨x, Mᵀ·y⟩", "training bytes", "training received", "evaluation received"}


@pytest.mark.parametrize("nranks", RANKS)
def test_schemes_equal_the_serial_run(verified, schemes_folder, nranks):
    check_schemes(verified, schemes_folder, nranks)


def test_p2p_on_seven_ranks(verified, schemes_folder):
    check_schemes(verified, schemes_folder, 7, modules=["cases_p2p"])


def check_schemes(verified, folder, nranks, common=(), env=None, most=None, modules=MODULES):
    """All cases of a number of ranks, each with the common settings after its own.

    Or of each scheme so many at most, or of these modules.
    """
    cases = []
    for name in modules:
        for graph, partition, settings in import_module(name).cases(nranks)[:most]:
            settings = latest(f"train.epochs={epochs(nranks)}", *settings, *common)
            case = {"graph": folder / f"{graph}.graph", "partition": partition}
            case["settings"] = sorted(settings)
            if case not in cases:  # the common settings may make cases the same
                cases.append(case)
    for checks in verified(nranks, cases, timeout=600, env=env):
        assert checks >= NUMBERS
