"""The functions of the CUDA runtime that the kernel calls."""

import os

CUDA_R_32F, CUDA_R_64F = 0, 1
used = []  # numbers of the devices that were chosen


class CUDARuntimeError(RuntimeError):
    pass


def getDeviceCount():
    count = int(os.environ.get("FAKE_DEVICES", "1"))
    if not count:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return count


def getDevice() -> int:
    """The one that was chosen last."""
    return used[-1] if used else 0


def getDeviceProperties(number: int) -> dict:
    """Its name and its architecture."""
    return {"name": b"a processor that pretends", "major": 9}


def driverGetVersion() -> int:
    """The version of CUDA that the driver has."""
    return 12080


def runtimeGetVersion() -> int:
    """The version of the runtime that CuPy was built with."""
    return 12090


def deviceGetPCIBusId(number: int) -> str:
    """Where it is on its host."""
    return f"0000:{number:02X}:00.0"
