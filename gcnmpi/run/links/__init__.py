"""Link prediction: pairs that are drawn, masked, scored, and told from others."""
