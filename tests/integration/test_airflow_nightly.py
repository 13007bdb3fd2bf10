"""Nights and aborted runs on a real Airflow: one Airflow for all of them. Whatever ends a run, the testbed is left as it was found.

It is served below a path, as behind a proxy: what holds here holds there; ``test_airflow`` has one that is not.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import pytest

from streamproof import settings
from streamproof.airflow import service
from streamproof.airflow.service import DAG, NIGHTLY, Api
from streamproof.evidence.folder import RunFolder, read_json_lines, write_atomically
from streamproof.evidence.journal import InjectionInjected, LoadFinished, PhaseBegan, Restored, StageFinished, StageStarted, TestbedTaken
from streamproof.load import workload
from streamproof.run import healing, lock
from streamproof.run.nightly import NightlyRun, Summary
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from tests.support import regressing
from tests.support.checkout import ROOT
from tests.support.listeners import Webhook
from tests.support.processes import of_runs

WAIT_S = 400.0
PROXY, BELOW = "https://lab.example.org/airflow", "/airflow"
SECRET = "hooks/c2VjcmV0LXBhdGg"
HEAD = "faults: [crash_at_step]\nworkload: {source: synthetic, records: 2400}\n"
# Its first scenario stands still for a minute: time to stop it in. Its second is a short one.
STANDING = """
strategies: [checkpoint, offset_commit]
faults: [{fault: cut_kafka, parameters: {seconds: 60}}, crash_at_step]
leave_out: [{strategy: checkpoint, fault: crash_at_step}, {strategy: offset_commit, fault: cut_kafka}]
workload: {source: synthetic, records: 2400}
"""
LONG = "strategies: [checkpoint]\nfaults: [network_latency]\nworkload: {source: synthetic, records: 2000000}\n"
FORM = {"strategy": "checkpoint", "fault": "network_latency", "workload": "synthetic", "seed": 3}

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def webhook() -> Iterator[Webhook]:
    with Webhook() as server:
        yield server


@pytest.fixture(scope="module")
def airflow(home: Path, webhook: Webhook) -> Iterator[Api]:
    folders = {"dags-folder": ROOT / "dags", "tests": ROOT / "tests" / "dags"}
    bundle = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [{"name": name, "classpath": bundle, "kwargs": {"path": str(path)}} for name, path in folders.items()]
    connection = {"conn_type": "http", "schema": "http", "host": "127.0.0.1", "port": webhook.port, "extra": {"endpoint": SECRET}}
    _matrix(f"strategies: [checkpoint]\n{HEAD}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMPROOF_NIGHTLY", str(home / "nightly.yaml"))
        patch.setenv("STREAMPROOF_STRATEGIES", "tests.support.regressing:Regressing")
        patch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(bundles))
        patch.setenv("STREAMPROOF_AIRFLOW_URL", PROXY)
        patch.setenv("AIRFLOW_CONN_STREAMPROOF_WEBHOOK", json.dumps(connection))
        api = service.up()
        for dag in (NIGHTLY, "impatient_experiment", "impatient_night", "repeating_experiment", "on_verdict"):
            _until(lambda dag=dag: api.knows_dag(dag))  # type: ignore[misc]
            api.unpause(dag)
        yield api
        service.down()


@pytest.fixture(autouse=True)
def _left_as_it_was_found(testbed: Testbed) -> Iterator[None]:
    """After each of these: no run holds the testbed or has left something in it, no driver lives, every link is as it was."""
    yield
    _until(lambda: lock.holder() is None)
    assert healing.unrestored() == []
    assert of_runs() == []
    assert all(testbed.proxies.toxics(name) == {} for name in testbed.links)


def _until(condition: Callable[[], Any], wait_s: float = WAIT_S) -> Any:
    deadline = time.monotonic() + wait_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.3)
    return found


def _matrix(text: str) -> None:
    """The nightly runs' matrix. It has no schedule: whatever the time of day is, no nightly run begins but those that are triggered."""
    (settings.home() / "nightly.yaml").write_text(f"schedule: null\n{text}")


def _ended(api: Api, run_id: str, dag: str = NIGHTLY) -> str:
    def state() -> str | None:
        found = api.state(run_id, dag)
        return found if found in ("success", "failed") else None

    return str(_until(state))


def _summary(night: str) -> Summary:
    found = NightlyRun.named(night).summary()
    assert found is not None
    return found


def _states(api: Api, run_id: str, dag: str = NIGHTLY) -> dict[int, str]:
    """How each scenario's task ended."""
    return {found["map_index"]: found["state"] for found in api.instances(run_id, dag) if found["task_id"] == "scenario"}


def _injected(run: str) -> RunFolder:
    """A run, once its first fault was injected."""
    folder = RunFolder(settings.runs() / run)
    _until(lambda: folder.path.is_dir() and folder.journal.last(InjectionInjected))
    return folder


def _outcome(folder: RunFolder) -> str:
    return str(folder.read_json(folder.verdict)["outcome"])


def _times(folder: Path) -> tuple[str, str]:
    """When a run took the testbed, and when it gave it back."""
    journal = RunFolder(folder).journal
    taken, restored = journal.last(TestbedTaken), journal.last(Restored)
    assert taken is not None
    assert restored is not None
    return taken.at, restored.at


def _kill(folder: RunFolder, stage: str) -> psutil.Process:
    """SIGKILL the process that performs a stage; returns its parent."""
    [pid] = {event.pid for event in folder.journal.all(StageStarted) if event.stage == stage}
    process = psutil.Process(pid)
    parent = process.parent()
    process.send_signal(signal.SIGKILL)
    assert parent is not None
    return parent


# --- nightly runs --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nights(airflow: Api, webhook: Webhook) -> tuple[str, list[int], str]:
    """Two nightly runs over a job that somebody broke in between. How they ended, and how many posts there were after each."""
    posts = []
    states = []
    _matrix(f"strategies: [regressing]\n{HEAD}")
    for name in ("night-1", "night-2"):
        airflow.trigger(name, {}, NIGHTLY)
        states.append(_ended(airflow, name))
        time.sleep(5 if name == "night-1" else 0)  # what must not come is waited for
        posts.append(len(webhook.posts))
        regressing.change().touch()
    regressing.change().unlink()
    return states[0], posts, states[1]


def test_a_nightly_run_as_expected_is_green_and_passed_over_in_silence(nights: Any) -> None:
    assert nights[0] == "success"
    assert nights[1][0] == 0
    assert {told.state for told in _summary("night-1").scenarios} == {"new"}


def test_a_scenarios_log_tells_what_it_is_doing_and_it_links_to_its_report(nights: Any, airflow: Api) -> None:
    log = airflow.log("night-1", "scenario", NIGHTLY, 0)
    assert "phase: impact" in log
    assert "micro-batches" in log
    assert "the driver's processes are gone: yes" in log
    path = f"/api/v2/dags/{NIGHTLY}/dagRuns/night-1/taskInstances/scenario/links?map_index=0"
    run = "night-1-01-regressing-crash-at-step-s1"
    links = airflow.request("GET", path).json()["extra_links"]
    assert links == {
        "Report": f"{BELOW}/streamproof/runs/{run}/report",
        "Data Docs": f"{BELOW}/streamproof/runs/{run}/data-docs",
        "Run's folder": f"{BELOW}/streamproof/runs/{run}/files/",
    }
    pages = {name: airflow.request("GET", link.removeprefix(BELOW), accept=(200, 307)) for name, link in links.items()}
    assert pages["Report"].headers["location"] == "files/report.html"
    assert pages["Data Docs"].headers["location"] == "files/expectations/data_docs/index.html"
    assert '<a href="verdict.json">' in pages["Run's folder"].text


def test_the_next_nightly_run_is_red_and_names_the_scenario_that_broke(nights: Any, airflow: Api) -> None:
    assert nights[2] == "failed"
    assert _states(airflow, "night-2") == {0: "failed"}
    assert [(told.strategy, told.state) for told in _summary("night-2").news] == [("regressing", "newly broken")]
    log = airflow.log("night-2", "summary", NIGHTLY)
    told = r"newly broken: regressing \(at-least-once\) x crash_at_step, seed 1: FAILED: regressing broke at-least-once: \d+ LOST"
    assert re.search(told, log), log


def test_its_junit_xml_has_one_failure_and_its_page_is_there(nights: Any) -> None:
    night = NightlyRun.named("night-2").path
    suites = ET.parse(night / "junit.xml").getroot()
    assert [case.attrib["classname"].split(".")[1] for case in suites.iter("testcase") if case.find("failure") is not None] == [
        "regressing"
    ]
    assert "newly broken" in (night / "history.html").read_text()


def test_somebody_is_told_of_it_once_and_no_log_holds_the_webhooks_address(nights: Any, webhook: Webhook) -> None:
    _until(lambda: webhook.posts)
    [post] = webhook.posts[:1]
    assert post.path == f"/{SECRET}"
    assert "newly broken: regressing" in post.body["text"]
    assert post.body["link"] == f"{PROXY}/dags/{NIGHTLY}/runs/night-2"
    logs = [path for path in (service.home()).rglob("*.log") if path.is_file()]
    assert logs
    assert [path for path in logs if SECRET in path.read_text(errors="replace")] == []


def test_another_dag_is_scheduled_on_verdicts_and_gets_what_they_say(nights: Any) -> None:
    file = settings.home() / "verdicts.jsonl"

    def told() -> dict[str, dict[str, Any]] | None:
        found = {extra["run"]: extra for extra in read_json_lines(file)}
        return found if "night-2-01-regressing-crash-at-step-s1" in found else None

    found = _until(told)
    assert found["night-1-01-regressing-crash-at-step-s1"]["as_expected"] is True
    broken = found["night-2-01-regressing-crash-at-step-s1"]
    assert (broken["outcome"], broken["as_expected"]) == ("FAILED", False)
    assert broken["anomalies"]["LOST"] > 0


@pytest.mark.slow
def test_scenarios_are_left_over_when_the_nightly_runs_time_is_used_up_and_are_not_green(airflow: Api) -> None:
    _matrix(f"strategies: [offset_commit, checkpoint, two_phase_commit]\n{HEAD}")
    airflow.trigger("short-nightly-run", {}, NIGHTLY)
    _injected("short-night-01-offset-commit-crash-at-step-s1")
    plan = NightlyRun.named("short-nightly-run").path / "plan.json"
    write_atomically(plan, json.dumps({**json.loads(plan.read_text()), "over_at": time.time()}))
    assert _ended(airflow, "short-nightly-run") == "failed"
    assert _states(airflow, "short-nightly-run") == {0: "success", 1: "skipped", 2: "skipped"}
    assert [(told.strategy, told.state) for told in _summary("short-nightly-run").scenarios][:2] == [
        ("checkpoint", "not run"),
        ("two_phase_commit", "not run"),
    ]
    assert "not run: two_phase_commit" in airflow.log("short-nightly-run", "summary", NIGHTLY)


def test_a_matrix_that_cannot_be_run_makes_the_nightly_run_red_before_anything_is_run(airflow: Api) -> None:
    _matrix("strategies: [hope]\nfaults: [kill_executor]\n")
    airflow.trigger("no-nightly-run", {}, NIGHTLY)
    assert _ended(airflow, "no-nightly-run") == "failed"
    assert "strategies.0: there is no strategy 'hope'" in airflow.log("no-nightly-run", "plan", NIGHTLY)


@pytest.mark.slow
def test_a_nightly_run_and_an_experiment_wait_for_each_other(airflow: Api) -> None:
    _matrix(f"strategies: [offset_commit, two_phase_commit]\n{HEAD}")
    airflow.trigger("beside", {**FORM, "fault": "none", "records": 20_000})
    folder = RunFolder(settings.runs() / "beside")
    _until(lambda: folder.journal.last(PhaseBegan))
    airflow.trigger("night-beside", {}, NIGHTLY)
    assert _ended(airflow, "beside", DAG) == "success"
    assert _ended(airflow, "night-beside") == "success"
    assert "the testbed is held by run beside: waiting for it" in airflow.log("night-beside", "scenario", NIGHTLY, 0)
    times = sorted(_times(each) for each in (folder.path, *settings.runs().glob("night-beside-*")))
    assert len(times) == 3
    assert all(before[1] <= after[0] for before, after in pairwise(times))


def test_airflow_listens_on_loopback_only_and_asks_who_is_there(airflow: Api) -> None:
    pids = {process.pid for process in marked()}
    addresses = {c.laddr.ip for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in pids}
    assert addresses
    assert all(address.startswith(("127.", "::ffff:127.")) or address == "::1" for address in addresses), addresses
    assert airflow._client.get("/api/v2/dags", headers={"Authorization": ""}).status_code == 401


@pytest.mark.parametrize(
    ("name", "conf", "told"),
    [
        ("unknown-key", {"recordz": 5}, "the form: recordz"),
        ("contradiction", {"preset": "kill-executor", "strategy": "checkpoint"}, "preset: kill-executor says what is run"),
    ],
)
def test_a_bad_form_is_refused_before_anything_is_started(airflow: Api, name: str, conf: dict[str, Any], told: str) -> None:
    airflow.trigger(name, conf)
    assert _ended(airflow, name, DAG) == "failed"
    assert not (settings.runs() / name).exists()
    assert told in airflow.log(name, "prepare")


# --- a scenario that is stopped ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_scenario_whose_process_is_killed_is_aborted_and_the_nightly_run_goes_on(airflow: Api) -> None:
    _matrix(STANDING)
    airflow.trigger("killed", {}, NIGHTLY)
    folder = _injected("killed-01-checkpoint-cut-kafka-s1")
    _kill(folder, "prepare")
    assert _ended(airflow, "killed") == "failed"
    assert _outcome(folder) == "ABORTED"
    assert _states(airflow, "killed") == {0: "failed", 1: "success"}
    assert [(told.strategy, told.state) for told in _summary("killed").scenarios if not told.as_expected] == [("checkpoint", "stopped")]


@pytest.mark.slow
def test_a_scenario_whose_worker_is_killed_leaves_the_testbed_clean_and_the_nightly_run_red(airflow: Api) -> None:
    """The process above the task's, which reports for it: Airflow misses its heartbeat after a minute."""
    _matrix(LONG)
    airflow.trigger("worker", {}, NIGHTLY)
    folder = _injected("worker-01-checkpoint-network-latency-s1")
    [pid] = {event.pid for event in folder.journal.all(StageStarted) if event.stage == "prepare"}
    worker = psutil.Process(pid).parent()
    assert worker is not None
    worker.send_signal(signal.SIGKILL)
    assert _ended(airflow, "worker") == "failed"
    assert _outcome(folder) == "ABORTED"


@pytest.mark.slow
def test_a_scenario_that_is_marked_failed_is_aborted_and_the_nightly_run_goes_on(airflow: Api) -> None:
    _matrix(STANDING)
    airflow.trigger("marked", {}, NIGHTLY)
    folder = _injected("marked-01-checkpoint-cut-kafka-s1")
    airflow.mark_task_failed("marked", "scenario", NIGHTLY, 0)
    assert _ended(airflow, "marked") == "failed"
    assert _outcome(folder) == "ABORTED"
    assert _states(airflow, "marked") == {0: "failed", 1: "success"}


@pytest.mark.slow
def test_a_scenario_that_is_cleared_while_it_runs_is_aborted_and_run_again(airflow: Api) -> None:
    _matrix(STANDING)
    airflow.trigger("cleared", {}, NIGHTLY)
    folder = _injected("cleared-01-checkpoint-cut-kafka-s1")
    airflow.clear("cleared", [["scenario", 0]], NIGHTLY)
    again = RunFolder(settings.runs() / f"{folder.name}-try2")
    _until(lambda: again.verdict.exists())
    assert _ended(airflow, "cleared") == "success"
    assert _outcome(folder) == "ABORTED"
    assert _outcome(again) == "PASSED"
    assert {told.number: told.run for told in _summary("cleared").scenarios}[1] == again.name


@pytest.mark.slow
def test_a_scenario_that_takes_too_long_is_aborted(airflow: Api) -> None:
    _matrix(LONG)
    airflow.trigger("long", {}, "impatient_night")
    assert _ended(airflow, "long", "impatient_night") == "failed"
    folder = RunFolder(settings.runs() / "long-01-checkpoint-network-latency-s1")
    assert _outcome(folder) == "ABORTED"
    assert "AirflowTaskTimeout" in folder.read_json(folder.verdict)["reason"]
    assert [told.state for told in _summary("long").scenarios] == ["stopped"]


@pytest.mark.slow
def test_a_nightly_run_that_is_marked_failed_ends_with_the_scenario_at_work_and_begins_no_other(airflow: Api) -> None:
    _matrix(STANDING)
    airflow.trigger("given-up", {}, NIGHTLY)
    folder = _injected("given-up-01-checkpoint-cut-kafka-s1")
    airflow.mark_failed("given-up", NIGHTLY)
    _until(folder.verdict.exists)
    _until(lambda: folder.journal.last(Restored))
    assert _outcome(folder) == "ABORTED"
    assert _ended(airflow, "given-up") == "failed"
    assert not list(settings.runs().glob("given-up-02-*"))


# --- an experiment that is stopped --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_experiment_whose_process_is_killed_is_aborted_and_not_green(airflow: Api) -> None:
    airflow.trigger("killed-stage", {**FORM, "records": 20_000})
    folder = _injected("killed-stage")
    _kill(folder, "run_pipeline")
    assert _ended(airflow, "killed-stage", DAG) == "failed"
    assert _outcome(folder) == "ABORTED"
    assert "ABORTED: " in airflow.log("killed-stage", "restore"), "it says why the DAG run is red"


@pytest.mark.slow
def test_a_load_that_is_killed_and_repeated_by_airflow_forgets_nothing_but_the_chunk_that_was_under_way(airflow: Api) -> None:
    airflow.trigger("repeated", {**FORM, "records": 20_000}, "repeating_experiment")
    folder = _injected("repeated")
    _kill(folder, "generate_load")
    assert _ended(airflow, "repeated", "repeating_experiment") == "success"
    (finished,) = folder.journal.all(LoadFinished)
    assert finished.acked + finished.rejected + finished.indeterminate == 20_000
    assert finished.indeterminate <= workload.MAX_CHUNK
    assert len({event.pid for event in folder.journal.all(StageStarted) if event.stage == "generate_load"}) == 2
    assert _outcome(folder) == "PASSED"


@pytest.mark.slow
def test_an_experiment_one_task_of_which_is_marked_failed_is_aborted_and_not_green(airflow: Api) -> None:
    airflow.trigger("marked-stage", {**FORM, "records": 2_000_000})
    folder = _injected("marked-stage")
    airflow.mark_task_failed("marked-stage", "generate_load")
    assert _ended(airflow, "marked-stage", DAG) == "failed"
    assert _outcome(folder) == "ABORTED"


@pytest.mark.slow
def test_an_experiment_that_is_cleared_while_it_runs_is_aborted_and_another_run_is_made(airflow: Api) -> None:
    airflow.trigger("cleared-stage", {**FORM, "records": 20_000})
    folder = _injected("cleared-stage")
    airflow.clear("cleared-stage", ["prepare"])
    again = RunFolder(settings.runs() / "cleared-stage-try2")
    _until(lambda: again.verdict.exists() and again.journal.last(Restored))
    assert _ended(airflow, "cleared-stage", DAG) == "success"
    assert (_outcome(folder), _outcome(again)) == ("ABORTED", "PASSED")
    assert "micro-batches" in airflow.log("cleared-stage", "run_pipeline", attempt=2)
    path = f"/api/v2/dags/{DAG}/dagRuns/cleared-stage/taskInstances/report/links"
    assert airflow.request("GET", path).json()["extra_links"]["Report"] == f"{BELOW}/streamproof/runs/cleared-stage-try2/report"
    before = again.read_json(again.verdict)
    airflow.clear("cleared-stage", ["verify"])
    _until(lambda: len([event for event in again.journal.all(StageFinished) if event.stage == "restore"]) == 2)
    assert _ended(airflow, "cleared-stage", DAG) == "success"
    assert again.read_json(again.verdict)["anomalies"] == before["anomalies"]
    assert not (settings.runs() / "cleared-stage-try3").exists()


@pytest.mark.slow
def test_a_step_that_takes_too_long_aborts_the_experiment(airflow: Api) -> None:
    airflow.trigger("long-stage", {**FORM, "records": 2_000_000}, "impatient_experiment")
    assert _ended(airflow, "long-stage", "impatient_experiment") == "failed"
    assert _outcome(RunFolder(settings.runs() / "long-stage")) == "ABORTED"
