"""Runs as JUnit XML, which CI servers show: a suite for each strategy, a case for each run.

The form is what both Ant's and Jenkins' schemas allow. FAILED is a failure; INCONCLUSIVE, ERROR and ABORTED are errors, with the reason:
a run that shows nothing is no pass. A case is named for its cell, so that a server knows it again the next time; only where a cell was run
several times the run's name is added.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from xml.etree import ElementTree as ET

from streamproof.history.record import Cell, Run
from streamproof.verdict.decide import RunOutcome

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(runs: Iterable[Run], left: Iterable[tuple[str, str, str]] = ()) -> str:
    """``left`` are cases that have no run: a strategy, a name, and why. They are errors, in a suite of their own."""
    ordered = sorted(runs, key=lambda run: (run.cell, run.began_at, run.run))
    often = Counter(run.cell for run in ordered)
    suites = ET.Element("testsuites")
    for number, (named, group) in enumerate(groupby(ordered, key=lambda run: (run.pipeline, run.strategy, run.guarantee))):
        suites.append(_suite(number, *named, list(group), often))
    if left := list(left):
        suites.append(_left(len(suites), left))
    ET.indent(suites)
    text: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return f"{text.decode()}\n"


def _suite(number: int, pipeline: str, strategy: str, guarantee: str, runs: Sequence[Run], often: Counter[Cell]) -> ET.Element:
    suite = ET.Element(
        "testsuite",
        id=str(number),
        package="streamproof",
        name=_text(f"{pipeline}.{strategy}.{guarantee}"),
        timestamp=min(run.began_at for run in runs).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        hostname="localhost",
        tests=str(len(runs)),
        failures=str(sum(run.outcome is RunOutcome.FAILED for run in runs)),
        errors=str(sum(run.outcome not in (RunOutcome.PASSED, RunOutcome.FAILED) for run in runs)),
        time=f"{sum(run.duration_s for run in runs):.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("pipeline", pipeline), ("strategy", strategy), ("guarantee", guarantee)):
        ET.SubElement(properties, "property", name=name, value=_text(value))
    for run in runs:
        name = run.faults if often[run.cell] == 1 else f"{run.faults}, run {run.run}"
        case = ET.SubElement(suite, "testcase", classname=suite.attrib["name"], name=_text(name), time=f"{run.duration_s:.3f}")
        if run.outcome is not RunOutcome.PASSED:
            kind = "failure" if run.outcome is RunOutcome.FAILED else "error"
            element = ET.SubElement(case, kind, type=str(run.outcome), message=_text(run.reason.splitlines()[0] if run.reason else ""))
            element.text = _text(f"{run.reason}\n{_summary(run)}")
    ET.SubElement(suite, "system-out").text = _text("".join(f"{run.outcome}: {_summary(run)}\n" for run in runs))
    ET.SubElement(suite, "system-err")
    return suite


def _left(number: int, left: Sequence[tuple[str, str, str]]) -> ET.Element:
    suite = ET.Element(
        "testsuite",
        id=str(number),
        package="streamproof",
        name="left",
        timestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        hostname="localhost",
        tests=str(len(left)),
        failures="0",
        errors=str(len(left)),
        time="0.000",
    )
    ET.SubElement(suite, "properties")
    for strategy, name, reason in left:
        case = ET.SubElement(suite, "testcase", classname=_text(strategy), name=_text(name), time="0.000")
        ET.SubElement(case, "error", type="not run", message=_text(reason.splitlines()[0] if reason else "")).text = _text(reason)
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")
    return suite


def _summary(run: Run) -> str:
    anomalies = ", ".join(f"{count} {anomaly}" for anomaly, count in run.anomalies.items() if count)
    anomalies = anomalies or ("no anomaly" if run.anomalies else "records not compared")
    recovery = "recovery not measured" if run.recovery_s is None else f"recovery {run.recovery_s:.1f} s"
    return f"{run.run}, seed {run.seed}, {anomalies}, {recovery}: {run.folder}"


def _text(text: str) -> str:
    """Without what XML cannot hold: a driver's log may hold anything."""
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
