"""Metrics of predictions, exact over all ranks: one function each, and which task has which.

A metric is ``metric(comm, scored)``: a number, the same on all ranks, or None where it is not
defined. Their meaning is that of scikit-learn; what is unknown is left out, and a mean over columns
is one over those where the metric is defined.
"""
