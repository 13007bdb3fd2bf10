"""What alembic runs to migrate: on the connection that the store hands it."""

from __future__ import annotations

from alembic import context

from streamproof.history.store import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite changes a table by making it anew
)
with context.begin_transaction():
    context.run_migrations()
