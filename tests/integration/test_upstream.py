"""Reproductions that a maintainer can run with nothing of streamproof: what they say of today's versions is still so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamproof.testbed import install, spark
from tests.support.checkout import ROOT


@pytest.mark.slow
def test_a_batch_whose_snapshot_has_expired_is_written_to_an_iceberg_table_again() -> None:
    crashed, maintained = _said("iceberg_expired_snapshots.py")[-2:]
    assert crashed.endswith(" 1000 rows, 1000 expected")
    assert maintained.endswith(" 2000 rows, 1000 expected")


@pytest.mark.slow
def test_a_driver_that_stood_still_commits_a_batch_to_an_iceberg_table_after_its_successor() -> None:
    assert _said("iceberg_two_drivers.py")[-1].endswith(" 2000 rows, 1000 expected")


def _said(script: str) -> list[str]:
    """What a reproduction printed that has found its defect."""
    (jar,) = spark.jars("iceberg")
    command = [sys.executable, f"docs/upstream/{script}", "--jar", str(jar)]
    environment = {"JAVA_HOME": str(install.java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1, done.stderr
    return done.stdout.splitlines()
