"""The fields of ``run.jsonl``, and what each means: ``gcnmpi report --fields`` prints them."""

from collections.abc import Mapping

OF_RANKS = "of_ranks, in start and resume"
FIELDS: Mapping[str, Mapping[str, str]] = {
    "start, the first record": {
        "event": "start, resume, epoch, stop or end: the kind of the record",
        "time": "when the run began, in UTC",
        "graph, n, nnz": "name of the graph, numbers of its vertices and arcs",
        "graph_id, data_id, pairs_id, samples_id": "hashes of the arcs, of features, labels and "
        "masks, of pairs and of samples, or null",
        "pairs": "of link prediction: name, made, directed, numbers of positives (train, val, "
        "test), and of negatives and candidates of each",
        "sample_set": "of samples: name, made, columns, target_columns, and numbers of steps "
        "(train, val, test)",
        "partition, partition_id": "name and hash of the partition that was taken",
        "direction": "direction of M, in or out",
        "scheme, scheme_options, kernel": "scheme, the values of its options that were used, "
        "kernel",
        "ranks, groups, threads": "numbers of ranks, of their groups (docs/samples.md), and of "
        "threads per rank",
        "hosts, devices": "host and GPU of each rank",
        "job": 'number of the Slurm job and how often it was requeued, "4711.0"',
        "reduction": "what summed the gradients: mpi or nccl",
        "versions": "versions of gcnmpi, Python, libraries, MPI, CUDA",
        "metric": "the metric that chooses the best weights",
        "config": "the whole configuration",
        "script": "of a run of PyTorch: the file that ran",
        "warnings": "the warnings that were printed",
        "of_ranks": "what the ranks hold and send, see below",
    },
    OF_RANKS: {
        "rows, entries": "vertices owned, entries of M multiplied in one product; grids without a "
        "plan of their own: as forecast",
        "memory_forecast_bytes": "memory of the rank that needs most, as gcnmpi plan forecasts "
        "it; of mini-batches, from the first two",
        "peers, peer_rows": "for each rank those that it sends to in an expand, and the rows that "
        "each gets; p2p only, not for mini-batches or more than 256 ranks",
        "expand_row_bytes, fold_row_bytes": "bytes of such a row in all expands and in all folds "
        "of an epoch of training; folds go the other way",
    },
    "resume, where a run goes on": {
        "checkpoint, epoch": "the checkpoint and its epoch, beside the fields of the first record",
    },
    "epoch, one for each epoch": {
        "epoch": "from 1",
        "loss": "loss of the training pass: with this epoch's dropout, before its update",
        "train_accuracy, val_accuracy, test_accuracy": "fractions, without dropout, after the "
        "update, or null; other metrics (docs/tasks.md#metrics) likewise: val_roc_auc",
        "seconds": "seconds of forward pass, backward pass and update on the slowest rank",
        "time": "when the epoch ended, in seconds since 1970",
    },
    "stop, of a run that was asked to": {
        "epoch, signal, checkpoint": "the last epoch, the signal, the checkpoint that was written",
        "samples": "as in end",
    },
    "end, the last record": {
        "finished, epochs": "true; the number of epochs",
        "epochs_run": "number of epochs since the last start or resumption",
        "stopped_early": "whether train.patience ended the run",
        "best_epoch, best_val_accuracy, best_test_accuracy": "the first epoch with the best "
        "validation metric, and both metrics in it, by the name of task.metric",
        "seconds_per_epoch": "median of the seconds of the epochs",
        "orders": "order of the products in each layer that multiplies with M: combine, aggregate, "
        "or given (computed once)",
        "bytes_sent, bytes_predicted": "bytes that the exchanges of training sent, counted at the "
        "calls of MPI, and predicted from the partition",
        "bytes_received, received_predicted": "bytes received in them, counted and predicted; for "
        "collectives the payload that arrives",
        "messages_sent, messages_predicted": "messages sent in them, counted and predicted",
        "shared_bytes, shared_predicted": "bytes read from the memory of other ranks of a node "
        "(scheme.transport), which are not in those sent or received",
        "hidden": "fraction of the time of exchanges that overlapped with computing "
        "(docs/schemes.md#transports)",
        "setup_bytes_sent": "bytes of exchanges before the first epoch, for degrees and M·H⁰",
        "eval_bytes_sent, eval_bytes_predicted, eval_bytes_received, eval_received_predicted": (
            "the same numbers for the evaluations"
        ),
        "eval_messages_sent, eval_messages_predicted, eval_shared_bytes, eval_shared_predicted": (
            "likewise"
        ),
        "batches": "of mini-batches: how many each rank computed",
        "batch_rows_sent, batch_messages_sent": "of mini-batches: rows and messages that each rank "
        "sent in one expand of each layer; p2p only",
        "kept_rows, kept_bytes, kept_rows_read": "rows of others that each rank keeps "
        "(train.cache_mb), their bytes, and how many of them batches read",
        "steps, samples_here, sample_bytes": "of samples: steps and samples that each rank "
        "computed, and the bytes of samples that it read",
        "leads": "of samples: the metrics of each predicted state",
        "rounding": "what comm.precision changed: for each exchange of the first and the last "
        "epoch its epoch, number (exchange), width and relative error (Frobenius norm); empty if "
        "messages are exact",
        "reduce_bytes": "bytes of the gradient reductions: the payload that a rank receives, "
        "2(P−1)/P × buffer",
        "peak_memory_bytes": "largest memory of the process",
        "phases": "seconds of the whole run in each phase: minimum, mean and maximum over ranks",
        "rank_phases": "the same of every rank: a list for each phase",
        "samples": "the seconds that each rank spent in each phase in the epochs behind the number "
        "after up to epoch; the later the epochs, the fewer are sampled. A launch that was killed "
        "leaves none",
    },
    "phases": {
        "load": "reading, distributing, planning",
        "sample": "drawing mini-batches",
        "spmm": "sparse products, attention, maxima",
        "gemm": "dense products",
        "pack": "copying rows to be sent",
        "wait": "waiting for messages",
        "loss": "the loss and its gradient",
        "reduce": "sums of gradients, with waiting for the slowest rank",
        "scratch": "waiting for values written or read, docs/memory.md#values-in-a-file",
        "update": "the optimizer",
        "eval": "evaluations",
        "checkpoint": "writing checkpoints",
        "other": "all else; bias, activation, dropout and their backward pass count in the product "
        "that they follow",
    },
}


def names_of(fields: Mapping[str, str]) -> list[str]:
    """The names of a table, one by one."""
    return ", ".join(fields).split(", ")
