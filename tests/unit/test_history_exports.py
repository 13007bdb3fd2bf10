"""The history as others read it: JUnit XML that CI servers take, metrics that Prometheus takes, a dashboard that asks for just these."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as older_form

from streamproof.history.changes import Kind
from streamproof.history.junit import junit
from streamproof.history.metrics import CELL, METRICS, metrics
from streamproof.history.record import Run
from streamproof.verdict.decide import RunOutcome
from tests.support.checkout import ROOT
from tests.support.remembered import RUN, night, nights

# --- JUnit --------------------------------------------------------------------------------------------------------------------------

# What the schemas of Ant (windyroad) and of Jenkins (junit-10) both allow: of each element its attributes, all of which Ant demands, and
# its children in order.
ANT: dict[str, tuple[set[str], str]] = {
    "testsuites": (set(), r"(testsuite )*"),
    "testsuite": (
        {"id", "package", "name", "timestamp", "hostname", "tests", "failures", "errors", "time"},
        r"properties (testcase )*system-out system-err ",
    ),
    "properties": (set(), r"(property )*"),
    "property": ({"name", "value"}, ""),
    "testcase": ({"classname", "name", "time"}, r"((error|failure) )?"),
    "error": ({"type", "message"}, ""),
    "failure": ({"type", "message"}, ""),
    "system-out": (set(), ""),
    "system-err": (set(), ""),
}
SECONDS = re.compile(r"\d+\.\d{3}")


def _suites(runs: list[Run], left: Sequence[tuple[str, str, str]] = ()) -> ET.Element:
    """The document, in the form that servers take."""
    document = ET.fromstring(junit(runs, left))
    assert document.tag == "testsuites"
    for element in document.iter():
        attributes, children = ANT[element.tag]
        assert set(element.attrib) == attributes
        assert re.fullmatch(children, "".join(f"{child.tag} " for child in element)), element.tag
        assert SECONDS.fullmatch(element.get("time", "0.000"))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.get("timestamp", "2026-01-01T00:00:00"))
        for name in ("tests", "failures", "errors", "id"):
            assert element.get(name, "0").isdigit()
    for suite in document:
        assert (len(suite.findall("testcase")), len(list(suite.iter("failure"))), len(list(suite.iter("error")))) == (
            int(suite.attrib["tests"]),
            int(suite.attrib["failures"]),
            int(suite.attrib["errors"]),
        )
    return document


def test_no_run_is_a_document_without_suites() -> None:
    assert list(_suites([])) == []


def test_a_strategy_is_a_suite_and_a_run_a_case_that_is_named_for_its_cell() -> None:
    document = _suites([night(0), night(1, faults="none"), night(2, strategy="checkpoint")])
    assert [(suite.attrib["name"], suite.attrib["tests"]) for suite in document] == [
        ("kafka_to_kafka.checkpoint.exactly-once", "1"),
        ("kafka_to_kafka.two_phase_commit.exactly-once", "2"),
    ]
    assert [case.attrib["name"] for case in document.iter("testcase")] == ["kill_executor(count=1)", "kill_executor(count=1)", "none"]
    assert [suite.attrib["timestamp"] for suite in document] == ["2026-11-03T02:00:00", "2026-11-01T02:00:00"]
    assert document[1].attrib["time"] == "35.000"


def test_runs_of_one_cell_are_told_apart() -> None:
    names = [case.attrib["name"] for case in _suites(nights("PP")).iter("testcase")]
    assert names == ["kill_executor(count=1), run night-0", "kill_executor(count=1), run night-1"]


@pytest.mark.parametrize(
    ("outcome", "tag", "kind"),
    [("F", "failure", "FAILED"), ("I", "error", "INCONCLUSIVE"), ("E", "error", "ERROR"), ("A", "error", "ABORTED")],
)
def test_what_is_not_passed_is_a_failure_or_an_error_with_its_reason(outcome: str, tag: str, kind: str) -> None:
    run = night(0, outcome)
    (case,) = _suites([run]).iter("testcase")
    (told,) = case
    assert (told.tag, told.attrib) == (tag, {"type": kind, "message": run.reason})
    assert run.reason in (told.text or "")
    assert run.folder in (told.text or "")


def test_a_pass_has_no_verdict_beside_it() -> None:
    (case,) = _suites([RUN]).iter("testcase")
    assert list(case) == []


def test_of_a_reason_of_many_lines_the_message_is_the_first_and_the_text_has_all() -> None:
    (error,) = _suites([night(0, "E", reason="the driver ended\n\tat java\n\tat scala")]).iter("error")
    assert error.attrib["message"] == "the driver ended"
    assert "\tat scala" in (error.text or "")


@given(st.text(), st.text(min_size=1), st.sampled_from("PFIEA"))
def test_whatever_a_run_says_the_document_can_be_read(reason: str, faults: str, outcome: str) -> None:
    _suites([night(0, outcome, reason=reason, faults=faults, strategy=faults, folder=reason)])


def test_what_was_not_run_is_an_error_in_a_suite_of_its_own() -> None:
    left = [("two_phase_commit", "kill_executor, seed 1", "the night's time was over\nbefore its turn \0")]
    first, last = _suites([RUN], left)
    assert (first.attrib["errors"], last.attrib["tests"], last.attrib["errors"]) == ("0", "1", "1")
    (error,) = last.iter("error")
    assert (error.attrib["type"], error.attrib["message"]) == ("not run", "the night's time was over")


# --- metrics ------------------------------------------------------------------------------------------------------------------------


def _samples(runs: list[Run]) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By Prometheus' own parser."""
    families = list(text_string_to_metric_families(metrics(runs)))
    assert [(family.name, family.type, family.documentation) for family in families] == [
        (name, "gauge", about) for name, (about, _) in METRICS.items()
    ]
    return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}


def test_the_newest_run_of_a_cell_is_what_is_measured() -> None:
    found = _samples([*nights("PP"), night(2, "F", recovery_s=4.5, anomalies={"LOST": 3, "DUPLICATED": 0})])
    cell = dict(zip(CELL, ("kafka_to_kafka", "two_phase_commit", "exactly-once", "kill_executor(count=1)"), strict=True))
    assert found["streamproof_run_recovery_seconds"] == [(cell, 4.5)]
    assert found["streamproof_run_caught_up_seconds"] == [(cell, 3.0)]
    assert found["streamproof_run_duration_seconds"] == [(cell, 17.5)]
    assert found["streamproof_cell_runs"] == [(cell, 3)]
    assert found["streamproof_run_timestamp_seconds"] == [(cell, night(2).began_at.timestamp())]
    assert [(labels["outcome"], value) for labels, value in found["streamproof_run_outcome"]] == [
        (str(outcome), float(outcome is RunOutcome.FAILED)) for outcome in RunOutcome
    ]
    assert {labels["change"]: value for labels, value in found["streamproof_cell_change"]} == {
        str(kind): float(kind is Kind.NEWLY_BROKEN) for kind in Kind
    }
    assert {labels["anomaly"]: value for labels, value in found["streamproof_run_anomalies"]} == {"LOST": 3, "DUPLICATED": 0}
    assert {labels["phase"] for labels, _ in found["streamproof_run_output_records_per_second"]} == {"steady", "impact", "recovery"}


def test_every_sample_has_just_the_labels_that_are_promised() -> None:
    found = _samples([RUN, night(1, "F", strategy="checkpoint")])
    for name, (_, labels) in METRICS.items():
        assert len(found[name]) >= 2
        assert {frozenset(each) for each, _ in found[name]} == {frozenset([*CELL, *labels])}


def test_who_reads_the_older_text_form_reads_the_same() -> None:
    """node_exporter's textfile collector does."""
    found = {family.name: family.samples for family in older_form(metrics(nights("PF")))}
    assert {name: [(sample.labels, sample.value) for sample in samples] for name, samples in found.items()} == _samples(nights("PF"))


def test_what_was_not_measured_has_no_sample() -> None:
    found = _samples([night(0, "E", recovery_s=None, caught_up_s=None, anomalies={}, records_per_s={"steady": None})])
    for name in ("recovery_seconds", "caught_up_seconds", "anomalies", "output_records_per_second"):
        assert found[f"streamproof_run_{name}"] == []
    assert len(found["streamproof_run_outcome"]) == len(RunOutcome)


def test_a_run_that_was_stopped_hides_none_before_it_and_is_told_where_there_is_none() -> None:
    hidden = _samples(nights("PA"))["streamproof_run_outcome"]
    alone = _samples(nights("A"))
    assert [labels["outcome"] for labels, value in hidden if value] == ["PASSED"]
    assert [labels["outcome"] for labels, value in alone["streamproof_run_outcome"] if value] == ["ABORTED"]
    assert alone["streamproof_cell_change"] == []


def test_an_empty_history_is_a_text_without_samples() -> None:
    assert all(samples == [] for samples in _samples([]).values())
    assert metrics([]).endswith("# EOF\n")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_comes_back_as_it_was(name: str) -> None:
    ((labels, _),) = _samples([night(0, strategy=name)])["streamproof_cell_runs"]
    assert labels["strategy"] == name


@given(st.lists(st.tuples(st.sampled_from("PFIEA"), st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"])), max_size=8))
def test_no_sample_is_given_twice(told: list[tuple[str, str, str]]) -> None:
    runs = [night(number, outcome, strategy=strategy, faults=faults) for number, (outcome, strategy, faults) in enumerate(told)]
    for samples in _samples([replace(run, fault_names=(run.faults,)) for run in runs]).values():
        keys = [tuple(sorted(labels.items())) for labels, _ in samples]
        assert len(keys) == len(set(keys))


# --- the dashboard ------------------------------------------------------------------------------------------------------------------

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana" / "streamproof.json").read_text())


def _queries() -> list[str]:
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    assert len(panels) > 10
    return [*panels, *variables]


def test_the_dashboard_asks_for_metrics_that_there_are_and_for_all_of_them() -> None:
    assert {name for query in _queries() for name in re.findall(r"streamproof_\w+", query)} == set(METRICS)


def test_every_label_that_the_dashboard_names_is_one_of_that_metric() -> None:
    for query in _queries():
        (metric,) = set(re.findall(r"streamproof_\w+", query))
        known = {*CELL, *METRICS[metric][1]}
        chosen = re.findall(r"(\w+)\s*=~?\s*\"", query)
        grouped = [label for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(", ")]
        listed = re.findall(r"label_values\(\w+, (\w+)\)", query)
        assert {*chosen, *grouped, *listed} <= known, query
        assert chosen or listed, f"nothing chosen in {query}"


def test_every_value_that_the_dashboard_chooses_is_one_that_there_is() -> None:
    values = {"outcome": set(RunOutcome), "change": set(Kind), "phase": {"steady", "impact", "recovery"}}
    for label, value in {pair for query in _queries() for pair in re.findall(r'(\w+)="([^"$]*)"', query)}:
        assert value in values[label], f"{label}={value}"


def test_the_dashboard_holds_together() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(DASHBOARD)))
    assert used == variables
    for one in DASHBOARD["panels"]:
        assert one["description"]
        assert one["gridPos"]["x"] + one["gridPos"]["w"] <= 24
        for other in DASHBOARD["panels"]:
            assert one is other or not _overlap(one["gridPos"], other["gridPos"])
    mapped = [
        set(mapping["options"])
        for panel in DASHBOARD["panels"]
        for override in panel["fieldConfig"]["overrides"]
        for each in override["properties"]
        if each["id"] == "mappings"
        for mapping in each["value"]
    ]
    assert mapped == [set(RunOutcome), set(Kind)]


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    apart = (
        one["x"] + one["w"] <= other["x"]
        or other["x"] + other["w"] <= one["x"]
        or one["y"] + one["h"] <= other["y"]
        or other["y"] + other["h"] <= one["y"]
    )
    return not apart
