"""Tensors of a GPU and arrays of CuPy in one memory: the only calls of ``torch.cuda``.

No device has run them yet. Each says on which documented behaviour it relies.
"""

from __future__ import annotations

import torch

from gcnmpi.kernels.interface.kernel import Array
from partition.errors import UserError


class Cuda:
    """Memory of the GPU of this rank, which the kernel "cupy" has chosen.

    Matrices lie in PyTorch's memory or in CuPy's, each with its allocator. Both give memory away
    again at once when the last tensor or array is gone, to work that is begun later on the same
    stream; so all work of the kernel that touches tensors is on PyTorch's stream, or the stream
    waits for it before the call returns, and no ``record_stream`` is needed. A program that
    changes its stream in between has to make the new one wait for the old one, as PyTorch asks of
    all its tensors.
    """

    kernel = "cupy"

    def __init__(self) -> None:
        import cupy as cp  # which the kernel has found by now, or there was a UserError

        # CuPy and PyTorch use the runtime of CUDA, and number its devices alike.
        index = cp.cuda.runtime.getDevice()
        torch.cuda.set_device(index)  # that "cuda" means from now on
        self.device = torch.device("cuda", index)
        # PyTorch runs backward passes of devices on threads of its own. Without them, "the backward
        # pass runs on the calling thread": MPI is started for calls of one thread (funneled), CuPy
        # has a current stream in each thread, and all ranks keep one order of messages.
        torch.autograd.set_multithreading_enabled(False)
        # CuPy does not own a stream that it is lent, nor keep its object.
        self._streams = {0: cp.cuda.Stream.null}

    @staticmethod
    def check(device: torch.device) -> None:
        """Raise a UserError unless PyTorch has that device here."""
        if not torch.cuda.is_available():
            built = torch.version.cuda is not None
            raise UserError(
                f"device is {str(device)!r}, and PyTorch {torch.__version__} "
                f"{'finds no GPU on this host' if built else 'is built without CUDA'}",
                'run it where there is an NVIDIA GPU, with a PyTorch for CUDA; or device="cpu"',
            )
        if device.index is not None and device.index >= torch.cuda.device_count():
            raise UserError(
                f"device is {str(device)!r}, and this host has {torch.cuda.device_count()} GPUs",
                'device="cuda" deals them to the ranks of a node in turn',
            )

    def array(self, tensor: torch.Tensor) -> Array:
        """Through ``__cuda_array_interface__``, which tensors without a gradient have.

        Its version 2 says nothing of streams, so nobody waits; CuPy keeps the tensor as long.
        """
        import cupy as cp

        self._follow()
        return cp.asarray(tensor.detach().contiguous())

    def tensor(self, array: Array) -> torch.Tensor:
        """Likewise: the storage keeps the array until it is freed."""
        self._follow()
        return torch.as_tensor(array, device=self.device)

    def _follow(self) -> None:
        """From now on CuPy's work goes to PyTorch's current stream."""
        import cupy as cp

        pointer = torch.cuda.current_stream().cuda_stream  # 0: CUDA's default stream, of both
        if pointer not in self._streams:
            self._streams[pointer] = cp.cuda.ExternalStream(pointer)
        self._streams[pointer].use()
