"""DAG ``chaos_nightly``: every night the scenarios of a matrix, one after the other, and what they changed since the nightly runs before.

The matrix is ``chaos/matrices/nightly.yaml``, or the file that ``STREAMPROOF_NIGHTLY`` names. It is read here for the schedule and
the quota, and again when a nightly run begins: one that cannot be read does not break the DAG, it makes that nightly run red and says why.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import TriggerRule, dag, task_group

from streamproof.airflow.nightly_operators import (
    CompareOperator,
    PlanOperator,
    ScenarioOperator,
    SummaryOperator,
    TellOperator,
    matrix_file,
)
from streamproof.airflow.notifier import ChangeNotifier
from streamproof.airflow.operators import WAIT_S
from streamproof.airflow.service import POOL
from streamproof.errors import BadInput
from streamproof.experiment.matrix import Matrix, Quota, load

SPARE_S = 300  # what a run may take beside its own time: waiting for its turn is apart
LONGEST = timedelta(hours=1)
NAME = "{{ task.scenario['name'] }}"
TOLD = """
Switched on, it runs the scenarios of a matrix every night, one after the other; *Trigger* runs it now. The matrix is
`chaos/matrices/nightly.yaml`, or the file that `STREAMPROOF_NIGHTLY` names.

The task `summary` says what changed since earlier nightly runs. It is red when a scenario was not as expected; that scenario's task
says why, and has links to the run's report, its Data Docs and its folder, below *Details*.

Where all strategies stand is the page *Streaming reliability* in the navigation.
"""


def _read() -> tuple[str | None, Quota]:
    try:
        plan = load(matrix_file())
    except BadInput:
        return str(Matrix.model_fields["schedule"].default), Quota()
    return plan.schedule, plan.quota


SCHEDULE, QUOTA = _read()


@task_group(prefix_group_id=False)
def one(scenario: Any) -> None:
    """One scenario, and whoever is scheduled on its verdict."""
    longest = timedelta(seconds=QUOTA.scenario_s + SPARE_S + WAIT_S)
    run = ScenarioOperator(task_id="scenario", scenario=scenario, pool=POOL, execution_timeout=longest, map_index_template=NAME)
    run >> TellOperator(task_id="tell", scenario=scenario, trigger_rule=TriggerRule.ALL_DONE, map_index_template=NAME)


@dag(
    schedule=SCHEDULE,
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["streamproof"],
    description="A matrix of strategies, faults and seeds, night by night: what is newly broken, fixed, flaky, slower",
    doc_md=TOLD,
    default_args={"retries": 0, "execution_timeout": LONGEST},
    on_failure_callback=ChangeNotifier(failed=True),
    on_success_callback=ChangeNotifier(failed=False),
)
def chaos_nightly() -> None:
    plan = PlanOperator(task_id="plan")
    compare = CompareOperator(task_id="compare", pool=POOL, trigger_rule=TriggerRule.ALL_DONE)
    summary = SummaryOperator(task_id="summary", trigger_rule=TriggerRule.ALL_DONE)
    plan >> one.expand(scenario=plan.output) >> compare >> summary


chaos_nightly()
