"""``make ui``: it says where to go, asks who is there, and leaves nothing behind when it is interrupted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import httpx
import psutil
import pytest

from streamproof import settings
from streamproof.testbed.process import MARK
from tests.support.checkout import ROOT


def _left(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def _start(home: Path, *, terminal: bool) -> tuple[subprocess.Popen[bytes], IO[str]]:
    """Start it; what it says is read from a terminal, or from a pipe."""
    out, given = pty.openpty() if terminal else os.pipe()
    env = {**os.environ, "STREAMPROOF_HOME": str(home), "STREAMPROOF_CACHE": str(settings.cache())}
    child = subprocess.Popen([sys.executable, "-m", "streamproof.airflow.ui"], cwd=ROOT, env=env, stdout=given, stderr=given)
    os.close(given)
    return child, os.fdopen(out)


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_it_says_where_to_go_and_leaves_nothing_behind_when_it_is_interrupted(terminal: bool, tmp_path: Path) -> None:
    child, lines = _start(tmp_path, terminal=terminal)
    said = ""
    try:
        for line in lines:
            said += line
            if line.startswith("ready after"):
                break
        [address] = re.findall(r"Airflow is at +(\S+)", said)
        [user] = re.findall(r"user +(\S+)", said)
        kept = tmp_path / "airflow" / "passwords.json"
        assert kept.stat().st_mode & 0o077 == 0, "only its owner reads it"
        password = json.loads(kept.read_text())[user]
        if terminal:
            assert re.findall(r"password +(\S+)", said) == [password]
        else:
            assert password not in said, "what is written to a pipe may be kept somewhere"
            assert f"password        in {kept}" in said
        assert httpx.get(f"{address}/api/v2/dags", trust_env=False).status_code == 401
        login = {"username": user, "password": password}
        assert httpx.post(f"{address}/auth/token", json=login, trust_env=False).status_code == 201
        assert len(_left(tmp_path)) > 5
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=90) == 0
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait(timeout=90)
        lines.close()
    assert _left(tmp_path) == []
