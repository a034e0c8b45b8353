"""Figures in files; matplotlib is imported only where one is asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from partition.errors import UserError, installing
from partition.records import atomic_file, make_room_for

FORMATS = (".png", ".pdf", ".svg")
# Colours that people who cannot tell red from green can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#555555")


def check_figure(file: str | os.PathLike) -> None:
    """See that a figure can be written to ``file``, before the work that it shows.

    Raises
    ------
    UserError
        If its ending is none of ``FORMATS``, matplotlib is not installed, or the folder cannot be
        written to.
    """
    if Path(file).suffix.lower() not in FORMATS:
        raise UserError(f"{file} is not a name for a figure", f"it ends in {', '.join(FORMATS)}")
    _matplotlib()
    make_room_for(file)


def new_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure of so many inches, which needs no screen.

    Raises
    ------
    UserError
        If matplotlib is not installed.
    """
    figure_class, canvas = _matplotlib()
    figure = figure_class(figsize=(width, height), layout="constrained")
    canvas(figure)
    return figure


def logarithmic(axis: Any, left: float, right: float) -> None:
    """Make a horizontal axis logarithmic, with figures at 1, 2 and 5 times the powers of ten."""
    from matplotlib.ticker import LogLocator

    axis.set_xscale("log")
    axis.set_xlim(left, right)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.xaxis.set_minor_formatter(lambda x, _: "")


def save_figure(figure: Any, file: str | os.PathLike) -> None:
    """Write a figure in the format that the ending of ``file`` says, whole or not at all.

    Raises
    ------
    UserError
        As :func:`check_figure`.
    """
    check_figure(file)
    with atomic_file(file) as out:
        figure.savefig(out, dpi=160, format=Path(file).suffix[1:].lower())


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UserError("figures need matplotlib", installing("plots")) from error
    return Figure, FigureCanvasAgg
