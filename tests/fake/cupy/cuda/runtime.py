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
