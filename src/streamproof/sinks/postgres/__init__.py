"""A PostgreSQL table as output."""
