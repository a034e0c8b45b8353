"""The rows of other ranks: who sends which rows to whom, and by which transport."""
