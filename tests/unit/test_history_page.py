"""The matrix is as well as its worst cell, and its page says so in words, offline, with links that lead somewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof.history.changes import Kind
from streamproof.history.matrix import Line, Square, State, column, matrix
from streamproof.history.page import bars, html, trend, write
from streamproof.history.record import Run
from tests.support.remembered import RUN, night, nights

AT_ONCE = {"faults": "crash_at_step(step=after_output)", "fault_names": ("crash_at_step",)}
MINE = Line("two_phase_commit", "exactly-once", "kafka_to_kafka")


class _Page(HTMLParser):
    """The elements of a page; one that is not closed, or closed out of turn, fails."""

    void = frozenset({"meta", "link", "br", "hr", "wbr", "img", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.void or tag == "rect":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str, name: str) -> list[str]:
        return [attributes[name] for found, attributes in self.elements if found == tag and name in attributes]


def _page(runs: list[Run]) -> str:
    return html(matrix(runs), lambda run: None)


def _square(runs: list[Run]) -> Square:
    (square,) = matrix(runs).squares.values()
    return square


# --- the matrix ---------------------------------------------------------------------------------------------------------------------


def test_a_square_holds_the_cells_whose_plans_name_the_same_faults() -> None:
    runs = [
        night(0, faults="crash_at_step(step=one)", fault_names=("crash_at_step",)),
        night(1, faults="crash_at_step(step=two)", fault_names=("crash_at_step",)),
        night(2, faults="none", fault_names=()),
        night(3, faults="a(x=1) + b + a(x=2)", fault_names=("a", "b")),
        night(4, faults="random(count=6)", fault_names=("b", "c", "a")),
        night(5, guarantee="at-least-once"),
    ]
    found = matrix(runs)
    assert found.columns == ("none", "crash_at_step", "kill_executor", "a + b", "random")
    assert found.lines == (Line("two_phase_commit", "at-least-once", "kafka_to_kafka"), MINE)
    assert len(found.squares[MINE, "crash_at_step"].entries) == 2
    assert (MINE, "kill_executor") not in found.squares


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ("P", State.GOOD),
        ("FP", State.GOOD),
        ("F", State.BAD),
        ("FF", State.BAD),
        ("PI", State.DOUBT),
        ("PFPFP", State.DOUBT),
        ("A", State.UNKNOWN),
    ],
)
def test_the_state_of_a_square_is_that_of_its_newest_run_and_those_before(outcomes: str, state: State) -> None:
    assert _square(nights(outcomes)).state is state


def test_a_square_is_as_well_as_its_worst_cell() -> None:
    cells = {"P": "one", "F": "two", "I": "three", "A": "four"}
    runs = [night(0, outcome, run=step, faults=f"crash_at_step(step={step})") for outcome, step in cells.items()]
    assert [entry.newest.run for entry in _square(runs).entries] == ["two", "three", "four", "one"]
    assert _square(runs).state is State.BAD
    assert [each.kind for each in matrix(runs).changes] == [Kind.NEWLY_BROKEN, Kind.NOT_SHOWN, Kind.NEW]


def test_the_trend_of_several_cells_is_their_median_run_by_run_up_to_the_newest() -> None:
    def cell(name: str, *seconds: float | None) -> list[Run]:
        return [night(number, run=f"{name}-{number}", faults=name, recovery_s=value) for number, value in enumerate(seconds)]

    square = _square([*cell("one", 1.0, 2.0, 3.0), *cell("two", 4.0, None), *cell("three", 9.0)])
    assert square.trend == (1.0, 3.0, 6.0)


@given(st.lists(st.tuples(st.sampled_from("PFIEA"), st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 9)), max_size=12))
def test_every_run_is_in_just_one_square_of_its_row_and_column(told: list[tuple[str, str, str, int]]) -> None:
    runs = [
        night(at, outcome, run=f"{number}", strategy=strategy, faults=fault, fault_names=(fault,))
        for number, (outcome, strategy, fault, at) in enumerate(told)
    ]
    found = matrix(runs)
    placed = {run.run: place for place, square in found.squares.items() for entry in square.entries for run in entry.runs}
    assert len(placed) == len(runs) == sum(len(entry.runs) for square in found.squares.values() for entry in square.entries)
    for run in runs:
        assert placed[run.run] == (Line(run.strategy, run.guarantee, run.pipeline), column(run))


# --- the page -----------------------------------------------------------------------------------------------------------------------


def _everything() -> list[Run]:
    return [
        *nights("PPPPF"),
        *(replace(run, run=f"{run.run}-c", strategy="checkpoint") for run in nights("PFPFP")),
        *(replace(run, run=f"{run.run}-s", faults="crash_at_step(step=a)", fault_names=("crash_at_step",)) for run in nights("PP")),
        *(replace(run, run=f"{run.run}-t", faults="crash_at_step(step=b)", fault_names=("crash_at_step",)) for run in nights("PI")),
        night(9, "A", strategy="file_sink", faults="none", fault_names=()),
    ]


@pytest.mark.parametrize("runs", [[], [RUN], _everything()], ids=["none", "one", "many"])
def test_the_page_is_well_formed_and_asks_nobody_for_anything(runs: list[Run]) -> None:
    text = _page(runs)
    page = _Page(text)
    assert {"script", "iframe", "img", "object", "form"}.isdisjoint(tag for tag, _ in page.elements)
    assert "default-src 'none'" in text
    assert re.findall(r"https?:|url\(|@import", text) == []
    assert [name for _, attributes in page.elements for name in attributes if name.startswith("on")] == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {href[1:] for href in page.all("a", "href") if href.startswith("#")} <= set(ids)


def test_what_is_broken_comes_first_and_in_words() -> None:
    text = _page(_everything())
    told = re.findall(r'<li><span class="mark \w+">([\w ]+)</span>', text)
    assert told == ["newly broken", "flaky", "not shown"]
    assert "two_phase_commit broke exactly-once: 3 LOST" in text
    assert "newly broken" in text
    assert '<header class="verdict FAILED">' in text
    assert '<header class="verdict PASSED">' in _page(nights("PP"))


def test_a_row_says_in_how_many_windows_its_job_was_killed_in_all_its_runs() -> None:
    seen = ("COMMIT > OffsetCommit", "OffsetCommit > COMMIT")
    once, again = night(0, windows=seen, windows_hit=seen[:1]), night(1, faults="kill_at_window", windows=seen[1:], windows_hit=seen[1:])
    text = _page([once])
    assert 'title="never in OffsetCommit &gt; COMMIT">killed in 1 of 2 windows<' in text
    assert "killed in 2 of 2 windows" in _page([once, again])
    assert "windows<" not in _page([RUN])


def test_a_square_of_one_cell_leads_to_its_report_and_of_several_to_their_list(tmp_path: Path) -> None:
    reports = tmp_path / "runs with a # in it"
    runs = [replace(run, folder=str(reports / run.run)) for run in _everything()]
    for run in runs:
        (reports / run.run).mkdir(parents=True)
        (reports / run.run / "report.html").write_text("")
    page = _Page(write(runs, tmp_path / "pages" / "history.html").read_text())
    links = [href for href in page.all("a", "href") if not href.startswith("#")]
    assert links
    assert all((tmp_path / "pages" / unquote(href)).is_file() for href in links)
    assert "../runs%20with%20a%20%23%20in%20it/night-4/report.html" in links
    anchors = [href for href in page.all("a", "href") if href.startswith("#square-")]
    assert len(anchors) == 1, "only the square of two cells"


def test_a_report_that_is_gone_is_no_link(tmp_path: Path) -> None:
    text = write([RUN], tmp_path / "history.html").read_text()
    assert "its report is gone" in text
    assert "report.html" not in text


def test_what_runs_say_is_text_and_never_markup() -> None:
    evil = "<script>alert(1)</script>"
    page = _Page(_page([night(0, "F", run=evil, strategy=evil, faults=evil, fault_names=(evil,), guarantee=evil, folder=evil)]))
    assert "script" not in [tag for tag, _ in page.elements]


def test_every_table_can_be_scrolled_by_keyboard_and_every_picture_has_words() -> None:
    page = _Page(_page(_everything()))
    regions = [attributes for _, attributes in page.elements if "scroll" in attributes.get("class", "").split()]
    assert regions
    assert all(each["tabindex"] == "0" and each["role"] == "region" and each["aria-label"] for each in regions)
    pictures = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert pictures
    assert all(each.get("aria-hidden") == "true" or (each.get("role") == "img" and each["aria-label"]) for each in pictures)


def test_the_style_knows_light_and_dark_and_a_phone() -> None:
    text = _page([RUN])
    assert "prefers-color-scheme: dark" in text
    assert "max-width: 48rem" in text
    used = set(re.findall(r"var\((--[\w-]+)\)", text))
    assert used <= set(re.findall(r"(--[\w-]+):", text))


def _heights(picture: str) -> list[float]:
    return [float(height) for height in re.findall(r'<rect class="bar \w+" x="\d+" y="[\d.]+" width="5" height="([\d.]+)"', picture)]


@given(st.lists(st.none() | st.floats(0.001, 1e6), min_size=1, max_size=20))
def test_of_two_bars_the_longer_recovery_is_never_the_lower_and_all_fit(seconds: list[float | None]) -> None:
    heights = _heights(bars([night(number, recovery_s=value) for number, value in enumerate(seconds)]))
    shown = seconds[-12:]
    assert len(heights) == len(shown)
    assert all(3 <= height <= 26 for height in heights)
    drawn = sorted((value, height) for value, height in zip(shown, heights, strict=True) if value is not None)
    assert [height for _, height in drawn] == sorted(height for _, height in drawn)


@pytest.mark.parametrize(("outcome", "kind"), [("P", "good"), ("F", "bad"), ("I", "doubt"), ("E", "doubt"), ("A", "stopped")])
def test_a_bar_has_the_kind_of_its_outcome_and_says_it(outcome: str, kind: str) -> None:
    picture = bars([night(0, outcome)])
    assert f'class="bar {kind}"' in picture
    assert str(night(0, outcome).outcome) in picture


def test_the_bars_of_several_cells_are_those_of_none_of_them() -> None:
    square: Any = _square([night(0, faults="a"), night(0, run="b", faults="b")])
    assert 'class="bar some"' in trend(square)
