"""A real Airflow that is not served below a path: a run that is marked failed in the middle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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

pytestmark = pytest.mark.slow


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
