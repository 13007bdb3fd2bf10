"""A user's own job: what its description may say, what a start of it is told, and where its progress is seen."""

from __future__ import annotations

import contextlib
import http.server
import os
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import yaml
from pydantic import ValidationError

from streamproof import settings
from streamproof.engines.command import spark_application
from streamproof.engines.command.engine import CommandEngine
from streamproof.engines.command.following import Commit, Following
from streamproof.engines.command.job import CommandJob
from streamproof.engines.command.output import Passed
from streamproof.engines.command.placeholders import PLACEHOLDERS, filled, unknown
from streamproof.engines.command.spark_checkpoint import DamagedCheckpoint, SparkCheckpointFolder
from streamproof.engines.lookup import read_job
from streamproof.errors import BadInput
from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.journal import DriverReady, DriverStarted
from streamproof.evidence.locations import Kind, Location
from streamproof.evidence.progress import Progress
from streamproof.experiment.model import Experiment
from streamproof.experiment.schedule import plan
from streamproof.faults import FAULTS
from streamproof.jobs.profile import Trait
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import KafkaPorts
from streamproof.testbed.postgres import PostgresPorts
from streamproof.testbed.spark import SparkPorts
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import Facts, RunOutcome, decide
from streamproof.verdict.guarantee import Guarantee, Promise
from tests.support.checkout import ROOT

JOB: dict[str, Any] = {"engine": "command", "command": ["{python}", "orders.py"], "promises": "exactly-once"}
TABLE = {"postgres": {"table": "orders", "identity": {"column": "order_id"}}}
TESTBED = Testbed("/testbed", (KafkaPorts(*range(1, 7)),), PostgresPorts(31, 32), 41, SparkPorts(51, 52, {}, {}))


def experiment(job: dict[str, Any] | None = None, **fields: Any) -> Experiment:
    return Experiment.model_validate({"job": {**JOB, **(job or {})}, "seed": 1, **fields})


def command_job(tmp_path: Path, **described: Any) -> CommandJob:
    folder = RunFolder.create(tmp_path / "20260101T000000-orders")
    common = {"input_topic": "in", "output_topic": "out", "batch_records": 100, "transaction_timeout_ms": 60_000, "bootstrap": "kafka:1"}
    job = experiment(described).spec.job(TESTBED, name=f"sp-{folder.name}", folder=str(folder.path), postgres="host=127.0.0.1", **common)
    assert isinstance(job, CommandJob)
    return job


@pytest.mark.parametrize(
    ("described", "delivered", "read"),
    [
        ({}, Location(), Location()),
        (
            {"delivers": {"kafka": {"identity": {"header": "id"}}}},
            Location(Kind.HEADER, ("id",), False),
            Location(Kind.HEADER, ("id",), False),
        ),
        (
            {"delivers": {"kafka": {"identity": {"key": True}, "payload": "kept"}}},
            Location(Kind.KEY, (), True),
            Location(Kind.KEY, (), True),
        ),
        ({"delivers": {"kafka": {"identity": {"json": "/order/id"}}}}, *[Location(Kind.JSON, ("/order/id",), False)] * 2),
        ({"delivers": TABLE}, *[Location(Kind.COLUMNS, ("order_id",), False)] * 2),
        (
            {"delivers": TABLE, "reads": {"kafka": {"identity": {"json": "/order/id"}}}},
            Location(Kind.COLUMNS, ("order_id",), False),
            Location(Kind.JSON, ("/order/id",), False),
        ),
    ],
)
def test_the_workload_puts_the_identity_where_the_job_reads_it(described: Any, delivered: Location, read: Location, tmp_path: Path) -> None:
    assert experiment(described).profile.location == delivered
    job = command_job(tmp_path, **described)
    job.write()
    stored = read_job(job.run)
    assert (stored.location_delivered, stored.location_read) == (delivered, read)
    again = Experiment.model_validate(experiment(described).model_dump(mode="json"))
    assert again.profile == experiment(described).profile


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ({"command": ["x", "{bootstrap_server}"]}, r"no placeholder \{bootstrap_server\}; there are: python, bootstrap_servers, .*braces"),
        ({"env": {"TOPIC": "{topic}"}}, r"no placeholder \{topic\}"),
        ({"progress": {"spark_checkpoint": "{checkpoints}/x"}}, r"no placeholder \{checkpoints\}"),
        ({"delivers": {}}, "expected one of kafka, postgres, files, delta, iceberg, iceberg_folder, came none of them"),
        ({"delivers": {"kafka": {}, **TABLE}}, "came kafka and postgres"),
        ({"delivers": {"kafka": {"identity": {}}}}, "expected one of header, key, json, column, columns, came none of them"),
        ({"delivers": {"kafka": {"identity": {"header": "a", "json": "/b"}}}}, "came header and pointer"),
        ({"delivers": {"kafka": {"identity": {"json": "order.id"}}}}, "should match pattern"),
        ({"delivers": {"kafka": {"identity": {"column": "id"}}}}, "a record of Kafka has no columns"),
        ({"delivers": {"kafka": {"payload": "kept"}}}, "is always judged; give an `identity`"),
        ({"delivers": {"postgres": {"table": "orders"}}}, "identity"),
        ({"delivers": {"postgres": {"table": "orders", "identity": {"header": "id"}}}}, "rows keep it in `column` or `columns`"),
        ({"delivers": {"postgres": {"table": "sales.orders", "identity": {"column": "id"}}}}, "should match pattern"),
        ({"delivers": {"postgres": {"table": "orders", "identity": {"columns": ["a", "a"]}}}}, "a is named twice"),
        (
            {"delivers": {"files": {"identity": {"column": "id"}, "escape": "\\"}}},
            "escape: only csv has quotes to escape, the format is parquet",
        ),
        (
            {"reads": {"kafka": {"topic": "orders"}}, "delivers": {"kafka": {"topic": "orders"}}},
            "delivers.kafka.topic: orders is what the job reads",
        ),
        ({"reads": {"kafka": {"topic": "__consumer_offsets"}}}, "should match pattern"),
        ({"progress": "output", "also_promises": ["atomic"]}, "where progress is read from the output nobody knows the records of a batch"),
        ({"delivers": TABLE, "also_promises": ["atomic"]}, "rows keep no order, and nobody knows which batch wrote one"),
        ({"delivers": TABLE, "also_promises": ["monotonic"]}, "only a table of Delta or Iceberg keeps versions"),
        ({"delivers": TABLE, "transactions": True}, "the job delivers to no topic"),
        ({"delivers": {"kafka": {"identity": {"key": True}}}, "also_promises": ["ordered"]}, "each record has a key of its own"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_started(described: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        experiment(described)


def test_a_table_that_keeps_versions_is_held_to_them_unless_the_job_says_otherwise() -> None:
    lake = {"delivers": {"delta": {"path": "orders", "identity": {"column": "id"}}}}
    assert experiment(lake).promises == {Promise.MONOTONIC}
    assert experiment({**lake, "also_promises": []}).promises == set()
    assert experiment({"delivers": TABLE}).promises == set()


def test_what_is_held_beside_the_guarantee_can_be_said_by_the_experiment() -> None:
    lake = {"strategy": "delta_sink", "workload": {"source": "synthetic"}}
    assert Anomaly.VANISHED in Experiment.model_validate(lake).forbidden
    control = {**lake, "guarantee": "at-most-once", "expect": ["LOST", "VANISHED"]}
    with pytest.raises(ValidationError, match="VANISHED is forbidden by what is promised beside it: monotonic; leave that out of"):
        Experiment.model_validate(control)
    assert Experiment.model_validate({**control, "also_promised": []}).promises == set()
    topic = {**lake, "strategy": "checkpoint"}
    with pytest.raises(ValidationError, match="also_promised: monotonic: the output of checkpoint keeps no versions; leave it out"):
        Experiment.model_validate({**topic, "also_promised": ["monotonic"]})
    with pytest.raises(ValidationError, match="expect: VANISHED cannot be seen: the output of checkpoint keeps no versions"):
        Experiment.model_validate({**topic, "expect": ["VANISHED"]})


def test_what_needs_the_jobs_own_offsets_is_refused_where_they_cannot_be_read() -> None:
    with pytest.raises(ValidationError, match="expire_records: what 'orders' has committed cannot be read"):
        experiment({"progress": "output"}, faults=[{"fault": "expire_records"}])
    with pytest.raises(ValidationError, match="OFFSET_AHEAD cannot be seen where progress is read from the output"):
        experiment({"progress": "output"}, guarantee="at-most-once", expect=["OFFSET_AHEAD"])


def test_a_job_may_be_a_file_that_experiments_share(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("engine: command\ncommand: [./orders]\npromises: at-least-once\n")
    assert Experiment.model_validate({"job": str(file), "seed": 1}).label == "orders"
    with pytest.raises(ValidationError, match=r"no-such\.yaml cannot be read"):
        Experiment.model_validate({"job": str(tmp_path / "no-such.yaml"), "seed": 1})


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ({"cwd": "no-such-folder"}, "cwd: expected a folder, .*no-such-folder is none"),
        ({"interpreter": "no-such-venv"}, "interpreter: expected a Python or the folder of a virtual environment, .*no-such-venv is not"),
        ({"delivers": {"postgres": {**TABLE["postgres"], "ddl": "no.sql"}}}, r"delivers.postgres.ddl cannot be read: .*no\.sql"),
    ],
)
def test_a_file_of_the_job_that_is_missing_is_named(described: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        experiment(described).spec.check()


def test_a_job_without_a_group_is_not_offered_faults_of_groups_and_one_with_a_table_is_offered_those_of_postgres() -> None:
    profile = experiment({"delivers": TABLE, "progress": {"spark_checkpoint": "{checkpoint}"}}).profile
    assert Trait.GROUP_OFFSETS not in profile.traits
    with pytest.raises(ValueError, match="committed offsets of a consumer group"):
        FAULTS["kill_group_coordinator"].check(profile, {})
    FAULTS["cut_postgres"].check(profile, {})


def test_a_start_has_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "AIRFLOW__CORE__FERNET_KEY", "STREAMPROOF_STRATEGIES"):
        monkeypatch.setenv(name, "ours")
    monkeypatch.setenv("LANG", "theirs")
    job = command_job(tmp_path, command=["{python}", "-m", "orders", "--in={input_topic}", "{{x}}"], env={"GROUP": "{group}", "FIXED": "1"})
    launch = CommandEngine().launch(replace(job, start=2), TESTBED)
    assert launch.command == [sys.executable, "-m", "orders", "--in=in", "{x}"]
    assert "ours" not in launch.environment.values()
    told = {name: launch.environment[name] for name in ("LANG", "GROUP", "FIXED", "STREAMPROOF_START", "STREAMPROOF_BOOTSTRAP_SERVERS")}
    assert told == {
        "LANG": "theirs",
        "GROUP": job.name,
        "FIXED": "1",
        "STREAMPROOF_START": "2",
        "STREAMPROOF_BOOTSTRAP_SERVERS": "kafka:1",
    }
    assert {f"STREAMPROOF_{name.upper()}" for name in PLACEHOLDERS} <= set(launch.environment)


def test_names_that_a_job_has_fixed_are_those_of_the_run(tmp_path: Path) -> None:
    named = {"reads": {"kafka": {"topic": "orders"}}, "delivers": {"kafka": {"topic": "shipped"}}, "progress": {"group": "shipping"}}
    job = command_job(tmp_path, **named)
    told = CommandEngine().launch(job, TESTBED).environment
    assert [told[f"STREAMPROOF_{name}"] for name in ("INPUT_TOPIC", "OUTPUT_TOPIC", "GROUP")] == ["orders", "shipped", "shipping"]
    assert experiment(named).spec.named_topics == {"input_topic": "orders", "output_topic": "shipped"}
    assert Trait.GROUP_OFFSETS in experiment(named).profile.traits
    assert experiment().spec.named_topics == {}
    assert command_job(tmp_path / "other").input_topic == "in"


def test_faults_of_executors_are_for_a_job_that_says_that_it_has_some() -> None:
    def offered(**described: Any) -> set[str]:
        profile, found = experiment(described).profile, set()
        for name in ("kill_executor", "kill_python_worker", "kill_driver"):
            with contextlib.suppress(ValueError):
                FAULTS[name].check(profile, {})
                found.add(name)
        return found

    assert offered() == {"kill_driver"}
    assert offered(executors="jvm") == {"kill_driver", "kill_executor"}
    assert offered(executors="python") == {"kill_driver", "kill_executor", "kill_python_worker"}
    with pytest.raises(ValidationError, match="cut_kafka: the driver and the executors of 'orders' reach Kafka by one proxy"):
        experiment({"executors": "jvm"}, faults=[{"fault": "cut_kafka", "parameters": {"role": "executors"}}])


def test_the_application_of_a_driver_is_found_by_its_own_ui(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two servers one is no driver's. What is no port of a UI is not asked: Py4J would take the question for a command."""
    monkeypatch.setattr(spark_application, "ASK_S", 1.0)
    answers = {"/api/v1/applications": b'[{"id": "app-1", "name": "orders"}]'}

    class Ui(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers.get(self.path, b"[]"))

        def log_message(self, *_: Any) -> None: ...

    class Other(Ui):
        def do_GET(self) -> None:
            self.send_error(404)

    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in (Other, Ui)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    asked = [server.server_port for server in servers]
    monkeypatch.setattr(spark_application, "UI_PORTS", asked)
    try:
        found = spark_application.running([psutil.Process()])
        assert found == ("app-1", f"http://127.0.0.1:{servers[1].server_port}")
        answers["/api/v1/applications"] = b"<html>"
        assert spark_application.running([psutil.Process()]) is None
        answers["/api/v1/applications"] = b'[{"id": "app-1"}]'
        monkeypatch.setattr(spark_application, "UI_PORTS", range(4040, 4041))
        assert spark_application.running([psutil.Process()]) is None
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def test_a_virtual_environment_of_its_own_comes_first(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    launch = CommandEngine().launch(command_job(tmp_path, interpreter=str(tmp_path / "venv")), TESTBED)
    assert launch.command[0] == launch.environment["PYSPARK_PYTHON"] == str(python)
    assert launch.environment["PATH"].split(os.pathsep)[0] == str(python.parent)


def test_no_secret_is_in_what_a_start_is_told(tmp_path: Path) -> None:
    job = command_job(tmp_path, delivers=TABLE, command=["x", "{jdbc_url}", "{postgres}"])
    launch = CommandEngine().launch(job, TESTBED)
    schema = "sp_20260101t000000_orders"
    assert launch.command == [
        "x",
        f"jdbc:postgresql://127.0.0.1:32/postgres?user=streamproof&currentSchema={schema}",
        f"host=127.0.0.1 options='-c search_path={schema}'",
    ]
    assert launch.environment["PGPASSFILE"] == "/testbed/postgres.pass"


def test_placeholders_leave_other_braces_alone() -> None:
    assert unknown('{"a": {"b": 1}} {job}') is None
    assert filled('{"a": {"b": 1}} {job} {{print}}', {"job": "x"}) == '{"a": {"b": 1}} x {print}'


def _offsets(folder: Path, batch: int, ends: str, committed: bool = True) -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{ends}')
    if committed:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_committed_batches_of_spark_become_progress_and_others_do_not(tmp_path: Path) -> None:
    job = command_job(tmp_path)
    job.run.journal.append(DriverStarted(start=1, pid=1))
    folder = tmp_path / "checkpoint"
    _offsets(folder, 0, '{"in":{"0":10,"1":5}}')
    _offsets(folder, 1, '-\n{"in":{"0":10,"1":25}}')
    _offsets(folder, 2, '{"in":{"0":30,"1":25}}', committed=False)
    (folder / "commits" / ".3.tmp").write_text("")
    following = Following(job, SparkCheckpointFolder(folder, "in"))
    following._look()
    lines = list(read_json_lines(job.run.progress))
    assert [(line["batch"], line["rows"], line["from"], line["until"]) for line in lines] == [
        (0, 15, {"0": 0, "1": 0}, {"0": 10, "1": 5}),
        (1, 20, {"1": 5}, {"0": 10, "1": 25}),
    ]
    _offsets(folder, 2, '{"in":{"0":30,"1":25}}')
    following._look()
    following._look()
    assert len(list(read_json_lines(job.run.progress))) == 3
    assert len(job.run.journal.all(DriverReady)) == 1
    again = Following(job, SparkCheckpointFolder(folder, "in"))
    again._look()
    assert len(list(read_json_lines(job.run.progress))) == 3, "what was seen before is not written again"


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ('{"orders":{"0":10}}', "expected offsets of the topic in, found orders: the job does not read its input topic"),
        ("[1", "cannot be read"),
    ],
)
def test_a_checkpoint_of_something_else_is_named(tmp_path: Path, ends: str, says: str) -> None:
    _offsets(tmp_path, 0, ends)
    with pytest.raises(DamagedCheckpoint, match=says):
        list(SparkCheckpointFolder(tmp_path, "in").commits({}))


def test_offsets_that_go_back_are_no_progress(tmp_path: Path) -> None:
    class Source:
        def commits(self, committed: Any) -> Any:
            from datetime import UTC, datetime

            yield Commit({0: 10}, datetime.now(UTC))
            yield Commit({0: 4}, datetime.now(UTC))

        def close(self) -> None: ...

    job = command_job(tmp_path)
    following = Following(job, cast(Any, Source()))
    following._look()
    assert [line["rows"] for line in read_json_lines(job.run.progress)] == [10]


def test_a_verdict_says_what_could_not_be_judged() -> None:
    not_judged = experiment({"delivers": TABLE}).profile.not_judged
    assert [line.split(" (")[0] for line in not_judged] == ["payloads", "which start and batch wrote a copy"]
    assert experiment().profile.not_judged == ()
    kept = Facts("orders", Guarantee.EXACTLY_ONCE, frozenset(), acked=1, delivered=1, drained=True, not_judged=not_judged)
    decision = decide(replace(kept, batches={"steady": 1, "impact": 1, "recovery": 1}))
    assert decision.outcome is RunOutcome.PASSED
    assert decision.reason.startswith("orders kept exactly-once for 1 acknowledged records; not judged: payloads (")


def test_settings_of_the_project_are_where_paths_begin() -> None:
    assert experiment({"cwd": "."}).spec.job(TESTBED, **_COMMON).cwd == str(settings.project())


_COMMON: dict[str, Any] = {
    "name": "sp-x",
    "folder": "/x",
    "bootstrap": "",
    "input_topic": "in",
    "output_topic": "out",
    "batch_records": 1,
    "transaction_timeout_ms": 1,
}


def test_a_job_that_keeps_its_offsets_to_itself_has_passed_over_what_it_delivered() -> None:
    passed = Passed()
    for number in range(6):
        passed.read((0, number), number % 2, number // 2)
    assert passed.until() == {}
    passed.delivered([(0, 0), (0, 2), None, (7, 7)])
    assert passed.until() == {0: 2}
    passed.delivered([(0, 0), (0, 5)])
    assert passed.until() == {0: 2, 1: 2}, "the last of partition 1 does not count: two before it are missing"
    passed.delivered([(0, 1), (0, 3), (0, 4)])
    assert passed.until() == passed.ends == {0: 3, 1: 3}
    passed.delivered([(0, 6)])
    passed.read((0, 6), 0, 3)
    assert passed.until() == {0: 4, 1: 3}, "the output may be seen before the input"


def test_what_was_delivered_is_no_offset_that_the_job_committed(tmp_path: Path) -> None:
    job = command_job(tmp_path, progress="output")
    job.run.journal.append(DriverStarted(start=2, pid=1))
    commits = [Commit({0: 5}, datetime.now(UTC), of_output=True), Commit({0: 5, 1: 3}, datetime.now(UTC), of_output=True)]

    class Source:
        def commits(self, committed: Any) -> Any:
            return iter(commits)

        def close(self) -> None: ...

    Following(job, Source())._look()
    first, second = read_json_lines(job.run.progress)
    assert (first["from"], first["until"], first["passed_over"], first["rows"]) == ({}, {}, {"0": 5}, 5)
    assert (second["until"], second["passed_over"], second["rows"]) == ({}, {"0": 5, "1": 3}, 3)
    assert (Progress(job.run).committed(), Progress(job.run).until()) == (8, {"0": 5, "1": 3})
    assert job.run.journal.all(DriverReady)[0].resumes_at == {}
    profile = experiment({"progress": "output"}).profile
    assert not profile.knows_offsets
    assert "whether an offset was committed before its output (nobody reads the job's own offsets)" in profile.not_judged
    assert job.follows_output


@pytest.mark.parametrize("example", [entry["example"] for entry in yaml.safe_load((ROOT / "examples" / "examples.yaml").read_text())])
def test_each_example_is_an_experiment(example: str) -> None:
    path = ROOT / "examples" / example
    given = yaml.safe_load(path.read_text())
    file = given["workload"].get("file")
    if file is not None and not (ROOT / file["path"]).exists():  # it is made when the example is prepared
        given["workload"] = {"source": "synthetic", "records": 4000}
    plan(Experiment.model_validate(given))
