"""Networks: one short file each, which describes it with a builder."""
