"""Launches of kernels of a CUDA source on the host: see ``runtime.cpp`` for what is checked.

The text is the one that NVRTC gets. As there with CuPy's options, ``a * b + c`` is rounded once and
subnormal numbers of float32 are zero (those of float64 are, too, which a GPU keeps).
"""

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
POISON = 0x7FF5A5A5  # a NaN, of float64 too, and no place in any array
KERNEL = re.compile(r'extern "C" (?:[A-Z]+ )?__global__ void (\w+)\(([^)]*)\) \{')
STARTER = 'extern "C" OUTSIDE void start_{0}(void** given) {{ start({0}, given); }}\n'
FLAGS = ("-std=c++17", "-fPIC", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-function",
         "-mfma", "-ffp-contract=fast", "-fexpensive-optimizations",
         f"-DPOISON={POISON:#x}u")  # fmt: skip
CHECKS = ("-fsanitize=thread", "-fsanitize=undefined,float-cast-overflow", "-fno-exceptions",
          "-fno-sanitize=vptr,object-size", "-fno-tree-sra", "-fno-ipa-sra")  # fmt: skip
_seeds = count(1)


class Array(ctypes.Structure):
    """Memory that a launch may touch."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("itemsize", ctypes.c_int64),
        ("dimensions", ctypes.c_int64),
        ("shape", ctypes.c_int64 * 4),
        ("strides", ctypes.c_int64 * 4),
    ]


@cache
def library(code, checked):
    """A source; compiled once, even by ranks that want it at the same time."""
    starters = "".join(STARTER.format(name) for name, _ in KERNEL.findall(code))
    runtime, header = HERE / "runtime.cpp", HERE / "device.h"
    text = f'#include "{header}"\n{code}{starters}'
    checks = CHECKS if checked else ()
    all_of_it = [text, runtime.read_text(), header.read_text(), *FLAGS, *checks]
    key = hashlib.sha256("\0".join(all_of_it).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"gcnmpi-emulated-{os.getuid()}-{key}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder) / "kernels.cpp", [Path(folder) / f"{k}.o" for k in "ab"]
            source.write_text(text)
            given = ["-O1", *checks, source], ["-O2", runtime]
            for words, out in zip(given, made, strict=True):
                subprocess.run(["g++", *FLAGS, "-c", *words, "-o", out], check=True)
            staged = path.with_name(f"{path.name}.{os.getpid()}")
            link = ["g++", "-shared", "-Wl,-Bsymbolic,-z,defs", *made, "-o", staged]
            subprocess.run(link, check=True)
            staged.replace(path)
    found = ctypes.CDLL(str(path))
    found.launch.restype = ctypes.c_char_p
    found.counted.restype = ctypes.POINTER(ctypes.c_int64)
    return found


def counted(code):
    """Of the last checked launch: requests, lanes in them, bytes, sectors, longest loop."""
    return library(code, True).counted()[:5]


def launch(code, name, grid, block, arguments, checked):
    """Run a kernel with arrays and numbers of NumPy; what is found, a line each."""
    arrays = [value for value in arguments if isinstance(value, np.ndarray)]
    values = [
        np.array(_address(value), np.uint64) if isinstance(value, np.ndarray) else np.array(value)
        for value in arguments
    ]
    views = [
        Array(_address(one), one.itemsize, one.ndim, one.shape, one.strides)
        for one in arrays
        if checked and one.size
    ]
    made = library(code, checked)
    return made.launch(
        getattr(made, f"start_{name}"),
        (ctypes.c_void_p * len(values))(*map(_address, values)),
        (ctypes.c_uint * 4)(*grid, *block),
        (Array * len(views))(*views),
        len(views),
        ctypes.c_uint(next(_seeds)),
        ctypes.c_bool(checked),
    ).decode()


def _address(array):
    return array.__array_interface__["data"][0]
