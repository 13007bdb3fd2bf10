"""A machine that is busy answers late: what only waited is asked again, and what was slow is measured again."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from streamproof.airflow import service
from streamproof.faults.network.network_latency import NetworkLatency, NetworkLatencyParameters
from streamproof.testbed.process import TestbedError


class Airflow(BaseHTTPRequestHandler):
    """It lets anybody in, and closes the connection of the first ``unanswered`` that ask it for something."""

    unanswered = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/auth/token":
            self.close_connection = True
            return
        self._answer()

    def do_GET(self) -> None:
        if type(self).unanswered > 0:
            type(self).unanswered -= 1
            self.close_connection = True
            return
        self._answer()

    def _answer(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": "given"}).encode())

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def api(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[service.Api]:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", service._secrets().port), Airflow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield service.Api()
    server.shutdown()
    server.server_close()


def test_what_only_reads_is_asked_again_when_no_answer_came(api: service.Api) -> None:
    Airflow.unanswered = service.READS - 1
    assert api.request("GET", "/api/v2/dags").status_code == 200
    Airflow.unanswered = service.READS
    with pytest.raises(TestbedError, match="airflow does not answer GET /api/v2/dags"):
        api.request("GET", "/api/v2/dags")
    Airflow.unanswered = 0


def test_what_changes_something_is_not_asked_again(api: service.Api) -> None:
    with pytest.raises(TestbedError, match="airflow does not answer POST /api/v2/pools"):
        api.request("POST", "/api/v2/pools", {})


class Link:
    """A link on a machine that is busy for its first ``busy`` echoes."""

    def __init__(self, busy: int, ms: float) -> None:
        self._busy, self._ms = busy, ms

    @contextlib.contextmanager
    def echo(self) -> Iterator[Any]:
        def answer(size_bytes: int) -> None:
            self._busy -= 1
            time.sleep((self._ms + (20 if self._busy >= 0 else 0)) / 1000)

        yield answer


def test_a_probe_that_was_slow_at_first_is_measured_until_it_was_quick() -> None:
    latency = NetworkLatency()
    parameters = NetworkLatencyParameters(latency_ms=60)
    assert latency.measure(Link(busy=12, ms=0), parameters) < 10  # type: ignore[arg-type]
    assert latency.measure(Link(busy=0, ms=61), parameters) >= 61, "what is slow for good stays so"  # type: ignore[arg-type]
