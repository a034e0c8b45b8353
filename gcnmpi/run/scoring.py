"""Metrics of given weights on a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gcnmpi.halo.matrix import Matrix
from gcnmpi.kernels.interface.kernel import Array
from gcnmpi.layout.place import Place
from gcnmpi.mpi.comm import Comm, agreed, from_root
from gcnmpi.options.requests import InferRequest
from gcnmpi.options.task import LINKS, outputs
from gcnmpi.run.classes import as_known, unknown_labels
from gcnmpi.run.evaluation import Evaluation
from gcnmpi.run.inference import compute
from gcnmpi.run.links.evaluation import LinkEvaluation
from gcnmpi.run.links.scoring import Decoder, of_decoder
from gcnmpi.run.problem import load_targets
from gcnmpi.schemes.operations import Product
from partition.errors import UserError


def evaluate_weights(
    comm: Comm, asked: InferRequest
) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """The metrics of the task, of every mask: "val_accuracy" …; None where there is no such mask.

    Of links, those of the pairs that are configured. With them, warnings for the user.

    On all ranks a UserError as :func:`gcnmpi.run.inference.compute`; or if the graph has not the
    labels of the task, or other numbers of them than the weights give.
    """
    done = compute(comm, asked)
    problem = done.problem
    width = problem.network.widths[-1]
    output = Output(done.result, problem.network.widths)
    if problem.config.task.name == LINKS:
        with agreed(comm):
            if problem.source.stored.pairs is None:
                raise UserError(
                    f"{asked.graph} has no pairs to validate or to test on",
                    f"draw some: gcn-partition pairs {asked.graph}",
                )
        given = of_decoder(problem, done.weights.parameters)
        return LinkEvaluation(problem, output, Decoder(problem), given)(), problem.told
    task, source = problem.config.task, problem.source
    with agreed(comm):
        stored = as_known(source.stored, task, done.classes)
        wanted = outputs(task, stored.manifest)
        if wanted != width:
            raise UserError(
                f"{asked.graph} has {wanted or 'no'} classes or targets for the task "
                f"{task.name!r}, the weights give {width} columns"
            )
    unknown = from_root(comm, lambda: unknown_labels(source.stored, task, done.classes))
    problem = replace(problem, source=replace(source, stored=stored))
    found = Evaluation(problem, output, load_targets(problem, output.place))()
    return found, (*problem.told, *unknown)


@dataclass(frozen=True)
class Output:
    """Logits that are there, in the place of a model that computes them."""

    result: Matrix
    widths: tuple[int, ...]

    @property
    def place(self) -> Place:
        """Where the logits are."""
        return self.result.place

    def forward(self) -> Array:
        """The logits that are there."""
        return self.result.array

    def products(self, backward: bool) -> list[Product]:
        """No product: nothing is computed."""
        return []
