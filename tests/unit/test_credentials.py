"""Where credentials are is described, and never what they are: a secret in a description is refused, and not shown."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamproof.engines.command.job import CommandSpec
from streamproof.errors import BadInput
from streamproof.experiment.model import Experiment
from streamproof.experiment.reading import parse
from streamproof.kafka import login, servers
from streamproof.kafka.login import LoginRefused
from streamproof.kafka.servers import Access, Servers
from streamproof.testbed import credentials
from streamproof.testbed.credentials import Credentials, Login
from streamproof.testbed.external import External, Kafka
from streamproof.testbed.process import TestbedError

SECRET = "hunter2-and-more"
KAFKA = {"direct": "k.example:9093", "driver": "p.example:9095", "executors": "p.example:9097"}
TLS = {"ca": "ca.pem"}
LOGIN = {"mechanism": "SCRAM-SHA-512", "credentials": {"environment": {"username": "KAFKA_USER", "password": "KAFKA_PASSWORD"}}}


def described(**kafka: Any) -> dict[str, Any]:
    return {"kafka": {**KAFKA, **kafka}}


def refused(external: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as error:
        parse({"strategy": "checkpoint", "testbed": "external", "external": external}, "one.yaml", Experiment)
    assert SECRET not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "sasl",
    [
        {**LOGIN, "password": SECRET},
        {**LOGIN, "credentials": {"password": SECRET}},
        {**LOGIN, "sasl.jaas.config": f'ScramLoginModule required username="u" password="{SECRET}";'},
        {**LOGIN, "mechanism": f"SCRAM password={SECRET}"},
    ],
)
def test_a_description_that_holds_a_secret_is_refused_and_the_secret_is_not_shown(sasl: dict[str, Any]) -> None:
    assert "holds a secret, which would be kept in every run's folder. Name where it is instead" in refused(described(tls=TLS, sasl=sasl))


def test_a_key_in_a_description_and_an_address_with_a_password_are_refused() -> None:
    assert "kafka.tls.key holds a secret" in refused(described(tls={"ca": "ca.pem", "key": f"-----BEGIN PRIVATE KEY-----{SECRET}"}))
    assert "holds a secret" in refused({**described(), "postgres": f"postgresql://me:{SECRET}@p.example/db"})


def test_a_password_where_the_name_of_a_variable_stands_is_not_shown() -> None:
    at = {"environment": {"username": "KAFKA_USER", "password": SECRET}}
    assert "expected the name of a variable, in capitals" in refused(described(tls=TLS, sasl={"credentials": at}))


def test_a_login_needs_encryption_and_a_certificate_its_key() -> None:
    assert "a login goes over an encrypted connection only" in refused(described(sasl=LOGIN))
    assert "expected `certificate` and `key`" in refused(described(tls={**TLS, "certificate": "me.pem"}))


def test_one_place_of_credentials_is_named() -> None:
    both = {"file": "login.yaml", "airflow": "kafka"}
    assert "expected one of environment, file and airflow, came file and airflow" in refused(described(tls=TLS, sasl={"credentials": both}))


def test_an_experiment_keeps_where_the_credentials_are() -> None:
    external = described(tls=TLS, sasl=LOGIN)
    text = Experiment.model_validate({"strategy": "checkpoint", "testbed": "external", "external": external}).to_yaml()
    assert yaml.safe_load(text)["external"]["kafka"]["sasl"]["credentials"]["environment"] == LOGIN["credentials"]["environment"]
    assert External.model_validate(yaml.safe_load(text)["external"]) == External.model_validate(external)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "login.yaml"
    file.write_text(yaml.safe_dump({"username": "me", "password": SECRET}))
    file.chmod(0o640)
    with pytest.raises(TestbedError, match=rf"others can read {file} \(its mode is 640\).*chmod 600 {file}"):
        Credentials(file=str(file)).login("Kafka", {})
    file.chmod(0o600)
    assert Credentials(file=str(file)).login("Kafka", {}) == Login("me", SECRET)


@pytest.mark.parametrize("text", ["just text", "username: me", f"username: me\npassword: [{SECRET}]", f"{{ {SECRET}"])
def test_a_file_that_is_no_login_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "login.yaml"
    file.touch(mode=0o600)
    file.write_text(text)
    with pytest.raises(TestbedError, match="expected a mapping with username and password") as error:
        Credentials(file=str(file)).login("Kafka", {})
    assert SECRET not in str(error.value)


def test_what_is_missing_is_named() -> None:
    at = Credentials.model_validate(LOGIN["credentials"])
    with pytest.raises(TestbedError, match="expected the variable KAFKA_PASSWORD in the environment, came nothing"):
        at.login("Kafka", {"KAFKA_USER": "me"})
    with pytest.raises(TestbedError, match=r"/no/such/file cannot be read"):
        Credentials(file="/no/such/file").login("Kafka", {})


def test_a_login_is_never_shown() -> None:
    assert SECRET not in f"{Login('me', SECRET)} {Login('me', SECRET)!r}"


def test_a_job_may_have_a_password_in_its_variables_and_in_no_command_line() -> None:
    job = {"engine": "command", "promises": "exactly-once", "command": ["{python}", "job.py"]}
    CommandSpec.model_validate({**job, "env": {"KAFKA_PASSWORD": "{sasl_password}"}})
    with pytest.raises(ValueError, match=r"\{sasl_password\} can stand in the values of `env` only"):
        CommandSpec.model_validate({**job, "command": ["{python}", "job.py", "--password={sasl_password}"]})
    with pytest.raises(BadInput, match="KAFKA_PASSWORD holds a secret") as error:
        parse({**job, "env": {"KAFKA_PASSWORD": SECRET}}, "one.yaml", CommandSpec)
    assert SECRET not in str(error.value)


def test_java_is_given_names_of_files_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_USER", 'a "quoted" name')
    monkeypatch.setenv("KAFKA_PASSWORD", "back\\slash-ü")
    (tmp_path / "ca.pem").touch()
    access = Kafka.model_validate({**KAFKA, "tls": {"ca": str(tmp_path / "ca.pem")}, "sasl": LOGIN}).access("a-run")
    properties = servers.java(access)
    assert properties["security.protocol"] == "SASL_SSL"
    assert properties["sasl.jaas.config"] == f"${{file:{access.properties}:sasl.jaas.config}}"
    kept = Path(access.properties).read_text()
    assert 'username="a \\\\"quoted\\\\" name" password="back\\\\\\\\slash-\\u00fc";' in kept
    assert access.login() == ('a "quoted" name', "back\\slash-ü")
    credentials.forget("a-run")


def test_addresses_stay_a_text() -> None:
    there = Servers("k.example:9093", Access("ca.pem"))
    assert there == "k.example:9093"
    assert there.rpartition(":")[2] == "9093"
    assert servers.librdkafka("k.example:9092") == {"bootstrap.servers": "k.example:9092"}
    assert servers.librdkafka(there)["security.protocol"] == "SSL"
    assert servers.kafka_python(there)["security_protocol"] == "SSL"


def test_scram_by_the_example_of_rfc_7677() -> None:
    answers = iter(
        [
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ]
    )
    sent: list[bytes] = []

    def exchange(message: bytes) -> bytes:
        sent.append(message)
        return next(answers)

    login.scram("sha256", "user", "pencil", exchange, nonce="rOprNGfwEbeRWgbNEkqO")
    proof = b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert sent[1].endswith(b",p=" + proof)
    assert base64.b64decode(proof)


def test_scram_refuses_another_broker_and_an_easy_challenge() -> None:
    easy = b"r=abcdef,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1"
    with pytest.raises(LoginRefused, match="less than 4096 iterations"):
        login.scram("sha512", "user", "pencil", lambda message: easy, nonce="abc")
    answers = iter([b"r=abcdef,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"v=AAAA"])
    with pytest.raises(LoginRefused, match="does not prove"):
        login.scram("sha512", "user", "pencil", lambda message: next(answers), nonce="abc")
