"""From a graph folder and the name of a model to a stored partition."""
