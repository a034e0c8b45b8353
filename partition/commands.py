"""Code shared by the command lines of both programs: printing of errors, sizes, figures."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from partition.errors import EXIT_USER_ERROR, UserError, memory_errors, printing

EXIT_INTERRUPTED = 130

figures_option = click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write every figure of that page into DIR, for papers: .pdf and .png.",
)


def page_option(text: str) -> Callable:
    """--html, for commands whose result a page can show."""
    return click.option(
        "--html",
        "page",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="PAGE.html",
        help=text,
    )


class Commands(click.Group):
    """Commands whose mistakes, click's own too, are a :class:`UserError`.

    Called as a program, it prints one and exits with code 2; with ``standalone_mode=False`` it
    raises it.
    """

    group_class = type

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **more: Any,
    ) -> Any:
        """Read the command line and run the command."""
        try:
            try:
                with memory_errors(), printing():
                    code = super().main(args, prog_name, complete_var, False, **more)
            except click.exceptions.NoArgsIsHelpError as error:
                click.echo(error.format_message(), err=True)
                code = EXIT_USER_ERROR
            except click.ClickException as error:
                raise as_user_error(error, prog_name or "it") from error
        except UserError as error:
            if not standalone_mode:
                raise
            click.echo(f"error: {error}", err=True)
            code = EXIT_USER_ERROR
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it without a traceback."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that is named, once its options are seen to be given once each."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            refuse_twice(command, ctx, rest)
        return name, command, rest


def as_user_error(error: click.ClickException, program: str) -> UserError:
    """A mistake that click found, as all others are told."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else program
    return UserError(error.format_message().rstrip("."), f"see {command} --help")


def refuse_twice(command: click.Command, ctx: click.Context, words: Sequence[str]) -> None:
    """Refuse an option that is given twice; click would take the last one without a word.

    Raises
    ------
    UserError
        If one is that takes one value, or has an opposite.
    """
    if isinstance(command, click.Group):
        return  # the words are those of its commands
    inner = click.Context(command, info_name=command.name, parent=ctx, resilient_parsing=True)
    try:
        _, _, order = command.make_parser(inner).parse_args(list(words))
    except click.ClickException:
        return  # click tells what is wrong when it reads the words itself
    for option in (each for each in order if isinstance(each, click.Option)):
        harmless = option.multiple or option.count or (option.is_flag and not option.secondary_opts)
        if order.count(option) > 1 and not harmless:
            spelled = max(option.opts, key=len)
            raise UserError(f"{spelled} is given twice", f"see {inner.command_path} --help")


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
         "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}  # fmt: skip


def parse_bytes(text: str, option: str = "--memory") -> float:
    """A size such as 64GB, 500M or 2TiB in bytes.

    Raises
    ------
    UserError
        If it is none.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*?)b?\s*", text.lower())
    if not match or match[2] not in UNITS or float(match[1]) == 0:
        raise UserError(f"{option} {text!r} is not a size", "such as 64GB")
    return float(match[1]) * UNITS[match[2]]
