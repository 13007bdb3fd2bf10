"""Jobs on Flink and Kafka Streams as an experiment describes them: what they are offered, what is refused before anything starts."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from benchmarks import engine_matrix
from streamproof.engines.command.job import OwnJobSpec
from streamproof.engines.dstreams.spec import DStreamsSpec
from streamproof.engines.flink import cluster, high_availability, rest, restored, secured
from streamproof.engines.flink.cluster import Ports, Program
from streamproof.engines.flink.spec import FlinkSpec
from streamproof.engines.kafka_streams.spec import KafkaStreamsSpec
from streamproof.engines.spark.spec import profile as profile_of
from streamproof.engines.storm import cluster as storm
from streamproof.engines.storm import secured as storm_secured
from streamproof.engines.storm.spec import StormSpec
from streamproof.errors import BadInput
from streamproof.experiment.model import Experiment, load
from streamproof.experiment.schedule import plan
from streamproof.faults import FAULTS
from streamproof.jobs import windows
from streamproof.jobs.profile import Role, Trait
from streamproof.run import set_up
from streamproof.testbed import install
from tests.support.checkout import ROOT

FLINK = {"engine": "flink", "sql": "pipelines/flink_forward.sql", "promises": "exactly-once"}
STREAMS = {"engine": "kafka_streams", "source": "pipelines/kafka_streams/Forward.java", "promises": "exactly-once"}
DSTREAMS = {"engine": "dstreams", "source": "pipelines/dstreams/Direct.java", "promises": "at-least-once"}
STORM = {
    "engine": "storm",
    "topology": "pipelines/storm/forward.yaml",
    "resources": ["pipelines/storm/forward_bolt.py"],
    "variables": {"ackers": "1", "pause_ms": "0", "written_from": "forward"},
    "promises": "at-least-once",
}
ROWS = yaml.safe_load((ROOT / "chaos" / "engines" / "rows.yaml").read_text())


def _refusal(job: dict[str, Any], fault: dict[str, Any] | None = None) -> str:
    with pytest.raises(ValidationError) as refused:
        Experiment.model_validate({"job": job, "seed": 1, "faults": [fault] if fault else []})
    return str(refused.value)


def test_a_job_on_flink_has_a_coordinator_and_workers_and_is_followed_by_its_output() -> None:
    profile = Experiment.model_validate({"job": FLINK, "seed": 1}).profile
    assert (profile.name, profile.engine) == ("flink_forward", "flink")
    assert profile.roles == {Role.DRIVER, Role.COORDINATOR, Role.WORKERS}
    assert not profile.knows_offsets
    counted = Experiment.model_validate({"job": {**FLINK, "expected": {"filter": "amount > 3"}}, "seed": 1}).profile
    assert not counted.knows_offsets
    assert counted.not_judged[-1].startswith("whether an offset was committed before its output")
    FAULTS["kill_process"].check(profile, {"role": "coordinator"})


def test_a_job_on_kafka_streams_has_instances_and_is_followed_by_its_group() -> None:
    profile = Experiment.model_validate({"job": STREAMS, "seed": 1}).profile
    assert (profile.name, profile.knows_offsets) == ("forward", True)
    assert profile.roles == {Role.DRIVER, Role.WORKERS}
    FAULTS["kill_process"].check(profile, {})
    with pytest.raises(ValueError, match="kill_process: a job with 'forward' has no coordinator of its own"):
        FAULTS["kill_process"].check(profile, {"role": "coordinator"})


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({**FLINK, "python": "job.py", "interpreter": "x"}, "expected one of sql and python"),
        ({"engine": "flink", "promises": "exactly-once"}, "expected one of sql and python"),
        (
            {"engine": "flink", "promises": "exactly-once", "python": "job.py"},
            "interpreter: a PyFlink job needs a Python that has apache-flink",
        ),
        ({**FLINK, "variables": {"group": "x"}}, "variables: group is a placeholder that every job has"),
        ({**FLINK, "variables": {"Group": "x"}}, "should match pattern"),
        ({**FLINK, "command": ["x"]}, "Extra inputs are not permitted"),
        ({**STREAMS, "jar": "a.jar"}, "expected one of source and jar"),
        ({"engine": "kafka_streams", "promises": "exactly-once", "jar": "a.jar"}, "main: a jar needs the class to run"),
        ({**STREAMS, "main": "Forward"}, "a source has it by its name"),
        ({**STREAMS, "source": "Forward.scala"}, "should match pattern"),
        ({**DSTREAMS, "jar": "a.jar"}, "expected one of source and jar"),
        ({**DSTREAMS, "instances": 2}, "Extra inputs are not permitted"),
        ({**STORM, "variables": {"group": "x"}}, "variables: group is a placeholder that every job has"),
        ({"engine": "storm", "promises": "at-least-once"}, "topology"),
    ],
)
def test_what_cannot_be_is_refused(job: dict[str, Any], says: str) -> None:
    assert says in _refusal(job)


def test_a_job_on_dstreams_is_one_process_followed_by_its_group() -> None:
    profile = Experiment.model_validate({"job": DSTREAMS, "seed": 1}).profile
    assert (profile.name, profile.knows_offsets, profile.roles) == ("direct", True, {Role.DRIVER})


def test_a_topology_on_storm_has_a_coordinator_a_worker_and_what_its_bolts_run() -> None:
    profile = Experiment.model_validate({"job": STORM, "seed": 1}).profile
    assert (profile.name, profile.knows_offsets) == ("forward", True)
    assert profile.roles == {Role.DRIVER, Role.COORDINATOR, Role.WORKERS, Role.PYTHON_WORKERS}
    for role in ("workers", "coordinator", "Python workers"):
        FAULTS["kill_process"].check(profile, {"role": role})
    without = Experiment.model_validate({"job": {**STORM, "resources": []}, "seed": 1}).profile
    with pytest.raises(ValueError, match="kill_process: a job with 'forward' has no Python workers of its own"):
        FAULTS["kill_process"].check(without, {"role": "Python workers"})


def test_the_python_workers_of_spark_have_a_fault_of_their_own() -> None:
    with pytest.raises(ValueError, match="has no Python workers of its own"):
        FAULTS["kill_process"].check(profile_of("two_phase_commit"), {"role": "Python workers"})
    assert FAULTS["kill_process"].draw(random.Random(1), profile_of("two_phase_commit")) is None


def test_a_topology_that_lacks_a_file_or_has_an_unknown_placeholder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "problems_with", lambda lock: [])
    with pytest.raises(BadInput, match=r"bolt\.py is none"):
        StormSpec.model_validate({**STORM, "resources": ["bolt.py"]}).check()
    with pytest.raises(BadInput, match="topology cannot be read"):
        StormSpec.model_validate({**STORM, "topology": "nowhere.yaml"}).check()
    with pytest.raises(BadInput, match=r"there is no placeholder \{ackers\}"):
        StormSpec.model_validate({**STORM, "variables": {}}).check()
    StormSpec.model_validate(STORM).check()


def test_a_storm_listens_on_loopback_and_asks_for_a_password_of_its_own(tmp_path: Path) -> None:
    ports = storm.Ports(1, 2, 3, 4)
    storm.prepare(tmp_path, ports)
    first = (tmp_path / storm_secured.FILE).read_text()
    told = storm.configuration(tmp_path, ports)
    assert told["storm.thrift.transport"] == storm.TRANSPORT
    assert told["storm.messaging.transport"] == "org.apache.storm.messaging.local.Context"
    assert "clientPortAddress=127.0.0.1" in (tmp_path / "zoo.cfg").read_text()
    assert (tmp_path / storm_secured.FILE).stat().st_mode & 0o777 == 0o600
    storm.prepare(tmp_path, ports)
    assert (tmp_path / storm_secured.FILE).read_text() != first


def test_only_an_application_on_kafka_streams_can_be_reset() -> None:
    flink, streams = (Experiment.model_validate({"job": job, "seed": 1}).profile for job in (FLINK, STREAMS))
    fault = FAULTS["reset_application"]
    fault.check(streams, {})
    assert fault.draw(random.Random(1), streams) is None, "it doubles what was delivered: not for chance"
    with pytest.raises(ValueError, match="reset_application: a job with 'flink_forward' has no tool that resets it"):
        fault.check(flink, {})


def test_a_job_of_one_process_has_no_process_that_could_be_killed_alone() -> None:
    job = {"engine": "command", "command": ["{python}", "pipelines/forward.py"], "promises": "exactly-once"}
    assert "has no workers of its own" in _refusal(job, {"fault": "kill_process"})
    assert "has no workers of its own" in _refusal(job, {"fault": "pause_process"})
    assert Experiment.model_validate({"job": {**job, "instances": 2}, "seed": 1, "faults": [{"fault": "kill_process"}]})


@pytest.mark.parametrize(
    "spec",
    [
        FlinkSpec.model_validate(FLINK),
        KafkaStreamsSpec.model_validate(STREAMS),
        DStreamsSpec.model_validate(DSTREAMS),
        StormSpec.model_validate(STORM),
    ],
    ids=lambda spec: spec.engine,
)
def test_what_is_not_set_up_is_said_before_anything_is_started(spec: OwnJobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_CACHE", str(tmp_path))
    with pytest.raises(
        BadInput, match=f"job: the engine {spec.engine}: the .* jars are not installed. Run: streamproof setup {spec.engine}"
    ):
        spec.check()


def test_an_engine_that_needs_nothing_cannot_be_set_up() -> None:
    with pytest.raises(BadInput, match=r"expected an engine that needs something of its own .*flink.*, came 'spark'"):
        set_up.set_up_engine("spark", print)


@pytest.mark.parametrize("lock", [FlinkSpec, KafkaStreamsSpec, DStreamsSpec, StormSpec])
def test_the_jars_of_an_engine_are_pinned_by_content(lock: type[OwnJobSpec]) -> None:
    assert lock.jars is not None
    jars = install.locked_jars(lock.jars)
    assert all(jar.set.startswith(jars[0].set) for jar in jars), "one set, and what another version has otherwise"
    assert len({jar.coordinate for jar in jars}) == len(jars) > 0


def test_a_script_with_an_unknown_placeholder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "problems_with", lambda lock: [])
    (tmp_path / "job.sql").write_text("INSERT INTO {output_topic} SELECT {{literal}} FROM {nothing}")
    spec = FlinkSpec.model_validate({**FLINK, "sql": str(tmp_path / "job.sql")})
    with pytest.raises(BadInput, match=r"there is no placeholder \{nothing\}"):
        spec.check()
    FlinkSpec.model_validate({**FLINK, "sql": str(tmp_path / "job.sql"), "variables": {"nothing": "t"}}).check()


def test_a_job_manager_goes_on_from_the_newest_checkpoint_that_is_whole(tmp_path: Path) -> None:
    assert restored.newest(tmp_path) is None
    for written, name in enumerate(("chk-2", "chk-10", "savepoint-1"), 1):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_metadata").touch()
        os.utime(tmp_path / name / "_metadata", (written, written))
    (tmp_path / "chk-11").mkdir()
    assert restored.newest(tmp_path) == tmp_path / "savepoint-1"
    assert restored.newest_number(tmp_path) == 10
    (tmp_path / "savepoint-1" / "_metadata").unlink()
    assert restored.newest(tmp_path) == tmp_path / "chk-10"


def test_a_job_beside_begins_once_the_other_has_completed_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chk-4").mkdir()
    monkeypatch.setattr(restored, "LONGEST_S", 0.0)
    with pytest.raises(TimeoutError, match="expected 4 checkpoints of the other job"):
        restored.wait_for(tmp_path)
    (tmp_path / "chk-4" / "_metadata").touch()
    restored.wait_for(tmp_path)


def test_a_savepoint_is_made_of_a_job_on_flink_alone() -> None:
    flink, streams = (Experiment.model_validate({"job": job, "seed": 1}).profile for job in (FLINK, STREAMS))
    fault = FAULTS["stop_with_savepoint"]
    fault.check(flink, {"then": "damage"})
    assert fault.draw(random.Random(1), flink) == {"then": "restore"}
    with pytest.raises(ValueError, match="stop_with_savepoint: a job with 'forward' has no savepoints"):
        fault.check(streams, {})


def test_what_the_user_configures_replaces_what_the_engine_does_and_all_listen_on_loopback(tmp_path: Path) -> None:
    found = cluster.configuration(tmp_path, Ports(1, 2), 2, 2, {"execution.checkpointing.interval": "3 s"})
    assert found["execution.checkpointing.interval"] == "3 s"
    listens = {key: value for key, value in found.items() if key.endswith(("address", "host", "bind-address"))}
    assert len(listens) >= 5
    assert set(listens.values()) == {"127.0.0.1"}
    assert found["web.submit.enable"] == "false"


def test_with_a_standby_there_are_two_job_managers_with_ports_of_their_own_and_a_zookeeper(tmp_path: Path) -> None:
    assert Trait.STANDBY in Experiment.model_validate({"job": {**FLINK, "standby": True}, "seed": 1}).profile.traits
    assert Trait.STANDBY not in Experiment.model_validate({"job": FLINK, "seed": 1}).profile.traits
    ports = Ports(1, 2, 3, 4, 5)
    high_availability.write(tmp_path, tmp_path, ports.zookeeper)
    assert "clientPort=5\nclientPortAddress=127.0.0.1" in (tmp_path / "zoo.cfg").read_text()
    assert (tmp_path / "jaas.conf").stat().st_mode & 0o777 == 0o600
    own = high_availability.settings(tmp_path, "job", ports.zookeeper)
    for folder, its in ((tmp_path, ports), (tmp_path / "standby", ports.of_the_standby)):
        cluster.write(folder, cluster.configuration(tmp_path, its, 2, 2, own))
    assert rest.rpc_ports(tmp_path) == {"job-manager": 1, "job-manager-2": 3}
    found = cluster.members(Program(tmp_path, tmp_path, tmp_path, "job", ["Main"], task_managers=1, standby=True))
    assert [member.role for member in found] == ["zookeeper", Role.COORDINATOR, Role.COORDINATOR, Role.WORKERS]
    assert not any("restored" in word for member in found for word in member.command), "ZooKeeper says what it goes on from"
    assert len({member.environment["FLINK_CONF_DIR"] for member in found if member.role is Role.COORDINATOR}) == 2


def test_the_sql_of_a_job_beside_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "problems_with", lambda lock: [])
    (tmp_path / "job.sql").write_text("INSERT INTO {output_topic} SELECT {nothing}")
    beside = {"sql": str(tmp_path / "job.sql")}
    job = {**FLINK, "variables": {"guarantee": "exactly-once", "discovery": "1 s"}}
    with pytest.raises(BadInput, match=r"job: beside: .*: there is no placeholder \{nothing\}"):
        FlinkSpec.model_validate({**job, "beside": beside}).check()
    FlinkSpec.model_validate({**job, "beside": {**beside, "variables": {"nothing": "t"}}}).check()


def test_a_checkpoint_of_flink_is_a_step_of_the_job() -> None:
    assert windows.is_file("checkpoint")
    assert windows.leaves("checkpoint > EndTxn") == "the checkpoint is complete, the transaction is still open"
    assert windows._of_file(ROOT / "README.md", output=False) is None


@pytest.mark.parametrize("row", ROWS, ids=[row["experiment"] for row in ROWS])
def test_each_row_has_an_experiment_that_can_be_read(row: dict[str, Any]) -> None:
    experiment = load(ROOT / "chaos" / "engines" / f"{row['experiment']}.yaml")
    assert row["engine"] == (experiment.job["engine"] if experiment.job and experiment.job["engine"] != "command" else "spark")
    assert set(row) <= {"row", "engine", "experiment", "expected", "found", "may", "control", "says"}


def test_each_experiment_of_the_folder_has_a_row() -> None:
    files = {path.stem for path in (ROOT / "chaos" / "engines").glob("*.yaml")} - {"rows", "matrix"}
    assert files == {row["experiment"] for row in ROWS}


def test_whoever_speaks_with_flink_needs_the_key_of_its_start(tmp_path: Path) -> None:
    told = secured.settings(tmp_path)
    assert {told[f"security.ssl.{key}"] for key in ("internal.enabled", "rest.enabled", "rest.authentication-enabled")} == {"true"}
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == dict.fromkeys(
        ("flink.p12", "flink.crt", "flink.key"), 0o600
    )
    assert secured.settings(tmp_path) != told, "each start has a key of its own"
    assert secured.context(tmp_path).cert_store_stats()["x509"] == 1, "it trusts this certificate and no other"


def test_each_cell_of_the_matrix_is_an_experiment_that_can_be_run() -> None:
    matrix = yaml.safe_load((ROOT / "chaos" / "engines" / "matrix.yaml").read_text())
    found = list(engine_matrix.cells(matrix))
    assert len(found) >= 100
    for said, document in found:
        if said["seed"] == matrix["seeds"][0]:
            assert plan(Experiment.model_validate(document)).injections, said
    assert {said["engine"] for said, _ in engine_matrix.cells(matrix, ["flink"])} == {"Flink"}


def test_the_matrix_shows_the_median_and_where_they_differ_the_spread() -> None:
    cell = {"engine": "Flink", "guarantee": "exactly-once", "fault": "latency", "outcome": "PASSED", "lost": 0, "longest_gap_s": 2.5}
    runs = [{**cell, "seed": seed, "duplicated": count, "first_output_s": None} for seed, count in enumerate((0, 7, 40))]
    assert (
        engine_matrix.table(runs).splitlines()[-1] == "| Flink | exactly-once | latency | 3 | PASSED | 0 | 7 (0 to 40) | – | 2.5 | – | – |"
    )


def test_the_page_of_the_matrix_keeps_what_was_written_around_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(engine_matrix, "PAGE", page)
    page.write_text(f"before\n{engine_matrix.BEGIN}\nan older table\n{engine_matrix.END}\nafter\n")
    run = {"engine": "Flink", "guarantee": "exactly-once", "fault": "latency", "seed": 1, "outcome": "PASSED", "longest_gap_s": 2.5}
    engine_matrix.write_page([run])
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| Flink | exactly-once | latency | 1 | PASSED |" in text
    assert "older" not in text
    assert "Flink, exactly-once" in (tmp_path / "page.svg").read_text()
    page.write_text("no place")
    with pytest.raises(ValueError, match="expected <!-- measured"):
        engine_matrix.write_page([run])
