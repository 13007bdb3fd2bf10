"""The plugin's pages on an Airflow that is served below a path, as behind a proxy: every link stays below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from streamproof import settings
from streamproof.airflow import service
from streamproof.airflow.service import VIEWER, Api
from streamproof.report.report import render
from streamproof.run import recording
from tests.browser.conftest import Seat, frame
from tests.support.remembered import night, write

BELOW = "/lab/airflow"
RUN = "night-1"


@pytest.fixture(scope="module")
def airflow(home: Path) -> Iterator[Api]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMPROOF_AIRFLOW_URL", f"https://example.org{BELOW}")
        yield service.up()
        service.down()


@pytest.fixture(scope="module", autouse=True)
def _a_run(airflow: Api) -> Iterator[None]:
    render(write(settings.runs(), RUN), settings.cache())
    with recording.opened() as store:
        store.record(night(1))
        yield
        store.forget(night(1))


def test_from_the_navigation_to_a_report_and_back(airflow: Api, admin: Callable[..., Seat]) -> None:
    assert urlsplit(airflow.url).path == BELOW
    seat = admin(user=VIEWER)
    page = seat.page
    page.get_by_test_id("nav-sidebar").get_by_role("link", name="Streaming reliability").click()
    mine = frame(page)
    icon = page.get_by_test_id("nav-sidebar").locator("img[src*=streamproof]")
    expect(icon).to_have_js_property("complete", True)
    assert icon.evaluate("icon => icon.naturalWidth") > 0
    mine.locator(".matrix tr", has_text="two_phase_commit").locator(".square").get_by_role("link").click()
    mine.get_by_role("link", name=RUN).click()
    mine.wait_for_selector(".chart.drawn")
    mine.get_by_role("link", name="Streaming reliability").click()
    mine.locator(".matrix").wait_for()
    asked = [urlsplit(address) for address in seat.asked]
    assert [address.geturl() for address in asked if address.scheme == "http" and not address.path.startswith(BELOW)] == []
    assert seat.outside == set()


def test_a_page_that_is_opened_by_itself_leads_to_the_login_and_back(airflow: Api, sit: Callable[..., Seat]) -> None:
    sit().report_by_way_of_the_login(Api(VIEWER), RUN, f"**{BELOW}/streamproof/runs/{RUN}/files/report.html")
