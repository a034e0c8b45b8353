"""Where tensors are, and arrays of the kernel that share their memory: on the host, or on a device.

All else in :mod:`gcnmpi.torch` is the same text for both.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
import torch

from gcnmpi.kernels.interface.kernel import Array
from partition.errors import UserError
from partition.registry import Registry


class Memory(Protocol):
    """The memory of a rank's tensors. The kernel works in turn with PyTorch, as on one stream.

    Attributes
    ----------
    kernel : str
        The name of the kernel that computes there.
    device : torch.device
        As tensors have it.
    """

    kernel: ClassVar[str]
    device: torch.device

    def __init__(self) -> None:
        """Of the device that the kernel of this rank has chosen."""

    @staticmethod
    def check(device: torch.device) -> None:
        """Raise a UserError unless PyTorch has that device here."""

    def array(self, tensor: torch.Tensor) -> Array:
        """The kernel's array of a dense tensor: the same memory, if that is contiguous."""

    def tensor(self, array: Array) -> torch.Tensor:
        """A tensor in the memory of an array; its storage keeps this array, and no other."""


class Host:
    """Memory of the host: tensors of the CPU are arrays of NumPy."""

    kernel = "auto"
    device = torch.device("cpu")

    @staticmethod
    def check(device: torch.device) -> None:
        """It is always there."""

    def array(self, tensor: torch.Tensor) -> Array:
        """The array of NumPy."""
        return tensor.detach().contiguous().numpy()  # type: ignore[no-any-return]

    def tensor(self, array: Array) -> torch.Tensor:
        """The tensor of an array of NumPy."""
        return torch.from_numpy(array)


MEMORIES = Registry(
    "device of PyTorch", {"cpu": "gcnmpi.torch.memory:Host", "cuda": "gcnmpi.torch.cuda:Cuda"}
)
"""By the type of their devices."""


def memory_of(device: str | torch.device) -> tuple[type[Memory], int | None]:
    """The memory of a device, which is there, and its number, if it has one; or a UserError."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UserError(f"device is 'cpu' or 'cuda', not {device!r}") from error
    memory: type[Memory] = MEMORIES.get(found.type)
    memory.check(found)
    return memory, found.index


def on_host(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's numbers as an array of NumPy, the same memory on the host; of others, a copy."""
    return tensor.detach().cpu().numpy()  # type: ignore[no-any-return]
