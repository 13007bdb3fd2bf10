"""Jobs of a user's own that know nothing of streamproof: identities in columns and headers, output in a table, a topic and files."""

from __future__ import annotations

from typing import Any

import pytest

from streamproof.engines.command import output
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverReady
from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed import scratch
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from streamproof.testbed.spark import executor_processes
from streamproof.verdict.verdict import Verdict

ENV = {"BOOTSTRAP_SERVERS": "{bootstrap_servers}", "TOPIC": "{input_topic}", "GROUP": "{group}", "BATCH": "{batch_records}"}
COLUMN = {"identity": {"column": "order_id"}}
DDL = "tests/faults/own_orders.sql"
OUTPUTS: dict[str, dict[str, Any]] = {
    "append": {
        "delivers": {"postgres": {"table": "orders", "ddl": "tests/faults/appended_orders.sql", **COLUMN}},
        "env": {"POSTGRES": "{postgres}"},
    },
    "upsert": {"delivers": {"postgres": {"table": "orders", "ddl": DDL, **COLUMN}}, "env": {"POSTGRES": "{postgres}"}},
    "topic": {"delivers": {"kafka": {"identity": {"header": "order-id"}}}, "env": {"OUTPUT": "{output_topic}"}},
    "files": {"delivers": {"files": {"format": "json", **COLUMN}}, "env": {"OUTPUT": "{output_folder}"}},
}


def _run(kind: str, promises: str, delay_s: float = 0.0) -> RunFolder:
    described = OUTPUTS[kind]
    job = {
        "engine": "command",
        "command": ["{python}", "tests/faults/own_orders.py", kind],
        "promises": promises,
        "delivers": described["delivers"],
        "env": {**ENV, **described["env"]},
    }
    workload = {"source": "synthetic", "records": 6000}
    kill = {"fault": "kill_driver", "parameters": {"delay_s": delay_s}}
    folder = runner.run(Experiment(name=f"own-{kind}", job=job, workload=workload, seed=16, faults=[kill]))
    assert marked(STREAMPROOF_RUN=folder.name) == [], "nothing of the job is left"
    return folder


@pytest.mark.parametrize(("kind", "promises"), [("upsert", "exactly-once"), ("topic", "at-least-once"), ("files", "at-least-once")])
def test_a_job_that_is_right_passes_and_the_verdict_says_what_was_not_judged(kind: str, promises: str, testbed: Testbed) -> None:
    verdict = Verdict.read(_run(kind, promises))
    assert verdict.outcome == "PASSED", verdict.reason
    assert "; not judged: payloads" in verdict.reason
    assert (verdict.delivered or 0) >= 6000
    assert verdict.anomalies["LOST"] == verdict.anomalies["CORRUPTED"] == verdict.anomalies["PHANTOM"] == 0
    assert verdict.read_twice is not None


@pytest.mark.parametrize(
    ("words", "outcome", "lost"), [([], "PASSED", False), pytest.param(["apart"], "FAILED", True, marks=pytest.mark.slow)]
)
def test_a_job_that_keeps_its_offsets_in_its_own_table_is_followed_by_what_it_delivers(
    words: list[str], outcome: str, lost: bool, testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "SETTLE_S", 15.0)  # what is lost is waited for as long
    job = {
        "engine": "command",
        "command": ["{python}", "tests/faults/own_offsets.py", *words],
        "promises": "exactly-once",
        "progress": "output",
        "delivers": {"postgres": {"table": "orders", **COLUMN}},
        "env": {**ENV, "POSTGRES": "{postgres}"},
    }
    # Where the offsets go first, a crash finds them there and the rows not, for most of the time.
    kill = {"fault": "kill_driver", "parameters": {"delay_s": 0.1}}
    folder = runner.run(Experiment(name="own-offsets", job=job, workload={"source": "synthetic", "records": 6000}, seed=16, faults=[kill]))
    verdict = Verdict.read(folder)
    assert verdict.outcome == outcome, verdict.reason
    assert {anomaly for anomaly, count in verdict.anomalies.items() if count} == ({"LOST"} if lost else set())
    assert any(what.startswith("whether an offset was committed before its output") for what in verdict.not_judged)


@pytest.mark.slow
@pytest.mark.parametrize(("executors", "fault"), [("jvm", "kill_executor"), ("python", "kill_python_worker")])
def test_executors_of_a_session_of_its_own_are_found_and_killed(executors: str, fault: str, testbed: Testbed) -> None:
    job = {
        "engine": "command",
        "command": ["{python}", "tests/faults/own_session.py", *(["python"] if executors == "python" else [])],
        "promises": "at-least-once",
        "progress": {"spark_checkpoint": "{checkpoint}"},
        "executors": executors,
        "env": {
            **{name: value for name, value in ENV.items() if name != "GROUP"},
            "OUTPUT": "{output_topic}",
            "CHECKPOINT": "{checkpoint}",
            "SPARK_MASTER": "{spark_master}",
            "SPARK_PROPERTIES": "{spark_properties}",
            "SPARK_JARS": "{spark_jars}",
        },
    }
    workload = {"source": "synthetic", "records": 6000}
    folder = runner.run(Experiment(name="own-session", job=job, workload=workload, seed=16, faults=[{"fault": fault}]))
    verdict = Verdict.read(folder)
    assert verdict.outcome == "PASSED", verdict.reason
    assert [injection.took_effect for injection in verdict.injections] == [True]
    applications = {event.application for event in folder.journal.all(DriverReady)}
    assert None not in applications
    assert not [executor for application in applications for executor in executor_processes(str(application))], "no executor is left"
    assert not scratch.folder(folder.path).exists(), "what the killed ones had there is left"


def test_a_job_that_appends_before_it_commits_is_caught_doubling_and_each_copy_is_named(testbed: Testbed) -> None:
    folder = _run("append", "exactly-once", delay_s=1.0)  # it commits every two seconds
    verdict = Verdict.read(folder)
    assert verdict.outcome == "FAILED", verdict.reason
    assert {anomaly for anomaly, count in verdict.anomalies.items() if count} == {"DUPLICATED"}
    assert verdict.disagreement is None
    assert (verdict.delivered or 0) == 6000 + verdict.anomalies["DUPLICATED"]
