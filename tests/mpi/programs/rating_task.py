"""Under mpirun: ``verify`` of a task that the package does not have, as verify_cases.py.

Regression on pairs: x[u]·x[v] is to be the number of a pair in ``ratings.npy`` of the folder, whose
rows are [u, v, number]; every fourth is validated. This file and the line ``add_task`` are all.
"""

from types import SimpleNamespace

import numpy as np
from verify_cases import of_case  # noqa: F401

from gcnmpi.core.volume import NOTHING
from gcnmpi.mpi.comm import reduce_in_place, slice_of
from gcnmpi.nn.tasks.interface import Steps, Task
from gcnmpi.options.settings import key
from gcnmpi.options.task import TaskConfig, add_task
from gcnmpi.proof.oracle import Rows, Serial
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.step import BatchLoss, Work


class RatingOptions(TaskConfig):
    """Attributes
    ----------
    columns
        columns of a vertex's row
    """

    columns: int = key(4, low=1)


add_task("ratings", "rating_task:TASK", RatingOptions, "rmse")


def read(stored, mask):
    ratings = np.load(stored.path / "ratings.npy")
    validated = np.arange(len(ratings)) % 4 == 0
    u, v, numbers = ratings[validated if mask == "val" else ~validated].T
    return u.astype(int), v.astype(int), numbers


class Ratings(Task):
    work, serial = "rating_task:RatingWork", "rating_task:of_ratings"

    def examples(self, stored, options):
        return SimpleNamespace(has=lambda mask, among=None: len(read(stored, mask)[0]) > 0)

    def ends(self, options, model, manifest):
        return manifest.inputs, options.columns

    def steps(self, options):
        return Steps(over_logits=False)


TASK = Ratings()


def squares(x, u, v, numbers):
    """The sum of squared errors, and its gradient by the rows."""
    error, gradient = (x[u] * x[v]).sum(axis=1) - numbers, np.zeros_like(x)
    np.add.at(gradient, u, 2 * error[:, np.newaxis] * x[v])
    np.add.at(gradient, v, 2 * error[:, np.newaxis] * x[u])
    return float(error @ error), gradient


class Shared:
    """Rows of all vertices on every rank, and the pairs of this one."""

    def sums(self, mask, logits):
        runtime, stored = self._problem.runtime, self._problem.source.stored
        ratings, own = read(stored, mask), self._problem.scheme.own_rows.vertices
        x = np.zeros((stored.manifest.n, logits.shape[1]))
        x[own] = logits
        reduce_in_place(runtime.comm, x)
        mine = slice_of(len(ratings[0]), runtime.comm.rank, runtime.comm.size)
        total, gradient = squares(x, *(each[mine] for each in ratings))
        reduce_in_place(runtime.comm, gradient)
        return total / len(ratings[0]), gradient[own] / len(ratings[0])


class RatingWork(Work, Shared):
    def gradient(self, epoch, batch, interrupt):
        loss, self.model.output_grad[:] = self.sums("train", self.model.forward(epoch))
        self.model.backward(epoch)
        return BatchLoss(loss)

    def evaluation(self):
        return RatingEvaluation(self._problem, self.model)

    def predicted(self, epochs):
        every = self.model.products(backward=True)
        return sum((self._problem.scheme.volume(*each) for each in every), NOTHING) * epochs


class RatingEvaluation(Evaluation, Shared):
    masks = ("val",)

    def _values(self):
        found = np.array([self.sums("val", self._model.forward())[0]])
        reduce_in_place(self._problem.runtime.comm, found)
        yield "val_rmse", float(np.sqrt(found[0]))


class Twin(Serial):
    def __init__(self, stored, direction, config):
        self._stored = stored
        self.rows = Rows(stored.graph, direction, config, config.task.columns)

    def gradient(self, weights, epoch, batch=0):
        passed, moments = self.rows.forward(weights, epoch)
        ratings = read(self._stored, "train")
        total, gradient = squares(passed.output, *ratings)
        return total / len(ratings[0]), passed.back(gradient / len(ratings[0]))[1], moments

    def outputs(self, weights):
        return self.rows.forward(weights, None)[0].output

    def metrics(self, weights, outputs=None):
        ratings = read(self._stored, "val")
        return {"val_rmse": (squares(self.outputs(weights), *ratings)[0] / len(ratings[0])) ** 0.5}


of_ratings = Twin
