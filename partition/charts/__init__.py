"""Figures as data, drawn as SVG for pages and by matplotlib for papers; the pages themselves."""
