"""The provider for other Airflows: what Airflow reads of it, which command it runs in which environment, and how a task ends by the answer.

The command is a program of these tests that answers as ``streamproof`` does; ``tests/package/test_provider.py`` runs the real one.
"""

from __future__ import annotations

import filecmp
import json
import os
import re
import stat
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

import streamproof_provider
from streamproof.verdict.decide import RunOutcome
from tests.support.checkout import ROOT

CONNECTION = "AIRFLOW_CONN_STREAMPROOF_DEFAULT"
PROGRAM = f"""#!{sys.executable}
import json, os, sys, pathlib
here = pathlib.Path(__file__).parent
(here / "called.json").write_text(json.dumps(dict(words=sys.argv[1:], cwd=os.getcwd(), env=dict(os.environ))))
if pathlib.Path(sys.argv[2]).is_file():
    (here / "experiment").write_text(pathlib.Path(sys.argv[2]).read_text())
answer = json.loads((here / "answer.json").read_text())
print(*answer["lines"], sep="\\n", file=sys.stderr, flush=True)
if answer["waits"]:
    sys.stdin.read()
print(answer["document"])
sys.exit(answer["code"])
"""


FIELDS = ("run", "experiment", "pipeline", "strategy", "guarantee", "expected_anomalies", "anomalies", "seed", "recovery_s", "caught_up_s")


@pytest.fixture(scope="module", autouse=True)
def _airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Airflow reads its settings at import: its home is set before, and nothing here imports it earlier."""
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))


class Streamproof:
    """A program that answers as ``streamproof``, the connection to it, and the provider that calls it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        from airflow.sdk.exceptions import AirflowException, AirflowFailException

        from streamproof_provider import assets
        from streamproof_provider.hooks import streamproof as hooks
        from streamproof_provider.operators import streamproof as operators

        self.hooks, self.operators, self.verdict_asset = hooks, operators, assets.VERDICT
        self.failed: type[AirflowException] = AirflowFailException
        self.may_be_tried_again: type[AirflowException] = AirflowException
        self.environment, self.project, self._patch = folder / "venv", folder / "project", patch
        self.bin = self.environment / "bin"
        self.bin.mkdir(parents=True)
        self.project.mkdir()
        program = self.bin / "streamproof"
        program.write_text(PROGRAM)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.connect()

    def connect(self, **changes: Any) -> None:
        fields = {"virtual_environment": str(self.environment), "project": str(self.project), **changes}
        self._patch.setenv(CONNECTION, json.dumps({"conn_type": "streamproof", "extra": fields}))

    def answer(self, code: int, document: Any = None, *lines: str, waits: bool = False) -> None:
        text = "" if document is None else json.dumps(document)
        (self.bin / "answer.json").write_text(json.dumps({"code": code, "document": text, "lines": lines, "waits": waits}))

    def verdict(self, outcome: str, reason: str, records: int = 0) -> dict[str, Any]:
        """A verdict as ``streamproof run --json`` prints it; the fields that no task looks at are left out."""
        found: dict[str, Any] = dict.fromkeys(FIELDS)
        found |= {"run": "one", "outcome": outcome, "reason": reason, "as_expected": outcome == "PASSED"}
        blamed = [{"anomaly": "LOST", "blame": f"record 0/{number} was not delivered"} for number in range(records)]
        return {**found, "folder": str(self.project / ".streamproof" / "runs" / "one"), "records": blamed}

    def task(self, **options: Any) -> Any:
        return self.operators.StreamproofRunOperator(**{"task_id": "one", "experiment": "chaos/one.yaml", **options})

    def hook(self) -> Any:
        return self.hooks.StreamproofHook()

    @property
    def called(self) -> dict[str, Any]:
        return dict(json.loads((self.bin / "called.json").read_text()))


@pytest.fixture
def streamproof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streamproof:
    return Streamproof(tmp_path, monkeypatch)


def _context() -> Any:
    from airflow.sdk.execution_time.context import OutletEventAccessors

    return {"outlet_events": OutletEventAccessors()}


# --- what Airflow reads --------------------------------------------------------------------------------------------------------------


def test_the_providers_description_is_as_airflow_wants_it_and_names_what_there_is() -> None:
    import airflow

    from streamproof_provider.operators.streamproof import StreamproofRunOperator, StreamproofSweepOperator

    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    info = streamproof_provider.get_provider_info()
    validate(info, schema)
    modules = [module for part in ("operators", "hooks") for each in info[part] for module in each["python-modules"]]
    classes = [*info["extra-links"], info["connection-types"][0]["hook-class-name"]]
    assert [module for module in modules if not import_module(module)] == []
    assert [name for name in classes if not hasattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2])] == []
    links = {f"{type(link).__module__}.{type(link).__name__}" for each in (StreamproofRunOperator, StreamproofSweepOperator)
             for link in each.operator_extra_links}  # fmt: skip
    assert links == set(info["extra-links"])


def test_the_example_dags_load() -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(str(Path(streamproof_provider.__file__).parent / "example_dags"))
    assert bag.import_errors == {}
    assert sorted(bag.dags) == ["streamproof_orders", "streamproof_sweep", "streamproof_verdicts"]


def test_its_verdicts_are_events_of_the_same_asset_as_the_ones_of_streamproofs_own_dags() -> None:
    from streamproof.airflow import assets as own_assets
    from streamproof_provider import assets
    from streamproof_provider.operators import streamproof as operators

    assert (assets.VERDICT.name, assets.VERDICT.uri, assets._EXTRA) == (
        own_assets.VERDICT.name,
        own_assets.VERDICT.uri,
        own_assets._EXTRA,
    )
    assert set(operators.JUDGED) == {RunOutcome.PASSED, RunOutcome.FAILED, RunOutcome.INCONCLUSIVE}


def test_nothing_of_streamproof_is_imported_and_the_licence_is_the_same() -> None:
    imported = re.compile(r"^\s*(from|import) streamproof(\.|\s)", re.MULTILINE)
    files = list((ROOT / "provider" / "src").rglob("*.py"))
    assert len(files) > 8
    assert [path.name for path in files if imported.search(path.read_text())] == []
    assert filecmp.cmp(ROOT / "LICENSE", ROOT / "provider" / "LICENSE", shallow=False)


# --- the connection ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"virtual_environment": ""}, "virtual_environment: expected the path of a folder on the worker, came nothing"),
        ({"project": "/no/such/folder"}, "project: expected the absolute path of a folder on the worker, came '/no/such/folder'"),
        ({"project": "."}, "project: expected the absolute path of a folder on the worker, came '.'"),
        ({"virtual_environment": "/usr"}, "virtual_environment: there is no program /usr/bin/streamproof; install it there"),
    ],
    ids=["nothing", "missing", "relative", "no-program"],
)
def test_a_wrong_connection_is_one_error_that_names_the_field(streamproof: Streamproof, changes: dict[str, str], told: str) -> None:
    streamproof.connect(**changes)
    with pytest.raises(streamproof.failed, match=re.escape(f"connection 'streamproof_default', {told}")):
        streamproof.task().execute(_context())
    works, answer = streamproof.hook().test_connection()
    assert (works, told in answer) == (False, True)


def test_the_command_gets_the_connections_folders_and_nothing_of_airflows(
    streamproof: Streamproof, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    streamproof.connect(state_folder=str(tmp_path / "state"), cache_folder=str(tmp_path / "cache"))
    for name in ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "_AIRFLOW__AS_LIBRARY", "PYTHONPATH", "VIRTUAL_ENV", "AWS_PROFILE"):
        monkeypatch.setenv(name, "of the worker")
    streamproof.answer(0, streamproof.verdict("PASSED", "fine"))
    streamproof.task(seed=7, baseline=True, wait_s=5).execute(_context())
    called = streamproof.called
    assert called["words"] == ["run", "chaos/one.yaml", "--seed", "7", "--baseline", "--wait", "5", "--attended", "--json"]
    assert called["cwd"] == str(streamproof.project)
    env = called["env"]
    assert [name for name in env if "AIRFLOW" in name or name in ("PYTHONPATH", "VIRTUAL_ENV")] == []
    assert env["AWS_PROFILE"] == "of the worker"
    assert env["PATH"].startswith(f"{streamproof.bin}{os.pathsep}")
    folders = [env[f"STREAMPROOF_{name}"] for name in ("PROJECT", "HOME", "CACHE")]
    assert folders == [str(streamproof.project), str(tmp_path / "state"), str(tmp_path / "cache")]


def test_an_experiment_may_be_written_in_the_dag(streamproof: Streamproof) -> None:
    streamproof.answer(0, streamproof.verdict("PASSED", "fine"))
    streamproof.task(experiment={"strategy": "checkpoint", "faults": []}).execute(_context())
    assert json.loads((streamproof.bin / "experiment").read_text()) == {"strategy": "checkpoint", "faults": []}
    assert not Path(streamproof.called["words"][1]).exists()


# --- how a task ends -----------------------------------------------------------------------------------------------------------------


def test_a_run_that_passed_returns_its_verdict_and_is_an_event(streamproof: Streamproof) -> None:
    streamproof.answer(0, streamproof.verdict("PASSED", "kept exactly-once"))
    task, context = streamproof.task(), _context()
    returned = task.execute(context)
    event = context["outlet_events"][streamproof.verdict_asset].extra
    assert (event["outcome"], event["reason"]) == ("PASSED", "kept exactly-once")
    assert returned == {**event, "folder": str(streamproof.project / ".streamproof" / "runs" / "one")}


def test_a_run_that_failed_is_not_tried_again_and_says_which_records(streamproof: Streamproof, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    streamproof.answer(1, streamproof.verdict("FAILED", "broke exactly-once: 12 LOST", records=12), "a line of the run")
    monkeypatch.setattr(streamproof.operators.StreamproofRunOperator, "log", _Log(logged))
    monkeypatch.setattr(streamproof.hooks.StreamproofHook, "log", _Log(logged))
    with pytest.raises(streamproof.failed, match=r"^FAILED: broke exactly-once: 12 LOST$"):
        streamproof.task().execute(_context())
    assert logged[0] == "a line of the run"
    assert logged[1:11] == [f"LOST: record 0/{number} was not delivered" for number in range(10)]
    assert logged[11].startswith("... and more; all are in ")


class _Log:
    """Keeps what is logged: Airflow's loggers do not pass on to the root's handlers."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def info(self, text: str, *values: Any) -> None:
        self._lines.append(text % values if values else text)

    error = info

    def warning(self, text: str, **values: Any) -> None:
        """Airflow's own, about a call outside of its task runner."""


@pytest.mark.parametrize("outcome", ["INCONCLUSIVE", "ERROR", "ABORTED"])
def test_a_run_that_shows_nothing_may_be_tried_again(streamproof: Streamproof, outcome: str) -> None:
    streamproof.answer(3, streamproof.verdict(outcome, "nothing was shown"))
    with pytest.raises(streamproof.may_be_tried_again, match=f"^{outcome}: nothing was shown$") as raised:
        streamproof.task().execute(_context())
    assert not isinstance(raised.value, streamproof.failed)


@pytest.mark.parametrize(("outcome", "green"), [("FAILED", True), ("INCONCLUSIVE", True), ("ERROR", False), ("ABORTED", False)])
def test_a_task_that_does_not_fail_on_a_verdict_fails_without_one(streamproof: Streamproof, outcome: str, green: bool) -> None:
    streamproof.answer(3, streamproof.verdict(outcome, "a reason"))
    task, context = streamproof.task(fail_on_verdict=False), _context()
    if not green:
        with pytest.raises(streamproof.may_be_tried_again):
            task.execute(context)
        return
    assert task.execute(context)["outcome"] == context["outlet_events"][streamproof.verdict_asset].extra["outcome"] == outcome


def test_bad_input_is_the_commands_own_line(streamproof: Streamproof) -> None:
    streamproof.answer(2, None, "seed 4", "error: chaos/one.yaml: there is no such file")
    with pytest.raises(streamproof.failed, match=r"^chaos/one\.yaml: there is no such file$"):
        streamproof.task().execute(_context())


def test_a_command_that_ends_without_an_answer_is_told_by_its_last_lines(streamproof: Streamproof) -> None:
    streamproof.answer(9, None, *(f"line {number}" for number in range(30)))
    with pytest.raises(streamproof.may_be_tried_again, match=r"exit code 9\nline 25\nline 26\nline 27\nline 28\nline 29$"):
        streamproof.task().execute(_context())


def test_a_large_answer_does_not_block_the_command(streamproof: Streamproof) -> None:
    found = streamproof.verdict("PASSED", "fine") | {"more": "x" * 3_000_000}
    streamproof.answer(0, found, *("x" * 1000 for _ in range(300)))
    assert streamproof.task().execute(_context())["outcome"] == "PASSED"


def test_a_sweep_fails_with_a_line_for_each_wrong_prediction(streamproof: Streamproof) -> None:
    result = {"strategy": "two_phase_commit", "step": "decided", "action": "kill_driver", "outcome": "FAILED", "reason": "7 LOST"}
    results = [{**result, "as_predicted": True}, {**result, "as_predicted": False}]
    folder = str(streamproof.project / ".streamproof" / "sweeps" / "two")
    task = streamproof.operators.StreamproofSweepOperator(
        task_id="sweep", strategies=["two_phase_commit"], steps=["decided", "done"], seed=3, records=1200
    )
    streamproof.answer(1, {"folder": folder, "wrong": 1, "results": results})
    with pytest.raises(
        streamproof.may_be_tried_again, match=r"^1 of 2 not as predicted\ntwo_phase_commit: kill_driver at decided: FAILED: 7 LOST$"
    ):
        task.execute(_context())
    words = ["sweep", "two_phase_commit", "--step", "decided", "--step", "done", "--seed", "3", "--records", "1200"]
    assert streamproof.called["words"][: len(words)] == words
    streamproof.answer(0, {"folder": folder, "wrong": 0, "results": results[:1]})
    assert task.execute(_context()) == {"folder": folder, "wrong": 0, "runs": 1}
    assert [link.get_link(task, ti_key=None) for link in task.operator_extra_links] == [
        "/streamproof-results/streamproof_default/sweeps/two/matrix.html"
    ]


# --- a task that is killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [True, False], ids=["while-it-runs", "before-it-runs"])
def test_a_killed_task_ends_the_command_by_closing_its_standard_input(streamproof: Streamproof, late: bool) -> None:
    streamproof.answer(130, streamproof.verdict("ABORTED", "stopped by SIGTERM"), waits=True)
    task = streamproof.task()

    def kill() -> None:
        while late and not (streamproof.bin / "called.json").exists():
            time.sleep(0.05)
        task.on_kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    if not late:
        killer.join()
    with pytest.raises(streamproof.may_be_tried_again, match=r"^ABORTED: stopped by SIGTERM$"):
        task.execute(_context())
    task.on_kill()  # again: nothing


def test_whatever_else_ends_the_task_ends_the_command(streamproof: Streamproof) -> None:
    streamproof.answer(130, None, waits=True)
    command = streamproof.hook().start("run", "one.yaml")
    with pytest.raises(KeyboardInterrupt), streamproof.hooks.ended(command):
        raise KeyboardInterrupt
    assert command._process.returncode == 130


# --- links and pages -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "base", "address"),
    [
        (None, "", "/streamproof-results/streamproof_default"),
        (None, "https://lab.example.org/airflow/", "/airflow/streamproof-results/streamproof_default"),
        ("https://files.example.org/state/", "https://lab.example.org/airflow", "https://files.example.org/state"),
    ],
    ids=["plugin", "plugin-below-a-path", "web-server"],
)
def test_links_lead_to_the_runs_pages(
    streamproof: Streamproof, monkeypatch: pytest.MonkeyPatch, url: str | None, base: str, address: str
) -> None:
    streamproof.connect(state_url=url)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
    streamproof.answer(1, streamproof.verdict("FAILED", "a reason"))
    task = streamproof.task()
    assert [link.get_link(task, ti_key=None) for link in task.operator_extra_links] == ["", ""]
    with pytest.raises(streamproof.failed):
        task.execute(_context())
    assert [link.get_link(task, ti_key=None) for link in task.operator_extra_links] == [
        f"{address}/runs/one/report.html",
        f"{address}/runs/one/expectations/data_docs/index.html",
    ]


def test_only_results_are_served(streamproof: Streamproof) -> None:
    from starlette.exceptions import HTTPException

    from streamproof_provider.pages import app

    state = streamproof.project / ".streamproof"
    run = state / "runs" / "one"
    docs = run / "expectations" / "data_docs"
    docs.mkdir(parents=True)
    for path in (run / "report.html", run / "job.json", docs / "index.html", state / "secrets.json"):
        path.write_text("text")
    (docs / "outside.html").symlink_to(state / "secrets.json")
    for path in ("report.html", "expectations/data_docs/index.html"):
        assert app._file("streamproof_default", "runs", "one", path) == run / path
    for kind, name, path in (
        ("runs", "one", "job.json"),
        ("runs", "one", "expectations/data_docs/../../job.json"),
        ("runs", "one", "expectations/data_docs/outside.html"),
        ("runs", "one", "anomalies.csv"),
        ("runs", "..", "secrets.json"),
        ("airflow", "one", "report.html"),
        ("sweeps", "one", "report.html"),
        ("runs", "one", "report.html\0"),
    ):
        with pytest.raises(HTTPException, match="404"):
            app._file("streamproof_default", kind, name, path)
    with pytest.raises(HTTPException, match="404: There is no connection 'no_such'"):
        app._file("no_such", "runs", "one", "report.html")
