"""DAG ``chaos_experiment``: one experiment, a form to fill in, a task a step."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from dags.form import params
from dags.step import PrepareOperator, RestoreOperator, StepOperator

LONGEST = timedelta(hours=24)


@dag(
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=params(),
    tags=["streamproof"],
    description="Break a streaming pipeline on purpose, and prove record by record what it delivered",
    default_args={"retries": 0, "execution_timeout": LONGEST},
)
def chaos_experiment() -> None:
    prepare = PrepareOperator().as_setup()  # type: ignore[no-untyped-call]
    folder = "{{ ti.xcom_pull(task_ids='prepare') }}"
    together = [StepOperator(step=step, folder=folder) for step in ("run_pipeline", "generate_load", "inject_faults")]
    drain, verify, expect, report = (StepOperator(step=step, folder=folder) for step in ("drain", "verify", "expect", "report"))
    restore = RestoreOperator(folder=folder).as_teardown(setups=prepare, on_failure_fail_dagrun=True)
    prepare >> together >> drain >> verify >> expect >> report >> restore


chaos_experiment()
