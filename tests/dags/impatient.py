"""DAGs for the tests: the product's operators with a timeout of seconds, and one that is scheduled on verdicts."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from airflow.sdk import TriggerRule, dag, task

from streamproof import settings
from streamproof.airflow.assets import VERDICT
from streamproof.airflow.form import params
from streamproof.airflow.nightly_operators import CompareOperator, PlanOperator, ScenarioOperator, SummaryOperator
from streamproof.airflow.operators import PrepareOperator, RestoreOperator, StageOperator
from streamproof.airflow.service import POOL

SHORT = timedelta(seconds=20)


@dag(schedule=None, params=params(), default_args={"retries": 0})
def impatient_experiment() -> None:
    prepare = PrepareOperator().as_setup()
    folder = "{{ ti.xcom_pull(task_ids='prepare') }}"
    pipeline = StageOperator(stage="run_pipeline", folder=folder, execution_timeout=SHORT)
    beside = [StageOperator(stage=stage, folder=folder) for stage in ("generate_load", "inject_faults")]
    drain = StageOperator(stage="drain", folder=folder)
    restore = RestoreOperator(folder=folder).as_teardown(setups=prepare, on_failure_fail_dagrun=True)
    prepare >> [pipeline, *beside] >> drain >> restore


@dag(schedule=None, default_args={"retries": 0})
def impatient_night() -> None:
    plan = PlanOperator(task_id="plan")
    scenario = ScenarioOperator.partial(task_id="scenario", pool=POOL, execution_timeout=SHORT).expand(scenario=plan.output)
    compare = CompareOperator(task_id="compare", trigger_rule=TriggerRule.ALL_DONE)
    plan >> scenario >> compare >> SummaryOperator(task_id="summary", trigger_rule=TriggerRule.ALL_DONE)


@dag(schedule=[VERDICT])
def on_verdict() -> None:
    @task
    def note(triggering_asset_events: Any = None) -> None:
        """The metadata of the verdicts that this was started by, a line each."""
        with (settings.home() / "verdicts.jsonl").open("a") as file:
            for event in triggering_asset_events[VERDICT]:
                file.write(f"{json.dumps(event.extra)}\n")

    note()


impatient_experiment()
impatient_night()
on_verdict()
