"""Seconds per epoch and peak memory of link prediction, beside a program in PyTorch Geometric.

    python benchmarks/links.py G.graph --set task.decoder=dot --set model.hidden=64
    python benchmarks/links.py G.graph --only plain
    for s in 0 1 2; do gcn-partition pairs G.graph --seed $s --name links-$s --candidates 100; done
    python benchmarks/links.py G.graph --accuracy 0,1,2 --epochs 50

The same network (a stack of GCNConv), the same pairs, as many negatives, the same decoder and loss,
in one process of one thread each, in turns. An epoch is forward, backward and update over all pairs
to train on. The PyTorch program is what the examples of that library do: ``GCNConv`` with its
normalised edges kept (``cached``), rows taken by index, ``negative_sampling`` by uniform vertices.
With ``--only`` one of the two runs alone, and its peak memory means something. Prints a line of
JSON: medians, quartiles, and the largest resident set.

With ``--accuracy`` both train on the pairs ``links-S`` of each seed S for as many epochs, and score
the same test pairs, negatives and candidates. Prints a line of JSON for each seed; and one for each
metric: mean and deviation of both, mean of the differences of a seed and its standard error.
"""

import argparse
import json
import resource
import statistics
import time
from itertools import pairwise

import numpy as np

from gcnmpi.mpi.process import world
from gcnmpi.nn.metrics.pairs import ScoredPairs, ranks_among
from gcnmpi.options.config import load_config
from gcnmpi.options.kernel import AUTO, must_be_best
from gcnmpi.options.task import METRICS
from gcnmpi.run.problem import open_problem
from gcnmpi.run.step import Step
from partition.graph.store import open_graph
from partition.graph.vertex_pairs import drawn_candidates, left_out, read_pairs

WARM = 2  # epochs that are not counted
AT_ONCE = 1 << 17  # pairs that are scored
JUDGED = "auc", "mrr"  # metrics that --accuracy compares


def ours(path, settings):
    """A function that runs an epoch of the trainer, and one for the metrics of the test pairs."""
    config = load_config(None, ["task.name=links", *settings, "threads=1"])
    problem = open_problem(world(), path, None, config)
    step = Step(problem)
    evaluation = step.work.evaluation()

    def metrics():
        found = evaluation()
        return {name: found[f"test_{name}"] for name in JUDGED}

    return step, metrics


def plain(path, settings):
    """The same of PyTorch Geometric."""
    import torch
    import torch.nn.functional as F
    from torch_geometric.nn import GCNConv

    torch.set_num_threads(1)
    config = load_config(None, ["task.name=links", *settings])
    task, model = config.task, config.model
    stored, pairs = open_graph(path), read_pairs(path, task.pairs)
    graph, n = stored.graph, stored.manifest.n
    source = np.repeat(np.arange(n), np.diff(graph.indptr))
    stay = ~left_out(pairs, source, graph.indices, n)
    edges = np.stack([source, graph.indices])[:, stay].astype(np.int64)
    edges = torch.from_numpy(edges)
    x = torch.from_numpy(np.array(graph.features[np.arange(n)]))
    positives = torch.from_numpy(np.array(pairs.positives["train"], np.int64)).T.contiguous()
    count = int(task.negatives.split(",")[1])
    width = task.width or model.hidden[-1]

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            widths = (x.shape[1], *model.hidden, width)
            make = [GCNConv(a, b, cached=True) for a, b in pairwise(widths)]
            self.convs = torch.nn.ModuleList(make)
            ends = (width, *task.decoder_hidden, 1)
            lins = [torch.nn.Linear(a, b) for a, b in pairwise(ends)]
            self.lins = torch.nn.ModuleList(lins if task.decoder == "hadamard" else [])

        def scores(self, h, ends):
            product = h[ends[0]] * h[ends[1]]
            if not self.lins:
                return product.sum(dim=1)
            for lin in self.lins[:-1]:
                product = lin(product).relu()
            return self.lins[-1](product)[:, 0]

        def forward(self):
            h = x
            for conv in self.convs[:-1]:
                h = conv(h, edges).relu()
                h = F.dropout(h, model.dropout, self.training)
            return self.convs[-1](h, edges)

    torch.manual_seed(config.train.seed)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=config.train.lr)

    def epoch(number):
        optimizer.zero_grad()
        h = net()
        negatives = torch.randint(n, (2, count * positives.shape[1]))
        ones, zeros = net.scores(h, positives), net.scores(h, negatives)
        loss = F.softplus(-ones).mean() + F.softplus(zeros).mean()
        loss.backward()
        optimizer.step()
        return float(loss)

    @torch.no_grad()
    def metrics():
        net.eval()
        h = net()
        net.train()

        def scores(ends):
            some = (
                np.array(ends[at : at + AT_ONCE], np.int64).T for at in range(0, len(ends), AT_ONCE)
            )
            return np.concatenate([net.scores(h, torch.from_numpy(each)).numpy() for each in some])

        best, others = (scores(of["test"]) for of in (pairs.positives, pairs.negatives))
        if pairs.drawn:
            among = drawn_candidates(pairs, "test", slice(0, len(best)), n)
            first = np.repeat(pairs.positives["test"][:, 0], among.shape[1])
            ranked = scores(np.stack((first, among.ravel()), axis=1)).reshape(among.shape)
            better, equal = (
                f(ranked, best[:, np.newaxis]).sum(1) for f in (np.greater, np.greater_equal)
            )
            ranks = (better + equal) / 2 + 1
        else:
            ranks = ranks_among(world(), best, others)
        scored = ScoredPairs(best, others, ranks)
        return {name: METRICS.get(name)(world(), scored) for name in JUDGED}

    return epoch, metrics


def accuracy(path, settings, seeds, epochs):
    """A line for the metrics of both after training with each seed; last, their differences."""
    rows = []
    for seed in seeds:
        of_seed = [*settings, f"task.pairs=links-{seed}", f"train.seed={seed}", "task.metrics=mrr"]
        found = {"seed": seed}
        for name, make in (("ours", ours), ("plain", plain)):
            epoch, metrics = make(path, of_seed)
            for number in range(1, epochs + 1):
                epoch(number)
            found[name] = metrics()
        rows.append(found)
        print(json.dumps(found), flush=True)
    for metric in JUDGED:
        of = {name: [row[name][metric] for row in rows] for name in ("ours", "plain")}
        apart = np.subtract(of["ours"], of["plain"])
        told = {name: [float(np.mean(v)), float(np.std(v, ddof=1))] for name, v in of.items()}
        told["difference"] = [float(apart.mean()), float(apart.std(ddof=1) / len(apart) ** 0.5)]
        print(json.dumps({metric: told}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--only", choices=("ours", "plain"))
    parser.add_argument("--accuracy", metavar="SEEDS")
    args = parser.parse_args()
    must_be_best(AUTO)
    if args.accuracy:
        seeds = [int(word) for word in args.accuracy.split(",")]
        accuracy(args.graph, args.settings, seeds, args.epochs)
        return
    runs = {}
    if args.only != "plain":
        runs["ours"], _ = ours(args.graph, args.settings)
    if args.only != "ours":
        runs["plain"], _ = plain(args.graph, args.settings)
    seconds = {name: [] for name in runs}
    losses = {}
    for number in range(1, WARM + args.epochs + 1):
        for name, epoch in runs.items():
            began = time.perf_counter()
            losses[name] = epoch(number)
            seconds[name].append(time.perf_counter() - began)
    found = {}
    for name, times in seconds.items():
        low, middle, high = statistics.quantiles(times[WARM:], n=4)
        found[name] = {"median": middle, "quartiles": [low, high], "loss": losses[name]}
    if len(runs) == 2:
        pairs = zip(seconds["plain"][WARM:], seconds["ours"][WARM:], strict=True)
        found["times as fast"] = statistics.median(a / b for a, b in pairs)
    found["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps(found))


if __name__ == "__main__":
    main()
