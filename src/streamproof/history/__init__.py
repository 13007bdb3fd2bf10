"""The history of runs: what is remembered of each, and what changed between them."""
