"""An external Kafka: its file says where it is and what may be broken there; what would break more is refused beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from streamproof.errors import BadInput
from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment, load
from streamproof.faults import FAULTS
from streamproof.faults.network import kafka_link
from streamproof.testbed import chosen, embedded, external, external_spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.external import AllowedProxies, External
from streamproof.testbed.process import FreePorts, TestbedError

KAFKA = {"direct": "far:9092", "driver": "near:1,near:2", "executors": "near:3"}
MAY_BREAK: dict[str, Any] = {"toxiproxy": "near:8474", "driver": ["d1", "d2"], "executors": ["e"]}


def experiment(*faults: dict[str, Any], may_break: dict[str, Any] = MAY_BREAK, **fields: Any) -> Experiment:
    outside = {"testbed": "external", "external": {"kafka": KAFKA, "may_break": may_break}}
    return Experiment.model_validate({"strategy": "two_phase_commit", **outside, "faults": list(faults), "seed": 1, **fields})


def _here() -> Testbed:
    return embedded._plan(1, FreePorts())


def test_the_job_is_told_the_addresses_of_the_file_and_the_proxies_are_those_that_may_be_broken(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.experiment.write_text(experiment().to_yaml())
    here = _here()
    found = chosen.of(folder, here)
    assert (found.direct_kafka, found.driver_kafka, found.executors_kafka) == ("far:9092", "near:1,near:2", "near:3")
    assert found.links == {"postgres": here.links["postgres"], "d1": "near:1", "d2": "near:2", "e": "near:3"}
    assert (found.kafka_proxies(), found.kafka_proxies("driver"), found.kafka_proxies("executors")) == (
        ["d1", "d2", "e"],
        ["d1", "d2"],
        ["e"],
    )
    assert found.kafka_links() == {name: address for name, address in found.links.items() if name != "postgres"}
    assert (found.spark_master, found.pipeline_postgres) == (here.spark_master, here.pipeline_postgres)


def test_a_way_on_which_nothing_may_be_broken_can_still_be_probed(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.experiment.write_text(experiment(may_break={"toxiproxy": "near:8474", "executors": ["e"]}).to_yaml())
    found = chosen.of(folder, _here())
    assert set(found.links) == {"postgres", "e"}
    assert found.kafka_links() == {"near:1": "near:1", "near:2": "near:2", "e": "near:3"}
    assert kafka_link.spared(found, "executors") == {"near:1": "near:1", "near:2": "near:2"}


def test_another_run_uses_the_embedded_one(tmp_path: Path) -> None:
    folder, here = RunFolder.create(tmp_path / "run"), _here()
    assert chosen.of(folder, here) == here
    folder.experiment.write_text(Experiment(strategy="checkpoint").to_yaml())
    assert chosen.of(folder, here) == here


@pytest.mark.parametrize("names", [{}, MAY_BREAK])
def test_a_proxy_that_is_not_on_the_list_cannot_even_be_looked_at(names: dict[str, Any]) -> None:
    external = External.model_validate({"kafka": KAFKA, "may_break": names})
    with pytest.raises(TestbedError, match="proxy 'kafka-driver' is not one of those that may be broken"):
        AllowedProxies(1, external).reset("kafka-driver")


@pytest.mark.parametrize(
    "fault", [{"fault": "kill_driver"}, {"fault": "kill_executor"}, {"fault": "crash_at_step"}, {"fault": "add_partitions"}]
)
def test_what_breaks_nothing_of_kafka_but_the_runs_own_topics_is_always_allowed(fault: dict[str, Any]) -> None:
    assert experiment(fault, may_break={}).faults


def test_a_fault_on_the_network_breaks_what_is_on_the_list_and_no_more() -> None:
    executors = {"toxiproxy": "near:8474", "executors": ["e"]}
    assert experiment({"fault": "cut_kafka", "parameters": {"role": "executors"}}, may_break=executors).faults
    for role, missing in (("driver", "driver"), ("pipeline", "driver")):
        with pytest.raises(ValidationError, match=f"cut_kafka: it breaks the link of {missing} to Kafka, and .* names no proxy there"):
            experiment({"fault": "cut_kafka", "parameters": {"role": role}}, may_break=executors)
    with pytest.raises(ValidationError, match="network_latency: it breaks the link of driver and executors"):
        experiment({"fault": "network_latency"}, may_break={})


@pytest.mark.parametrize("fault", ["kill_kafka", "pause_kafka"])
def test_a_server_that_was_not_started_here_is_not_broken(fault: str) -> None:
    with pytest.raises(ValidationError, match=f"{fault}: it needs a Kafka that was started here, not an external one"):
        experiment({"fault": fault})


def test_a_fault_that_does_not_say_what_it_breaks_is_refused() -> None:
    silent = [name for name, fault in FAULTS.items() if fault.least_brokers == 3]
    assert all(FAULTS[name].outside(FAULTS[name].parameters_model()) is None for name in silent)


@pytest.mark.parametrize(
    ("may_break", "said"),
    [
        ({"driver": ["d1", "d2"]}, "d1, d2 may be broken, but at which `toxiproxy`"),
        ({"toxiproxy": "near:1", "driver": ["d1"]}, "expected the proxy of each of near:1, near:2, came d1"),
        ({"toxiproxy": "near:1", "executors": ["postgres"]}, "none of them 'postgres'"),
        ({"toxiproxy": "near:1", "driver": ["e", "d"], "executors": ["e"]}, "expected different names"),
        ({"toxiproxy": "near"}, "toxiproxy"),
        ({"proxies": ["e"]}, "proxies"),
    ],
)
def test_an_allow_list_that_cannot_be_meant_is_refused(may_break: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        experiment(may_break=may_break)


def test_the_addresses_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "kafka.yaml").write_text(yaml.safe_dump({"kafka": KAFKA, "may_break": MAY_BREAK}))
    found = experiment(external=str(tmp_path / "kafka.yaml"))
    assert found == experiment()
    (tmp_path / "again.yaml").write_text(found.to_yaml())
    assert load(tmp_path / "again.yaml") == found
    (tmp_path / "none.yaml").write_text("strategy: checkpoint\ntestbed: external\nexternal: nowhere.yaml\n")
    with pytest.raises(BadInput, match=r"external: nowhere\.yaml cannot be read"):
        load(tmp_path / "none.yaml")


def test_addresses_and_the_choice_of_the_testbed_belong_together() -> None:
    for fields in ({"testbed": "embedded"}, {"external": None}):
        with pytest.raises(ValidationError, match="belong together"):
            experiment(**fields)
    with pytest.raises(ValidationError, match="not for the experiment to say"):
        experiment(brokers=3)


POSTGRES = {
    "direct": "db.example:5432",
    "pipeline": "p.example:5433",
    "database": "app",
    "ca": "ca.pem",
    "credentials": {"environment": {"username": "PG_USER", "password": "PG_PASSWORD"}},
}


def test_a_fault_on_an_external_postgres_needs_a_proxy_that_may_be_broken() -> None:
    without = External.model_validate({"postgres": POSTGRES})
    assert "names no proxy there" in str(without.refusal(frozenset({"postgres"})))
    assert "started here" in str(without.refusal(frozenset({embedded.POSTGRES_SERVER})))
    assert "started here" in str(without.refusal(None))
    assert without.refusal(frozenset({"driver", "executors"})) is None, "Kafka is the embedded one"
    allowed = External.model_validate({"postgres": POSTGRES, "may_break": {"toxiproxy": "p.example:8474", "postgres": "theirs"}})
    assert allowed.refusal(frozenset({"postgres"})) is None


def test_something_at_least_runs_elsewhere() -> None:
    with pytest.raises(ValidationError, match="what runs elsewhere"):
        External.model_validate({})
    with pytest.raises(ValidationError, match=r"may_break\.postgres: theirs leads to which `postgres`"):
        External.model_validate({"kafka": KAFKA, "may_break": {"toxiproxy": "p.example:8474", "postgres": "theirs"}})


def test_an_external_postgres_takes_the_place_of_the_embedded_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    monkeypatch.setenv("PG_USER", "me")
    monkeypatch.setenv("PG_PASSWORD", "a:b\\c")
    (tmp_path / "ca.pem").touch()
    described = {
        "postgres": {**POSTGRES, "ca": str(tmp_path / "ca.pem")},
        "may_break": {"toxiproxy": "p.example:8474", "postgres": "theirs"},
    }
    here = _here()
    found = external.outside(here, External.model_validate(described), "a-run")
    assert found.links["postgres"] == "p.example:5433"
    assert found.kafka_links() == here.kafka_links()
    assert "sslmode=verify-full" in found.pipeline_postgres
    assert "host=p.example port=5433 dbname=app user=me" in found.pipeline_postgres
    assert Path(found.pipeline_server.passfile).read_text() == "*:*:*:me:a\\:b\\\\c\n"
    assert found.pipeline_server.jdbc("sp-run").startswith(
        "jdbc:postgresql://p.example:5433/app?user=me&currentSchema=sp-run&sslmode=verify-full"
    )
    assert "b\\c" not in found.pipeline_postgres + found.direct_postgres


SPARK = {"master": "spark://far.example:7077", "ui": "far.example:8080"}


def test_a_fault_on_executors_that_are_on_another_machine_is_refused() -> None:
    workers = {"worker-1": "192.0.2.7", "worker-2": "127.0.0.1"}
    assert external_spark.refusal("far.example:8080", workers, None) is None
    assert external_spark.refusal("far.example:8080", {"worker-2": "127.0.0.1"}, "kill_executor") is None
    refused = external_spark.refusal("far.example:8080", workers, "kill_executor")
    assert "kill_executor: it needs the executors on this machine, and the external Spark has workers on 192.0.2.7," in str(refused)
    assert "counts no worker as alive" in str(external_spark.refusal("far.example:8080", {}, None))


@pytest.mark.parametrize("fault", ["kill_master", "kill_worker", "pause_worker"])
def test_a_fault_on_the_processes_of_an_external_spark_is_refused(fault: str) -> None:
    described = {"strategy": "checkpoint", "testbed": "external", "external": {"spark": SPARK}, "seed": 1}
    with pytest.raises(ValidationError, match="it needs a Spark that was started here"):
        Experiment.model_validate({**described, "faults": [{"fault": fault, "at": 0.4}]})
    Experiment.model_validate({**described, "faults": [{"fault": "kill_executor", "at": 0.4}, {"fault": "kill_kafka", "at": 0.6}]})


def test_the_properties_of_an_external_spark_are_their_owners_only(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("spark.authenticate.secret x")
    file.chmod(0o644)
    found = external.outside(_here(), External.model_validate({"spark": {**SPARK, "properties": str(file)}}), "a-run")
    assert (found.spark_master, found.spark_ui) == ("spark://far.example:7077", "far.example:8080")
    with pytest.raises(TestbedError, match="others can read"):
        _ = found.spark_properties
    file.chmod(0o600)
    assert found.spark_properties == file
