"""How long a job took to recover, and what the faults cost."""
