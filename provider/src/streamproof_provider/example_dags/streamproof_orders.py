"""An experiment of your own every week, and another DAG that is told of its verdict."""

from __future__ import annotations

from typing import Any

from airflow.sdk import dag, task

from streamproof_provider.assets import VERDICT
from streamproof_provider.operators.streamproof import StreamproofRunOperator


@dag(schedule="@weekly", catchup=False, tags=["streamproof", "example"])
def streamproof_orders() -> None:
    """Red when the job lost or doubled a record."""
    StreamproofRunOperator(task_id="forward_exactly_once", experiment="chaos/forward-exactly-once.yaml")


@dag(schedule=[VERDICT], catchup=False, tags=["streamproof", "example"])
def streamproof_verdicts() -> None:
    """Runs after each verdict."""

    @task
    def tell(triggering_asset_events: Any = None) -> None:
        for events in triggering_asset_events.values():
            for event in events:
                print(event.extra["run"], event.extra["outcome"], event.extra["reason"])

    tell()


streamproof_orders()
streamproof_verdicts()
