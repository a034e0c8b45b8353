"""Hook of mkdocs.yml: pages of the site that lie outside of docs/, links from page to page, tables.

Links are written for the repository, so that they work there: README.md, notebooks and sources
are linked by their paths. On the site, a link goes to the page of that file.

A mark ``<!-- generated: keys -->`` of a page is replaced by what the code says of its keys; so is
the text behind it, which tells readers of the repository where that is.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from partition.backends import Option
    from partition.registry import Registry

ROOT = Path(__file__).parents[1]
# Files of the repository whose pages have other names on the site.
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/README.md": "pages.md",
    "docs/tutorial.ipynb": "tutorial.md",
}
FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
MARK = re.compile(r"^<!-- generated: (\w+) -->$.*", re.M | re.S)
# A page that a text of the code names: docs/tasks.md#splits.
NAMED = re.compile(r"\bdocs/([\w-]+)\.md(?:#([\w-]+))?")


def text_of(path: Path) -> str:
    """A file as Markdown: a notebook cell by cell, a source as code; a folder file by file."""
    if path.is_dir():
        return "\n".join(text_of(file) for file in sorted(path.iterdir()) if file.is_file())
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
        return "\n\n".join(
            f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells
        )
    return f"# `{path.relative_to(ROOT)}`\n\n````{path.suffix[1:] or 'text'}\n{text}\n````\n"


def page_of(file: str) -> str:
    """Where a file of the repository is on the site."""
    if file in MOVED:
        return MOVED[file]
    return file.removeprefix("docs/") if file.startswith("docs/") else f"sources/{file}.md"


def linked(markdown: str, origin: str) -> list[str]:
    """The files of the repository that a page links to."""
    prose = "".join(FENCED.split(markdown)[::2])
    return [posixpath.normpath(f"{posixpath.dirname(origin)}/{link}".lstrip("/"))
            for link in LINK.findall(prose)]  # fmt: skip


def rewritten(markdown: str, origin: str) -> str:
    """The page with links to pages of the site in the place of links to files."""
    here = posixpath.dirname(page_of(origin))

    def moved(link: re.Match[str]) -> str:
        (file,) = linked(f"]({link[0]})", origin)
        return posixpath.relpath(page_of(file), here or ".")

    pieces = FENCED.split(markdown)
    pieces[::2] = [LINK.sub(moved, piece) for piece in pieces[::2]]
    return "".join(pieces)


def in_cell(text: str) -> str:
    """A text of the code in a cell of a table, with links to the pages that it names."""

    def link(named: re.Match[str]) -> str:
        page, anchor = named.groups(default="")
        return f"[{(anchor or page).replace('-', ' ')}](../{page}.md{anchor and '#' + anchor})"

    return NAMED.sub(link, text.replace("|", "\\|").replace("*", "\\*"))


def table_of(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *rows))


def keys() -> str:
    """The keys of the configuration, table by table."""
    from gcnmpi.options.config import keys, readers

    tables: dict[str, list[tuple[str, ...]]] = {}
    for name, key in keys().items():
        default, meaning = json.dumps(key.default), in_cell(key.meaning)
        row = f"`{name}`", f"`{default}`", meaning, in_cell(readers(name))
        tables.setdefault(name.rpartition(".")[0], []).append(row)
    head = "key", "default", "meaning", "read by"
    return "\n\n".join(
        f"## {f'[{name}]' if name else 'Without a table'}\n\n{table_of(head, rows)}"
        for name, rows in tables.items()
    )


def tables(head: str, found: Mapping[str, Mapping[str, str]]) -> str:
    """Tables of names and what they mean, each with its heading."""
    return "\n\n".join(f"## {of}\n\n" + meanings(head, some) for of, some in found.items())


def meanings(head: str, found: Mapping[str, str]) -> str:
    """A table of names, or several with commas between them, and what they mean."""
    rows = [(f"`{name.replace(', ', '`, `')}`", in_cell(text)) for name, text in found.items()]
    return table_of((head, "meaning"), rows)


def docstrings(entry: str, function: str = "") -> str:
    """The docstrings of the module of an entry, and of a function in it."""
    module = ast.parse(file_of(entry).read_text(encoding="utf-8"))
    return "\n\n".join(filter(None, [told(module), *(told(one) for one in named(entry, function))]))


def file_of(entry: str) -> Path:
    """The file of ``"module:attribute"``."""
    return ROOT / f"{entry.partition(':')[0].replace('.', '/')}.py"


def named(entry: str, name: str) -> list[ast.FunctionDef | ast.ClassDef]:
    """The function or class of a name in the module of an entry, if there is one."""
    body = ast.parse(file_of(entry).read_text(encoding="utf-8")).body
    kinds = ast.FunctionDef, ast.ClassDef
    return [one for one in body if isinstance(one, kinds) and one.name == name]


def told(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    """A docstring up to its sections or examples, as Markdown."""
    text = re.split(r"\n\n(?:\w+\n---|>>>)", ast.get_docstring(node) or "")[0].replace("``", "`")
    return re.sub(r":\w+:(?=`)", "", text)


def registries(found: Mapping[str, Registry]) -> str:
    """Tables of entries: their modules' docstrings, and those of the entries themselves."""
    texts = []
    for of, registry in found.items():
        texts.append(f"## {of}")
        modules: dict[str, dict[str, str]] = {}
        for name, entry in registry.entries.items():
            modules.setdefault(entry.partition(":")[0], {})[name] = entry
        for module, entries in modules.items():
            texts.append(f"### {', '.join(entries)}\n\n{docstrings(module)}")
            own = {name: named(entry, entry.partition(":")[2]) for name, entry in entries.items()}
            texts += [f"* `{name}`: " + told(one[0]).replace("\n", "\n  ")
                      for name, one in own.items() if one]  # fmt: skip
    return "\n\n".join(texts)


def learning() -> str:
    """Tasks, metrics, decoders, optimizers, schedules and samplers."""
    from gcnmpi.options.task import DECODERS, METRICS, TASKS
    from gcnmpi.options.train import OPTIMIZERS, SCHEDULES
    from partition.graph.sampling import SAMPLERS

    return registries({
        "Tasks": TASKS, "Metrics": METRICS, "Decoders of pairs": DECODERS,
        "Optimizers": OPTIMIZERS, "Schedules": SCHEDULES, "Samplers of mini-batches": SAMPLERS,
    })  # fmt: skip


def record() -> str:
    """The fields of the record of a run, event by event."""
    from gcnmpi.run.record import field_tables

    return tables("field", field_tables())


def methods() -> str:
    """The options of the methods of ``gcnmpi propagate``."""
    from gcnmpi.cli.verbs import options_of_methods
    from gcnmpi.propagation.methods import EMBEDDINGS, METHODS

    found = []
    for name, entry in METHODS.entries.items():
        of_embed = EMBEDDINGS.entries.values() if name == "embed" else ()
        texts = [docstrings(each) for each in (entry, *of_embed)]
        if options := options_of_methods().get(name):
            texts.append(meanings("option", options))
        found.append(f"## {name}\n\n" + "\n\n".join(texts))
    return "\n\n".join(found)


def networks() -> str:
    """Every network, by the docstrings of its module and of the function that builds it."""
    from gcnmpi.options.model import NETWORKS

    found = []
    for name, entry in NETWORKS.entries.items():
        own = ", ".join(f"`{key}`" for key in NETWORKS.keys(name))
        found.append(f"## {name}\n\n{docstrings(entry, 'build')}\n\nKeys: {own}.")
    return "\n\n".join(found)


def formats() -> str:
    """Every format of graphs, by the docstrings of its reader."""
    from partition.importing.readers import READERS

    return "\n\n".join(
        f"## {name}\n\n{docstrings(entry, 'read')}" for name, entry in READERS.entries.items()
    )


def schemes() -> str:
    """Schemes, transports, kernels and orders of rows."""
    from gcnmpi.options.kernel import KERNELS
    from gcnmpi.options.scheme import ROW_ORDERS, SCHEMES, TRANSPORTS

    return registries({
        "Schemes": SCHEMES, "Transports": TRANSPORTS, "Kernels": KERNELS,
        "Orders of rows": ROW_ORDERS,
    })  # fmt: skip


def models() -> str:
    """Models of partitions, and their tools, as far as these are installed."""
    from partition.backends import TOOLS
    from partition.backends.catalogue import MODELS

    texts = ["## Models"]
    for name, model in MODELS.items():
        tools = ", ".join(f"`{tool}`" for tool in model.tools)
        texts.append(f"### {name}\n\n{model.help[0].upper()}{model.help[1:]}. Tools: {tools}.")
        texts.append(options_of(model.options))
    texts.append("## Tools")
    for tool, missing in TOOLS.available().items():
        texts.append(f"### {tool}\n\n{docstrings(TOOLS.entries[tool])}")
        texts.append("" if missing else options_of(TOOLS.get(tool).options))
    return "\n\n".join(filter(None, texts))


def options_of(found: Mapping[str, Option]) -> str:
    """The options of a model or a tool, with their defaults; nothing where there are none."""
    rows = {
        f"{name} = {one.default}": one.help
        + (f" ({', '.join(one.choices)})" if one.choices else "")
        for name, one in found.items()
    }
    return meanings("option", rows) if rows else ""


def rooms() -> str:
    """The packages within both packages, by their docstrings."""
    found = {
        package: {
            str(path.parent.relative_to(ROOT)): first_line(path)
            for path in sorted((ROOT / package).rglob("__init__.py"))
        }
        for package in ("partition", "gcnmpi")
    }
    return tables("folder", found)


def first_line(path: Path) -> str:
    """The first paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def commands() -> str:
    """All commands with their options, as ``--help`` prints them."""
    import click

    from gcnmpi.cli.main import cli as gcnmpi
    from partition.cli.main import cli as partition

    found = []
    for program, group in (("gcn-partition", partition), ("gcnmpi", gcnmpi)):
        context = click.Context(group, info_name=program)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            own = click.Context(command, info_name=name, parent=context, max_content_width=96)
            found.append(f"## {program} {name}\n\n```text\n{command.get_help(own)}\n```")
    return "\n\n".join(found)


GENERATED = {
    "keys": keys,
    "record": record,
    "methods": methods,
    "networks": networks,
    "formats": formats,
    "schemes": schemes,
    "learning": learning,
    "models": models,
    "rooms": rooms,
    "commands": commands,
}


def filled(markdown: str) -> str:
    """A page with tables in the place of its mark and of all that follows it."""
    return MARK.sub(lambda mark: GENERATED[mark[1]](), markdown)


def on_config(config: Any) -> Any:
    """Add the tables of measurements to their section of the navigation."""
    (section,) = [entry["Measurements"] for entry in config.nav if "Measurements" in entry]
    tables = sorted((ROOT / "docs" / "measured").glob("[!R]*.md"))
    section += [f"measured/{table.name}" for table in tables]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie elsewhere, and the sources that pages link to."""
    from mkdocs.structure.files import File

    pages = [f"docs/{path.relative_to(ROOT / 'docs')}" for path in (ROOT / "docs").rglob("*.md")]
    texts = {page: filled(text_of(ROOT / page)) for page in {*pages, *MOVED}}
    targets = {file for page, text in texts.items() for file in linked(text, page)}
    sources = [file for file in targets if page_of(file).startswith("sources/")]
    for file in [*MOVED, *(file for file in sources if (ROOT / file).exists())]:
        if there := files.get_file_from_path(file.removeprefix("docs/")):
            files.remove(there)
        files.append(File.generated(config, page_of(file), content=text_of(ROOT / file)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page; sources are not searched."""
    if page.file.src_uri.startswith("sources/"):
        page.meta["search"] = {"exclude": True}
        return markdown
    origins = {moved: file for file, moved in MOVED.items()}
    return rewritten(filled(markdown), origins.get(page.file.src_uri, f"docs/{page.file.src_uri}"))


def on_page_content(html: str, **_: Any) -> str:
    """Drop the roles that docstrings have for Sphinx."""
    return re.sub(r":(?:func|class|meth|mod):(?=<code>)", "", html)
