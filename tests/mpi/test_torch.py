"""gcnmpi.torch on several ranks, and the scripts in examples/."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from stored_graphs import store, store_parts
from test_fake_gpu import fake
from test_relational import schemas  # noqa: F401 (a fixture)

from partition.importing.synthetic import sbm
from partition.pipeline.adding import add_partition

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = "PyTorch is not installed: pip install '.[torch]' in a checkout"

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason=WORDS)
on_the_stand_in = pytest.mark.skipif(
    find_spec("torch") is None or shutil.which("g++") is None, reason=f"{WORDS}, and g++ too"
)
needs_pyg = pytest.mark.skipif(
    None in map(find_spec, ("torch", "torch_geometric")),
    reason="PyTorch Geometric is not installed",
)


@needs_torch
@pytest.mark.parametrize("nranks", [1, 3])
def test_small_graphs_agree_with_the_whole_matrix(mpirun, tmp_path, nranks):
    mpirun(nranks, "torch_cases.py", tmp_path, timeout=240)


@needs_torch
def test_mini_batches_are_those_of_the_whole_graph(mpirun, tmp_path):
    curves = []
    for nranks in (1, 3):
        folder = tmp_path / str(nranks)
        folder.mkdir()
        done = mpirun(nranks, "torch_batches.py", folder, timeout=240)
        losses = [float(line) for line in done.stdout.splitlines()]
        curves += [losses[:3], losses[-3:]]  # of two partitions
    np.testing.assert_allclose(curves, [curves[0]] * len(curves), rtol=1e-13)


@needs_pyg
@pytest.mark.parametrize(("nranks", "name"), [(2, "schema"), (3, "typed")])
def test_layers_of_types_agree_with_the_whole_graph(mpirun, schemas, nranks, name):  # noqa: F811
    mpirun(nranks, "torch_typed.py", schemas / f"{name}.graph", f"uneven-{nranks}")


@needs_pyg
def test_samples_of_a_step_may_be_shared_by_groups_of_ranks(mpirun, tmp_path):
    mpirun(4, "torch_samples.py", EXAMPLES, tmp_path, timeout=200)


@needs_pyg
def test_the_forecast_of_weather_runs(shell):
    script = f"python {EXAMPLES / 'weather.py'} globe.graph"
    line = f"silent mpirun -n 2 {script} --groups 2 --epochs 6"
    done = shell(f"{script} --make 6\n{line}", timeout=120)
    losses = [float(text.split()[3].rstrip(",")) for text in done.stdout.splitlines()]
    assert losses[1] < losses[0] < 0.37  # that the weather stays as it is has 0.39


@needs_pyg
@pytest.mark.parametrize("nranks", [2, 3])
def test_the_gallery_agrees_with_one_process_and_mistakes_are_named(mpirun, tmp_path, nranks):
    mpirun(nranks, "torch_gallery.py", EXAMPLES, tmp_path, timeout=300)


@needs_pyg
def test_the_scripts_run(shell, tmp_path):
    graph = tmp_path / "sbm.graph"
    made = sbm(300, 3, degree=8, intra=0.9, features=6, noise=0.3, train=0.3, val=0.2, seed=0)
    add_partition(store(graph, made), "gp", 2)
    (tmp_path / "page.py").write_text(program_of_the_page(graph))
    train = f"{EXAMPLES / 'gatv2'}.py {graph} --partition gp-2 --epochs 20 --save w.pt"
    lines = [
        f"silent mpirun -n 2 python {train}",
        f"silent python {EXAMPLES / 'inference'}.py {graph} w.pt logits.npy",
        "mpirun -n 2 python page.py",  # whose run shows its progress
    ]
    shell("\n".join(lines), timeout=240)
    assert np.load(tmp_path / "logits.npy").shape == (300, 3)


@needs_torch
def test_mistakes_are_told_once_on_all_ranks(mpirun, tmp_path):
    graph = tmp_path / "sbm.graph"
    store(graph, sbm(60, 3, seed=0))
    store_parts(graph, "half", np.arange(60) % 2, 2)
    begin = (
        f"import torch, gcnmpi.torch\ng = gcnmpi.torch.open({str(graph)!r}, 'half')\n"
        "net = torch.nn.Linear(g.num_features, 2)\nwith torch.no_grad(): net.weight.fill_(1)\n"
        "net.bias = None\nnet(g.x).mean().backward()\ng.all_reduce_gradients(net)\n"
    )
    metrics = "if g.rank == 0:\n    g.metrics(g.x)\n"
    log = (
        "with g.run(None, net) as run:\n    for epoch in run.epochs(2):\n"
        "        if g.rank == 0:\n            run.log(epoch, loss=1.0)\n"
    )
    for name, end, words in (
        ("ends", metrics, "makes metrics at ends.py, line 9: g.metrics(g.x), rank 1 is at the end"),
        ("logs", log, "line 11: run.log(epoch, loss=1.0), rank 1 makes the next epoch of a run"),
    ):
        script = tmp_path / f"{name}.py"
        script.write_text(begin + end)
        done = mpirun(2, script, code=2, cwd=tmp_path)
        assert done.stderr.count("error: ") == 1
        assert words in done.stderr
        assert done.stderr.count(f"{name}.py:7: UserWarning: gradients are summed, and no") == 1
    assert next((tmp_path / "runs").iterdir()).name.startswith("sbm-half-")


# An epoch of two layers has four exchanges, a mean and a sum of gradients.
WAITS = [
    (1, "persistent", {}, 1),
    (2, "persistent", {"FAKE_STREAMS": "late"}, 7),
    (3, "persistent", {"FAKE_CUDA_AWARE": "1", "MPICH_GPU_SUPPORT_ENABLED": "1"}, 7),
    (3, "nccl", {"FAKE_DEVICES": "3"}, 1),
]


@on_the_stand_in
@pytest.mark.parametrize(("nranks", "transport", "variables", "waits"), WAITS)
def test_devices_give_what_the_host_gives(mpirun, tmp_path, nranks, transport, variables, waits):
    env = fake(**variables)
    done = mpirun(nranks, "torch_devices.py", tmp_path, transport, env=env, timeout=240)
    counted = json.loads(done.stdout.splitlines()[-1])
    assert counted["waits"] == waits, counted


MISSING = {"cuda": "device is 'cuda', and PyTorch", "tpu:x": "device is 'cpu' or 'cuda'"}


@on_the_stand_in
@pytest.mark.parametrize(("device", "says"), MISSING.items())
def test_a_device_that_is_not_there_is_one_error(mpirun, tmp_path, device, says):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    words = tmp_path, "persistent", device
    done = mpirun(2, "torch_devices.py", *words, code=2, env=fake(), timeout=120)
    assert done.stderr.count(f"error: {says}") == 1, done.stderr
    assert done.stderr.count("hint: ") == (device == "cuda"), done.stderr


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_without_pytorch_the_extra_is_named():
    done = subprocess.run(
        [sys.executable, "-c", "import gcnmpi.torch"], capture_output=True, text=True
    )
    assert "pip install '.[torch]' in a checkout" in done.stderr


def program_of_the_page(graph: Path) -> str:
    """The training and the run of docs/pytorch.md, at the level of the module, on two ranks."""
    text = (EXAMPLES.parent / "docs" / "pytorch.md").read_text(encoding="utf-8")
    program = "\n".join(part.partition("```")[0] for part in text.split("```python\n")[1:])
    assert '"cora.graph", ' in program
    return program.replace('"cora.graph", ', f'"{graph}", "gp-2", ')
