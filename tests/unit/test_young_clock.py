"""A machine that has just been started: its monotonic clock counts from boot, and has hardly begun."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

# Starts a server that lets nobody in without a login, as Airflow's API server does, and asks it for something.
ASKS = """
import json, threading, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from streamproof.airflow import service as airflow_service
assert time.monotonic() < 300, f"the clock is not young: {time.monotonic()}"

class Airflow(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201 if self.path == "/auth/token" or self.headers["Authorization"] == "Bearer given" else 401)
    def do_GET(self):
        self.answer(200 if self.headers["Authorization"] == "Bearer given" else 401)
    def answer(self, code):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": "given"}).encode())
    def log_message(self, *args):
        pass

server = HTTPServer(("127.0.0.1", airflow_service._secrets().port), Airflow)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(airflow_service.Api().knows_dag())
"""


def _young(command: list[str]) -> list[str]:
    """The command in a time namespace whose clocks since boot began ten seconds ago.

    The kernel counts a namespace's offset from the machine's own clock, also when this process is in such a namespace itself.
    """
    offsets = Path("/proc/self/timens_offsets")
    here = int(offsets.read_text().split()[1]) if offsets.exists() else 0
    offset = here - max(0, int(time.clock_gettime(time.CLOCK_MONOTONIC)) - 10)
    return ["unshare", "--time", "--fork", "--monotonic", str(offset), "--boottime", str(offset), *command]


def _refusal() -> str | None:
    """Why this machine makes no time namespace; None when it does."""
    try:
        done = subprocess.run(_young(["true"]), capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        return str(error)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else None


def test_whoever_asks_airflow_right_after_the_machine_started_logs_in_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = _refusal()
    if refusal is not None:
        pytest.skip(f"no time namespace can be made here: {refusal}")
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    asked = subprocess.run(_young([sys.executable, "-c", ASKS]), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert asked.stdout == "True\n", asked.stderr
