"""Reproductions that a maintainer can run with nothing of streamproof: what they say of today's versions is still so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamproof.testbed import install, spark
from tests.support.checkout import ROOT


@pytest.mark.slow
def test_a_batch_whose_snapshot_has_expired_is_written_to_an_iceberg_table_again() -> None:
    (jar,) = spark.jars("iceberg")
    command = [sys.executable, "docs/upstream/iceberg_expired_snapshots.py", "--jar", str(jar)]
    environment = {"JAVA_HOME": str(install.java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1, done.stderr
    crashed, maintained = done.stdout.splitlines()[-2:]
    assert crashed.endswith(" 1000 rows, 1000 expected")
    assert maintained.endswith(" 2000 rows, 1000 expected")
