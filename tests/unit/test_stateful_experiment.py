"""Experiments with a stateful pipeline: what fits them, the workload that they read, and what a run of them is held to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamproof.engines.spark.registry import PIPELINES
from streamproof.errors import BadInput
from streamproof.experiment import reading
from streamproof.experiment.model import Experiment
from streamproof.load import timed
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.stateful.reference import Join, Windows

WINDOW = {"pipeline": "departures", "strategy": "two_phase_commit", "workload": {"source": "flights", "records": 3000}, "seed": 3}
JOIN = {**WINDOW, "pipeline": "departures_with_weather"}
MINUTE_MS = 60_000


def _parsed(fields: dict[str, Any], **more: Any) -> Experiment:
    return reading.parse({**fields, **more}, "experiment.yaml", Experiment)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({**WINDOW, "strategy": "offset_in_transaction"}, "cannot deliver what pipeline 'departures' computes"),
        ({**WINDOW, "workload": {"source": "synthetic"}}, "reads flights"),
        ({**WINDOW, "stateful": {"window_min": 10, "slide_min": 20}}, "slide_min: 20 is more than the window of 10"),
        ({**WINDOW, "strategy": "checkpoint", "expect": ["DUPLICATED"]}, "DUPLICATED is about records"),
        ({"strategy": "checkpoint", "expect": ["REPEATED"]}, "REPEATED is about results"),
        ({"strategy": "checkpoint", "stateful": {"delay_min": 1}}, "keeps no state; leave it out, or choose one of: departure_sessions, "),
        ({**WINDOW, "pipeline": "flights"}, "there is no pipeline 'flights'"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        _parsed(fields)


def test_a_stateful_job_is_held_to_its_results() -> None:
    assert _parsed(WINDOW).forbidden == set(RESULT_KINDS)
    assert _parsed(WINDOW, strategy="checkpoint", expect=["REPEATED"]).forbidden == set(RESULT_KINDS) - {Anomaly.REPEATED}
    assert _parsed(WINDOW).promises, "what the strategy promises of records is not asked of results"


def test_what_is_declared_is_not_what_the_job_sets() -> None:
    found = _parsed(WINDOW, stateful={"window_min": 30, "slide_min": 10, "delay_min": 100, "job_delay_min": 7})
    assert found.reference_model == Windows(30 * MINUTE_MS, 10 * MINUTE_MS, 100 * MINUTE_MS)
    assert found.options == {"length_ms": 30 * MINUTE_MS, "slide_ms": 10 * MINUTE_MS, "delay_ms": 7 * MINUTE_MS}
    assert _parsed(JOIN, stateful={"delay_min": 5}).reference_model == Join(5 * MINUTE_MS)
    assert (_parsed({"strategy": "checkpoint"}).reference_model, _parsed({"strategy": "checkpoint"}).options) == (None, {})


def _events(found: Experiment) -> pa.Table:
    return timed.events(found.workload, found.stateful, found.seed, joins=PIPELINES[found.pipeline].joins)


@pytest.mark.parametrize("fields", [WINDOW, JOIN], ids=["window", "join"])
def test_events_come_in_the_order_of_their_times_but_for_a_bounded_disorder(fields: dict[str, Any]) -> None:
    found = _parsed(fields, stateful={"delay_min": 300, "disorder_min": 200, "late_share": 0.05})
    events = _events(found)
    at = np.asarray(events["at"].to_numpy())
    behind = ((np.maximum.accumulate(at) - at) / MINUTE_MS)[at < at.max() - 2000 * MINUTE_MS]  # what comes after the last is behind nothing
    assert len(at) == 3000
    assert events["sequence"].to_pylist() == list(range(3000))
    assert 0.1 < (behind > 0).mean() < 0.99
    too_late = behind > 300
    assert 0.02 < too_late.mean() < 0.08, "some come later than the declared delay"
    assert behind[~too_late].max() <= 200, "and no other by more than the disorder"
    assert _events(found).equals(events)
    assert not _events(found.with_seed(4)).equals(events)


def test_a_join_has_the_weather_of_the_hours_of_its_flights() -> None:
    events = _events(_parsed(JOIN)).to_pylist()
    weather = {(event["key"], event["at"]) for event in events if event["stream"] == 1}
    flights = [(event["key"], event["at"]) for event in events if event["stream"] == 0]
    assert len(weather) > 100
    assert all(at % (60 * MINUTE_MS) == 0 for _, at in flights)
    assert sum(flight in weather for flight in flights) > 0.8 * len(flights)


def test_the_payload_says_what_the_evidence_says() -> None:
    events = _events(_parsed(WINDOW))
    for (key, payload), row in zip(timed.payloads(events), events.to_pylist(), strict=True):
        assert json.loads(payload) == {name: row[name] for name in ("stream", "at", "key", "value")}
        assert key == row["message_key"]


def test_every_pipeline_says_what_it_is_and_which_strategies_deliver_it() -> None:
    for name, pipeline in PIPELINES.items():
        assert pipeline.name == name
        assert pipeline.summary
        options = {"length_ms": 1, "slide_ms": 1, "delay_ms": 1}
        assert (pipeline.reference(options, 1) is None) is not pipeline.stateful
