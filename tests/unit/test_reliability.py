"""The plugin's app: who is not known gets nothing; a run's files are served and nothing beside them; its pages run no script but ours."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof import settings
from streamproof.run import recording
from tests.support.checkout import ROOT
from tests.support.remembered import night, nights, write


@pytest.fixture(scope="module", autouse=True)
def _airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder with one run that has a report and Data Docs, one that has none, and a history."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMPROOF_HOME", str(tmp_path_factory.mktemp("home")))
        settings.runs().mkdir()
        folder = write(settings.runs(), "night-1")
        folder.report.write_text("<html><body><h1>report of night-1</h1></body></html>")
        docs = folder.expectations / "data_docs"
        docs.mkdir(parents=True)
        (docs / "index.html").write_text("<p>Data Docs</p>")
        (folder.logs / "driver-1.log").write_text("<script>alert(1)</script>")
        (folder.path / "a file & more.parquet").write_bytes(b"PAR1")
        (folder.path / "out").symlink_to(settings.home() / "secret.txt")
        (settings.home() / "secret.txt").write_text("secret")
        write(settings.runs(), "night-2")
        (settings.runs() / "linked").symlink_to(folder.path)
        with recording.opened() as store:
            store.record(*nights("PPPF"), night(4, faults="<b>", fault_names=("<b>",)))
        yield settings.runs()


@pytest.fixture
def anonymous(runs: Path) -> Any:
    from starlette.testclient import TestClient

    from streamproof.airflow.pages.app import app

    return TestClient(app, follow_redirects=False)


@pytest.fixture
def viewer(anonymous: Any) -> Iterator[Any]:
    """Somebody whom Airflow let pass; that it asks them is tested on a real one."""
    from streamproof.airflow.pages import access

    anonymous.app.dependency_overrides[access.may_look] = lambda: None
    yield anonymous
    anonymous.app.dependency_overrides.clear()


ROUTES = (
    "/",
    "/cell?pipeline=kafka_to_kafka&strategy=two_phase_commit&guarantee=exactly-once&faults=kill_executor(count%3D1)",
    "/runs/night-1/report",
    "/runs/night-1/data-docs",
    "/runs/night-1/files/expectations/data_docs/index.html",
    "/runs/night-1/files",
    "/runs/night-1/files/",
    "/runs/night-1/files/report.html",
    "/runs/night-1/files/logs",
    "/runs/night-1/files/logs/driver-1.log",
    "/assets/charts.js",
    "/assets/icon.svg",
)


def test_every_route_is_asked_for_here(anonymous: Any) -> None:
    from starlette.routing import compile_path

    patterns = [compile_path(route.path)[0] for route in anonymous.app.routes]
    paths = [path.split("?")[0] for path in ROUTES]
    assert all(any(pattern.match(path) for path in paths) for pattern in patterns)


@pytest.mark.parametrize("path", ROUTES)
def test_who_is_not_known_gets_nothing(anonymous: Any, path: str) -> None:
    answer = anonymous.get(path)
    assert (answer.status_code, answer.text) == (401, "Not authenticated")
    page = anonymous.get(path, headers={"Sec-Fetch-Dest": "document"})
    assert page.status_code == 307
    assert page.headers["location"].startswith("/api/v2/auth/login?next=%2F")


@pytest.mark.parametrize("path", ROUTES)
def test_nothing_can_be_changed(viewer: Any, path: str) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert viewer.request(method, path).status_code == 405


@pytest.mark.parametrize("path", ROUTES)
def test_what_is_served_may_load_nothing_from_elsewhere_and_run_no_script_but_ours(viewer: Any, path: str) -> None:
    answer = viewer.get(path)
    assert answer.status_code in (200, 307)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'self'"
    assert policy.get("script-src") in ({"/runs/night-1/files/report.html": "'unsafe-inline'"}.get(path, "'self'"), None)
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_matrix_leads_to_cells_and_they_to_reports(viewer: Any) -> None:
    page = viewer.get("/").text
    link = "cell?pipeline=kafka_to_kafka&amp;strategy=two_phase_commit&amp;guarantee=exactly-once&amp;faults=kill_executor%28count%3D1%29"
    assert f'href="{link}"' in page
    assert "newly broken" in page
    cell = viewer.get("/" + link.replace("&amp;", "&")).text
    assert cell.count('<th scope="row">') == 4
    assert '<a href="runs/night-1/report">night-1</a>' in cell
    assert "night-2 <span" in cell, "a run without a report is no link"
    assert '<script type="module" src="assets/vega.js">' in cell


def test_what_runs_say_is_text_in_a_cell_too(viewer: Any) -> None:
    cell = viewer.get("/cell?pipeline=kafka_to_kafka&strategy=two_phase_commit&guarantee=exactly-once&faults=%3Cb%3E").text
    assert "<b>" not in cell
    assert "&lt;b&gt;" in cell


def test_a_cell_that_was_never_run_is_told(viewer: Any) -> None:
    assert viewer.get("/cell?pipeline=a&strategy=b&guarantee=c&faults=d").status_code == 404


def test_a_run_leads_to_its_report_which_leads_back(viewer: Any) -> None:
    assert viewer.get("/runs/night-1/report").headers["location"] == "files/report.html"
    page = viewer.get("/runs/night-1/files/report.html").text
    assert "report of night-1" in page
    assert '<a href="../../../">Streaming reliability</a>' in page
    assert "no report yet" in viewer.get("/runs/night-2/report").text
    assert viewer.get("/runs/night-2/report").status_code == 404


def test_a_run_leads_to_its_data_docs(viewer: Any) -> None:
    docs = viewer.get("/runs/night-1/data-docs")
    assert docs.headers["location"] == "files/expectations/data_docs/index.html"
    assert "no Data Docs" in viewer.get("/runs/night-2/data-docs").text
    assert viewer.get("/runs/night-2/data-docs").status_code == 404


def test_files_are_shown_as_text_or_saved(viewer: Any) -> None:
    log = viewer.get("/runs/night-1/files/logs/driver-1.log")
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    parquet = viewer.get("/runs/night-1/files/a%20file%20&%20more.parquet")
    assert parquet.headers["content-disposition"].startswith("attachment")
    listing = viewer.get("/runs/night-1/files/").text
    assert 'href="a%20file%20%26%20more.parquet"' in listing
    assert 'href="logs/"' in listing
    assert 'href="../../../../"' in viewer.get("/runs/night-1/files/logs/").text


@pytest.mark.parametrize("run", ["night-1", "..", ".", "linked", "%2e%2e", "night-1%2f..", "nope", "night-1%00", "night-2/../night-1"])
@pytest.mark.parametrize(
    "path", ["../../secret.txt", "%2e%2e/%2e%2e/secret.txt", "out", "..%2f..%2fsecret.txt", "/etc/passwd", "a%00b", "../night-2"]
)
def test_nothing_outside_the_folder_of_a_run_is_served(viewer: Any, run: str, path: str) -> None:
    answer = viewer.get(f"/runs/{run}/files/{path}")
    assert answer.status_code in (404, 307)
    assert "secret" not in answer.text.replace("secret.txt", "")


@given(st.text(), st.text())
def test_no_name_and_no_path_leads_out(runs: Path, run: str, path: str) -> None:
    from starlette.exceptions import HTTPException

    from streamproof.airflow.pages import files

    with contextlib.suppress(HTTPException):
        assert files.locate(run, path).is_relative_to(runs / run)


def test_a_history_that_cannot_be_read_is_told(viewer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_HISTORY", "no url")
    answer = viewer.get("/")
    assert answer.status_code == 503
    assert "is not the URL of a database" in answer.text


def _plugin() -> Any:
    """The plugin, as Airflow loads it."""
    spec = importlib.util.spec_from_file_location("reliability_plugin", ROOT / "src" / "streamproof" / "airflow" / "plugin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.StreamproofPlugin


def test_loading_the_plugin_makes_no_app_yet() -> None:
    before = sys.modules.pop("streamproof.airflow.pages.app", None)
    try:
        _plugin()
        assert "streamproof.airflow.pages.app" not in sys.modules
    finally:
        if before is not None:
            sys.modules["streamproof.airflow.pages.app"] = before


@pytest.mark.parametrize(("base_url", "path"), [("", ""), ("http://127.0.0.1:8080", ""), ("https://lab.example.org/airflow/", "/airflow")])
def test_the_page_and_its_icons_are_found_below_airflows_path(base_url: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    plugin = _plugin()
    (view,) = plugin.external_views
    assert [view[name] for name in ("href", "icon", "icon_dark_mode")] == [
        f"{path}/streamproof/{file}" for file in ("", "assets/icon.svg", "assets/icon-dark.svg")
    ]
    assert plugin.fastapi_apps[0]["url_prefix"] == "/streamproof", "Airflow adds its path itself"
