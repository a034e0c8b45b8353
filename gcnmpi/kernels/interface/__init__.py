"""The operations of kernels for networks, losses, optimizers and schemes: each stands once."""
