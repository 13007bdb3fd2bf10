"""DAG ``chaos_experiment``: one experiment, a form to fill in, a task a stage."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import chain, dag

from streamproof.airflow.form import params
from streamproof.airflow.notifier import ChangeNotifier
from streamproof.airflow.operators import PrepareOperator, ReportOperator, RestoreOperator, StageOperator
from streamproof.airflow.service import POOL
from streamproof.evidence.stages import SEQUENCE

LONGEST = timedelta(hours=24)
TOLD = """
Press *Trigger* and choose a preset, or fill in the form. Each task is a stage of the run, and its log tells what it is doing.

When the run is over, the task `report` has links to its report, its Data Docs and its folder, below *Details*. The DAG run is red when the
verdict was not as expected: the task `restore` says why. To stop a run, mark it failed; the testbed is restored.

What all runs came to is the page *Streaming reliability* in the navigation.
"""


@dag(
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=params(),
    tags=["streamproof"],
    description="Break a streaming pipeline on purpose, and prove record by record what it delivered",
    doc_md=TOLD,
    default_args={"retries": 0, "execution_timeout": LONGEST},
    on_failure_callback=ChangeNotifier(failed=True),
)
def chaos_experiment() -> None:
    # Not behind the scenarios of a nightly run that wait in the pool: somebody sits before the form.
    prepare = PrepareOperator(pool=POOL, priority_weight=1000).as_setup()  # type: ignore[no-untyped-call]
    folder = "{{ ti.xcom_pull(task_ids='prepare') }}"
    groups = [[StageOperator(stage=stage, folder=folder) for stage in group] for group in SEQUENCE[1:]]
    stages = [group if len(group) > 1 else group[0] for group in groups]  # a chain takes no two lists of different lengths
    report = ReportOperator(folder=folder)
    restore = RestoreOperator(folder=folder).as_teardown(setups=prepare, on_failure_fail_dagrun=True)
    chain(prepare, *stages, report, restore)


chaos_experiment()
