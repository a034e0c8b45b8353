"""Refinement by annealing on several levels."""
