"""The kinds of jobs, an engine for each."""
