"""Placement of parts on nodes."""
