"""The table of runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "streamproof_runs",
        sa.Column("run", sa.String(255), primary_key=True),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("experiment", sa.String(60), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("duration_s", sa.Float, nullable=False),
        sa.Column("pipeline", sa.String(255), nullable=False),
        sa.Column("strategy", sa.String(255), nullable=False),
        sa.Column("guarantee", sa.String(60), nullable=False),
        sa.Column("faults", sa.Text, nullable=False),
        sa.Column("fault_names", sa.JSON, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("versions", sa.JSON, nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("anomalies", sa.JSON, nullable=False),
        sa.Column("expected", sa.JSON, nullable=False),
        sa.Column("acked", sa.BigInteger),
        sa.Column("delivered", sa.BigInteger),
        sa.Column("recovery_s", sa.Float),
        sa.Column("caught_up_s", sa.Float),
        sa.Column("longest_gap_s", sa.Float),
        sa.Column("output_s", sa.Float),
        sa.Column("records_per_s", sa.JSON, nullable=False),
        sa.Column("driver_starts", sa.Integer),
        sa.Column("batches", sa.Integer),
        sa.Column("stage_seconds", sa.JSON, nullable=False),
    )
    op.create_index("ix_streamproof_runs_began_at", "streamproof_runs", ["began_at"])
