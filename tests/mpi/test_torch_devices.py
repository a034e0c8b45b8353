"""gcnmpi.torch on devices without one: on tests/fake, where PyTorch has a device "gpu".

That checks all but the calls of ``torch.cuda``, which are in gcnmpi/torch/cuda.py: that tensors are
on the device, that they and the kernel's arrays are one memory, and how often the host waits.
"""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile with"),
    pytest.mark.skipif(
        find_spec("torch") is None,
        reason="PyTorch is not installed: pip install '.[torch]' in a checkout",
    ),
]


def fake(**variables):
    """The environment in which ``import cupy`` finds the fake."""
    paths = [str(ROOT / "tests" / "fake"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(paths), **variables}


# An epoch of two layers has four exchanges, a mean and a sum of gradients.
@pytest.mark.parametrize(
    ("nranks", "transport", "variables", "waits"),
    [
        (1, "persistent", {}, 1),
        (2, "persistent", {"FAKE_STREAMS": "late"}, 7),
        (3, "persistent", {"FAKE_CUDA_AWARE": "1", "MPICH_GPU_SUPPORT_ENABLED": "1"}, 7),
        (3, "nccl", {"FAKE_DEVICES": "3"}, 1),
    ],
)
def test_devices_give_what_the_host_gives(mpirun, tmp_path, nranks, transport, variables, waits):
    env = fake(**variables)
    done = mpirun(nranks, "torch_devices.py", tmp_path, transport, env=env, timeout=240)
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["waits"] == waits, counted


@pytest.mark.parametrize(
    ("device", "says"),
    [("cuda", "device is 'cuda', and PyTorch"), ("tpu:x", "device is 'cpu' or 'cuda'")],
)
def test_a_device_that_is_not_there_is_one_error(mpirun, tmp_path, device, says):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    words = tmp_path, "persistent", device
    done = mpirun(2, "torch_devices.py", *words, code=2, env=fake(), timeout=120)
    assert done.stderr.count(f"error: {says}") == 1, done.stderr
    assert done.stderr.count("hint: ") == (device == "cuda"), done.stderr
