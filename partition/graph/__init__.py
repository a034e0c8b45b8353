"""Graphs, their folders on disk, and what is measured on them."""
