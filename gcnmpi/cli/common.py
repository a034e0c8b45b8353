"""Parts of every command of ``gcnmpi``: options, requests, and jobs that ranks run."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import click

from gcnmpi.options.config import Config, keys, load_config
from gcnmpi.options.requests import Request
from gcnmpi.options.settings import config_path
from gcnmpi.run.weights_file import task_of
from partition.commands import Assignments, command, options_of

if TYPE_CHECKING:
    from gcnmpi.mpi.comm import Comm
    from gcnmpi.run.claims import Claims, Guard

R = TypeVar("R", bound=Request)

# Parameters of several commands.
Json = Annotated[bool, {"names": ["--json"], "help": "Print one JSON object."}]
Lines = Annotated[bool, {"names": ["--json"], "help": "Print JSON objects, one per line."}]
Quiet = Annotated[bool, {"help": "Print no progress."}]
Many = Annotated[int, click.IntRange(1)]


def _found(context: click.Context, option: click.Parameter, given: Path | None) -> Path | None:
    """The file of a configuration, which may be one that comes along."""
    return given and config_path(given)


@dataclass(frozen=True)
class Words:
    """The words of a command about its configuration: a file, and settings over it.

    Attributes
    ----------
    settings : --set KEY=VALUE
        Override one key of the configuration; may be repeated. Lists need no brackets:
        model.hidden=64,64; [] is empty.
    config_file : --config FILE
        TOML file, or a name of 'gcnmpi config'; 'gcnmpi info' lists the keys.
    """

    settings: Annotated[tuple[str, ...], {"cls": Assignments, "keys": keys}] = ()
    config_file: Annotated[Path | None, {"callback": _found}] = None

    def config(self, *over: str) -> Config:
        """The configuration, with further settings over these."""
        return load_config(self.config_file, self.settings, over)

    def request(self, kind: type[R], **options: Any) -> R:
        """The request of a command; its default task is that of the weights."""
        under = task_of(options["weights"]) if "weights" in options else {}
        return kind.read(self.config_file, self.settings, under=under, **options)


@dataclass(frozen=True)
class Job:
    """The part of a command that all ranks run: it takes the communicator, returns the exit code.

    MPI's start and end obey the timeout, ``comm.timeout``, too.
    """

    call: Callable[[Comm], int]
    timeout: float

    def __call__(self, comm: Comm) -> int:
        return self.call(comm)


def verb(function: Callable[..., Job | None]) -> click.Command:
    """The command of ``function(request, **more)``: its options make the request."""
    signature, kind = inspect.signature(function), get_type_hints(function)["request"]
    own = [each for name, each in signature.parameters.items() if name != "request"]

    @functools.wraps(function)
    def run(words: Words, **given: Any) -> Job | None:
        more = {each.name: given.pop(each.name) for each in own}
        return function(words.request(kind, **given), **more)

    words = inspect.Parameter("words", inspect.Parameter.KEYWORD_ONLY)
    vars(run)["__signature__"] = signature.replace(parameters=[words, *own])
    del run.__annotations__["request"]
    run.__annotations__["words"] = Words
    made = command(options_of(kind)(run))
    made.params.sort(key=lambda one: one.name in ("settings", "config_file", "as_json", "quiet"))
    return made


def job(
    config: Config,
    call: Callable[[Comm, Claims], int | Callable[[], object]],
    graph: Path | None = None,
    partition: str | None = None,
) -> Job:
    """The job of a command, ended where a rank does not move for ``comm.timeout`` seconds.

    Ranks that were started with other words are refused first; a graph is not replaced or removed
    meanwhile. ``call(comm, claims)`` returns the exit code, or what rank 0 does at the end.
    """
    purpose, words = _purpose(), _words()

    def run(comm: Comm) -> int:
        from gcnmpi.run.claims import session

        with session(comm, purpose, config, words, graph, partition) as claims:
            end = call(comm, claims)
        if not callable(end):
            return end
        if comm.rank == 0:
            end()
        return 0

    return Job(run, config.comm.timeout)


def training_job(config: Config, call: Callable[[Comm, Guard], int]) -> Job:
    """The same for runs that may be asked to stop; ``call`` claims what it needs."""
    purpose, words = _purpose(), _words()

    def run(comm: Comm) -> int:
        from gcnmpi.run.claims import check_words, guarded

        with guarded(comm, config, purpose) as guard:
            check_words(comm, config, words)
            return call(comm, guard)

    return Job(run, config.comm.timeout)


def _purpose() -> str:
    return click.get_current_context().command_path


def _words() -> dict[str, object]:
    """The command that runs and its options, by how they are spelled."""
    context = click.get_current_context()
    others = ("graph", "config_file", "settings", "partition", "quiet")
    params = [each for each in context.command.params if each.name not in others]
    found = {max(each.opts, key=len): context.params.get(str(each.name)) for each in params}
    return {"command": context.command_path, **found}


def telling(comm: Comm, quiet: bool = False) -> Callable[[str], None]:
    """``tell(line)`` on standard error, of rank 0; of no rank if it is to be ``quiet``."""

    def tell(line: str) -> None:
        if comm.rank == 0 and not quiet:
            print(line, file=sys.stderr, flush=True)

    return tell


def tables_option(
    name: str, text: str, tables: Callable[[], Mapping[str, Mapping[str, str]]]
) -> Callable[[Callable], Callable]:
    """A flag that prints tables of names and what they mean, in place of all else."""

    def show(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            for of, table in tables().items():
                click.echo(f"\n{of}")
                for each, meaning in table.items():
                    click.echo(f"  {each}\n      {meaning}")
            context.exit()

    return click.option(
        name, help=text, is_flag=True, is_eager=True, expose_value=False, callback=show
    )


def listed(text: str | None) -> list[str]:
    """The words between the commas of an option's value, each once; none without one."""
    words = (word.strip() for word in (text or "").split(","))
    return list(dict.fromkeys(word for word in words if word))
