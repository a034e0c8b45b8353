"""Records as runs write them, of any number of epochs and ranks, without running anything."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gcnmpi.run.ranks_record import sampled_every

CONFIG = {
    "dtype": "float32",
    "model": {"name": "gcn", "hidden": [64], "dropout": 0.5},
    "train": {"epochs": 0, "lr": 0.01, "seed": 0},
}


def make_run(folder: Path, epochs: int = 40, ranks: int = 4, seed: int = 0, **start) -> Path:
    """Write ``run.jsonl``; further facts are over those of its start. Rank ranks // 2 is slow."""
    random = np.random.default_rng(seed)
    speed = 1 + 0.1 * random.random(ranks)
    speed[ranks // 2] = 1.5
    facts = {
        "time": "2026-01-01T00:00:00+00:00", "graph": "ogbn", "graph_id": "0a", "data_id": "0b",
        "n": 169343, "nnz": 2315598, "partition": f"hp-{ranks}", "partition_id": "0c",
        "direction": "in", "scheme": "p2p", "scheme_options": {"name": "p2p", "exchange": "rows"},
        "kernel": "native", "ranks": ranks, "threads": 1, "job": None, "reduction": "mpi",
        "hosts": [f"node{rank // 16:03}" for rank in range(ranks)], "devices": [None] * ranks,
        "versions": {"gcnmpi": "0.1.0", "python": "3.12", "mpi": "Open MPI v5"},
        "metric": "accuracy", "warnings": [],
        "config": CONFIG | {"train": CONFIG["train"] | {"epochs": epochs}},
    } | start  # fmt: skip
    pairs = np.zeros((ranks, ranks), int)  # rows sent from one to another
    for rank in range(ranks):
        near = np.arange(ranks)[(np.arange(ranks) - rank) % ranks < 1 + ranks // 2]
        pairs[rank, near] = 4000 / (1 + np.abs(near - rank))
    np.fill_diagonal(pairs, 0)
    peers = [np.flatnonzero(line).tolist() for line in pairs]
    sent, received = (512 * out + 256 * back for out, back in (
        (pairs.sum(axis=1), pairs.sum(axis=0)), (pairs.sum(axis=0), pairs.sum(axis=1))
    ))  # fmt: skip
    ranks_record = {
        "rows": random.integers(2000, 2400, ranks).tolist(),
        "entries": random.integers(30000, 36000, ranks).tolist(),
        "memory_forecast_bytes": 480_000_000, "peers": peers,
        "peer_rows": [line[near].tolist() for line, near in zip(pairs, peers, strict=True)],
        "expand_row_bytes": 512, "fold_row_bytes": 256,
    }  # fmt: skip
    lines = [{"event": "start", **facts, "of_ranks": ranks_record}]
    after, whole, samples = 0, {}, []
    for epoch in range(1, epochs + 1):
        curve = 1 - np.exp(-epoch / (epochs / 5))
        noise = random.normal(0, 0.01, 4)
        lines.append({
            "event": "epoch", "epoch": epoch, "loss": 3.7 * (1 - curve) + 0.15 + abs(noise[0]),
            "train_accuracy": 0.78 * curve + noise[1], "val_accuracy": 0.72 * curve + noise[2],
            "test_accuracy": 0.71 * curve + noise[3],
            "seconds": 0.02 * (1 + abs(random.normal(0, 0.1))), "time": 1.7e9 + epoch * 0.025,
        })  # fmt: skip
        if epoch % sampled_every(epoch, ranks) == 0 or epoch == epochs:
            span = epoch - after
            work = speed * span * (1 + 0.05 * random.random(ranks))
            seconds = {
                "spmm": work * 0.008, "gemm": work * 0.002, "loss": work * 1e-4,
                "update": work * 1e-4, "other": work * 1e-4, "pack": work * 4e-4,
                "reduce": 0.0108 * (1.6 * span - work), "wait": 0.001 * (1.7 * span - work),
                "eval": work * 0.004,
            }  # fmt: skip
            rounded = {k: [float(f"{v:.3g}") for v in values] for k, values in seconds.items()}
            samples.append({"epoch": epoch, "after": after, "seconds": rounded})
            whole = {k: whole.get(k, 0) + values for k, values in seconds.items()}
            after = epoch
    each = {name: values.tolist() for name, values in whole.items()} | {"load": [2.5] * ranks}
    lines.append({
        "event": "end", "finished": True, "epochs": epochs, "epochs_run": epochs,
        "stopped_early": False, "best_epoch": epochs, "best_val_accuracy": 0.72,
        "best_test_accuracy": 0.71, "seconds_per_epoch": 0.0205, "orders": ["given", "combine"],
        "bytes_sent": (sent * epochs).tolist(), "bytes_predicted": (sent * epochs).tolist(),
        "bytes_received": (received * epochs).tolist(),
        "messages_sent": [len(near) * epochs for near in peers],
        "messages_predicted": [len(near) * epochs for near in peers],
        "hidden": 0.83, "rounding": [],
        "peak_memory_bytes": random.integers(380_000_000, 470_000_000, ranks).tolist(),
        "phases": {}, "rank_phases": each, "samples": samples,
    })  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "run.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return folder
