"""The kernel "cupy" without a GPU: on tests/fake, where its CUDA source runs as C++.

That checks the arithmetic, what is passed to the libraries, and that nothing is read before it is
computed or sent from where MPI cannot see it. It does not check what the libraries do.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from axes import ALL, SCHEME_KINDS, daily
from stored_graphs import store
from test_over_time import folder as of_time  # noqa: F401 (a fixture)
from test_over_time import settings_of
from test_relational import COMPGCN, GAT, MEAN, MIXED, RGCN, schemas  # noqa: F401 (a fixture)
from test_schemes import check_schemes
from test_task_runs import make_graph
from words import sets

from gcnmpi.kernels import cuda
from gcnmpi.run.record import read_run

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile with")


def fake(**variables):
    """The environment in which ``import cupy`` finds the fake."""
    path = [str(ROOT / "tests" / "fake"), str(ROOT), os.environ.get("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), **variables}


def printed(*words, **variables):
    """The output of a Python program that finds the fake, and ends well."""
    options = {"cwd": ROOT, "env": fake(**variables), "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, *words], **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kernels_on_the_emulator():
    assert "skipped" not in printed("scripts/check_cuda.py", "--emulate", "1")


DROPPED = """
import gc
import cupy as cp
import cupyx
from gcnmpi.kernels.cuda.copies import DeviceNumber

made = []
pinned = cupyx.empty_pinned
cupyx.empty_pinned = lambda *shape: made.append(pinned(*shape)) or made[-1]
with cp.cuda.Stream(non_blocking=True) as stream:
    array = cp.empty((1,), "float64")
    array.fill(3)
    number = DeviceNumber(array)
    number.cycle = number
    del number
    gc.collect()
    (event, host), = DeviceNumber._under_way
    assert host is made[0]
    assert not event.done
    stream.synchronize()
    assert host[0] == 3
    kept = DeviceNumber(array)
    assert len(DeviceNumber._under_way) == 1
"""


def test_a_number_that_nobody_waits_for_has_memory_until_it_arrives():
    printed("-c", DROPPED, FAKE_STREAMS="late")


KEPT = """
import gc
import weakref
import numpy as np
from gcnmpi.options.kernel import KERNELS

kernel = KERNELS.get("cupy")(np.float32)

def repeated():
    rows = kernel.resident(np.array([2, 0]), np.int64)
    x, out = kernel.from_host(np.arange(3, dtype="f4").reshape(3, 1)), kernel.empty(2, 1)
    def call(epoch):
        kernel.take_rows(x, rows, out)
        return out
    return kernel.repeated(call), weakref.ref(rows)

taken, rows = repeated()
for epoch in range(1, 6):
    out = taken(epoch)
    gc.collect()
    assert rows() is not None, epoch
assert kernel.to_host(out).tolist() == [[2], [0]]
del taken
gc.collect()
assert rows() is None
"""


def test_what_a_graph_reads_lives_as_long_as_the_graph():
    printed("-c", KEPT)


# Of schemes, each way of sending has some daily.
KINDS = [list(SCHEME_KINDS) if ALL else list(SCHEME_KINDS)[i::3] for i in range(3)]


@pytest.mark.parametrize(("nranks", "most"), daily((2, 1), (1, None), (2, None), (4, None)))
def test_schemes_stage_messages_on_the_host(verified, schemes_folder, nranks, most):
    check_schemes(verified, schemes_folder, nranks, SHORT, fake(), most, KINDS[0])


@pytest.mark.parametrize(("nranks", "most"), daily((3, 1), (2, 3), (4, 3)))
def test_schemes_hand_devices_memory_to_mpi(verified, schemes_folder, nranks, most):
    settings, env = [*SHORT, "comm.cuda_aware=yes"], fake(FAKE_CUDA_AWARE="1")
    check_schemes(verified, schemes_folder, nranks, settings, env, most, KINDS[1])


@pytest.mark.parametrize(("nranks", "dtype"), daily((2, "float64"), (4, "float32")))
def test_schemes_sum_on_devices(verified, schemes_folder, nranks, dtype):
    settings, env = [*SHORT, "comm.nccl=yes", f"dtype={dtype}"], fake(FAKE_DEVICES=str(nranks))
    check_schemes(verified, schemes_folder, nranks, settings, env, 1, KINDS[2])


@pytest.mark.parametrize(("nranks", "nccl"), daily((2, "yes"), (4, "no")))
def test_rows_go_from_device_to_device(verified, schemes_folder, nranks, nccl):
    settings = [*SHORT, "scheme.transport=nccl", f"comm.nccl={nccl}", "scheme.exchange=rows"]
    env = fake(FAKE_DEVICES=str(nranks))
    check_schemes(verified, schemes_folder, nranks, settings, env, most=4, kinds=["p2p"])


def test_nccl_is_taken_where_each_rank_has_a_device(mpirun, schemes_folder, tmp_path):
    records = {}
    for devices, nccl in (("2", ""), ("1", ""), ("2", "missing")):
        out = tmp_path / f"{devices}{nccl}"
        env = fake(FAKE_DEVICES=devices, FAKE_NCCL=nccl)
        done = train(mpirun, schemes_folder, *SHORT, out=out, env=env)
        assert "could not be loaded" not in done.stderr  # CuPy's own words: nobody asked
        records[devices, nccl] = read_run(out)
    nccl, *mpi = records.values()
    assert nccl.start["reduction"] == "nccl"
    found = nccl.start["versions"]
    assert {"cupy", "cuda_driver", "cuda_runtime", "cublas", "cusparse", "nccl"} <= set(found)
    assert "nccl" not in records["2", "missing"].start["versions"]
    assert [record.start["reduction"] for record in mpi] == ["mpi", "mpi"]
    for record in mpi:  # of two numbers, there is one sum
        assert [e["loss"] for e in record.epochs] == [e["loss"] for e in nccl.epochs]
        assert record.end["reduce_bytes"] == nccl.end["reduce_bytes"]


PACKED = ("train.epochs=3", "comm.precision=int8", "model.hidden=24")


@pytest.fixture(scope="module")
def packed_on_the_host(gcnmpi_lines, schemes_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("host") / "run"
    line = train_words(schemes_folder, *PACKED, "kernel=scipy", out=out)
    assert gcnmpi_lines(2, [line]) == [[None] * 2]
    return read_run(out)


WAYS = {
    "comm.cuda_aware=no": {"FAKE_STREAMS": "late"},
    "comm.cuda_aware=yes": {"FAKE_CUDA_AWARE": "1"},
    "scheme.transport=nccl": {"FAKE_DEVICES": "2"},
    "gpu.spmm=cusparse": {"FAKE_STREAMS": "late"},
}


@pytest.mark.parametrize("setting", daily(*WAYS))
def test_rounded_messages_are_packed_on_the_device(
    mpirun, schemes_folder, packed_on_the_host, tmp_path, setting
):
    own, env = ("kernel=cupy", setting), fake(**WAYS[setting])
    train(mpirun, schemes_folder, *PACKED, *own, out=tmp_path / "run", env=env)
    records = device, host = read_run(tmp_path / "run"), packed_on_the_host
    assert device.end["bytes_sent"] == device.end["bytes_predicted"] == host.end["bytes_sent"]
    errors = [[one["error"] for one in record.end["rounding"]] for record in records]
    assert errors[0] == pytest.approx(errors[1], rel=0.2)
    assert min(errors[0]) > 0
    losses = [[epoch["loss"] for epoch in record.epochs] for record in records]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


WITHOUT_NCCL = [
    ("cupy", "1", "", "ranks 0 and 1 share the GPU 0000:00:00.0 of ", "start no more ranks"),
    ("cupy", "2", "missing", "CuPy finds no NCCL", "pip install nvidia-nccl-cu12"),
    ("scipy", "2", "", "the kernel does not compute on a GPU", "set kernel=cupy"),
]


@pytest.mark.parametrize(("kernel", "devices", "nccl", "message", "hint"), WITHOUT_NCCL)
def test_nccl_where_it_cannot_be_is_one_error(
    mpirun, schemes_folder, kernel, devices, nccl, message, hint
):
    env = fake(FAKE_DEVICES=devices, FAKE_NCCL=nccl)
    name, value = ("scheme.transport", "nccl") if kernel == "scipy" else ("comm.nccl", "yes")
    done = train(mpirun, schemes_folder, f"kernel={kernel}", f"{name}={value}", code=2, env=env)
    assert done.stderr.count(f"error: {name} is '{value}', and {message}") == 1, done.stderr
    assert f"hint: {hint}" in done.stderr


def test_a_rank_that_cannot_join_the_others_ends_the_job(mpirun, schemes_folder):
    env = fake(FAKE_DEVICES="2", FAKE_NCCL="broken")
    done = train(mpirun, schemes_folder, *SHORT, code=2, env=env)
    assert "rank 1: error: NCCL does not start: NCCL_ERROR_SYSTEM_ERROR" in done.stderr


def train(mpirun, folder, *settings, out=None, code=0, env=None):
    """A run on 2 ranks."""
    return mpirun(2, "gcnmpi", *train_words(folder, *settings, out=out), code=code, env=env)


def train_words(folder, *settings, out=None):
    words = ["train", folder / "directed.graph", "--partition", "uneven-2"]
    return [*words, *([] if out is None else ["--out", out]), *sets(*settings)]


SHORT = ["kernel=cupy", "comm.cuda_aware=no", "train.epochs=3"]


def test_no_device_is_one_error(mpirun, schemes_folder):
    done = train(mpirun, schemes_folder, "kernel=cupy", code=2, env=fake(FAKE_DEVICES="0"))
    assert done.stderr.count("kernel 'cupy' finds no GPU on this host") == 1, done.stderr
    assert "hint: run it where there is an NVIDIA GPU" in done.stderr


BROKEN = {
    "missing": "CuPy failed to load libnvrtc.so.12",
    "no headers": 'cannot open source file "cuda_fp16.h"',
}


@pytest.mark.parametrize(("broken", "says"), daily(*BROKEN.items()))
def test_a_device_that_compiles_nothing_is_one_error(mpirun, schemes_folder, broken, says):
    done = train(mpirun, schemes_folder, "kernel=cupy", code=2, env=fake(FAKE_NVRTC=broken))
    message = (
        f"error: kernel 'cupy' compiles or runs nothing on a processor that pretends: {says}\n"
    )
    assert done.stderr.count(message) == 1, done.stderr
    assert "and more lines" not in done.stderr
    assert "hint: NVRTC and CUDA's headers have to be those of CuPy's CUDA" in done.stderr


AN_EPOCH = [
    (1, "dtype=float32", 1, 30),
    (1, "train.batches=neighbor,16,5,5", 2, 40),  # two batches
    (2, "comm.cuda_aware=no", 7, 30),
    (2, "scheme.transport=nccl", 1, 30),
    (2, "scheme.transport=nccl model.norm=batch train.clip_norm=0.1", 1, 60),
]


@pytest.mark.parametrize(
    ("nranks", "setting", "most", "launches"), [AN_EPOCH[0], *daily(*AN_EPOCH[3:], *AN_EPOCH[1:3])]
)
def test_an_epoch_waits_once_but_for_messages_through_the_host(
    mpirun, schemes_folder, nranks, setting, most, launches
):
    late = {} if "nccl" in setting else {"FAKE_STREAMS": "late"}
    settings = ["kernel=cupy", "model.dropout=0.5", *setting.split(), "comm.nccl=auto"]
    partition = "-" if nranks == 1 else "uneven-2"
    words = ["count_launches.py", schemes_folder / "directed.graph", partition, *settings]
    done = mpirun(nranks, *words, env=fake(FAKE_DEVICES="2", **late))
    counted = json.loads(done.stdout)
    assert counted["epoch"]["waits"] <= most
    assert counted["epoch"]["launches"] <= launches
    assert nranks == 2 or counted["evaluation"]["waits"] == 1


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_no_cupy_is_one_error(mpirun, schemes_folder):
    done = train(mpirun, schemes_folder, "kernel=cupy", code=2)
    assert done.stderr.count("kernel 'cupy' needs the Python package 'cupy'") == 1, done.stderr
    assert "hint: pip install '.[cuda]' in a checkout" in done.stderr


def test_gpus_are_dealt_to_the_ranks_of_a_node():
    program = """
import cupy
from gcnmpi.options.kernel import KERNELS
for place in range(4):
    kernel = KERNELS.get("cupy").for_rank("float32", 1, place, False, "own")
    assert kernel.device == "a processor that pretends"
assert cupy.cuda.used == [0, 1, 2, 0], cupy.cuda.used
"""
    printed("-c", program, FAKE_DEVICES="3")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no CUDA compiler")
@pytest.mark.parametrize("dtype", daily("float32", "float64"))
def test_nvidias_compiler_takes_the_source(tmp_path, dtype):
    (tmp_path / "kernels.cu").write_text(cuda.source(dtype))
    command = ["nvcc", "-std=c++17", "-Werror", "all-warnings", "-ptx", "kernels.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_losses_of_every_task(verified, tmp_path):
    store(tmp_path / "g.graph", make_graph(), 2)
    tasks = [
        ("task.name=labels", "task.label_smoothing=0.1", "train.optimizer=adamw"),
        ("task.class_weights=balanced", "task.metrics=roc_auc", "train.schedule=plateau"),
        ("task.name=regression", "task.loss=huber", "task.huber_delta=0.3", "task.metrics=mae"),
    ]
    common = ("kernel=cupy", "train.epochs=4", "train.clip_norm=0.1")
    cases = [(tmp_path / "g.graph", "rp-2", [*common, *task]) for task in tasks]
    verified(2, cases, directions=4, env=fake())


@pytest.mark.nightly
def test_networks_of_relations_and_over_time(verified, schemas, of_time):  # noqa: F811
    networks = [
        ("typed", [*COMPGCN, "model.composition=sub", "model.bases=2", "model.dropout=0.4"]),
        ("schema", [*GAT, "model.convolution=gatv2", MEAN]),
        ("schema", [*RGCN, MIXED]),
    ]
    cases = [(schemas / f"{name}.graph", own) for name, own in networks]
    cases += [(of_time, settings_of(name)) for name in ("frames_stgcn", "rolled_mgn")]
    cases = [(path, "uneven-2", [*own, *SHORT]) for path, own in cases]
    verified(2, cases, env=fake(FAKE_STREAMS="late"))
