"""Kernels of CUDA source, which the emulator runs.

FAKE_CHECKS: how many launches of each kernel and type are checked, of one block and of more (none);
a finding is an error. FAKE_COUNTS: a file to which each of these adds its number of launches, and
of checked ones.
"""

import atexit
import json
import os
from collections import Counter
from functools import cache

import numpy as np

from cupy import emulator
from cupy.queue import begin

PYTHONS = {int: np.int64, float: np.float64}  # what CuPy makes of them
NUMBERS = {"I": "i8", "U8": "u1", "S32": "i4", "U32": "u4", "U64": "u8", "double": "f8"}
launches, checked = Counter(), Counter()  # of (kernel, type, several blocks)
requests = []  # of each checked launch: (kernel, what the emulator counted)


class RawModule:
    def __init__(self, code, options):
        assert options == ("--std=c++17",)
        if os.environ.get("FAKE_NVRTC") == "missing":
            raise RuntimeError("CuPy failed to load libnvrtc.so.12\nand more lines")
        emulator.library(code, False)
        self._code, self._dtype = code, "f4" if "typedef float T;" in code else "f8"

    def get_function(self, name):
        parameters = _declared(self._code, self._dtype)[name]

        def launch(grid, block, arguments):
            assert len(arguments) == len(parameters), name
            assert grid[0] < 2**31
            assert grid[1] < 2**16
            assert block[0] * block[1] <= 1024
            given = [*map(_argument, parameters, arguments)]
            begin(lambda: self._run(name, grid, block, given))

        return launch

    def _run(self, name, grid, block, given):
        of = name, self._dtype, grid != (1, 1)
        launches[of] += 1
        check = checked[of] < int(os.environ.get("FAKE_CHECKS", 0))
        checked[of] += check
        found = emulator.launch(self._code, name, grid, block, given, check)
        if check:
            requests.append((name, emulator.counted(self._code)))
        if found:
            raise RuntimeError(f"{name}, blocks {grid} of {block}: {found}")


@cache
def _declared(code, dtype):
    """The parameters of each kernel."""
    return {
        name: [_read(word.strip(), dtype) for word in text.split(",")]
        for name, text in emulator.KERNEL.findall(code)
    }


def _read(parameter, dtype):
    """Of a parameter in C: its words, whether it is a pointer, its type."""
    kind = parameter.removeprefix("const ").split()[0].rstrip("*")
    return parameter, "*" in parameter, dtype if kind == "T" else NUMBERS[kind]


def _argument(parameter, value):
    """A value as the emulator takes it, of the type the parameter has."""
    text, pointer, expected = parameter
    value = PYTHONS.get(type(value), lambda same: same)(value)
    assert value.dtype.str[1:] == expected, (text, value.dtype)
    assert pointer or isinstance(value, np.generic), (text, value)
    return value._host if pointer else value


@atexit.register
def add_counts():
    if launches and (path := os.environ.get("FAKE_COUNTS")):
        lines = [[*of[:2], number, checked[of]] for of, number in launches.items()]
        with open(path, "a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
