"""What other DAGs can be scheduled on.

``streamproof_verdict`` has an event for each run that was judged, with its name, outcome and figures as ``extra``: from
``chaos_experiment`` one, from ``chaos_nightly`` one a scenario. ``streamproof_nightly_run`` has one event a nightly run.

A run that was stopped, or broke before it was judged, says nothing of the job under test and has no event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

if TYPE_CHECKING:
    from streamproof.verdict.verdict import Verdict  # Arrow and numpy, which parsing a DAG need not wait for

VERDICT = Asset(name="streamproof_verdict", uri="streamproof://verdict")
NIGHTLY_RUN = Asset(name="streamproof_nightly_run", uri="streamproof://nightly run")
_EXTRA = (
    "run", "experiment", "outcome", "as_expected", "reason", "pipeline", "strategy", "guarantee", "expected_anomalies", "anomalies",
    "seed", "recovery_s", "caught_up_s",
)  # fmt: skip


def extra(verdict: Verdict) -> dict[str, Any]:
    """A verdict as an event's ``extra``."""
    fields = verdict.to_json()
    return {name: fields[name] for name in _EXTRA}
