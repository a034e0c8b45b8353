"""CUDA source as C++: each kernel becomes a function that runs all threads, one after the other.

Kernels whose threads work together go through them in each of their steps, so those run by blocks.
"""

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from cupy.queue import begin

PRELUDE = """
#include <cmath>
using std::erfc; using std::exp; using std::expm1; using std::log; using std::sqrt;
#define __global__
#define __shared__ static
static struct { unsigned x, y; } threadIdx, blockIdx, blockDim, gridDim;
"""
KERNEL = re.compile(r'extern "C" (?:[A-Z]+ )?__global__ void (\w+)\(([^)]*)\) \{')
LOOPS = """
extern "C" void run_{name}(unsigned gx, unsigned gy, unsigned bx, unsigned by, {parameters}) {{
  blockDim = {{bx, by}};
  gridDim = {{gx, gy}};
  for (blockIdx.y = 0; blockIdx.y < gy; ++blockIdx.y)
  for (blockIdx.x = 0; blockIdx.x < gx; ++blockIdx.x)
  {threads}
    {name}({arguments});
}}
"""
THREADS = """for (threadIdx.y = 0; threadIdx.y < by; ++threadIdx.y)
  for (threadIdx.x = 0; threadIdx.x < bx; ++threadIdx.x)"""
C_TYPES = {"f4": ctypes.c_float, "f8": ctypes.c_double, "i4": ctypes.c_int32, "i8": ctypes.c_int64,
           "u1": ctypes.c_uint8, "u4": ctypes.c_uint32, "u8": ctypes.c_uint64}  # fmt: skip


def translate(code):
    loops = []
    for body in code.split('extern "C"')[1:]:
        name, parameters = KERNEL.match(f'extern "C"{body}').groups()
        arguments = ", ".join(re.findall(r"(\w+)\s*(?:,|$)", parameters))
        threads = "" if "EACH_THREAD" in body else THREADS
        loop = LOOPS.format(name=name, parameters=parameters, arguments=arguments, threads=threads)
        loops.append(loop)
    return PRELUDE + code + "".join(loops)


def build(code):
    """The library of a source; compiled once, even by ranks that want it at the same time."""
    text = translate(code)
    name = f"gcnmpi-fake-cuda-{os.getuid()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    path = Path(tempfile.gettempdir()) / name
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            source, built = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
            source.write_text(text)
            flags = ["-O1", "-Wall", "-Werror", "-Wno-unused-function", "-shared", "-fPIC"]
            subprocess.run(["g++", *flags, source, "-o", built], check=True)
            staged = path.with_name(f"{path.name}.{os.getpid()}")
            staged.write_bytes(built.read_bytes())
            staged.replace(path)
    return ctypes.CDLL(str(path))


class RawModule:
    def __init__(self, code, options):
        assert options == ("--std=c++17",)
        if os.environ.get("FAKE_NVRTC") == "missing":
            raise RuntimeError("CuPy failed to load libnvrtc.so.12\nand more lines")
        self._library = build(code)
        self._parameters = {
            name: [word.strip() for word in text.split(",")] for name, text in KERNEL.findall(code)
        }

    def get_function(self, name):
        function = getattr(self._library, f"run_{name}")
        parameters = [_read(parameter) for parameter in self._parameters[name]]

        def launch(grid, block, arguments):
            assert len(arguments) == len(parameters), name
            assert grid[0] < 2**31
            assert grid[1] < 2**16
            assert block[0] * block[1] <= 1024
            sizes = map(ctypes.c_uint32, (*grid, *block))
            given = [*sizes, *map(_argument, parameters, arguments)]
            begin(lambda: function(*given))

        return launch


NUMBERS = {"I": "i8", "U8": "u1", "S32": "i4", "U32": "u4", "U64": "u8", "double": "f8"}


def _read(parameter):
    """Of a parameter in C: its words, whether it is a pointer, its type, and whether that is T."""
    kind = parameter.removeprefix("const ").split()[0].rstrip("*")
    return parameter, "*" in parameter, NUMBERS.get(kind), kind == "T"


def _argument(parameter, value):
    """A value as C takes it, of the type the parameter has (T: either)."""
    text, pointer, expected, either = parameter
    found = value.dtype.str[1:]
    assert found == (expected or found), (text, value.dtype)
    if pointer:
        assert not either or found in ("f4", "f8"), (text, value.dtype)
        return ctypes.c_void_p(value.data.ptr)
    assert isinstance(value, np.generic), (text, value)
    return C_TYPES[found](value.item())
