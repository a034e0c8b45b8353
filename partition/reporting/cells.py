"""Cells and columns of the tables that the command line prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Column, Table

from partition import terminal


def console() -> terminal.Console:
    """Standard output; wide enough for every table where it is not a terminal."""
    out = terminal.console(markup=False)
    if not out.is_terminal:
        out.width = 200
    return out


def facts_table(title: str) -> Table:
    """A table of names and what there is to say of each."""
    return titled(title, *names(""), Column(overflow="fold"), show_header=False)


def titled(title: str, *columns: Column | str, **form: Any) -> Table:
    """A table with a title."""
    return Table(*columns, title=title, title_justify="left", **form)


def names(*heads: str) -> list[Column]:
    """Columns of text that is not broken into lines."""
    return [Column(head, no_wrap=True) for head in heads]


def numbers(*heads: str) -> list[Column]:
    """Columns of numbers, right-aligned."""
    return [Column(head, justify="right") for head in heads]


def number(value: float) -> str:
    """A number as a cell shows it."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if value >= 10 else f"{value:.4f}"


def plain(value: object) -> str:
    """A value of JSON as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
