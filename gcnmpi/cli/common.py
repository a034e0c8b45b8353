"""Options and checks that the commands of ``gcnmpi`` have in common."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from gcnmpi.mpi.watch import watchdog
from gcnmpi.options.config import Config, key_fields, load_config, read_config
from gcnmpi.options.settings import config_path
from gcnmpi.run.weights_file import task_of
from partition.commands import Assignments, option, path_option

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """The part of a command that all ranks run: it takes the communicator, returns the exit code.

    MPI's start and end obey the timeout, ``comm.timeout``, too.
    """

    call: Callable[[Comm], int]
    timeout: float

    def __call__(self, comm: Comm) -> int:
        return self.call(comm)


@dataclass(frozen=True)
class Words:
    """The words of a command about its configuration: a file, and settings over it."""

    file: Path | None
    settings: tuple[str, ...]

    def config(self, *over: str) -> Config:
        """The configuration, with further settings over these."""
        return load_config(self.file, self.settings, over)


@dataclass(frozen=True)
class Given(Words):
    """The same, with a graph and the name of a partition."""

    graph: Path
    partition: str | None


def config_of_weights(
    given: Words, network: Path | None, weights: Path, under: Mapping[str, object] | None = None
) -> tuple[Config, dict[str, object]]:
    """The configuration for given weights, whose task is the default, and the keys that are given.

    ``network``: the file of --network. ``under``: values of keys that weights may not say.
    """
    task = {**(under or {}), **task_of(weights)}
    return read_config(given.file, given.settings, network=network, under=task)


def _bundled(function: Callable[..., T], name: str, kind: type, *options: str) -> Callable[..., T]:
    """The function of a command, which gets some of its options as one argument."""

    @functools.wraps(function)
    def command(**values: object) -> T:
        return function(**{name: kind(*map(values.pop, options))}, **values)

    return command


def watched(config: Config, job: Callable[[Comm], int]) -> Job:
    """The job of a command, ended where a rank does not move for ``comm.timeout`` seconds.

    Ranks that were started with other words are refused first.
    """
    check = same_words(config)

    def run(comm: Comm) -> int:
        with watchdog(config.comm.timeout, comm.rank):
            check(comm)
            return job(comm)

    return Job(run, config.comm.timeout)


def claimed(
    config: Config,
    graph: Path,
    partition: str | None,
    job: Callable[[Comm, Claims], Callable[[], None]],
) -> Job:
    """The job of a command that reads a graph, which nobody replaces or removes meanwhile.

    ``job(comm, claims)`` returns what rank 0 then does: it prints the result.
    """
    purpose = f"gcnmpi {click.get_current_context().info_name}"

    def run(comm: Comm) -> int:
        from gcnmpi.run.claims import Claims

        with Claims(comm, purpose) as claims:
            claims.graph(graph, partition)
            show = job(comm, claims)
        if comm.rank == 0:
            show()
        return 0

    return watched(config, run)


def telling(comm: Comm, quiet: bool = False) -> Callable[[str], None]:
    """``tell(line)`` on standard error, of rank 0; of no rank if it is to be ``quiet``."""

    def tell(line: str) -> None:
        if comm.rank == 0 and not quiet:
            print(line, file=sys.stderr, flush=True)

    return tell


def same_words(config: Config) -> Callable[[Comm], None]:
    """``check(comm)`` that refuses ranks whose command, options or configuration are not rank 0's.

    They would wait for each other without end. Paths of graphs and configurations may differ from
    host to host: what is there is compared when it is read. Called by a command.
    """
    context = click.get_current_context()
    mine = {"command": context.command_path, "configuration": config}
    for each in context.command.params:
        if each.name not in ("graph", "config_file", "settings", "partition", "quiet"):
            mine[max(each.opts, key=len)] = context.params.get(str(each.name))

    def check(comm: Comm) -> None:
        from gcnmpi.mpi.comm import check_same

        check_same(
            comm,
            mine,
            "start all ranks with the same command line, and put a configuration file where all "
            "hosts see the same one",
        )

    return check


def config_keys() -> list[str]:
    """The full names of the keys of the configuration."""
    return [name for name, _, _ in key_fields()]


def configured(function: Callable, keys: Callable[[], Iterable[str]] = config_keys) -> Callable:
    """Add the options that make a configuration, of keys that ``--set`` takes: ``words``."""
    return _with_words(_bundled(function, "words", Words, "config_file", "settings"), keys)


def _with_words(function: Callable, keys: Callable[[], Iterable[str]]) -> Callable:
    for add in (
        option(
            "--set settings",
            "Override one key of the configuration; may be repeated. Lists need no brackets: "
            "model.hidden=64,64; [] is empty.",
            metavar="KEY=VALUE",
            cls=Assignments,
            keys=keys,
        ),
        path_option(
            "--config config_file",
            "FILE",
            "TOML file, or a name of 'gcnmpi config'; 'gcnmpi info' lists the keys.",
            callback=lambda context, option, given: given and config_path(given),
        ),
    ):
        function = add(function)
    return function


def told_option(
    name: str, text: str, tables: Callable[[], Mapping[str, Mapping[str, str]]]
) -> Callable[[Callable], Callable]:
    """A flag that prints tables of names and what they mean, in place of all else."""

    def tell(context: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked:
            for of, table in tables().items():
                click.echo(f"\n{of}")
                for each, meaning in table.items():
                    click.echo(f"  {each}\n      {meaning}")
            context.exit()

    return click.option(
        name, help=text, is_flag=True, is_eager=True, expose_value=False, callback=tell
    )


# Options and arguments that several commands have.
weights_option = path_option(
    "--weights",
    "W",
    "Weights: .npz of --save-weights; .npz, .safetensors or .pt of another program.",
    required=True,
)
network_option = path_option(
    "--network network_file",
    "FILE",
    "TOML file with the network ([model], [graph], [task]) of weights that do not say it.",
)
force_option = option("--force", "Start although the forecast needs more memory.", is_flag=True)
graph_argument = click.argument("graph", type=click.Path(path_type=Path))
split_option = option(
    "--split", "Split of the masks, from 0: the key train.split.", type=int, metavar="K"
)
quiet_option = option("--quiet", "Print no progress.", is_flag=True)
json_option = option("--json as_json", "Print one JSON object.", is_flag=True)
lines_option = option("--json as_json", "Print JSON objects, one per line.", is_flag=True)


def listed(text: str | None) -> list[str]:
    """The words between the commas of an option's value; none without one."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def of_split(split: int | None) -> tuple[str, ...]:
    """The setting that the option stands for."""
    return () if split is None else (f"train.split={split}",)


def on_graph(function: Callable, keys: Callable[[], Iterable[str]] = config_keys) -> Callable:
    """Add what every command on a graph takes: ``given``; ``keys`` as of :func:`configured`."""
    options = ("config_file", "settings", "graph", "partition")
    function = _bundled(function, "given", Given, *options)
    partition = option(
        "--partition",
        "Partition into as many parts as there are ranks; one rank needs none. Of the two "
        "that --model auto made under a name, the one that the run can use is taken.",
        metavar="NAME",
    )
    return graph_argument(partition(_with_words(function, keys)))
