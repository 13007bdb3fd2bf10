"""A real Airflow: a form that it must refuse, and a run that is marked failed in the middle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamproof import settings
from streamproof.airflow import service
from streamproof.airflow.service import Api
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import InjectionInjected
from streamproof.run import lock
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked

WAIT_S = 150.0


@pytest.fixture(scope="module")
def airflow(home: Path) -> Iterator[Api]:
    yield service.up()
    service.down()


def _until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.3)
    return found


def _ended(api: Api, run_id: str) -> str | None:
    state = api.state(run_id)
    return state if state in ("success", "failed") else None


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
    assert _until(lambda: _ended(airflow, name)) == "failed"
    assert not (settings.runs() / name).exists()
    assert told in airflow.log(name, "prepare")


def test_a_run_that_is_marked_failed_is_aborted_and_the_testbed_restored(airflow: Api, testbed: Testbed) -> None:
    conf = {"strategy": "checkpoint", "fault": "network_latency", "workload": "synthetic", "records": 200_000, "seed": 3}
    airflow.trigger("abort-me", conf)
    folder = RunFolder(settings.runs() / "abort-me")
    _until(lambda: folder.path.is_dir() and folder.journal.last(InjectionInjected))
    airflow.mark_failed("abort-me")
    _until(lambda: airflow.tasks("abort-me")["restore"] in ("success", "failed"))
    assert _until(lambda: _ended(airflow, "abort-me")) == "failed"
    assert folder.read_json(folder.verdict)["outcome"] == "ABORTED"
    _until(lambda: not marked(STREAMPROOF_RUN="abort-me"))
    assert all(testbed.proxies.toxics(name) == {} for name in testbed.links)
    assert lock.holder() is None
