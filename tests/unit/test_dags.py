"""The DAGs: they load, one is shaped as a run is, its form is the command line's model; the other as a nightly run is."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streamproof.airflow import service
from streamproof.airflow.service import DAG, DAGS, NIGHTLY, POOL
from streamproof.errors import BadInput
from streamproof.evidence.stages import ORDER, REPORT, RESTORE, SEQUENCE
from streamproof.experiment import model
from streamproof.experiment.form import Form
from streamproof.experiment.matrix import load
from streamproof.run.stages import STAGES
from streamproof.testbed.process import TestbedError
from tests.support.checkout import ROOT


@pytest.fixture(scope="module")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def dags(airflow_home: Path) -> dict[str, Any]:
    """The DAGs as Airflow loads them. Airflow reads its settings at import, so its home is set before."""
    os.environ["AIRFLOW_HOME"] = str(airflow_home)
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    from airflow.dag_processing.dagbag import DagBag
    from airflow.utils.dag_cycle_tester import check_cycle

    bag = DagBag(str(ROOT / "dags"))
    assert bag.import_errors == {}
    assert sorted(bag.dags) == sorted(DAGS), "only DAG files are parsed"
    for found in bag.dags.values():
        check_cycle(found)
    return dict(bag.dags)


@pytest.fixture(scope="module")
def dag(dags: dict[str, Any]) -> Any:
    return dags[DAG]


@pytest.fixture(scope="module")
def nightly(dags: dict[str, Any]) -> Any:
    return dags[NIGHTLY]


def test_every_step_of_a_run_is_a_task_and_nothing_else_is(dag: Any) -> None:
    assert set(dag.task_ids) == set(STAGES)


def test_the_tasks_follow_the_one_order_of_stages(dag: Any) -> None:
    assert set(ORDER) == set(STAGES)
    for earlier, later in pairwise((*SEQUENCE, (REPORT,), (RESTORE,))):
        for stage in later:
            assert dag.get_task(stage).upstream_task_ids >= set(earlier), stage


def test_the_three_steps_of_the_run_go_side_by_side(dag: Any) -> None:
    together = {"run_pipeline", "generate_load", "inject_faults"}
    assert dag.get_task("drain").upstream_task_ids == together
    assert all(dag.get_task(stage).upstream_task_ids == {"prepare"} for stage in together)


def test_restore_is_a_teardown_that_can_make_the_run_red(dag: Any) -> None:
    restore = dag.get_task("restore")
    assert dag.get_task("prepare").is_setup
    assert restore.is_teardown
    assert restore.on_failure_fail_dagrun


def test_one_experiment_at_a_time(dag: Any) -> None:
    assert dag.max_active_runs == 1
    assert dag.dagrun_timeout is None, "a dagrun_timeout would skip the teardown"


def test_a_nightly_run_is_scheduled_by_its_matrix_and_does_not_begin_by_itself(nightly: Any) -> None:
    assert nightly.schedule == load(ROOT / "chaos" / "matrices" / "nightly.yaml").schedule
    assert not nightly.catchup
    assert nightly.is_paused_upon_creation
    assert nightly.max_active_runs == 1


def test_a_nightly_run_that_is_switched_on_again_makes_up_for_the_last_one_that_it_missed(nightly: Any) -> None:
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import DagRunInfo

    scheduled = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(nightly))
    now = datetime.now(UTC)
    ran = now.replace(hour=2, minute=0, second=0, microsecond=0) - timedelta(days=9)
    due = scheduled.next_dagrun_info(last_automated_run_info=DagRunInfo.exact(ran)).run_after
    assert due.hour == 2
    assert now - timedelta(days=1) < due <= datetime.now(UTC)
    following = scheduled.next_dagrun_info(last_automated_run_info=DagRunInfo.exact(due)).run_after
    assert following == due + timedelta(days=1), "one of them, not each"


def test_each_says_in_airflow_how_it_is_used(dags: dict[str, Any]) -> None:
    assert all("*Trigger*" in found.doc_md and "*Streaming reliability*" in found.doc_md for found in dags.values())


def test_one_scenario_fails_and_the_nightly_run_goes_on_to_its_summary(nightly: Any) -> None:
    assert nightly.get_task("tell").trigger_rule == "all_done"
    assert nightly.get_task("compare").trigger_rule == nightly.get_task("summary").trigger_rule == "all_done"
    assert [task.task_id for task in nightly.leaves] == ["summary"], "the nightly run is red when its summary is"


def test_nightly_runs_and_experiments_share_one_pool(dag: Any, nightly: Any) -> None:
    assert {dag.get_task("prepare").pool, nightly.get_task("scenario").pool, nightly.get_task("compare").pool} == {POOL}
    assert {dag.get_task(stage).pool for stage in STAGES if stage != "prepare"} == {"default_pool"}, "or they would wait for one another"


def test_tasks_link_to_what_the_run_made(dag: Any, nightly: Any) -> None:
    names = ["Report", "Data Docs", "Run's folder"]
    assert [link.name for link in dag.get_task("verify").operator_extra_links] == names
    assert [link.name for link in nightly.get_task("scenario").operator_extra_links] == names


@pytest.mark.parametrize(
    ("base_url", "path"),
    [("", ""), ("http://127.0.0.1:8080", ""), ("https://lab.example.org/airflow", "/airflow"), ("https://lab.example.org/a/b/", "/a/b")],
)
def test_links_begin_with_the_path_that_airflow_is_served_below(
    dag: Any, base_url: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    task = dag.get_task("verify").prepare_for_execution()
    task.folder = "/somewhere/runs/my-run"
    pages = [link.get_link(task, ti_key=None) for link in task.operator_extra_links]
    assert pages == [f"{path}/streamproof/runs/my-run/{page}" for page in ("report", "data-docs", "files/")]


@pytest.mark.parametrize(
    ("given", "address", "listens"),
    [
        ("", "http://127.0.0.1:{port}", "http://127.0.0.1:{port}"),
        ("https://lab.example.org", "https://lab.example.org", "http://127.0.0.1:{port}"),
        ("https://lab.example.org/a/b/", "https://lab.example.org/a/b", "http://127.0.0.1:{port}/a/b"),
    ],
)
def test_an_airflow_of_ours_listens_below_the_path_of_its_proxy(
    given: str, address: str, listens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    monkeypatch.setenv("STREAMPROOF_AIRFLOW_URL", given)
    options = service.environment()
    port = options["AIRFLOW__API__PORT"]
    assert options["AIRFLOW__API__BASE_URL"] == service.address() == address.format(port=port)
    assert service.url() == listens.format(port=port)
    assert options["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == f"{listens.format(port=port)}/execution/"


@pytest.mark.parametrize("given", ["lab.example.org/airflow", "https://", "https:///airflow", "ftp://lab.example.org", "https://lab/?a=b"])
def test_what_is_no_address_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_AIRFLOW_URL", given)
    with pytest.raises(TestbedError, match=r"STREAMPROOF_AIRFLOW_URL: .* is no address"):
        service.address()


def test_a_matrix_that_cannot_be_read_leaves_the_dag_as_it_is_and_makes_the_nightly_run_red(airflow_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text("strategies: [hope]\nfaults: [kill_executor]\n")
    code = """
from airflow.sdk.exceptions import AirflowFailException
from dags import chaos_nightly
from streamproof.airflow.nightly_operators import PlanOperator
assert chaos_nightly.SCHEDULE == "0 2 * * *"
class Run: run_id = "manual"
try:
    PlanOperator(task_id="plan").execute({"dag_run": Run})
except AirflowFailException as error:
    print(error)
"""
    env = {**os.environ, "AIRFLOW_HOME": str(airflow_home), "PYTHONPATH": str(ROOT), "STREAMPROOF_NIGHTLY": str(file)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert "strategies.0: there is no strategy 'hope'" in done.stdout, done.stderr


def test_the_form_is_the_model(dag: Any) -> None:
    fields = Form.model_json_schema()["properties"]
    assert set(dag.params) == set(fields)
    for name, field in fields.items():
        param = dag.params.get_param(name)
        assert param.description == field["description"]
        assert dag.params[name] == field.get("default")
    assert dag.params.get_param("strategy").schema["enum"] == fields["strategy"]["enum"]
    assert dag.params.get_param("records").schema["minimum"] == 1000


def test_each_choice_of_the_form_says_what_it_is(dag: Any) -> None:
    for name in ("preset", "strategy", "fault"):
        schema = dag.params.get_param(name).schema
        assert set(schema["values_display"]) == {"null" if choice is None else choice for choice in schema["enum"]}
        for choice, label in schema["values_display"].items():
            assert label.startswith("none: " if choice == "null" else choice)
            assert len(label) > len(choice) + 5


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({"strategy": "hope"}, "strategy"),
        ({"fault": "meteor"}, "fault"),
        ({"records": -1}, "records"),
        ({"recordz": 20000}, "recordz"),
        ({"seed": "abc"}, "seed"),
        ({"preset": "none-of-them"}, "preset"),
    ],
)
def test_the_server_refuses_what_the_form_would_not_offer(conf: dict[str, Any], named: str) -> None:
    from streamproof.airflow.form import validate

    with pytest.raises(BadInput, match=f"the form: {named}"):
        validate(conf)


def test_a_preset_is_the_experiment_of_that_file_and_a_seed_may_be_given_beside_it() -> None:
    from streamproof.airflow.form import validate

    sent = {name: field.default for name, field in Form.model_fields.items()}  # as the form does, all of its fields
    preset = model.load(ROOT / "chaos" / "network-latency.yaml")
    assert validate({**sent, "preset": "network-latency"}).experiment() == preset
    assert validate({**sent, "preset": "network-latency", "seed": 5}).experiment() == preset.with_seed(5)


def test_a_preset_and_a_field_that_contradicts_it_are_refused() -> None:
    from streamproof.airflow.form import validate

    with pytest.raises(BadInput, match=r"preset: network-latency says what is run, but strategy 'checkpoint' was given too"):
        validate({"preset": "network-latency", "strategy": "checkpoint"})


def test_loading_the_dags_imports_nothing_heavy(airflow_home: Path) -> None:
    code = """
import sys
import dags.chaos_experiment, dags.chaos_nightly
heavy = {"pyspark", "kafka", "confluent_kafka", "great_expectations", "pandas", "pyarrow"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
"""
    env = {**os.environ, "AIRFLOW_HOME": str(airflow_home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
