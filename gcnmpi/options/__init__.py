"""The configuration, its sections, and the tables of names that its keys choose from."""
