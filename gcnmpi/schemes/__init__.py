"""Distributed algorithms: a layout of the dense matrices plus the products on it."""
