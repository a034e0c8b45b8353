"""Graphs, their folders on disk, and the measures of their partitions."""
