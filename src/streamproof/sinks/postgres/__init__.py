"""A PostgreSQL table as output."""

from streamproof.sinks.sink import Deferred

POSTGRES_TABLE = Deferred("postgres", frozenset({"kafka", "postgres"}), "streamproof.sinks.postgres.drain:PostgresTable")
