"""Jobs with state: their results are computed again by a reference model, and compared."""
