"""The checkers of stateful output against Spark itself: what real queries deliver and drop is what is computed again from their batches."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict
from datetime import datetime
from typing import Any

import pytest

from streamproof.testbed import install
from streamproof.verdict.stateful.reference import Deduplication, Join, Sessions, Totals, Windows, judge_results
from streamproof.verdict.stateful.watermark import watermarks
from tests.support.checkout import ROOT
from tests.support.stateful import Event, Model, Output, Story, job, payloads

pytestmark = pytest.mark.slow
SECOND = 1000
CASES: dict[str, Model] = {
    "tumbling": Windows(10 * SECOND, 10 * SECOND, 20 * SECOND),
    "sliding": Windows(10 * SECOND, 4 * SECOND, 15 * SECOND),
    "sessions": Sessions(3 * SECOND, 12 * SECOND),
    "join": Join(20 * SECOND),
    "interval-join": Join(20 * SECOND, before_ms=2 * SECOND, after_ms=5 * SECOND),
    "inner-join": Join(15 * SECOND, outer=False, before_ms=2 * SECOND, after_ms=5 * SECOND),
    "deduplication": Deduplication(15 * SECOND),
    "totals": Totals(),
}
BATCHES, EVENTS, RESTART = 9, 8, 5


def _files(name: str) -> list[list[Event]]:
    """Events whose times go on from file to file, with some that are far too late."""
    rng = random.Random(name)
    return [
        [
            Event(max(0, at * 12 + rng.randint(-20, 12) - 60 * (rng.random() < 0.15)) * SECOND, rng.choice("abcd"), rng.randint(-9, 9), 0)
            if not isinstance(CASES[name], Join) or rng.random() < 0.5
            else Event(max(0, at * 12 + rng.randint(-20, 12)) * SECOND, rng.choice("abcd"), rng.randint(-9, 9), 1)
            for _ in range(EVENTS)
        ]
        for at in range(BATCHES)
    ]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Spark did with every case; the query is stopped and started again in the middle of each."""
    folder = tmp_path_factory.mktemp("spark")
    cases = {}
    for name, model in CASES.items():
        files = [[{field: getattr(event, field) for field in ("stream", "at", "key", "value")} for event in file] for file in _files(name)]
        cases[name] = {"kind": type(model).__name__, "known": asdict(model), "starts": [files[:RESTART], files[RESTART:]]}
    (folder / "cases.json").write_text(json.dumps(cases))
    java = {"JAVA_HOME": str(install.java_home())}
    env = {**os.environ, **java, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.support.spark_reference", str(folder)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / "ran.json").read_text())
    return found


def _story(name: str, ran: dict[str, Any]) -> Story:
    files, batches = _files(name), ran[name]["batches"]
    return Story([[] if batch["file"] is None else files[batch["file"]] for batch in batches], [batch["start"] for batch in batches])


@pytest.mark.parametrize("name", CASES)
def test_what_spark_delivers_is_what_is_computed_again(name: str, ran: dict[str, Any]) -> None:
    story, model = _story(name, ran), CASES[name]
    output = Output(ran[name]["results"], [batch["dropped"] for batch in ran[name]["batches"]])
    judged = judge_results(model, story.inputs(), story.ran(output), payloads(output.results))
    assert judged.findings == ()
    assert judged.figures["due"] == len(output.results) > 5
    assert name == "totals" or judged.figures["dropped_rows"] > 3


@pytest.mark.parametrize("name", CASES)
def test_the_reference_of_the_unit_tests_does_as_spark_does(name: str, ran: dict[str, Any]) -> None:
    story, model = _story(name, ran), CASES[name]
    output = job(story, model)
    assert len(output.results) == len(ran[name]["results"])
    if not isinstance(model, Deduplication):  # which of several in one batch is the first is Spark's choice
        assert sorted(map(str, map(_sorted, output.results))) == sorted(map(str, map(_sorted, ran[name]["results"])))
    if not isinstance(model, Sessions):  # how late events fell to tasks is not known
        assert output.dropped == [batch["dropped"] for batch in ran[name]["batches"]]


@pytest.mark.parametrize("name", [name for name in CASES if name != "totals"])
def test_the_watermark_is_the_one_that_spark_reports(name: str, ran: dict[str, Any]) -> None:
    story, model = _story(name, ran), CASES[name]
    batches = story.ran(Output([], [0] * len(story.batches)))
    reported = [datetime.fromisoformat(batch["watermark"].replace("Z", "+00:00")).timestamp() * SECOND for batch in ran[name]["batches"]]
    assert watermarks(story.inputs(), batches, model.delays_ms).low.tolist() == reported


def _sorted(result: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(result.items())
