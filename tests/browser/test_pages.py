"""The report and the history's pages, opened from a disk: what charts show, without a network, for everybody."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamproof.history import page
from streamproof.report.report import render
from streamproof.run.stages import suite_spec
from streamproof.suites.evaluate import evaluate
from streamproof.verdict.judge import judge
from streamproof.verdict.reconciliation import write_reconciliation
from tests.browser.conftest import Seat
from tests.browser.looks import barriers, marks, overflow
from tests.support.histories import SPEC, Story, at
from tests.support.remembered import night, nights, write

WINDOWS = [(1280, False), (1280, True), (390, False), (390, True)]
NAMES = [f"{width}-{'dark' if dark else 'light'}" for width, dark in WINDOWS]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run that lost and doubled records."""
    story = Story()
    story.histories.drop([(0, 7), (0, 8)])
    story.histories.double([(0, number) for number in range(20, 30)])
    for line, second in zip(story.progress, (1.0, 3.5, 7.0, 9.0), strict=True):
        line["started_at"] = at(second)
    folder = write(tmp_path_factory.mktemp("runs"), "night-1", story=story)
    write_reconciliation(folder, judge(folder, SPEC).table)
    suite_spec(SPEC).write(folder)
    evaluate(folder)
    return render(folder)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = [
        *nights("PPPPF"),
        *(replace(run, run=f"{run.run}-c", strategy="checkpoint", guarantee="at-least-once") for run in nights("PFPFP")),
        *(replace(run, run=f"{run.run}-s", faults="crash_at_step(step=a)", fault_names=("crash_at_step",)) for run in nights("PP")),
        *(replace(run, run=f"{run.run}-t", faults="crash_at_step(step=b)", fault_names=("crash_at_step",)) for run in nights("PI")),
        night(9, "A", strategy="file_sink", faults="none", fault_names=()),
    ]
    return page.write(runs, tmp_path_factory.mktemp("pages") / "history.html")


@pytest.mark.parametrize(("width", "dark"), WINDOWS, ids=NAMES)
@pytest.mark.parametrize("which", ["report", "matrix"])
def test_a_page_has_no_barrier_and_asks_nobody(
    which: str, width: int, dark: bool, sit: Callable[..., Seat], request: pytest.FixtureRequest
) -> None:
    seat = sit(width, dark=dark)
    seat.page.goto(request.getfixturevalue(which).as_uri())
    seat.page.wait_for_selector(".chart.drawn")
    seat.picture(f"{which}-{width}-{'dark' if dark else 'light'}", whole=True)
    assert barriers(seat.page) == []
    assert overflow(seat.page) == 0
    assert {address.split(":")[0] for address in seat.asked} <= {"file", "data"}
    assert seat.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_chart_shades_the_fault_where_it_was_and_shows_every_batch(width: int, report: Path, sit: Callable[..., Seat]) -> None:
    seat = sit(width)
    seat.page.goto(report.as_uri())
    (fault,) = marks(seat.page, "output_faults")
    (phase,) = [one for one in marks(seat.page, "output_phases") if one["phase"] == "steady"]
    per_second = phase["width"] / (phase["to"] - phase["from"])
    assert fault["fault"] == "kill_executor-1"
    assert fault["left"] == pytest.approx(fault["from"] * per_second, abs=1)
    assert fault["width"] == pytest.approx((fault["to"] - fault["from"]) * per_second, abs=1)
    assert (fault["from"], fault["to"]) == (5.5, 7.0), "from its injection to its heal, in seconds after the driver's start"
    for panel in ("backlog", "batches", "driver"):
        assert [(one["left"], one["width"]) for one in marks(seat.page, f"{panel}_faults")] == [(fault["left"], fault["width"])]
    progress = (report.parent / "progress.jsonl").read_text().splitlines()
    assert [bar["rows"] for bar in marks(seat.page, "batch_bars")] == [json.loads(line)["rows"] for line in progress]
    shown = seat.page.locator(".live .output_faults_0_marks path").bounding_box()
    assert shown is not None
    assert shown["width"] == pytest.approx(fault["width"], abs=1.5)
    assert shown["height"] > 50
    assert [one["text"] for one in marks(seat.page, "fault_names_left")] == ["kill_executor-1"]


def test_without_scripts_there_is_a_picture_with_the_window(report: Path, sit: Callable[..., Seat]) -> None:
    for width, shown, hidden in ((1280, ".wide", ".narrow"), (390, ".narrow", ".wide")):
        seat = sit(width, scripts=False)
        seat.page.goto(report.as_uri())
        assert seat.page.locator(f".chart {shown} .output_faults_0_marks path").is_visible()
        assert not seat.page.locator(f".chart {hidden}").is_visible()
        assert not seat.page.locator(".search").is_visible()
        seat.picture(f"report-{width}-without-scripts")


def test_a_chart_is_as_wide_as_its_window_lets_it(report: Path, sit: Callable[..., Seat]) -> None:
    seat = sit(1280)
    seat.page.goto(report.as_uri())
    (wide,) = marks(seat.page, "output_faults")
    seat.page.set_viewport_size({"width": 390, "height": 844})
    seat.page.wait_for_function("document.querySelector('.live svg').getBoundingClientRect().width < 390")
    (narrow,) = marks(seat.page, "output_faults")
    assert narrow["width"] < wide["width"] / 2
    assert overflow(seat.page) == 0


def test_anomalies_are_searched_as_one_types(report: Path, sit: Callable[..., Seat]) -> None:
    seat = sit()
    seat.page.goto(report.as_uri())
    rows = seat.page.locator("#records tbody tr")
    assert rows.count() == 12
    seat.page.get_by_label("Find").fill("lost 0/8")
    assert rows.locator("visible=true").count() == 1
    assert "LOST" in rows.locator("visible=true").inner_text()
    assert seat.page.locator(".search output").inner_text() == "1 of 12 shown"
    seat.page.get_by_label("Find").fill("")
    assert rows.locator("visible=true").count() == 12


def test_a_tooltip_says_what_is_under_the_mouse(report: Path, sit: Callable[..., Seat]) -> None:
    seat = sit()
    seat.page.goto(report.as_uri())
    seat.page.wait_for_selector(".chart.drawn")
    seat.page.locator(".live .batch_bars_2_marks path").first.hover()
    tip = seat.page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "15" in tip.inner_text()


def test_the_report_is_one_file_of_a_reasonable_size(report: Path) -> None:
    assert report.stat().st_size < 1_300_000
