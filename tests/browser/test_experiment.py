"""A newcomer with a mouse: the form, the run, its verdict, the page in the navigation, the cell, the report. Then the same by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from streamproof import settings
from streamproof.airflow.service import DAG, Api
from streamproof.evidence.folder import RunFolder
from streamproof.testbed.embedded import Testbed
from tests.browser.conftest import Seat, frame
from tests.browser.looks import barriers, marks, overflow

RUN_MS = 240_000
RECORDS = 12_000
WINDOWS = [(1280, False), (1280, True), (390, False), (390, True)]
NAMES = [f"{width}-{'dark' if dark else 'light'}" for width, dark in WINDOWS]


def _choose(page: Page, name: str, option: str) -> None:
    page.locator(f"#element_{name}").click()
    page.get_by_role("option", name=re.compile(rf"^{option}\b")).click()


@pytest.fixture(scope="module")
def finished() -> dict[str, Any]:
    """What the first test leaves for those after it."""
    return {}


@pytest.mark.timeout(600)
def test_an_experiment_from_the_form_to_its_report(
    admin: Callable[..., Seat], airflow: Api, testbed: Testbed, finished: dict[str, Any]
) -> None:
    seat = admin()
    page = seat.page
    page.get_by_test_id("nav-dags-link").click()
    page.get_by_role("link", name=DAG, exact=True).first.click()
    page.get_by_text("run_pipeline").first.wait_for()  # until then the page is built anew, and a form in it is gone
    page.get_by_test_id("trigger-dag-button").first.click()
    _choose(page, "strategy", "offset_commit")
    page.locator("input[name=element_records]").fill(str(RECORDS))
    page.locator("input[name=element_seed]").fill("7")
    seat.picture("form")
    page.get_by_test_id("trigger-dag-submit").click()
    expect(page.get_by_test_id("trigger-dag-submit")).to_be_hidden()

    (run,) = airflow.request("GET", f"/api/v2/dags/{DAG}/dagRuns").json()["dag_runs"]
    here = f"{airflow.url}/dags/{DAG}/runs/{quote(run['dag_run_id'], safe='')}"
    page.goto(here)
    state = page.get_by_test_id("header-card").get_by_test_id("state-badge").first
    expect(state).to_have_text(re.compile("Running|Success"))  # what it was before the page was there cannot be seen
    seat.picture("running")
    expect(state).to_have_text("Success", timeout=RUN_MS)
    seat.picture("finished")
    folder = RunFolder.open(settings.runs() / re.sub(r"[^A-Za-z0-9_.-]+", "-", run["dag_run_id"]))
    verdict = folder.read_json(folder.verdict)
    assert (verdict["outcome"], verdict["strategy"], verdict["sent"]["acked"]) == ("PASSED", "offset_commit", RECORDS)

    page.goto(f"{here}/tasks/report/details")
    page.get_by_role("link", name="Report", exact=True).scroll_into_view_if_needed()
    seat.picture("links")
    page.get_by_role("link", name="Report", exact=True).click()
    page.wait_for_url(f"**/streamproof/runs/{folder.name}/files/report.html")

    page.goto(airflow.url)
    page.get_by_test_id("nav-sidebar").get_by_role("link", name="Streaming reliability").click()
    mine = frame(page)
    mine.locator(".square", has_text="PASSED").get_by_role("link").click()
    mine.get_by_role("link", name=folder.name).click()
    page.wait_for_url("**/plugin/streaming-reliability/streamproof/runs/**")
    assert verdict["reason"] in mine.locator(".outcome").inner_text()
    (fault,) = marks(mine, "output_faults")
    assert fault["fault"] == "kill_executor-1"
    assert fault["width"] > 2
    mine.locator("#timeline-title").evaluate("title => title.parentElement.scrollIntoView()")
    seat.picture("report-in-airflow")
    address = page.url
    mine.get_by_role("link", name="Streaming reliability").click()
    mine.locator(".matrix").wait_for()

    page.goto(address)  # as somebody would who was given it
    frame(page).get_by_role("link", name="Data Docs").click()
    page.wait_for_url("**/expectations/data_docs/index.html")
    frame(page).get_by_role("link", name="Report", exact=True).click()
    page.wait_for_url("**/files/report.html")
    finished.update(folder=folder, url=airflow.url)


@pytest.mark.parametrize(("width", "dark"), WINDOWS, ids=NAMES)
def test_the_pages_in_airflow_have_no_barrier_and_ask_nobody_outside(
    width: int, dark: bool, admin: Callable[..., Seat], finished: dict[str, Any]
) -> None:
    if not finished:
        pytest.skip("there is no run to look at: the test before this one failed")
    seat = admin(width, dark=dark)
    seat.page.goto(f"{finished['url']}/plugin/streaming-reliability")
    frame(seat.page).locator(".matrix").wait_for()
    seat.picture(f"plugin-in-airflow-{width}-{'dark' if dark else 'light'}")
    run = f"/streamproof/runs/{finished['folder'].name}"
    seat.page.goto(f"{finished['url']}/streamproof/")
    cell = seat.page.locator(".square a").get_attribute("href")
    seat.asked.clear()
    seat.complaints.clear()
    for name, path in (
        ("plugin", "/streamproof/"),
        ("cell", f"/streamproof/{cell}"),
        ("report", f"{run}/report"),
        ("files", f"{run}/files/"),
        ("data-docs", f"{run}/data-docs"),
    ):
        seat.page.goto(finished["url"] + path)
        if name in ("cell", "report"):
            seat.page.wait_for_selector(".chart.drawn")
        seat.picture(f"served-{name}-{width}-{'dark' if dark else 'light'}", whole=True)
        assert barriers(seat.page) == [], name
        assert overflow(seat.page) == 0, name
    assert seat.outside == set()
    assert seat.complaints == []


def test_the_page_can_be_walked_by_keyboard(admin: Callable[..., Seat], finished: dict[str, Any]) -> None:
    if not finished:
        pytest.skip("there is no run to look at: the test before this one failed")
    seat = admin()
    page = seat.page
    page.goto(f"{finished['url']}/streamproof/")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the matrix"
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.locator(":focus").get_attribute("href"):
            break
    assert "PASSED" in page.locator(":focus").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/cell\?"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("offset_commit")
