"""Colours: those of Okabe and Ito, for people who cannot tell red from green too, and some more.

A figure names them by their number. The style sheet has the same for pages, lighter on dark ones.
"""

PAPER = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A500", "#555555",
    "#7A5195", "#A3ADB8", "#8C5A2B",
)  # fmt: skip
COLOURS = len(PAPER)
