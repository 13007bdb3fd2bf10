"""A PostgreSQL table as output: one of ours, or one of the user's own."""

from streamproof.sinks.sink import Deferred

POSTGRES_TABLE = Deferred("postgres", frozenset({"kafka", "postgres"}), "streamproof.sinks.postgres.drain:PostgresTable")
POSTGRES_ROWS = Deferred("postgres_rows", frozenset({"kafka", "postgres"}), "streamproof.sinks.postgres.rows:PostgresRows")
