"""The PostgreSQL server."""
