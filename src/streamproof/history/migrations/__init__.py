"""Alembic's migrations of the history's store. A change of the schema is a new file in ``versions`` and another ``history_store.HEAD``."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory


def config() -> Config:
    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return settings


def versions() -> list[str]:
    """The newest first."""
    return [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()]


def migrate(connection: sa.Connection) -> None:
    """Bring a store up to date, in the transaction that ``connection`` is in."""
    settings = config()
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")
