"""A secured Kafka: every kind of client gets in, by password and by certificate; what is missing is said, and not what is there."""

from __future__ import annotations

import hashlib
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from streamproof.kafka import login, servers
from streamproof.kafka.librdkafka import TransactionalProducer
from streamproof.kafka.login import LoginRefused
from streamproof.kafka.servers import Servers, librdkafka
from streamproof.kafka.transactions import Coordinator
from streamproof.sinks.kafka.fetch import Fetcher
from streamproof.testbed import credentials, probes, reached, rights
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.external import External, Outside
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError, free_port
from streamproof.testbed.rights import PREFIX, RIGHTS, Right
from streamproof.testbed.toxiproxy import kafka_round_trip_ms
from tests.support.secured import CLIENT, USER, Authority, Secured, secured

VARIABLES = {"environment": {"username": "SECURED_USER", "password": "SECURED_PASSWORD"}}
BY_PASSWORD, BY_CERTIFICATE = f"User:{USER}", f"User:CN={CLIENT}"
RESOURCES = {"Topic": "TOPIC", "Group": "GROUP", "TransactionalId": "TRANSACTIONAL_ID"}


@pytest.fixture(scope="module")
def kafka(home: Path) -> Iterator[Secured]:
    with secured() as started:
        yield started


@pytest.fixture(autouse=True)
def _logged_in(kafka: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURED_USER", USER)
    monkeypatch.setenv("SECURED_PASSWORD", kafka.password)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.node.name
    credentials.forget(request.node.name)


def allow(kafka: Secured, *allowed: Right) -> None:
    """Give both users just these rights."""
    kafka.allow_nothing()
    for user in (BY_PASSWORD, BY_CERTIFICATE):
        for right in allowed:
            kafka.allow(user, RESOURCES[right.resource], PREFIX, True, right.operation.upper())


def outside(described: dict[str, Any], run: str) -> Outside:
    """The testbed of such a run; nothing of the embedded one is asked for."""
    nothing: Any = None
    return Outside("", (), nothing, 0, nothing, External.model_validate(described), run)


@pytest.mark.parametrize("mutual", [False, True], ids=["password", "certificate"])
def test_every_kind_of_client_gets_in(kafka: Secured, run: str, mutual: bool) -> None:
    allow(kafka, *RIGHTS)
    refused = len(kafka.refused())
    there = outside(kafka.described(VARIABLES, mutual=mutual), run)
    reached.check(there)
    rights.require(there.direct_kafka, "clients", transactions=True)
    topic, address = f"{PREFIX}clients-{mutual}".lower(), there.driver_kafka
    cluster = Cluster(address)
    cluster.create_topics({topic: 1})
    producer: Producer = Producer(librdkafka(address))
    producer.produce(topic, value=b"sent")
    assert producer.flush(10) == 0
    with TransactionalProducer({**librdkafka(address), "transactional.id": f"{PREFIX}clients.{mutual}"}) as transactional:
        transactional.init_transactions(10)
    with Coordinator(address) as coordinator:
        assert coordinator.ongoing(PREFIX) == []
    consumer: Consumer = Consumer({**librdkafka(address), "group.id": f"{PREFIX}clients"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(10)
    assert message is not None
    assert message.value() == b"sent"
    consumer.close()
    with Fetcher(cluster, topic, cluster.end_offsets(topic)) as fetcher:
        (piece,) = (piece for piece in fetcher.pieces(float("inf")) if not fetcher.advance(0, 1))
        assert b"sent" in piece.data.tobytes()
    assert kafka_round_trip_ms(address) > 0
    with probes.kafka_echo(address) as echo:
        echo(5000)
    with probes.kafka_echo(address) as echo:
        kafka.proxies.add("mutual-driver" if mutual else "kafka-driver", "slow", "latency", "downstream", {"latency": 200})
        try:
            assert probes.seconds(echo, 1)[0] >= 0.2
        finally:
            kafka.proxies.reset("mutual-driver" if mutual else "kafka-driver")
    cluster.delete_topics([topic])
    assert kafka.refused()[refused:] == []


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: right.name)
def test_a_right_that_is_missing_is_named(kafka: Secured, run: str, right: Right) -> None:
    allow(kafka, *(other for other in RIGHTS if other != right))
    there = outside(kafka.described(VARIABLES), run)
    with pytest.raises(TestbedError) as refused:
        rights.require(there.direct_kafka, "missing", transactions=True)
    assert f"has no right to {right.operation} on {right.resource} sp-*. Give it this right" in str(refused.value)
    assert kafka.cluster().topics() == [], "what was made to ask is gone"


def test_a_job_without_transactions_needs_no_right_to_them(kafka: Secured, run: str) -> None:
    allow(kafka, *(right for right in RIGHTS if not right.transactions))
    rights.require(outside(kafka.described(VARIABLES), run).direct_kafka, "without", transactions=False)


def test_a_name_that_the_certificate_does_not_hold_is_named(kafka: Secured, run: str) -> None:
    port = free_port()
    kafka.proxies.ensure("elsewhere", f"127.0.0.2:{port}", f"127.0.0.1:{kafka.ports['driver']}")
    try:
        described = kafka.described(VARIABLES)
        described["kafka"]["driver"] = f"127.0.0.2:{port}"
        with pytest.raises(TestbedError, match=r"driver: 127\.0\.0\.2:\d+: the certificate there does not hold this name .*subjectAltName"):
            reached.check(outside(described, run))
    finally:
        kafka.proxies.destroy("elsewhere")


def test_a_listener_that_leads_round_the_proxy_is_named(kafka: Secured, run: str) -> None:
    allow(kafka, *RIGHTS)
    described = kafka.described(VARIABLES)
    described["kafka"]["driver"] = f"127.0.0.1:{kafka.ports['driver']}"  # the listener itself, and not its proxy
    with pytest.raises(TestbedError, match=rf"\(driver\) is sent on to {kafka.address('driver')}, round the proxies"):
        reached.check(outside(described, run))


def test_an_authority_that_did_not_issue_the_certificate_is_named(kafka: Secured, run: str, tmp_path: Path) -> None:
    described = kafka.described(VARIABLES)
    described["kafka"]["tls"]["ca"] = str(Authority(tmp_path).file)
    with pytest.raises(TestbedError, match="the certificate there cannot be trusted"):
        reached.check(outside(described, run))


def test_a_wrong_password_is_refused_and_not_shown(kafka: Secured, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURED_PASSWORD", "another-password")
    with pytest.raises(TestbedError, match="refuses the login") as refused:
        reached.check(outside(kafka.described(VARIABLES), run))
    assert "another-password" not in str(refused.value)


def test_plaintext_where_tls_is_expected_is_named(testbed: Testbed, kafka: Secured, run: str) -> None:
    described = kafka.described(VARIABLES)
    described["kafka"]["direct"] = testbed.direct_kafka
    with pytest.raises(TestbedError, match=r"direct: .*no (encrypted )?connection"):
        reached.check(outside(described, run))


def test_credentials_in_a_file_and_in_a_connection_of_airflow(
    kafka: Secured, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(kafka, *RIGHTS)
    file = tmp_path / "login.yaml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump({"username": USER, "password": kafka.password}))
    reached.check(outside(kafka.described({"file": str(file)}), run))
    credentials.forget(run)
    code = (
        "import sys; from streamproof.testbed.credentials import Credentials; import hashlib; "
        "login = Credentials(airflow='a_secured_kafka').login('Kafka', {}); "
        "print(login, hashlib.sha256(login.password.encode()).hexdigest())"
    )
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW_CONN_A_SECURED_KAFKA": f'{{"conn_type": "kafka", "login": "{USER}", "password": "{kafka.password}"}}',
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert f"Login(…) {hashlib.sha256(kafka.password.encode()).hexdigest()}" in done.stdout, done.stderr[-2000:]
    assert kafka.password not in done.stdout + done.stderr


def test_what_a_run_keeps_only_its_owner_can_read_and_it_goes(kafka: Secured, run: str) -> None:
    access = outside(kafka.described(VARIABLES), run).access
    kept = sorted(Path(access.folder).iterdir())
    assert [path.name for path in kept] == [servers.LOGIN, servers.PROPERTIES]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert Path(access.folder).stat().st_mode & 0o777 == 0o700
    assert kafka.password not in str(access.to_dict())
    credentials.forget(run)
    assert not Path(access.folder).exists()


def test_the_login_by_hand_refuses_who_does_not_prove_to_know_the_password(
    kafka: Secured, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = outside(kafka.described(VARIABLES), run).access
    address = Servers(kafka.address("direct"), access)
    with closing(login.connected(address, 10)) as connection:
        assert isinstance(connection, ssl.SSLSocket)
    monkeypatch.setattr(login.hmac, "compare_digest", lambda ours, theirs: False)
    with pytest.raises(LoginRefused, match="does not prove"):
        login.connected(address, 10)
