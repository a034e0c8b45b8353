"""Tables and plots of partitions, and what mini-batches cost."""
