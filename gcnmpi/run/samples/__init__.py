"""Training on many samples of one graph, read from disk as they are needed."""
