"""The DAG: it loads, it is shaped as a run is, its form is the command line's model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.experiment import BadInput, Form
from chaos.steps import STEPS
from testbed import settings


@pytest.fixture(scope="module")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def dag(airflow_home: Path) -> Any:
    """The DAG as Airflow loads it. Airflow reads its settings at import, so its home is set before."""
    os.environ["AIRFLOW_HOME"] = str(airflow_home)
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    from airflow.dag_processing.dagbag import DagBag
    from airflow.utils.dag_cycle_tester import check_cycle

    bag = DagBag(str(settings.ROOT / "dags"))
    assert bag.import_errors == {}
    assert list(bag.dags) == ["chaos_experiment"], "only DAG files are parsed"
    found = bag.dags["chaos_experiment"]
    check_cycle(found)
    return found


def test_every_step_of_a_run_is_a_task_and_nothing_else_is(dag: Any) -> None:
    assert set(dag.task_ids) == set(STEPS)


def test_the_three_steps_of_the_run_go_side_by_side(dag: Any) -> None:
    together = {"run_pipeline", "generate_load", "inject_faults"}
    assert dag.get_task("drain").upstream_task_ids == together
    assert all(dag.get_task(step).upstream_task_ids == {"prepare"} for step in together)


def test_restore_is_a_teardown_that_can_make_the_run_red(dag: Any) -> None:
    restore = dag.get_task("restore")
    assert dag.get_task("prepare").is_setup
    assert restore.is_teardown
    assert restore.on_failure_fail_dagrun


def test_one_experiment_at_a_time(dag: Any) -> None:
    assert dag.max_active_runs == 1
    assert dag.dagrun_timeout is None, "a dagrun_timeout would skip the teardown"


def test_the_form_is_the_model(dag: Any) -> None:
    fields = Form.model_json_schema()["properties"]
    assert set(dag.params) == set(fields)
    for name, field in fields.items():
        param = dag.params.get_param(name)
        assert param.description == field["description"]
        assert dag.params[name] == field.get("default")
    assert dag.params.get_param("strategy").schema["enum"] == fields["strategy"]["enum"]
    assert dag.params.get_param("records").schema["minimum"] == 1000


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({"strategy": "hope"}, "strategy"),
        ({"fault": "meteor"}, "fault"),
        ({"records": -1}, "records"),
        ({"recordz": 20000}, "recordz"),
        ({"seed": "abc"}, "seed"),
    ],
)
def test_the_server_refuses_what_the_form_would_not_offer(conf: dict[str, Any], named: str) -> None:
    from dags.form import validate

    with pytest.raises(BadInput, match=f"the form: {named}"):
        validate(conf)


def test_loading_the_dags_imports_nothing_heavy(airflow_home: Path) -> None:
    code = """
import sys
import dags.chaos_experiment
heavy = {"pyspark", "kafka", "confluent_kafka", "great_expectations", "pandas", "pyarrow"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
"""
    env = {**os.environ, "AIRFLOW_HOME": str(airflow_home), "PYTHONPATH": str(settings.ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
