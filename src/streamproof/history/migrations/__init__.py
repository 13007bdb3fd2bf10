"""Alembic's migrations of the history's store. A change of the schema is a new file in ``versions`` and another ``history_store.HEAD``."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory


def config() -> Config:
    found = Config()
    found.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return found


def versions() -> list[str]:
    """The newest first."""
    return [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()]


def migrate(connection: sa.Connection) -> None:
    """Bring a store up to date, in the transaction that ``connection`` is in."""
    found = config()
    found.attributes["connection"] = connection
    command.upgrade(found, "head")
