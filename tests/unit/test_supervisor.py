"""What a driver is started with, and what the supervisor says of one that ends at each start, from logs as drivers write them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.run.supervisor import Supervisor, kill_drivers, last_error
from streamproof.testbed import embedded
from streamproof.testbed.process import FreePorts
from tests.support import without_java
from tests.support.jobs import run_context

JAVA = """\
JAVA_HOME is not set
Traceback (most recent call last):
  File "driver.py", line 59, in session
    spark = builder.getOrCreate()
pyspark.errors.exceptions.base.PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.
"""
PYTHON = 'Traceback (most recent call last):\n  File "orders.py", line 3, in <module>\nQueryException: the version is refused\n'
NATIVE = "26/01/01 00:00:00 INFO SparkContext: started\n#\n# A fatal error has been detected by the Java Runtime Environment:\n"


def test_a_driver_gets_a_java_that_the_machine_does_not_have_and_the_users_own_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in without_java.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "modules")  # where this process imports from, as one that was started with that PYTHONPATH
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path / "home"))
    (tmp_path / "modules" / "my_strategies.py").write_text("")
    folder = RunFolder.create(tmp_path / "run")
    testbed = replace(embedded._plan(1, FreePorts()), folder=str(tmp_path / "testbed"))
    run = run_context(folder, testbed)
    try:
        child = psutil.Process(Supervisor(run, lambda: None)._launch().pid)
        env = child.environ()
    finally:
        kill_drivers(folder)
    java = [f"{env['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    assert "version" in subprocess.run(java, env=env, capture_output=True, text=True, timeout=60, check=True).stderr
    subprocess.run([sys.executable, "-c", "import my_strategies, pipelines"], env=env, cwd=tmp_path, timeout=60, check=True)


def test_the_error_of_a_driver_whose_own_code_cannot_be_imported_is_the_last_line_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "driver-1.log"
    with log.open("wb") as output:
        subprocess.run([sys.executable, "-c", "import my_strategies"], stderr=output, check=False)
    assert last_error(log) == "ModuleNotFoundError: No module named 'my_strategies'"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (JAVA, JAVA.splitlines()[-1]),
        (JAVA + "  at some.java.Class\n\n", JAVA.splitlines()[-1]),
        (NATIVE, "# A fatal error has been detected by the Java Runtime Environment:"),
        (
            'psycopg.errors.UndefinedTable: relation "orders" does not exist\nLINE 1: INSERT INTO orders\n                    ^\n',
            'psycopg.errors.UndefinedTable: relation "orders" does not exist',
        ),
        (
            PYTHON + "java.lang.Error: x\n\tat some.java.Class\n",
            "QueryException: the version is refused",
        ),
        ("ValueError: " + "x" * 1000, "ValueError: " + "x" * 488),
        ("", ""),
    ],
)
def test_the_last_line_that_names_an_error_is_found(tmp_path: Path, text: str, error: str) -> None:
    log = tmp_path / "driver-1.log"
    log.write_text(text)
    assert last_error(log) == error


def test_a_driver_that_left_no_log_has_no_error(tmp_path: Path) -> None:
    assert last_error(tmp_path / "driver-1.log") == ""
