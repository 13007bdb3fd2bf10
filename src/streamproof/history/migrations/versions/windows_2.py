"""The windows of a run's job, and those in which it was killed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    op.add_column("streamproof_runs", sa.Column("windows", sa.JSON))
    op.add_column("streamproof_runs", sa.Column("windows_hit", sa.JSON))
