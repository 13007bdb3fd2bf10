"""The plugin's pages on a real Airflow: nothing for somebody who is not known, looking for a viewer, and no way out of a run's folder."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from streamproof import settings
from streamproof.airflow.service import DAG, USER, VIEWER, Api
from streamproof.report.report import render
from streamproof.run import recording
from tests.browser.conftest import Seat, frame
from tests.support.remembered import night, write

RUN = "night-1"
PATHS = (
    "/streamproof/",
    "/streamproof/cell?pipeline=kafka_to_kafka&strategy=two_phase_commit&guarantee=exactly-once&faults=kill_executor(count%3D1)",
    f"/streamproof/runs/{RUN}/report",
    f"/streamproof/runs/{RUN}/files/",
    f"/streamproof/runs/{RUN}/files/report.html",
    f"/streamproof/runs/{RUN}/files/verdict.json",
    "/streamproof/assets/charts.js",
)


@pytest.fixture(scope="module", autouse=True)
def _a_run(airflow: Api) -> Iterator[None]:
    """A run in the history, with a report, and something beside the runs that nobody may see."""
    folder = write(settings.runs(), RUN)
    render(folder, settings.cache())
    (settings.home() / "secret.txt").write_text("secret")
    with recording.opened() as store:
        store.record(night(1))
        yield
        store.forget(night(1))


@contextmanager
def _known(user: str) -> Iterator[httpx.Client]:
    api = Api(user)
    with httpx.Client(base_url=api.url, trust_env=False) as client:
        token = client.post("/auth/token", json={"username": user, "password": api.password}).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


@pytest.mark.parametrize("path", PATHS)
def test_who_is_not_known_gets_nothing(airflow: Api, path: str) -> None:
    with httpx.Client(base_url=airflow.url, trust_env=False) as nobody:
        forged = {"Cookie": "_token=eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiIsInJvbGUiOiJhZG1pbiJ9."}
        for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic YWRtaW46YWRtaW4="}, forged):
            answer = nobody.get(path, headers=headers)
            assert answer.status_code in (401, 403), headers
            assert len(answer.content) < 60


@pytest.mark.parametrize("user", [USER, VIEWER])
@pytest.mark.parametrize("path", PATHS)
def test_both_roles_may_look(airflow: Api, user: str, path: str) -> None:
    with _known(user) as client:
        assert client.get(path, follow_redirects=True).status_code == 200


def test_a_viewer_cannot_start_anything_and_the_pages_start_nothing_for_anybody(airflow: Api) -> None:
    order = {"dag_run_id": "not-by-a-viewer", "conf": {}, "logical_date": None}
    with _known(VIEWER) as viewer, _known(USER) as admin:
        assert viewer.post(f"/api/v2/dags/{DAG}/dagRuns", json=order).status_code == 403
        for path in PATHS:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                assert viewer.request(method, path).status_code == 405
                assert admin.request(method, path).status_code == 405
    assert airflow.request("GET", f"/api/v2/dags/{DAG}/dagRuns/not-by-a-viewer", accept=(404,)).status_code == 404


@pytest.mark.parametrize(
    "path", ["files/../../../secret.txt", "files/%2e%2e/%2e%2e/%2e%2e/secret.txt", "files//etc/passwd", "files/..%2f..%2f..%2fsecret.txt"]
)
def test_no_path_leads_out_of_a_runs_folder(airflow: Api, path: str) -> None:
    """Sent as it is: a client of HTTP would tidy it up before."""
    with _known(USER) as client:
        token = client.headers["Authorization"]
    address = urlsplit(airflow.url)
    with socket.create_connection((address.hostname, address.port), 20) as connection:
        wanted = (
            f"GET /streamproof/runs/{RUN}/{path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: {token}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(wanted.encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.split(b" ", 2)[1] == b"404", answer[:200]
    assert b"secret\n" not in answer
    assert b"root:" not in answer


def test_a_page_that_is_opened_by_itself_leads_to_the_login_and_back(airflow: Api, sit: Callable[..., Seat]) -> None:
    sit().report_by_way_of_the_login(Api(VIEWER), RUN, f"**/runs/{RUN}/files/report.html")


def test_a_viewer_finds_the_page_in_the_navigation(admin: Callable[..., Seat]) -> None:
    seat = admin(user=VIEWER)
    seat.page.get_by_test_id("nav-sidebar").get_by_role("link", name="Streaming reliability").click()
    expect(frame(seat.page).locator(".square", has_text="PASSED")).to_have_count(1)
