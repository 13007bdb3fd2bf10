"""Great Expectations over a run's evidence."""
