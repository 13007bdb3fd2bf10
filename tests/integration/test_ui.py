"""``make ui``: it says where to go, asks who is there, and leaves nothing behind when it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from testbed import settings
from testbed.process import MARK


def _left(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


@pytest.mark.slow
def test_it_says_where_to_go_and_leaves_nothing_behind_when_it_is_interrupted(tmp_path: Path) -> None:
    env = {**os.environ, "STREAMPROOF_HOME": str(tmp_path), "STREAMPROOF_CACHE": str(settings.cache())}
    child = subprocess.Popen(
        [sys.executable, "-m", "dags.ui"], cwd=settings.ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert child.stdout is not None
    said = ""
    try:
        for line in child.stdout:
            said += line
            if line.startswith("ready after"):
                break
        [address] = re.findall(r"Airflow is at +(\S+)", said)
        [passwords] = re.findall(r"password +in (\S+)", said)
        assert Path(passwords).stat().st_mode & 0o077 == 0, "only its owner reads it"
        assert httpx.get(f"{address}/api/v2/dags", trust_env=False).status_code == 401
        assert len(_left(tmp_path)) > 5
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=90) == 0
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait(timeout=90)
    assert _left(tmp_path) == []
