"""Predictions: seconds, bytes and memory of every scheme on a machine."""
