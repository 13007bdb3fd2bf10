"""The provider in an Airflow of somebody else's, with nothing of streamproof beside it: DAGs of five lines run real experiments."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import InjectionInjected
from streamproof.run import lock
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from tests.package.conftest import Installed, _environment, _uv
from tests.support.checkout import ROOT

AIRFLOW = "apache-airflow==3.3.2"
SLOW_S = 1200.0
PASSWORD = "only-of-this-test"
DAGS = """
from airflow.sdk import dag
from streamproof_provider.operators.streamproof import StreamproofRunOperator, StreamproofSweepOperator

@dag(schedule=None)
def keeps(): StreamproofRunOperator(task_id="run", experiment="{folder}/keeps.yaml")

@dag(schedule=None)
def breaks(): StreamproofRunOperator(task_id="run", experiment="{folder}/breaks.yaml")

@dag(schedule=None)
def takes_long(): StreamproofRunOperator(task_id="run", experiment="{folder}/takes_long.yaml")

@dag(schedule=None)
def sweeps(): StreamproofSweepOperator(task_id="run", strategies=["offset_commit"], steps=["after_output"], records=2400, seed=1)

keeps(), breaks(), takes_long(), sweeps()
"""
LOOP = ["{python}", "pipelines/forward.py"]


def _experiment(name: str, records: int, fault: dict[str, Any], *words: str) -> dict[str, Any]:
    job = {"engine": "command", "command": [*LOOP, *words], "promises": "exactly-once", "transactions": "--transactions" in words}
    return {"name": name, "job": job, "workload": {"source": "synthetic", "records": records}, "faults": [fault], "seed": 8}


EXPERIMENTS = {
    "keeps": _experiment("keeps", 4000, {"fault": "kill_driver", "at": 0.4}, "--transactions"),
    "breaks": _experiment("breaks", 8000, {"fault": "kill_driver", "at": 0.4}),
    "takes_long": _experiment("takes-long", 100_000, {"fault": "network_latency", "at": 0.05}, "--transactions"),
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600, func_only=True)]


@dataclass(frozen=True)
class Airflow:
    """An Airflow of its own, with the provider and a DAG file."""

    installed: Installed
    home: Path
    variables: dict[str, str]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.installed.run(self.home, "airflow", *words, timeout_s=int(SLOW_S), **self.variables)

    def start(self, *words: str, output: str) -> subprocess.Popen[bytes]:
        command = [str(self.installed.prefix / "bin" / "airflow"), *words]
        with (self.home / output).open("wb") as log:
            env = {**_environment(), **self.variables}
            return subprocess.Popen(command, cwd=self.home, env=env, stdout=log, stderr=log, start_new_session=True)

    def asked(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self.home / "airflow.db")) as connection:
            return connection.execute(query).fetchall()

    def link(self, dag: str, name: str) -> str:
        """A link of the DAG's only task."""
        ((value,),) = self.asked(f"select value from xcom where dag_id = '{dag}' and key = '_link_{name}'")
        return str(json.loads(value) if value.startswith('"') else value)


@pytest.fixture(scope="module")
def installed(place: Path, dist: Path) -> Installed:
    """Airflow and the provider, and nothing of streamproof."""
    (wheel,) = dist.glob("airflow_provider_streamproof-*.whl")
    prefix = place / "airflow"
    _uv("venv", "--quiet", "--python", sys.executable, prefix, folder=place)
    constraints = ["--constraint", ROOT / "requirements.lock", "--build-constraints", ROOT / "requirements-build.lock"]
    _uv("pip", "install", "--quiet", "--python", prefix, *constraints, AIRFLOW, wheel, folder=place)
    return Installed(prefix)


@pytest.fixture(scope="module")
def airflow(installed: Installed, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags").mkdir()
    (folder / "dags" / "mine.py").write_text(DAGS.format(folder=folder))
    for name, experiment in EXPERIMENTS.items():
        (folder / f"{name}.yaml").write_text(json.dumps(experiment))
    (folder / "passwords.json").write_text(json.dumps({"admin": PASSWORD}))
    where = {
        "virtual_environment": sys.prefix,
        "project": str(ROOT),
        "state_folder": str(home),
        "cache_folder": str(settings.cache()),
    }
    variables = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_STREAMPROOF_DEFAULT": json.dumps({"conn_type": "streamproof", "extra": where}),
    }
    found = Airflow(installed, folder, variables)
    done = found.run("db", "migrate")
    assert done.returncode == 0, done.stdout + done.stderr
    return found


def _until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SLOW_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.3)
    return found


def test_airflow_lists_it_and_nothing_of_streamproof_is_installed(airflow: Airflow) -> None:
    absent = ("streamproof", "pyspark", "great_expectations", "confluent_kafka")
    asks = f"import importlib.util as util; print([name for name in {absent} if util.find_spec(name)])"
    assert airflow.installed.run(airflow.home, "python", "-c", asks).stdout == "[]\n"
    listed = {each["package_name"]: each for each in json.loads(airflow.run("providers", "list", "--output", "json").stdout)}
    assert listed["airflow-provider-streamproof"]["version"] == "0.1.0"
    hooks = json.loads(airflow.run("providers", "hooks", "--output", "json").stdout)
    assert [each["class"] for each in hooks if each["connection_type"] == "streamproof"] == [
        "streamproof_provider.hooks.streamproof.StreamproofHook"
    ]


def test_a_dag_is_green_when_the_job_kept_its_promise_and_links_to_the_report(airflow: Airflow, testbed: Testbed) -> None:
    done = airflow.run("dags", "test", "keeps")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED: forward kept exactly-once for 4000 acknowledged records" in done.stdout + done.stderr
    assert airflow.asked("select state from dag_run where dag_id = 'keeps'") == [("success",)]
    (run,) = settings.runs().glob("*-keeps")
    assert airflow.link("keeps", "ReportLink") == f"/streamproof-results/streamproof_default/runs/{run.name}/report.html"
    ((extra,),) = airflow.asked("select extra from asset_event")
    assert (json.loads(extra)["run"], json.loads(extra)["outcome"]) == (run.name, "PASSED")


def test_a_dag_is_red_when_the_job_broke_it_and_its_links_open_behind_airflows_login(airflow: Airflow, testbed: Testbed) -> None:
    done = airflow.run("dags", "test", "breaks")
    assert "FAILED: forward broke exactly-once: " in done.stdout + done.stderr
    assert "DUPLICATED: record " in done.stdout + done.stderr
    assert airflow.asked("select state from dag_run where dag_id = 'breaks'") == [("failed",)]
    (run,) = settings.runs().glob("*-breaks")
    with _served(airflow) as client:
        for name, title in (("ReportLink", "FAILED"), ("DataDocsLink", "Data Docs")):
            link = airflow.link("breaks", name)
            assert run.name in link
            assert httpx.get(client.base_url.join(link), trust_env=False).status_code == 401
            page = client.get(link)
            assert (page.status_code, title in page.text) == (200, True), page.text[:500]
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert client.get(airflow.link("breaks", "ReportLink").replace("report.html", "job.json")).status_code == 404
        ((run_id,),) = airflow.asked("select run_id from dag_run where dag_id = 'breaks'")
        links = client.get(f"/api/v2/dags/breaks/dagRuns/{run_id}/taskInstances/run/links").json()
        assert set(links["extra_links"]) == {"Report", "Data Docs"}


def test_a_sweep_is_green_when_each_crash_showed_what_was_predicted(airflow: Airflow, testbed: Testbed) -> None:
    done = airflow.run("dags", "test", "sweeps")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b([1-9]\d*) of \1 as predicted", done.stdout + done.stderr)
    assert airflow.asked("select state from dag_run where dag_id = 'sweeps'") == [("success",)]
    (sweep,) = (settings.home() / "sweeps").iterdir()
    assert airflow.link("sweeps", "MatrixLink").startswith(f"/streamproof-results/streamproof_default/sweeps/{sweep.name}/")


@contextmanager
def _served(airflow: Airflow) -> Iterator[httpx.Client]:
    """The API server, and a client that is logged in."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = airflow.start("api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", output="api-server.log")
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:

            def token() -> str | None:
                assert process.poll() is None, (airflow.home / "api-server.log").read_text()[-3000:]
                try:
                    answer = client.post("/auth/token", json={"username": "admin", "password": PASSWORD})
                except httpx.TransportError:
                    return None
                return str(answer.json()["access_token"]) if answer.status_code == 201 else None

            client.headers["Authorization"] = f"Bearer {_until(token)}"
            yield client
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["on_kill", "no-time-to-clean-up"])
def test_a_task_that_is_killed_leaves_nothing_behind(airflow: Airflow, testbed: Testbed, number: signal.Signals) -> None:
    before = set(settings.runs().glob("*-takes-long"))
    process = airflow.start("dags", "test", "takes_long", output="killed.log")
    try:
        (path,) = _until(lambda: set(settings.runs().glob("*-takes-long")) - before)
        folder = RunFolder(path)
        _until(lambda: folder.journal.last(InjectionInjected))
        assert any(testbed.proxies.toxics(name) for name in testbed.links)
        process.send_signal(number)
        _until(lambda: folder.verdict.exists() and folder.report.exists() and not _of(folder))
    finally:
        log = (airflow.home / "killed.log").read_text()
        if process.poll() is None and number == signal.SIGTERM:
            process.wait(SLOW_S)
        elif process.poll() is None:
            process.kill()
            process.wait()
    verdict = folder.read_json(folder.verdict)
    assert (verdict["outcome"], verdict["reason"]) == ("ABORTED", "stopped by SIGTERM"), log[-3000:]
    assert all(testbed.proxies.toxics(name) == {} for name in testbed.links)
    assert lock.holder() is None
    if number == signal.SIGTERM:
        state = "select state from dag_run where dag_id = 'takes_long' order by id desc limit 1"
        assert airflow.asked(state) == [("failed",)]
        assert path.name in airflow.link("takes_long", "ReportLink")


def _of(folder: RunFolder) -> list[int]:
    """The processes of a run: its job's, and the command itself."""
    own = [process.pid for process in marked(STREAMPROOF_RUN=folder.name)]
    held = lock.holder()
    return own if held is None else [*own, held.pid or 0]
