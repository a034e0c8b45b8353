#!/usr/bin/env python3
"""Find docstrings that say too little and sentences whose subject is a pronoun without a noun.

A docstring has at least four words, and no sentence of a docstring, a comment or a page begins
with "What", "Those" or "Of them" (name the thing instead), except for a question and a heading.

Usage: python scripts/check_prose.py [FILE_OR_FOLDER …]
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = (
    "gcnmpi", "partition", "src", "configs", "scripts", "slurm", "tests", "examples", "docs",
    ".ci/run", "CMakeLists.txt", "README.md", "mkdocs.yml", "pyproject.toml",
)  # fmt: skip
SLASHES = {".hpp", ".cpp", ".h", ".js"}  # of languages whose comments begin with two
HASHES = {".sh", ".toml", ".yml", ".yaml", ".def", ".pbs", ".lsf", ".sbatch", ".slurm"}
MIN_WORDS = 4
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

# A sentence begins at the start of a paragraph, of an item or of a table's cell, or after a stop.
SENTENCE = re.compile(
    r"(?:\A|\n\s*\n|\n\s*[-*#|] |[.:;?!]\)? )\s*(?:[-*#|>] +)*"
    r"((?:What|Those|Of them)\b[^.?!]*[.?!]?)"
)


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """The prose of a file: line, text and whether it is a docstring."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        without = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), source, flags=re.S)
        line = 1
        for paragraph in re.split(r"(\n\s*\n)", without):
            if not paragraph.lstrip().startswith("#"):
                yield line, paragraph, False
            line += paragraph.count("\n")
        return
    if path.suffix != ".py":
        marker = "//" if path.suffix in SLASHES else "#"
        found = re.compile(rf"(?:^|\s){marker}(?!!) ?(.*)")  # no #!
        hits = ((row, found.search(text)) for row, text in enumerate(source.splitlines(), 1))
        commented = ((row, hit[1]) for row, hit in hits if hit)
        yield from ((line, text, False) for line, text in joined(commented))
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)) is not None:
            yield node.body[0].lineno, text, True
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    commented = ((t.start[0], t.string.lstrip("#! ")) for t in tokens if t.type == tokenize.COMMENT)
    yield from ((line, text, False) for line, text in joined(commented))


def joined(comments: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Comments on lines that follow each other as one text, with the line of the first."""
    first, lines = 0, []
    for row, text in comments:
        if lines and row != first + len(lines):
            yield first, "\n".join(lines)
            lines = []
        first = first if lines else row
        lines.append(text)
    if lines:
        yield first, "\n".join(lines)


def faults(path: Path) -> Iterator[str]:
    """One line for every fault of a file."""
    for line, text, documents in texts(path):
        where = f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line}"
        if documents and len(text.split()) < MIN_WORDS:
            yield f"{where}: {text.strip()!r} says too little"
        for sentence in SENTENCE.findall(text):
            if not sentence.endswith("?"):
                yield f"{where}: name the thing: {' '.join(sentence.split())[:70]!r}"


def main(arguments: list[str]) -> int:
    """Check the given files, or all; 1 if anything was found."""
    places = [Path(name).resolve() for name in arguments] or [ROOT / name for name in PLACES]
    found = 0
    for place in places:
        every = [place] if place.is_file() else sorted(place.rglob("*"))
        files = [f for f in every if f == place or f.suffix in {".py", ".md"} | SLASHES | HASHES]
        for path in files:
            for fault in faults(path):
                print(fault)
                found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
