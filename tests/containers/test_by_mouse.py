"""The six rows of the demonstration, triggered in the browser at the stack's Airflow: the form, the run, its verdict. Pictures are in
``build/browser``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from streamproof.airflow.demo import ROWS
from streamproof.airflow.service import DAG, USER
from tests.browser.conftest import Seat, browser, frame, sit
from tests.containers.conftest import Stack

__all__ = ["browser", "sit"]
RUN_MS = 400_000
RECORDS = 12_000


@pytest.fixture
def admin(stack: Stack, sit: Callable[..., Seat]) -> Seat:
    """Logged in, with the password that the stack has drawn."""
    password = json.loads(stack.inside("cat /var/lib/streamproof/airflow/passwords.json").stdout)[USER]
    seat = sit()
    api: Any = SimpleNamespace(url=f"http://127.0.0.1:{stack.port}", user=USER, password=password)
    seat.login(api)
    return seat


def _choose(page: Page, name: str, option: str) -> None:
    page.locator(f"#element_{name}").click()
    page.get_by_role("option", name=re.compile(rf"^{option}\b")).click()


@pytest.mark.parametrize(("strategy", "fault"), ROWS, ids=["-".join(row) for row in ROWS])
def test_a_row_is_triggered_by_mouse(stack: Stack, admin: Seat, strategy: str, fault: str) -> None:
    page, before = admin.page, _runs(stack)
    page.get_by_test_id("nav-dags-link").click()
    page.get_by_role("link", name=DAG, exact=True).first.click()
    page.get_by_text("run_pipeline").first.wait_for()
    page.get_by_test_id("trigger-dag-button").first.click()
    _choose(page, "strategy", strategy)
    _choose(page, "fault", fault)
    page.locator("input[name=element_records]").fill(str(RECORDS))
    page.get_by_test_id("trigger-dag-submit").click()
    expect(page.get_by_test_id("trigger-dag-submit")).to_be_hidden()
    page.wait_for_url("**/runs/manual__*")  # Airflow shows the run that it has begun
    state = page.get_by_test_id("header-card").get_by_test_id("state-badge").first
    expect(state).to_have_text("Success", timeout=RUN_MS)
    admin.picture(f"stack-{strategy}-{fault}")
    (folder,) = _runs(stack) - before
    verdict = json.loads(stack.inside(f"cat /var/lib/streamproof/runs/{folder}/verdict.json").stdout)
    assert (verdict["strategy"], verdict["outcome"]) == (strategy, "PASSED"), verdict["reason"]
    assert [injection["fault"] for injection in verdict["injections"]] == [fault]


def test_the_report_is_read_in_airflow(stack: Stack, admin: Seat) -> None:
    page = admin.page
    page.goto(f"http://127.0.0.1:{stack.port}")
    page.get_by_test_id("nav-sidebar").get_by_role("link", name="Streaming reliability").click()
    pages = frame(page)
    pages.locator(".matrix").wait_for()
    admin.picture("stack-matrix")
    pages.locator(".square", has_text="PASSED").first.get_by_role("link").click()
    pages.get_by_role("link", name=re.compile("^manual")).first.click()
    page.wait_for_url("**/plugin/streaming-reliability/streamproof/runs/**")
    expect(pages.locator(".outcome")).to_contain_text("PASSED")
    admin.picture("stack-report")


def _runs(stack: Stack) -> set[str]:
    return set(stack.inside("ls /var/lib/streamproof/runs").stdout.split())
