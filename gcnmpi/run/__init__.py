"""Training and inference: from a graph folder to weights, with checkpoints."""
