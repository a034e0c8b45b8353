"""Files of named arrays that hold trained weights: one reader a format, chosen by the suffix.

A reader takes a path and returns every array of the file by name. No reader runs code from a file,
none needs the library that wrote it, and none allocates more than a file holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from partition.records import read_npz
from partition.tensor_files.arrays import read_safetensors
from partition.tensor_files.torch_zip import read_torch

READERS: Mapping[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".npz": read_npz,
    ".safetensors": read_safetensors,
    ".pt": read_torch,
    ".pth": read_torch,
    ".bin": read_torch,
}


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of weights; numbers of 16 bits without a NumPy type are float32.

    A file with none of these suffixes is read as ``.npz``.
    """
    return READERS.get(path.suffix, read_npz)(path)
