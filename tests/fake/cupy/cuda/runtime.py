"""The CUDA runtime."""

import os

CUDA_R_32F, CUDA_R_64F = 0, 1


class CUDARuntimeError(RuntimeError):
    pass


def getDeviceCount():
    count = int(os.environ.get("FAKE_DEVICES", "1"))
    if not count:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return count


def getDevice() -> int:
    """There is one."""
    return 0


def getDeviceProperties(number: int) -> dict:
    """Its name."""
    return {"name": b"a processor that pretends"}
