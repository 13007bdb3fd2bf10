"""Alembic's migrations of the history's store; ``history_store`` runs them. A change of the schema is a new file in ``versions``."""
