"""What kernels give to networks, losses, optimizers and schemes: each operation stands once."""
