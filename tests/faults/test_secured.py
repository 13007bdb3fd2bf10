"""Runs at a secured Kafka that somebody else runs, as users with just the rights that a run needs: what may be broken breaks, nothing else
is touched, and no secret is to be seen, neither while a run goes on nor afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Restored
from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed import credentials
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.rights import PREFIX, RIGHTS
from tests.support.checkout import ROOT
from tests.support.secured import CLIENT, USER, Secured, secured

RECORDS = 3000
VARIABLES = {"environment": {"username": "SECURED_USER", "password": "SECURED_PASSWORD"}}
RESOURCES = {"Topic": "TOPIC", "Group": "GROUP", "TransactionalId": "TRANSACTIONAL_ID"}
OTHERS, OTHERS_GROUP = "orders", "orders-app"


@pytest.fixture(scope="module")
def kafka(home: Path) -> Iterator[Secured]:
    with secured() as started:
        started.make_topic(OTHERS, 40, OTHERS_GROUP)
        started.proxies.add("somebody-elses", "theirs", "latency", "downstream", {"latency": 3})
        for user in (f"User:{USER}", f"User:CN={CLIENT}"):
            for right in RIGHTS:
                started.allow(user, RESOURCES[right.resource], PREFIX, True, right.operation.upper())
        yield started


def what_others_have(kafka: Secured) -> dict[str, Any]:
    """Everything there that is not a run's."""
    cluster = kafka.cluster()
    topics = [name for name in cluster.topics() if not name.startswith(PREFIX)]
    groups = cluster.groups_on(OTHERS)
    logs = [path for path in sorted(kafka.data.glob(f"{OTHERS}-*/*")) if path.is_file()]
    return {
        "topics": topics,
        "ids": {name: cluster.topic_id(name) for name in topics},
        "offsets": {name: (cluster.start_offsets(name), cluster.end_offsets(name)) for name in topics},
        "groups": groups,
        "logs": {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in logs},
        "proxy": (
            kafka.proxies.toxics("somebody-elses"),
            kafka.proxies.enabled("somebody-elses"),
            kafka.proxies.upstream("somebody-elses"),
        ),
    }


class Watch:
    """Looks for a secret in every command line of the machine, until it is left."""

    def __init__(self, secret: str) -> None:
        self._secret, self._over, self.seen, self.looks = secret.encode(), threading.Event(), set[str](), 0
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.looks += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    if self._secret in path.read_bytes():
                        self.seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))


def holding(secret: str, *folders: Path) -> list[str]:
    """The files below these folders that hold the secret."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if secret.encode() in path.read_bytes()]


def performed(kafka: Secured, testbed: Testbed, caplog: pytest.LogCaptureFixture, **experiment: Any) -> dict[str, Any]:
    """The verdict of a run, of which no secret is to be seen and which touched nothing of others."""
    others, embedded = what_others_have(kafka), Cluster(testbed.direct_kafka).topics()
    described = {
        "name": "secured",
        "testbed": "external",
        "workload": {"source": "synthetic", "records": RECORDS},
        "seed": 11,
        "timeout_s": 600,
        **experiment,
    }
    with Watch(kafka.password) as watch, caplog.at_level(logging.DEBUG, "streamproof"):
        folder: RunFolder = runner.run(Experiment.model_validate(described))
    assert watch.looks > 10
    assert watch.seen == set(), "a secret in a command line"
    assert holding(kafka.password, folder.path, Path(testbed.folder)) == [], "a secret in a file of the run or of the testbed"
    assert kafka.password not in caplog.text
    assert not credentials.folder_of(folder.name).exists(), "what the run kept is gone"
    assert folder.journal.last(Restored) is not None
    assert what_others_have(kafka) == others
    assert [name for name in kafka.cluster().topics() if name.startswith(PREFIX)] == [], "the run's topics are gone"
    assert Cluster(testbed.direct_kafka).topics() == embedded, "the embedded Kafka was not used"
    assert kafka.refused() == [], "a right was missing"
    verdict: dict[str, Any] = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    return verdict


@pytest.fixture(autouse=True)
def _logged_in(kafka: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURED_USER", USER)
    monkeypatch.setenv("SECURED_PASSWORD", kafka.password)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["two_phase_commit", "checkpoint", "offset_in_transaction", "two_phase_commit_java", "offset_commit"])
def test_a_link_that_is_encrypted_is_cut(testbed: Testbed, kafka: Secured, caplog: pytest.LogCaptureFixture, strategy: str) -> None:
    cut = {"fault": "cut_kafka", "at": 0.3, "parameters": {"role": "executors"}}
    performed(kafka, testbed, caplog, strategy=strategy, external=kafka.described(VARIABLES), faults=[cut])


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["two_phase_commit", "checkpoint"])
def test_a_link_that_is_encrypted_is_slow_for_a_client_with_a_certificate(
    testbed: Testbed, kafka: Secured, caplog: pytest.LogCaptureFixture, strategy: str
) -> None:
    slow = {"fault": "network_latency", "at": 0.3, "parameters": {"latency_ms": 60, "batches": 1}}
    performed(kafka, testbed, caplog, strategy=strategy, external=kafka.described(mutual=True), faults=[slow])


@pytest.mark.slow
def test_a_job_of_a_users_own_gets_in_by_its_environment(
    testbed: Testbed, kafka: Secured, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "login.yaml"
    file.touch(mode=0o600)
    file.write_text(f"username: {USER}\npassword: {kafka.password}\n")
    job = {
        "engine": "command",
        "promises": "at-least-once",
        "command": [sys.executable, str(ROOT / "tests" / "faults" / "own_secured.py")],
        "env": {"OWN_PASSWORD": "{sasl_password}"},
    }
    faults = [{"fault": "cut_kafka", "at": 0.3}, {"fault": "kill_driver", "at": 0.6}]
    performed(kafka, testbed, caplog, job=job, external=kafka.described({"file": str(file)}), faults=faults)


@pytest.mark.slow
def test_a_run_without_one_of_its_rights_ends_before_it_begins(testbed: Testbed, kafka: Secured) -> None:
    kafka.set_password("another", kafka.password)
    os.environ["SECURED_USER"] = "another"
    for right in RIGHTS:
        if right.operation != "Write":
            kafka.allow("User:another", RESOURCES[right.resource], PREFIX, True, right.operation.upper())
    experiment = {"strategy": "two_phase_commit", "testbed": "external", "external": kafka.described(VARIABLES)}
    with pytest.raises(Exception, match=r"has no right to Write on Topic sp-\*, to Write on TransactionalId sp-\*") as error:
        runner.run(Experiment.model_validate({"name": "without", "workload": {"source": "synthetic", "records": 500}, **experiment}))
    assert kafka.password not in str(error.value)
    assert [name for name in kafka.cluster().topics() if name.startswith(PREFIX)] == []
