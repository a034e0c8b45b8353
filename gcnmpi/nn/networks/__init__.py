"""Published networks: one short file each."""
