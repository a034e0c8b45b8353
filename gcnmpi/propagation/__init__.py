"""Methods that multiply by one sparse matrix again and again: one short file each."""
