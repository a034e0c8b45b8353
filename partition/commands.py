"""Code shared by the command lines of both programs: printing of errors, sizes, figures."""

import dataclasses
import functools
import inspect
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import click
import click.shell_completion

from partition import errors
from partition.records import to_json
from partition.registry import resolved

_EXIT_INTERRUPTED = 130
_WORDS = "gcnmpi words"  # of the command, in the context
# What a parameter is annotated with that is an option without more being said.
_PLAIN = (int, float, str, bool, Path, type(None))
_PATH = click.Path(path_type=Path)  # one for all: click looks up translations for each
# Of a function that is, or becomes, a command.
_Decorator = Callable[[Callable[..., object]], Callable[..., object]]


def option(names: str, text: str | None = None, default: object = None, **more: Any) -> _Decorator:
    """An option: its names, with blanks between them, its help, and a default that help shows.

    Its type is that of the default, unless ``more`` has another one.
    """
    more |= {} if default is None else {"default": default, "show_default": True}
    return click.option(*names.split(), help=text, **more)


def path_option(
    names: str, metavar: str, text: str, file_okay: bool = True, dir_okay: bool = True, **more: Any
) -> _Decorator:
    """An option whose value is a path: its names, with blanks between them, and its help."""
    kind = click.Path(path_type=Path, file_okay=file_okay, dir_okay=dir_okay)
    return click.option(*names.split(), type=kind, metavar=metavar, help=text, **more)


# The sections of a docstring that declare options, and the examples, in numpydoc's form.
_SECTION = re.compile(r"^(Parameters|Attributes|Examples)\n-+\n", re.M)
_ENTRY = re.compile(r"^(\w+)(?: : (.*))?\n((?: +\S.*\n?)*)", re.M)


class Result(NamedTuple):
    """The result of a command.

    Attributes
    ----------
    facts : object
        One value of JSON.
    show : callable or str
        Prints the facts for people; or a line that says them.
    error : UserError, optional
        What is wrong with them, for the end.
    """

    facts: Any
    show: Callable[[Any], None] | str
    error: errors.UserError | None = None

    def print(self, as_json: bool) -> None:
        """Print it, as JSON or for people."""
        if as_json:
            click.echo(json.dumps(self.facts, default=to_json))
        elif isinstance(self.show, str):
            click.echo(self.show)
        else:
            self.show(self.facts)
        if self.error is not None:
            raise self.error


def command(function: Callable[..., object]) -> click.Command:
    """A command that is declared once: by the signature of a function, and by its docstring.

    Positional parameters are arguments. Parameters by keyword, and fields of a parameter that is a
    dataclass, are options: of the type and with the default that they have there. Type, or further
    arguments of :class:`click.Option`, may be said by ``Annotated``: ``also`` is added to the help,
    ``names`` are how it is written. Options that decorators of click have declared stay; those of
    :func:`like` are added. Where the function returns a :class:`Result`, the command has
    ``--json``.

    Fields that the attribute ``hidden`` of a dataclass names are no options; one that is annotated
    with ``argument`` is an argument.

    The docstring is the help. In its section Parameters (of a dataclass: Attributes) stands behind
    the colon how an option is written where that is not ``--name``, and its metavar; examples come
    last.
    """
    text, _, examples = _sections(function)
    hints = get_type_hints(function, include_extras=True)
    shows = hints.get("return") is Result
    given = {key: hint for key, hint in hints.items() if key != "return"}
    kinds: dict[str, Any] = {key: hint for key, hint in given.items() if _is_group(hint)}

    @functools.wraps(function)
    def run(**given: Any) -> object:
        as_json = shows and given.pop("as_json")
        for name, kind in kinds.items():
            values = {each.name: given.pop(each.name) for each in dataclasses.fields(kind)}
            given[name] = kind(**values)
        result = function(**given)
        return result.print(as_json) if isinstance(result, Result) else result

    if shows:
        option("--json as_json", "Print one JSON value and nothing else.", is_flag=True)(run)
    options_of(function)(run)
    name = function.__name__.strip("_").replace("_", "-")
    epilog = f"\b\nExamples:\n{textwrap.indent(examples, '  ')}" if examples else None
    return click.command(name, help=text, epilog=epilog)(run)


def options_of(*kinds: Callable[..., object]) -> _Decorator:
    """The fields of dataclasses as options of a command, which gets each by its name."""

    def declare(function: Callable[..., object]) -> Callable[..., object]:
        for each in reversed([one for kind in kinds for one in _declarations(kind)]):
            function = each(function)
        return function

    return declare


def like(library: Callable[..., object], **more: Any) -> _Decorator:
    """For ``**options`` of a command: the parameters with a default of a function that it calls.

    They are options of the same types and defaults, as far as an option can have such a type or
    ``more`` has another one; but for those that the command declares itself. Their help is in its
    docstring.
    """

    def declare(function: Callable[..., object]) -> Callable[..., object]:
        signature, hints = inspect.signature(function), get_type_hints(library) | more
        *own, options = signature.parameters.values()
        shared = [
            each.replace(kind=each.KEYWORD_ONLY)
            for name, each in inspect.signature(library).parameters.items()
            if each.default is not each.empty and name not in signature.parameters
            if name in more or all(one in _PLAIN for one in get_args(hints[name]) or [hints[name]])
        ]
        function.__annotations__ |= {each.name: hints[each.name] for each in shared}
        # ``**options`` stays, for what another function shares.
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *shared, options])
        return function

    return declare


def _declarations(what: Any) -> Iterator[_Decorator]:
    """The arguments and options of a function, or of a dataclass."""
    hints = get_type_hints(what, include_extras=True)
    forms = described(what)
    there = {each.name for each in getattr(what, "__click_params__", ())}
    there.update(getattr(what, "hidden", ()))
    for name, parameter in inspect.signature(what).parameters.items():
        if name in there or parameter.kind is parameter.VAR_KEYWORD:
            continue
        if _is_group(hints[name]):
            yield options_of(hints[name])
            continue
        form, text = forms.get(name, ("", ""))
        default = parameter.default
        # An option whose default is said to be None is never missing.
        more: dict[str, Any] = {"default": default}
        if default is parameter.empty:
            default, more = None, {"required": True}
        metavar = " ".join(word for word in form.split() if word[0] != "-")
        more |= _typed(hints[name]) | ({"metavar": metavar} if metavar else {})
        if more.get("required"):
            more.pop("default", None)
        positional = parameter.kind is not parameter.KEYWORD_ONLY and not isinstance(what, type)
        if more.pop("argument", positional):
            yield click.argument(name, nargs=-1 if more.pop("multiple", False) else 1, **more)
            continue
        said = text or more.get("help"), more.pop("also", None)
        more["help"] = " ".join(filter(None, said)) or None
        more["show_default"] = default is not False and default not in (None, "", ())
        flag = f"--{name.replace('_', '-')}"
        flag += f"/--no-{flag[2:]}" if more.get("is_flag") and default is not False else ""
        names = more.pop("names", [flag])
        spelled = [word for word in form.split() if word[0] == "-"]
        yield click.option(*(spelled or names), name, **more)


def described(what: Any) -> dict[str, tuple[str, str]]:
    """How each parameter or field is written, and its text, by the docstrings that declare it."""
    kinds = reversed(what.__mro__) if isinstance(what, type) else [what]
    entries = [entry for one in kinds for entry in _ENTRY.findall(_sections(one)[1])]
    return {name: (form, " ".join(text.split())) for name, form, text in entries}


def _is_group(hint: object) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _typed(hint: Any) -> dict[str, Any]:
    """Arguments of click for an annotation: type, and whether it is a flag, or repeated."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        first, *more = inside
        said = [{"type": one} if isinstance(one, click.ParamType) else one for one in more]
        return functools.reduce(dict.__or__, said, _typed(first))
    if origin is tuple:
        return _typed(inside[0]) | {"multiple": True}
    if inside:  # or None
        return _typed(inside[0])
    if hint is bool:
        return {"is_flag": True}
    return {"type": _PATH if hint is Path else hint}


def _sections(what: Any) -> tuple[str, str, str]:
    """The text of a docstring, its parameters, and its examples."""
    text, *others = _SECTION.split(inspect.getdoc(what) or "")
    found = dict(zip(others[::2], others[1::2], strict=True))
    named = found.get("Parameters") or found.get("Attributes") or ""
    return text.strip(), f"{named}\n", found.get("Examples", "").strip()


figures_option = path_option(
    "--figures", "DIR", "Write every figure of that page into DIR, for papers: .pdf and .png.",
    file_okay=False,
)  # fmt: skip


def page_option(text: str) -> _Decorator:
    """--html, for commands whose result a page can show."""
    return path_option("--html page", "PAGE.html", text, dir_okay=False, callback=_as_page)


def _as_page(context: click.Context, option: click.Parameter, page: Path | None) -> Path | None:
    if page is not None and page.suffix not in (".html", ".htm"):
        raise errors.UserError(
            f"--html {page}: a browser shows files that end in .html",
            f"such as --html {page.with_suffix('.html')}",
        )
    return page


class Commands(click.Group):
    """Commands whose mistakes, click's own too, are a :class:`UserError`.

    Called as a program, it prints one and exits with code 2; with ``standalone_mode=False`` it
    raises it.

    ``elsewhere`` has commands of other modules, name → "module:attribute". A module is imported
    once its command, or the help of all, is asked for: a start does not wait for the others.
    """

    group_class = type

    def __init__(self, *args: Any, elsewhere: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._elsewhere = dict(elsewhere or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in alphabetical order."""
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, imported now if it has not been."""
        if cmd_name in self._elsewhere and cmd_name not in self.commands:
            self.add_command(resolved(self._elsewhere[cmd_name]), cmd_name)
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Read the command line and run the command; Ctrl-C ends it without a traceback."""
        refused: errors.UserError | None = None
        run: Callable[..., Any] = super().main
        code: Any = errors.EXIT_USER_ERROR
        try:
            with errors.memory_errors(), errors.printing():
                code = run(*args, standalone_mode=False, **more)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
        except click.Abort as error:
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            click.echo("interrupted", err=True)
            code = _EXIT_INTERRUPTED
        except click.ClickException as error:
            refused = _as_user_error(error, more.get("prog_name") or "it")
        except errors.UserError as error:
            refused = error
        if not standalone_mode:
            if refused is not None:
                raise refused
            return code
        if refused is not None:
            click.echo(f"error: {refused}", err=True)
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named, once its options are seen to be given once each."""
        name, command, rest = super().resolve_command(ctx, args)
        ctx.meta[_WORDS] = list(rest)
        if command is not None and not ctx.resilient_parsing:  # a shell completes a word
            _refuse_twice(command, ctx, rest)
        return name, command, rest


class Assignments(click.Option):
    """An option such as ``--set KEY=VALUE``, which may be repeated.

    ``keys`` gives the names of all keys; it is asked only where something is wrong. ``spelled`` is
    the option as it is written.
    """

    def __init__(self, *args: Any, keys: Callable[[], Iterable[str]], **more: Any) -> None:
        super().__init__(*args, **more | {"multiple": True})
        self.keys, self.spelled = keys, _spelled(self)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The keys that a word begins, for the completion of a shell."""
        keys = [] if "=" in incomplete else sorted(self.keys())
        found = [key for key in keys if key.startswith(incomplete)]
        return [click.shell_completion.CompletionItem(f"{key}=") for key in found]


def _spelled(option: click.Parameter) -> str:
    """An option as it is written, in full."""
    return max(option.opts, key=len)


def _as_user_error(error: click.ClickException, program: str) -> errors.UserError:
    """A mistake that click found, as all others are told, with what may be meant."""
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    if context is None:
        return errors.UserError(message, f"see {program} --help")
    words, command = context.meta.get(_WORDS, []), context.command
    settings = [option for option in command.params if isinstance(option, Assignments)]
    settings.sort(key=lambda option: option.spelled != "--set")
    # An option with a key and no value, followed by the value as a word of its own.
    for word, text, value in zip(words, words[1:], words[2:], strict=False):
        for option in (each for each in settings if word in each.opts):
            if "=" not in text and not value.startswith("-"):
                form = f"{option.spelled} {text!r} is not of the form {option.metavar}"
                return errors.UserError(form, f"{option.spelled} {text}={value}")
    if isinstance(error, click.NoSuchOption):
        message = f"{context.command_path} has no option {error.option_name}"
        hint = _meant_by(command, settings, error.option_name, words)
    else:
        hint = _form_of(error, context)
    return errors.UserError(message, hint or f"see {context.command_path} --help")


def _meant_by(
    command: click.Command, settings: Sequence[Assignments], given: str, words: Sequence[str]
) -> str | None:
    """The option, or the key of an :class:`Assignments`, that an unknown option may stand for."""
    name = given.lstrip("-").replace("-", "_")
    options = {
        opt.lstrip("-").replace("-", "_"): opt
        for param in command.params
        if isinstance(param, click.Option)
        for opt in (*param.opts, *param.secondary_opts)
        if opt.startswith("--")
    }
    value = "VALUE"  # which the option is followed by
    for word, following in itertools.zip_longest(words, words[1:], fillvalue="-"):
        if word.startswith(f"{given}="):
            value = word.removeprefix(f"{given}=")
            break
        if word == given and not re.match(r"-(?![\d.])", following):
            value = following
            break
    for setting in settings:
        keys = list(setting.keys())
        if value.partition("=")[0] in keys and name not in options:  # --grid train.lr=0.1,0.2
            return f"{settings[-1].spelled} {value}"
        meant = [key for key in errors.meant_keys(name, keys) if key in keys]
        near = errors.nearest(name, [*options, *(key.rpartition(".")[2] for key in meant)])
        if meant and near not in options:
            # Several values may be a list, or what is to be tried.
            spelled = [each.spelled for each in (settings if "," in value else [setting])]
            return " or ".join(f"{one} {key}={value}" for one in spelled for key in meant)
    near = errors.nearest(name, options)
    return f"did you mean {options[near]}?" if near else None


def _form_of(error: click.ClickException, context: click.Context) -> str | None:
    """How an option is written whose value is missing or wrong, and what it is for."""
    param = getattr(error, "param", None)
    if isinstance(error, click.BadOptionUsage):
        options = (each for each in context.command.params if error.option_name in each.opts)
        param = next(options, None)
    if not isinstance(param, click.Option) or param.is_flag:
        return None
    form = f"{_spelled(param)} {param.make_metavar(context)}"
    return f"{form}: {textwrap.shorten(param.help, 100, placeholder=' …')}" if param.help else form


def _refuse_twice(command: click.Command, ctx: click.Context, words: Sequence[str]) -> None:
    """Refuse an option given twice that takes one value, or has an opposite.

    Click would take the last one without a word.
    """
    if isinstance(command, click.Group):
        return  # the words are those of its commands
    inner = click.Context(command, info_name=command.name, parent=ctx)
    try:
        _, _, order = command.make_parser(inner).parse_args(list(words))
    except click.UsageError as error:
        error.ctx = inner  # an option without its value has none
        raise
    for option in (each for each in order if isinstance(each, click.Option)):
        harmless = option.multiple or option.count or (option.is_flag and not option.secondary_opts)
        if order.count(option) > 1 and not harmless:
            hint = f"see {inner.command_path} --help"
            raise errors.UserError(f"{_spelled(option)} is given twice", hint)


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
         "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}  # fmt: skip


def parse_bytes(text: str, option: str = "--memory") -> float:
    """A size such as 64GB, 500M or 2TiB in bytes; anything else is refused."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*?)b?\s*", text.lower())
    if not match or match[2] not in UNITS or float(match[1]) == 0:
        raise errors.UserError(f"{option} {text!r} is not a size", "such as 64GB")
    return float(match[1]) * UNITS[match[2]]
