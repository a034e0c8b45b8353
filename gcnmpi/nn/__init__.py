"""Networks: layers, losses and optimizers, written once for all schemes and kernels."""
