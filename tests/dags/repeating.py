"""A DAG for the tests: an experiment whose load is a task that Airflow repeats."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import chain, dag

from streamproof.airflow.form import params
from streamproof.airflow.operators import PrepareOperator, ReportOperator, RestoreOperator, StageOperator
from streamproof.evidence.stages import SEQUENCE

AT_ONCE = timedelta(seconds=0)


@dag(schedule=None, params=params(), default_args={"retries": 0})
def repeating_experiment() -> None:
    prepare = PrepareOperator().as_setup()
    folder = "{{ ti.xcom_pull(task_ids='prepare') }}"
    groups = [
        [StageOperator(stage=stage, folder=folder, retries=int(stage == "generate_load"), retry_delay=AT_ONCE) for stage in group]
        for group in SEQUENCE[1:]
    ]
    restore = RestoreOperator(folder=folder).as_teardown(setups=prepare, on_failure_fail_dagrun=True)
    chain(prepare, *(group if len(group) > 1 else group[0] for group in groups), ReportOperator(folder=folder), restore)


repeating_experiment()
