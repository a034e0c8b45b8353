"""The site of the documentation: pages in its navigation, public names in its reference, links.

scripts/docs.sh builds it, and fails where a link or an anchor is broken.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

from gcnmpi.options.config import keys
from gcnmpi.run.fields import FIELDS, names_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def hook():
    """The module scripts/docs_site.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts" / "docs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_lists_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r"[\w/-]+\.md", navigation)
    site = hook()
    tables = site.on_config(SimpleNamespace(nav=[{"Measurements": []}])).nav[0]["Measurements"]
    listed += tables
    files = {f"docs/{path.relative_to(DOCS)}" for path in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted(site.page_of(file) for file in files | set(site.MOVED))


def test_the_reference_has_every_public_name():
    for page, file in (("gcnmpi", "gcnmpi/__init__.pyi"), ("torch", "gcnmpi/torch/__init__.py")):
        package = file.rpartition("/")[0].replace("/", ".")
        imports = [
            node
            for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
            if isinstance(node, ast.ImportFrom) and "installing" not in {n.name for n in node.names}
        ]
        names = {f"{package}.{name.name}" for node in imports for name in node.names}
        text = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
        assert set(re.findall(r"^::: ([\w.]+)$", text, re.M)) >= names


def test_links_go_to_pages_of_the_site():
    rewritten = hook().rewritten
    text = "[a](tasks.md#splits) [b](README.md) [c](../README.md#x) [d](#e) [f](https://g.h)"
    links = "[a](tasks.md#splits) [b](pages.md) [c](index.md#x) [d](#e) [f](https://g.h)"
    assert rewritten(text, "docs/gpu.md") == links
    assert rewritten("[a](docs/gpu.md)", "README.md") == "[a](gpu.md)"
    assert rewritten("[a](../gcnmpi/x.py)", "docs/gpu.md") == "[a](sources/gcnmpi/x.py.md)"
    assert rewritten("[a](../gpu.md)", "docs/measured/b.md") == "[a](../gpu.md)"
    fenced = "```\n[a](README.md)\n```\n"
    assert rewritten(fenced, "docs/gpu.md") == fenced


def test_tables_are_generated_from_the_registries():
    site = hook()
    rows = re.findall(r"^\| `([\w.]+)` \| `(.+?)` \| (.+) \| .* \|$", site.keys(), re.M)
    assert [(name, default) for name, default, _ in rows] == [
        (name, json.dumps(default)) for name, default, _ in keys()
    ]
    every = [name for fields in FIELDS.values() for name in names_of(fields)]
    assert re.findall(r"`(\w+)`[,| ]", site.record()) == every
    helped = site.commands()
    for command in ("gcn-partition import", "gcnmpi train", "gcnmpi submit"):
        assert f"## {command}\n\n```text\nUsage: {command} " in helped
    for page in (DOCS / "reference").glob("*.md"):
        filled = site.filled(page.read_text(encoding="utf-8"))
        assert not site.MARK.search(filled)
        assert "scripts/docs.sh" not in filled  # readers of the site have what it builds
