"""The set-up as `make test` found or left it: the pieces run, and asking for it again costs next to nothing."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from streamproof import settings
from streamproof.testbed import install
from tests.support.checkout import ROOT

IN_THE_ENVIRONMENT = pytest.mark.skipif(sys.prefix != str(ROOT / ".venv"), reason="runs in another environment than .venv")


def test_nothing_is_missing() -> None:
    assert install.verify() == []


def test_the_toxiproxy_server_is_the_locked_one_and_runs() -> None:
    server = settings.cache() / "bin" / "toxiproxy-server"
    said = subprocess.run([str(server), "-version"], capture_output=True, text=True, timeout=30, check=True)
    locked = install.locked_modules()[install.TOXIPROXY].split()[0]
    assert locked.removeprefix("v") in said.stdout + said.stderr


def test_the_java_takes_the_flag_that_spark_gives_every_jvm() -> None:
    command = [str(install.java_executable()), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


@IN_THE_ENVIRONMENT
def test_a_set_up_that_is_in_place_is_recognised_in_seconds() -> None:
    began = time.monotonic()
    command = [sys.executable, str(ROOT / "bootstrap.py")]
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=ROOT)
    assert again.stdout == "set-up: in place\n"
    assert time.monotonic() - began < 10
