"""Networks: operators, their description as a static graph, and its compilation."""
