"""The embedded testbed is what it says: real components, on loopback, found by role, started again when one dies, gone when told to."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from streamproof import settings
from streamproof.engines.spark import settings as spark_settings
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.kafka.asking import RETRIABLE
from streamproof.testbed import embedded, hosts, install, kafka, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.listeners import SPARK_RPC, listening_sockets
from streamproof.testbed.process import MARK, Handle, TestbedError, command_line, free_port, marked, remembered, wait_until
from streamproof.testbed.toxiproxy import Proxies, kafka_round_trip_ms
from tests.integration.conftest import Prepare
from tests.support.checkout import ROOT
from tests.support.listening import asked_without_a_secret, is_loopback

PROXY = "kafka-driver"
ROLES = ("kafka", "postgres", "toxiproxy", "spark-master", "spark-worker-1", "spark-worker-2")
ALL_UP = dict.fromkeys(ROLES, "up")

# A small job whose tasks last until they are killed.
JOB = """
import json, sys, time
from pyspark.sql import SparkSession
order = json.loads(sys.argv[1])
builder = SparkSession.builder.appName("test").master(order["master"])
for key, value in order["settings"].items():
    builder = builder.config(key, value)
context = builder.getOrCreate().sparkContext
print(json.dumps({"application": context.applicationId, "ui": context.uiWebUrl}), flush=True)
context.parallelize(range(4), 4).foreach(lambda number: time.sleep(600))
"""


def _handles() -> dict[str, Handle]:
    found = {role: remembered(role, embedded.folder()) for role in ROLES}
    return {role: handle for role, handle in found.items() if handle is not None}


# --- as a whole ---------------------------------------------------------------------------------------------------------------------


def test_every_component_is_up_under_its_role(testbed: Testbed) -> None:
    assert embedded.status() == ALL_UP
    assert embedded.current() == testbed
    assert set(_handles()) == set(ROLES)


def test_everything_listens_on_loopback_only(testbed: Testbed) -> None:
    addresses = [(at.process.name(), at.host) for at in listening_sockets(marked())]
    assert len(addresses) >= 14, "Kafka's four listeners, Toxiproxy's four, and two of each of Spark's daemons"
    assert [found for found in addresses if not is_loopback(found[1])] == []


def test_up_again_starts_nothing_and_says_the_same(testbed: Testbed) -> None:
    before = _handles()
    assert embedded.up() == testbed
    assert _handles() == before


def test_several_who_ask_at_once_get_the_same_testbed(testbed: Testbed) -> None:
    before = _handles()
    command = [sys.executable, "-c", "from streamproof.testbed import embedded; print(embedded.up())"]
    asking = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    assert {process.communicate(timeout=60)[0].strip() for process in asking} == {repr(testbed)}
    assert _handles() == before


@pytest.fixture
def other_home() -> Iterator[Path]:
    """Another state folder; whatever is started there is ended, also when a test fails."""
    folder = Path(tempfile.mkdtemp(prefix="streamproof-other-")).resolve()
    try:
        yield folder
    finally:
        for process in _marked(folder):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _marked(home: Path) -> list[psutil.Process]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMPROOF_HOME", str(home))
        return marked()


def test_down_leaves_nothing_of_a_start_that_was_killed(home: Path, other_home: Path) -> None:
    environment = {**os.environ, "STREAMPROOF_HOME": str(other_home)}
    command = [sys.executable, "-m", "streamproof.cli.main", "testbed"]
    starting = subprocess.Popen([*command, "up"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_until("the first components to be started", lambda: len(_marked(other_home)) >= 2, 30, poll_s=0.01)
    finally:
        starting.send_signal(signal.SIGKILL)
        starting.wait(10)
    assert _marked(other_home), "the components outlive who started them"
    down = subprocess.run([*command, "down"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert down.returncode == 0, down.stderr
    assert _marked(other_home) == []
    assert not (other_home / "testbed").exists()


# --- Kafka --------------------------------------------------------------------------------------------------------------------------


def test_a_topic_has_the_partitions_that_were_asked_for_and_grows(cluster: Cluster, topic: str) -> None:
    assert cluster.partitions(topic) == 2
    cluster.add_partitions(topic, 5)
    assert cluster.partitions(topic) == 5
    assert cluster.end_offsets(topic) == dict.fromkeys(range(5), 0), "also in the moment before the broker leads them"
    for count in range(6, 26):
        cluster.add_partitions(topic, count)
        assert cluster.end_offsets(topic) == dict.fromkeys(range(count), 0)


def test_a_broker_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "REQUEST_S", 0.5)
    monkeypatch.setattr(kafka, "PATIENCE_S", 0.5)
    nobody = Cluster(f"127.0.0.1:{free_port()}")
    with pytest.raises(TestbedError, match="no answer about topic some"):
        nobody.wait_for_partitions("some", 1)
    with pytest.raises(TestbedError, match="no answer about the offsets of topic some"):
        nobody.end_offsets("some")
    with pytest.raises(TestbedError, match="no answer about the coordinator of group some"):
        nobody.coordinator("group", "some")


def test_the_errors_after_which_kafka_is_asked_again_are_those_that_it_calls_retriable() -> None:
    """As the brokers' own jar writes them for Kafka's documentation."""
    jars = settings.cache() / "jars" / "kafka"
    command = [str(install.java_executable()), "-cp", f"{jars}/*", "org.apache.kafka.common.protocol.Errors"]
    page = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    rows = re.findall(r"<td>([A-Z_]+)</td>\s*<td>(-?\d+)</td>\s*<td>(True|False)</td>", page)
    assert len(rows) > 100
    assert {int(code): name for name, code, again in rows if again == "True"} == RETRIABLE


def test_what_kafka_refuses_is_an_error_that_says_why(cluster: Cluster, topic: str) -> None:
    with pytest.raises(TestbedError, match=f"topic {topic} could not be created.*already exists"):
        cluster.create_topics({topic: 1})
    with pytest.raises(TestbedError, match=f"topic {topic} could not be grown to 1 partitions"):
        cluster.add_partitions(topic, 1)


def test_a_topic_that_is_not_there_has_no_partition_and_deleting_it_does_nothing(cluster: Cluster) -> None:
    assert cluster.partitions("no-such-topic") == 0
    assert cluster.end_offsets("no-such-topic") == {}
    cluster.delete_topics(["no-such-topic"])


def test_an_open_transaction_holds_the_stable_end_back(cluster: Cluster, topic: str, prepare: Prepare) -> None:
    from streamproof.kafka.transactions import Coordinator

    name = prepare(topic, records=4)
    try:
        assert cluster.end_offsets(topic) == {0: 2, 1: 2}
        assert cluster.end_offsets(topic, committed=True) == {0: 0, 1: 0}
    finally:
        with Coordinator(cluster.bootstrap) as coordinator:
            coordinator.commit(coordinator.ongoing(name))
    wait_until("the markers", lambda: cluster.end_offsets(topic, committed=True) == {0: 3, 1: 3}, 10)


def test_whoever_comes_through_a_proxy_stays_behind_it(testbed: Testbed) -> None:
    from confluent_kafka.admin import AdminClient

    assert testbed.driver_kafka != testbed.executors_kafka
    for address in (testbed.driver_kafka, testbed.executors_kafka):
        metadata = AdminClient({"bootstrap.servers": address}).list_topics(timeout=10)
        assert {f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()} == {address}


# --- Toxiproxy ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxies(testbed: Testbed) -> Iterator[Proxies]:
    yield testbed.proxies
    testbed.proxies.reset(PROXY)


def test_a_toxic_reads_back_until_it_is_reset(proxies: Proxies) -> None:
    proxies.add(PROXY, "slow", "latency", "downstream", {"latency": 40, "jitter": 0})
    proxies.add(PROXY, "narrow", "bandwidth", "upstream", {"rate": 1000})
    assert proxies.toxics(PROXY) == {"slow": {"latency": 40, "jitter": 0}, "narrow": {"rate": 1000}}
    assert sorted(proxies.reset(PROXY)) == ["narrow", "slow"]
    assert proxies.toxics(PROXY) == {}
    assert proxies.reset(PROXY) == []


def test_a_proxy_that_was_disabled_is_enabled_by_a_reset(testbed: Testbed, proxies: Proxies) -> None:
    proxies._proxy(PROXY).disable()
    assert embedded.status()["toxiproxy"] == "its proxy of kafka-driver is down"
    proxies.reset(PROXY)
    assert embedded.status() == ALL_UP


def test_making_a_proxy_again_keeps_its_toxics(testbed: Testbed, proxies: Proxies) -> None:
    proxies.add(PROXY, "slow", "latency", "downstream", {"latency": 1})
    proxies.ensure(PROXY, testbed.driver_kafka, f"127.0.0.1:{testbed.kafka[0].driver}")
    assert list(proxies.toxics(PROXY)) == ["slow"]


def test_an_attribute_that_is_not_understood_is_noticed_when_it_is_read_back(proxies: Proxies) -> None:
    with pytest.raises(TestbedError, match=r"was asked for with \{'latncy': 5\}, but reads back as"):
        proxies.add(PROXY, "slow", "latency", "downstream", {"latncy": 5})


@pytest.mark.parametrize(
    ("kind", "stream", "told"),
    [
        ("nonsense", "downstream", "invalid toxic type"),
        ("latency", "sideways", "stream was invalid"),
        ("latency", "upstream", "already exists"),
    ],
)
def test_a_toxic_that_is_refused_is_an_error_that_says_why(proxies: Proxies, kind: str, stream: str, told: str) -> None:
    proxies.add(PROXY, "taken", "latency", "upstream", {"latency": 1})
    with pytest.raises(TestbedError, match=told):
        proxies.add(PROXY, "taken", kind, stream, {"latency": 5})


@pytest.mark.parametrize("attributes", [{"latency": -5}, {"latency": 5, "jitter": -1}])
def test_a_negative_attribute_is_refused_and_nothing_is_added(proxies: Proxies, attributes: dict[str, int]) -> None:
    with pytest.raises(TestbedError, match=r"-\d}, expected 0 or more"):
        proxies.add(PROXY, "slow", "latency", "downstream", attributes)
    assert proxies.toxics(PROXY) == {}


def test_a_toxic_that_another_removed_is_an_error_except_to_a_reset(proxies: Proxies) -> None:
    with pytest.raises(TestbedError, match=r"no such thing: .*toxic not found"):
        proxies._proxy(PROXY).destroy_toxic("slow")
    for number in range(20):
        proxies.add(PROXY, f"slow-{number}", "latency", "downstream", {"latency": 1})
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(proxies.reset, PROXY) for _ in range(4)]:
            each.result()
    assert proxies.toxics(PROXY) == {}


def test_a_proxy_or_a_server_that_is_not_there_is_an_error(testbed: Testbed) -> None:
    with pytest.raises(TestbedError, match="has no proxy 'nowhere'"):
        testbed.proxies.toxics("nowhere")
    with pytest.raises(TestbedError, match="toxiproxy does not answer"):
        Proxies(free_port()).toxics(PROXY)


def test_a_latency_toxic_slows_a_probe_through_the_proxy_and_not_beside_it(testbed: Testbed, proxies: Proxies) -> None:
    before = kafka_round_trip_ms(testbed.driver_kafka)
    proxies.add(PROXY, "slow", "latency", "downstream", {"latency": 200})
    assert kafka_round_trip_ms(testbed.driver_kafka) >= before + 180
    assert kafka_round_trip_ms(testbed.direct_kafka) < 200
    assert kafka_round_trip_ms(testbed.executors_kafka) < 200, "the executors have a proxy of their own"
    proxies.reset(PROXY)
    assert kafka_round_trip_ms(testbed.driver_kafka) < 200


def test_a_probe_that_is_not_answered_is_an_error(testbed: Testbed, proxies: Proxies) -> None:
    proxies.add(PROXY, "black-hole", "timeout", "downstream", {"timeout": 0})
    with pytest.raises(TestbedError, match=r"did not answer a probe: .*timed out"):
        kafka_round_trip_ms(testbed.driver_kafka, timeout_s=0.3)
    with pytest.raises(TestbedError, match="did not answer a probe"):
        kafka_round_trip_ms(f"127.0.0.1:{free_port()}")


# --- Spark --------------------------------------------------------------------------------------------------------------------------


def test_the_master_has_two_workers_on_hosts_of_their_own(testbed: Testbed) -> None:
    state = spark.master_state(testbed.spark.master_ui)
    alive = {worker["host"] for worker in state["workers"] if worker["state"] == "ALIVE"}
    assert (state["status"], alive) == ("ALIVE", {"127.0.0.2", "127.0.0.3"})


def test_a_master_that_does_not_answer_is_an_error_and_has_no_worker(testbed: Testbed) -> None:
    port = free_port()
    with pytest.raises(TestbedError, match="spark-master does not answer"):
        spark.master_state(port)
    assert not spark.registered(replace(testbed.spark, master_ui=port))


LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n%ex
"""


def _orders(testbed: Testbed, folder: Path, *java_options: str) -> str:
    """What Spark's own client for submitted drivers logs, run as somebody on this machine would run it."""
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    flags = ["-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{spark.spark_home()}/jars/*", *java_options]
    client = ["org.apache.spark.deploy.Client", "--verbose", "kill", testbed.spark_master, "driver-nope"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [str(install.java_executable()), *flags, *client]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment).stdout


def test_the_master_takes_orders_only_from_a_client_that_knows_the_secret(testbed: Testbed, tmp_path: Path) -> None:
    secret_file = spark.secret_file(Path(testbed.folder))
    secret = secret_file.read_text().split()[-1]
    answer = "driver-nope has already finished or does not exist"
    assert answer in _orders(testbed, tmp_path, "-Dspark.authenticate=true", f"-Dspark.authenticate.secret={secret}")
    assert answer not in _orders(testbed, tmp_path)
    assert answer not in _orders(testbed, tmp_path, "-Dspark.authenticate=true", "-Dspark.authenticate.secret=guessed")
    rpc = [("127.0.0.1", testbed.spark.master), *((hosts.of_worker(role), port) for role, port in testbed.spark.workers.items())]
    assert {asked_without_a_secret(*address) for address in rpc} == {SPARK_RPC}
    assert stat.S_IMODE(secret_file.stat().st_mode) == 0o600
    assert 6066 not in {at.port for at in listening_sockets(marked())}, "Spark's REST server would take jobs without asking"
    assert [process.pid for process in marked() if secret in " ".join(command_line(process))] == []


def test_an_application_that_the_master_does_not_know_is_an_error(testbed: Testbed) -> None:
    with pytest.raises(TestbedError, match="spark-master knows no application app-nope"):
        spark.application_executors(testbed.spark.master_ui, "app-nope")
    assert spark.executor_processes("app-nope") == {}


@pytest.fixture
def job(testbed: Testbed, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A small Spark job: its application's id and the address of its UI."""
    settings_of_spark = spark_settings.of_run(tmp_path, STRATEGIES["checkpoint"], state=None)
    order = json.dumps({"master": testbed.spark_master, "settings": settings_of_spark})
    environment = spark.driver_environment(testbed.spark_properties)
    with (tmp_path / "job.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-c", JOB, order], stdout=subprocess.PIPE, stderr=log, env=environment, cwd=tmp_path, start_new_session=True
        )
    try:
        assert driver.stdout is not None
        line = driver.stdout.readline()
        assert line, (tmp_path / "job.log").read_text()
        yield json.loads(line)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate(timeout=10)


def test_an_executor_with_a_running_task_is_found_by_role_and_the_master_sees_it_die(testbed: Testbed, job: dict[str, Any]) -> None:
    application, ui = job["application"], testbed.spark.master_ui

    def busy() -> list[str]:
        with contextlib.suppress(TestbedError):
            return [
                found["id"]
                for found in spark.driver_executors(job["ui"], application)
                if found["isActive"] and found["activeTasks"] and found["id"] != "driver"
            ]
        return []

    wait_until("two executors with running tasks", lambda: len(busy()) == 2, 60)
    workers = {_handles()[role].pid for role in ROLES if "worker" in role}
    processes = spark.executor_processes(application)
    assert {each.ppid() for each in processes.values()} == workers, "they are the workers' children, not executors' children"
    assert set(processes) == set(busy())
    assert {number: spark.application_executors(ui, application)[number] for number in processes} == dict.fromkeys(processes, "RUNNING")

    victim, process = next(iter(processes.items()))
    process.send_signal(signal.SIGKILL)
    wait_until("the master to drop it", lambda: spark.application_executors(ui, application).get(victim) != "RUNNING", 30)
    wait_until("its process to be gone", lambda: victim not in spark.executor_processes(application), 10)
    wait_until("the driver to see it die", lambda: victim not in busy(), 30)


def test_an_executor_is_not_taken_for_a_child_that_it_forks(home: Path) -> None:
    code = "import os, time; print(os.fork(), flush=True); time.sleep(600)"
    words = ["org.apache.spark.executor.CoarseGrainedExecutorBackend", "--app-id", "app-test", "--executor-id", "7"]
    environment = {**os.environ, MARK: str(settings.home())}
    executor = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, env=environment, start_new_session=True)
    try:
        assert executor.stdout is not None
        assert executor.stdout.readline()
        assert executor.stdout.readline()
        assert spark.executor_processes("app-test")["7"].pid == executor.pid
    finally:
        os.killpg(executor.pid, signal.SIGKILL)
        executor.communicate(timeout=10)


def test_a_job_that_was_killed_leaves_no_executor(testbed: Testbed, job: dict[str, Any]) -> None:
    wait_until("an executor", lambda: bool(spark.executor_processes(job["application"])), 60)
    (driver,) = [process for process in marked() if JOB in command_line(process)]
    driver.kill()
    for child in [process for process in marked() if "org.apache.spark.deploy.SparkSubmit" in command_line(process)]:
        child.kill()
    wait_until("its executors to be gone", lambda: not spark.executor_processes(job["application"]), 30)


# --- when a component dies ----------------------------------------------------------------------------------------------------------


def test_components_that_die_are_told_and_started_again_and_kafka_keeps_its_records(testbed: Testbed, cluster: Cluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": testbed.direct_kafka})
    producer.produce(topic, b"kept", partition=0)
    assert producer.flush(10) == 0
    before, expected = _handles(), dict(ALL_UP)
    for role, handle in before.items():
        os.kill(handle.pid, signal.SIGKILL)
        wait_until(f"{role} to be gone", lambda handle=handle: not handle.alive, 10)  # type: ignore[misc]
        expected[role] = "down"
        assert embedded.status() == expected
        with pytest.raises(TestbedError, match=f"the testbed is damaged, .*{role}.* not up"):
            embedded.current()
    assert embedded.up() == testbed
    assert embedded.status() == ALL_UP
    assert all(handle.pid != before[role].pid for role, handle in _handles().items())
    assert spark.registered(testbed.spark)
    assert cluster.end_offsets(topic) == {0: 1, 1: 0}
    assert kafka_round_trip_ms(testbed.driver_kafka) < 1000


@pytest.mark.parametrize("role", ROLES)
def test_who_starts_the_testbed_just_as_a_component_is_killed_gets_a_whole_one(testbed: Testbed, role: str) -> None:
    before = _handles()[role]
    os.kill(before.pid, signal.SIGKILL)
    assert not before.alive, "from the moment on that it is killed"
    assert embedded.up() == testbed
    assert embedded.status() == ALL_UP
    assert _handles()[role].pid != before.pid
    assert spark.registered(testbed.spark)
