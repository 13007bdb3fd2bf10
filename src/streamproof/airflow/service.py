"""Airflow as a service of this machine: its own home, SQLite, loopback only, behind a login that is made for it. In the stack of
``docker-compose.yml`` each component has a container, and the database is a PostgreSQL of its own.

``STREAMPROOF_AIRFLOW_URL`` is the address of a proxy that it is served by, when there is one; its path is passed on with each request.

``python -m streamproof.airflow.service up|down|status``. The components run as processes of their own (no triggerer: nothing here defers),
each in its own session and with the testbed's mark, so that ``streamproof down`` ends them too.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx

from streamproof import settings
from streamproof.evidence.folder import write_atomically
from streamproof.testbed import hosts, postgres, stack
from streamproof.testbed.process import Handle, TestbedError, free_port, remembered, spawn, stop, tail, wait_until

COMPONENTS = {
    "airflow-api-server": ["api-server", "--workers", "1"],
    # The log server would listen on every interface; the API server reads the logs from their files.
    "airflow-scheduler": ["scheduler", "--skip-serve-logs"],
    "airflow-dag-processor": ["dag-processor"],
}
API_SERVER, DAG_PROCESSOR, DATABASE = "airflow-api-server", "airflow-dag-processor", "airflow-database"
STACK_PORT, DATABASE_PORT = 8080, 5432
USER, VIEWER = "admin", "viewer"  # each with the role that it is named for
HEALTHY_S = 180.0
MIGRATE_S = 300.0
REQUEST_S = 30.0
READS = 4  # how often something is read that gets no answer: a busy machine takes its time
TOKEN_S = 600.0
# SQLite knows one writer at a time: who read before another wrote, and writes then, is refused at once.
DATABASE_ERROR = "Database error"
LOCKED_S = 20.0
LOCKED_POLL_S = 0.3
DAG = "chaos_experiment"
NIGHTLY = "chaos_nightly"
DAGS = (DAG, NIGHTLY)
POOL = "streamproof_testbed"
ADDRESS = "STREAMPROOF_AIRFLOW_URL"


@dataclass(frozen=True)
class Secrets:
    """Made once for a home, kept in a file that only its owner reads."""

    port: int
    password: str
    viewer_password: str
    jwt_secret: str
    api_secret: str
    fernet_key: str


def home() -> Path:
    return settings.home() / "airflow"


def _own_database() -> postgres.PostgresPorts:
    """Of the stack's Airflow: a PostgreSQL of its own, that no fault touches."""
    return postgres.PostgresPorts(DATABASE_PORT, DATABASE_PORT)


def _secrets() -> Secrets:
    path = home() / "secrets.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if set(kept) == {field.name for field in fields(Secrets)}:
        return Secrets(**kept)
    fresh = Secrets(
        port=STACK_PORT if hosts.stack() else free_port(),
        password=secrets.token_urlsafe(12),
        viewer_password=secrets.token_urlsafe(12),
        jwt_secret=secrets.token_urlsafe(48),
        api_secret=secrets.token_urlsafe(48),
        fernet_key=base64.urlsafe_b64encode(os.urandom(32)).decode(),
    )
    complete = Secrets(**{**asdict(fresh), **kept})  # an older version knew fewer
    home().mkdir(parents=True, exist_ok=True)
    home().chmod(0o700)
    write_atomically(path, json.dumps(asdict(complete)), mode=0o600)
    return complete


def address() -> str:
    """Where a browser finds Airflow: on this machine, or at the proxy that the environment names. Raises TestbedError when it is none."""
    url = os.environ.get(ADDRESS, "").rstrip("/")
    if url and not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", url):
        raise TestbedError(f"{ADDRESS}: {url!r} is no address; expected is one as https://HOST/PATH")
    return url or f"http://127.0.0.1:{_secrets().port}"


def url() -> str:
    """Where Airflow itself listens, with the path of its address."""
    return f"http://{hosts.of(API_SERVER)}:{_secrets().port}{urlsplit(address()).path}"


def environment() -> dict[str, str]:
    """Everything that Airflow is configured by."""
    here, secrets = home(), _secrets()
    passwords = here / "passwords.json"
    write_atomically(passwords, json.dumps({USER: secrets.password, VIEWER: secrets.viewer_password}), mode=0o600)
    options = {
        "CORE__DAGS_FOLDER": settings.project() / "dags",
        "CORE__LOAD_EXAMPLES": False,
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": 6,
        "CORE__MAX_ACTIVE_TASKS_PER_DAG": 6,
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
        "CORE__FERNET_KEY": secrets.fernet_key,
        "CORE__EXECUTION_API_SERVER_URL": f"{url()}/execution/",
        "CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin,{VIEWER}:viewer",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": passwords,
        "API__HOST": hosts.listen(),
        "API__PORT": secrets.port,
        "API__BASE_URL": address(),
        "API__SECRET_KEY": secrets.api_secret,
        "API_AUTH__JWT_SECRET": secrets.jwt_secret,
        **_database(),
        "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": 1,
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": 0.5,
        # A task whose process and supervisor are gone is noticed after this time, not after 300 s.
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": 60,
        "DAG_PROCESSOR__REFRESH_INTERVAL": 30,
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": 30,
        "LOGGING__BASE_LOG_FOLDER": here / "logs",
        "USAGE_DATA_COLLECTION__ENABLED": False,
    }
    return {
        "AIRFLOW_HOME": str(here),
        # Airflow renames its processes, which overwrites the environment that others see of them, and with it the testbed's mark.
        "SPT_NOENV": "1",
        "PYTHONPATH": settings.python_path(),
        "STREAMPROOF_HOME": str(settings.home()),
        "STREAMPROOF_CACHE": str(settings.cache()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **{f"AIRFLOW__{key}": str(value) for key, value in options.items()},
    }


def _database() -> dict[str, str]:
    if hosts.stack() is None:
        # One writes at a time. SQLite's driver gives up waiting for that after 5 s, if nobody tells it otherwise.
        return {"DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home() / 'airflow.db'}?timeout={LOCKED_S:.0f}"}
    where = f"//{postgres.USER}@{DATABASE}:{DATABASE_PORT}/{postgres.DATABASE}?passfile={postgres.passfile(home() / DATABASE)}"
    return {
        "DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg:{where}",
        "DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"postgresql+psycopg_async:{where}",
    }


def prepared() -> None:
    """The secrets of a stack's Airflow, before its containers start."""
    environment()


def serve(role: str) -> NoReturn:
    """Be the container of that role in the stack: one of Airflow's components, or its database. Raises TestbedError for any other."""
    if role == DATABASE:
        folder = home() / DATABASE
        stack.serve(postgres.ROLE, folder, lambda: postgres.start(folder, _own_database(), DATABASE))
    if role not in COMPONENTS:
        raise TestbedError(f"the stack has no {role!r}, expected one of {', '.join([DATABASE, *COMPONENTS])}")
    if role == API_SERVER:
        _migrate(print)
    stack.serve(role, home(), lambda: _until_ready(role, _started(role)))


def _started(role: str) -> Handle:
    old = remembered(role, home())
    if old is not None and old.alive:
        return old
    return spawn(role, [sys.executable, "-m", "airflow", *COMPONENTS[role]], home(), environment())


def _until_ready(role: str, handle: Handle) -> None:
    """Wait until the component does its part: serves, with the testbed's pool; schedules; knows the DAGs. Raises TestbedError otherwise."""
    api = Api()
    wait_until(f"{role}: healthy", lambda: api.healthy(role), HEALTHY_S, process=handle, poll_s=0.3)
    if role == API_SERVER:
        api.make_pool(POOL, 1, "One experiment at a time on the testbed")
    if role == DAG_PROCESSOR:
        for dag in DAGS:
            wait_until(f"the DAG {dag}", lambda dag=dag: api.knows_dag(dag), HEALTHY_S, process=handle, poll_s=0.3)  # type: ignore[misc]


def _migrate(say: Callable[[str], None]) -> None:
    """Make Airflow's database, once. Raises TestbedError when that fails."""
    if (home() / "migrated").exists():
        return
    say("making Airflow's database")
    command, env, log = [sys.executable, "-m", "airflow", "db", "migrate"], {**os.environ, **environment()}, home() / "migrate.log"
    with log.open("wb") as output:
        done = subprocess.run(command, env=env, stdout=output, stderr=output, timeout=MIGRATE_S, check=False)
    if done.returncode != 0:
        raise TestbedError(f"airflow: its database could not be made. {log} ends with:\n{tail(log)}")
    (home() / "migrated").touch()


def up(say: Callable[[str], None] = lambda line: None) -> Api:
    """Start what is not running, wait until Airflow is healthy and knows the DAG. Raises TestbedError when it does not become so."""
    begun = time.monotonic()
    if hosts.stack():
        for role in COMPONENTS:
            stack.ask(role, home())
    else:
        _migrate(say)
    for role, handle in {role: _started(role) for role in COMPONENTS}.items():
        _until_ready(role, handle)
    say(f"Airflow ready after {time.monotonic() - begun:.1f} s")
    return Api()


def status() -> dict[str, str]:
    handles = {role: remembered(role, home()) for role in COMPONENTS}
    return {role: "up" if handle is not None and handle.alive else "down" for role, handle in handles.items()}


def down() -> None:
    """Stop Airflow's processes and all that they started. Those of a stack are its containers', and go on."""
    if hosts.stack():
        return
    for role in COMPONENTS:
        handle = remembered(role, home())
        process = handle.process() if handle is not None else None
        if process is not None:
            stop([process, *process.children(recursive=True)])
        (home() / f"{role}.pid").unlink(missing_ok=True)


class Api:
    """Airflow's REST API, logged in as one of its users."""

    def __init__(self, user: str = USER) -> None:
        self.url = url()
        self.user, self.password = user, {USER: _secrets().password, VIEWER: _secrets().viewer_password}[user]
        self._client = httpx.Client(base_url=self.url, timeout=REQUEST_S, trust_env=False)
        self._token_at: float | None = None  # on the monotonic clock, which may have begun a minute ago

    def healthy(self, role: str) -> bool:
        try:
            health = self._client.get("/api/v2/monitor/health").json()
        except (httpx.HTTPError, ValueError):
            return False
        part = {"airflow-api-server": "metadatabase", "airflow-scheduler": "scheduler", "airflow-dag-processor": "dag_processor"}[role]
        return bool((health.get(part) or {}).get("status") == "healthy")

    def make_pool(self, name: str, slots: int, description: str) -> None:
        body = {"name": name, "slots": slots, "description": description, "include_deferred": False}
        self.request("POST", "/api/v2/pools", body, accept=(201, 409))  # 409: it is there

    def knows_dag(self, dag: str = DAG) -> bool:
        return self.request("GET", f"/api/v2/dags/{dag}", accept=(200, 404)).status_code == 200

    def unpause(self, dag: str) -> None:
        self.request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})

    def trigger(self, run_id: str, conf: dict[str, Any], dag: str = DAG) -> None:
        """Start a DAG run. Raises TestbedError with Airflow's answer when it refuses the form."""
        self.request("POST", f"/api/v2/dags/{dag}/dagRuns", {"dag_run_id": run_id, "conf": conf, "logical_date": None})

    def state(self, run_id: str, dag: str = DAG) -> str:
        return str(self.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run_id}").json()["state"])

    def instances(self, run_id: str, dag: str = DAG) -> list[dict[str, Any]]:
        """Its task instances; a mapped task has one for each index."""
        return list(self.request("GET", f"/api/v2/dags/{dag}/dagRuns/{run_id}/taskInstances").json()["task_instances"])

    def tasks(self, run_id: str, dag: str = DAG) -> dict[str, str | None]:
        """Each task's state."""
        return {task["task_id"]: task["state"] for task in self.instances(run_id, dag)}

    def log(self, run_id: str, task: str, dag: str = DAG, index: int = -1, attempt: int = 1) -> str:
        """The text of one try of a task, with the errors that ended it."""
        path = f"/api/v2/dags/{dag}/dagRuns/{run_id}/taskInstances/{task}/logs/{attempt}?full_content=true&map_index={index}"
        return "\n".join(text for line in self.request("GET", path).json()["content"] for text in _texts(line))

    def mark_failed(self, run_id: str, dag: str = DAG) -> None:
        self.request("PATCH", f"/api/v2/dags/{dag}/dagRuns/{run_id}", {"state": "failed"})

    def mark_task_failed(self, run_id: str, task: str, dag: str = DAG, index: int = -1) -> None:
        path = f"/api/v2/dags/{dag}/dagRuns/{run_id}/taskInstances/{task}"
        self.request("PATCH", path if index < 0 else f"{path}/{index}", {"new_state": "failed"})

    def clear(self, run_id: str, tasks: list[Any], dag: str = DAG) -> None:
        """Run tasks again, and all that comes after them; a running one is stopped first. A mapped one is named as [task, index]."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": tasks, "include_downstream": True, "only_failed": False}
        self.request("POST", f"/api/v2/dags/{dag}/clearTaskInstances", {**body, "reset_dag_runs": True})

    def _asked(self, verb: str, path: str, body: Any) -> httpx.Response:
        """What only reads is asked again when no answer came. Raises httpx.HTTPError."""
        for _ in range(READS - 1 if verb == "GET" else 0):
            with contextlib.suppress(httpx.TransportError):
                return self._client.request(verb, path, json=body)
        return self._client.request(verb, path, json=body)

    def request(self, verb: str, path: str, body: Any = None, accept: tuple[int, ...] = (200, 201)) -> httpx.Response:
        """Ask Airflow; what failed because its database was in use is undone, and asked again. Raises TestbedError for any other answer
        than one of ``accept``."""
        try:
            if self._token_at is None or time.monotonic() - self._token_at > TOKEN_S:
                answer = self._client.post("/auth/token", json={"username": self.user, "password": self.password})
                answer.raise_for_status()
                self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
                self._token_at = time.monotonic()
            answer = self._asked(verb, path, body)
            until = time.monotonic() + LOCKED_S
            while answer.status_code == 500 and DATABASE_ERROR in answer.text and time.monotonic() < until:
                time.sleep(LOCKED_POLL_S)
                answer = self._asked(verb, path, body)
        except httpx.HTTPError as error:
            raise TestbedError(f"airflow does not answer {verb} {path}: {error}") from error
        if answer.status_code not in accept:
            raise TestbedError(f"airflow answers {answer.status_code} to {verb} {path}: {answer.text[:500]}")
        return answer


def _texts(line: Any) -> list[str]:
    """A line of a task's log as text. Airflow keeps an exception apart from the event that tells of it."""
    if not isinstance(line, dict):
        return [str(line)]
    errors = line.get("error_detail") or []
    return [str(line.get("event", line)), *(f"{error['exc_type']}: {error['exc_value']}" for error in errors)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m streamproof.airflow.service", description="Start and stop this project's Airflow.")
    parser.add_argument("what", choices=["up", "down", "status", "prepare", "serve"])
    parser.add_argument("role", nargs="?", default="", help="of serve: what a container of the stack runs")
    given = parser.parse_args()
    what = given.what
    try:
        if what == "up":
            api = up(lambda line: print(line, flush=True))
            print(f"{address()}  user {api.user}, password in {home() / 'passwords.json'}")
        elif what == "prepare":
            prepared()
        elif what == "serve":
            serve(given.role)
        elif what == "down":
            down()
        else:
            for role, state in status().items():
                print(f"{role}: {state}")
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
