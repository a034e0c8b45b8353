"""Measurements: products, epochs and exchanges alone; every scheme beside its prediction."""
