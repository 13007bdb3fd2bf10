"""What other DAGs can be scheduled on: an event for each run that a task of this provider judged, with its figures as ``extra``.

Airflow passes on events of tasks that succeed: with ``fail_on_verdict=False`` a task succeeds whatever the verdict.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset

VERDICT = Asset(name="streamproof_verdict", uri="streamproof://verdict")
_EXTRA = (
    "run", "experiment", "outcome", "as_expected", "reason", "pipeline", "strategy", "guarantee", "expected_anomalies", "anomalies",
    "seed", "recovery_s", "caught_up_s",
)  # fmt: skip


def extra(verdict: dict[str, Any]) -> dict[str, Any]:
    """A verdict as an event's ``extra``."""
    return {name: verdict[name] for name in _EXTRA}
