"""Partitioning in the job: a partition of a graph that no rank holds."""
