"""Tasks: one short file each, with what is learned and its loss."""
