"""Comparison of distributed runs with a serial reference that shares no arithmetic."""
