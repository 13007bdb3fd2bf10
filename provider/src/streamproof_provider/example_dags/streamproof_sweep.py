"""A commit strategy, crashed at each step of its protocol every month."""

from __future__ import annotations

from airflow.sdk import dag

from streamproof_provider.operators.streamproof import StreamproofSweepOperator


@dag(schedule="@monthly", catchup=False, tags=["streamproof", "example"])
def streamproof_sweep() -> None:
    """Red when a crash showed something else than the strategy predicts."""
    StreamproofSweepOperator(task_id="two_phase_commit", strategies=["two_phase_commit"])


streamproof_sweep()
