"""Communication between ranks: the only room that imports mpi4py."""
