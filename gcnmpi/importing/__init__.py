"""Graph folders that the ranks of a job make of a list of arcs, of which none holds all."""
