"""Results that a query of the user's own computes again: what the query gives, and how both judges hold the output against it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from streamproof.evidence import inputs, manifest
from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.evidence.histories import write_delivered
from streamproof.evidence.inputs import QueryError
from streamproof.evidence.outcome import Outcome
from streamproof.evidence.payloads import write_payloads
from streamproof.experiment.model import Experiment
from streamproof.run.stages import suite_spec
from streamproof.suites import agreement
from streamproof.suites.evaluate import evaluate
from streamproof.suites.expectations import database
from streamproof.verdict.judge import Judgement, judge
from streamproof.verdict.reconciliation import write_reconciliation
from streamproof.verdict.stateful.by_sql import BySql, computed
from tests.support.histories import BEGUN, SPEC, Story

SQL = "SELECT country, CAST(number // 20 AS INTEGER) AS hour, count(*) AS orders, sum(amount) AS amount FROM input GROUP BY ALL"
REFERENCE = BySql(("country", "hour"), ("orders", "amount"), SQL)
RECORDS = [{"number": number, "country": "DE" if number % 3 else "FR", "amount": number / 10} for number in range(60)]
Result = tuple[dict[str, Any] | None, int]
"""A delivered value, and the partition that it came to."""


def right(numbers: Sequence[int] = range(60)) -> list[Result]:
    orders: Counter[tuple[str, int]] = Counter()
    amounts: Counter[tuple[str, int]] = Counter()
    for number in numbers:
        key = str(RECORDS[number]["country"]), number // 20
        orders[key] += 1
        amounts[key] += RECORDS[number]["amount"]  # type: ignore[assignment]
    return [
        ({"country": country, "hour": hour, "orders": count, "amount": amounts[country, hour]}, 0)
        for (country, hour), count in sorted(orders.items())
    ]


def written(path: Path, results: Sequence[Result], spec: BySql = REFERENCE, story: Story | None = None) -> RunFolder:
    """A run's folder that delivered these results."""
    story = story or Story()
    story.histories.delivered = []
    folder = story.write(path)
    inputs.write(folder, [json.dumps(record) for record in RECORDS])
    write_atomically(folder.reference, spec.sql)
    folder.payloads.mkdir(exist_ok=True)
    columns: dict[str, list[Any]] = {
        "partition": [partition for _, partition in results],
        "offset": list(range(len(results))),
        "delivered_at": [BEGUN + timedelta(seconds=11, milliseconds=number) for number in range(len(results))],
        "value": [b"?" if value is None else json.dumps(value).encode() for value, _ in results],
    }
    write_payloads(folder.payloads, 0, {**columns, **{name: [None] * len(results) for name in ("batch", "attempt", "start", "key")}})
    write_atomically(folder.drain, json.dumps({"records": len(results), "complete": True, "reason": None}))
    nothing = {name: [None] * len(results) for name in ("producer", "sequence", "crc", "batch", "attempt", "start")}
    write_delivered(folder.delivered / "00000.parquet", {**nothing, **{k: columns[k] for k in ("partition", "offset", "delivered_at")}})
    manifest.write(folder)
    return folder


def judged(path: Path, results: Sequence[Result], spec: BySql = REFERENCE, story: Story | None = None) -> Judgement:
    """What the checkers say; the suites must say the same."""
    folder, terms = written(path, results, spec, story), replace(SPEC, results=spec)
    judgement = judge(folder, terms)
    assert agreement.check(folder, suite_spec(terms), judgement.table) is None
    return judgement


def named(judgement: Judgement) -> list[tuple[str, str | None]]:
    return sorted((str(finding.anomaly), finding.result) for finding in judgement.findings)


# --- both judges --------------------------------------------------------------------------------------------------------------------


def test_what_the_query_gives_passes(tmp_path: Path) -> None:
    judgement = judged(tmp_path / "run", right())
    assert judgement.verdict.outcome == "PASSED", judgement.verdict.reason
    assert judgement.verdict.results is not None
    assert (judgement.verdict.results.due, judgement.verdict.results.delivered) == (6, 6)


def test_each_anomaly_is_named_with_what_was_due(tmp_path: Path) -> None:
    results = right()
    gone, wrong, again = results[0], results[1], results[2]
    assert wrong[0] is not None
    changed = ({**wrong[0], "amount": 0.5}, 0)
    strange = ({"country": "XX", "hour": 0, "orders": 1, "amount": 1}, 0)
    judgement = judged(tmp_path / "run", [changed, again, *results[2:], strange, (None, 0), ({"country": "DE"}, 0)])
    assert gone[0] is not None
    assert named(judgement) == [
        ("MISSING", "the result of country DE, hour 0"),
        ("REPEATED", "the result of country DE, hour 2"),
        ("UNEXPECTED", "something that is no result"),
        ("UNEXPECTED", "something that is no result"),
        ("UNEXPECTED", "the result of country XX, hour 0"),
        ("WRONG_VALUE", "the result of country DE, hour 1"),
    ]
    blame = [row["blame"] for row in judgement.table.to_pylist() if row["anomaly"] == "WRONG_VALUE"]
    assert "orders 13, amount 0.5 instead of orders 13, amount" in blame[0]


def test_sums_in_another_order_are_the_same_numbers(tmp_path: Path) -> None:
    results = [({**value, "amount": value["amount"] * (1 + 1e-13)}, 0) for value, _ in right() if value is not None]
    assert not judged(tmp_path / "run", results).findings


def test_of_results_that_replace_each_other_the_last_one_counts(tmp_path: Path) -> None:
    final = replace(REFERENCE, final=True)
    results = [*right(range(10)), *right(range(50)), *right()]
    assert not judged(tmp_path / "run", results, final).findings
    judgement = judged(tmp_path / "other", [*right(), *right(range(50))], final)
    assert {anomaly for anomaly, _ in named(judgement)} == {"WRONG_VALUE"}
    assert judgement.verdict.outcome == "FAILED"


def test_in_several_partitions_the_latest_is_the_last(tmp_path: Path) -> None:
    final = replace(REFERENCE, final=True)
    early = [(value, 3) for value, _ in right(range(50))]
    assert not judged(tmp_path / "run", [*early, *right()], final).findings


def test_what_is_not_due_may_be_there_or_not_but_not_wrong(tmp_path: Path) -> None:
    pending = replace(REFERENCE, sql=SQL.replace(" FROM", ", hour < 2 AS due FROM"))
    results = right()
    assert not judged(tmp_path / "a", results, pending).findings
    assert not judged(tmp_path / "b", [one for one in results if one[0] is None or one[0]["hour"] < 2], pending).findings
    results[-1] = ({**(results[-1][0] or {}), "orders": 99}, 0)
    assert named(judged(tmp_path / "c", results, pending)) == [("WRONG_VALUE", "the result of country FR, hour 2")]


def test_results_that_depend_on_an_unknown_send_are_not_judged(tmp_path: Path) -> None:
    story = Story()
    story.histories.settle([(0, 5)], Outcome.INDETERMINATE)
    without = [(value, partition) for value, partition in right() if value is not None and (value["country"], value["hour"]) != ("DE", 0)]
    folder = written(tmp_path / "run", without, story=story)
    assert not judge(folder, replace(SPEC, results=REFERENCE)).findings
    with database.building(folder.path, spec=suite_spec(replace(SPEC, results=REFERENCE)).to_dict()) as connection:
        assert agreement.reason_unjudged(connection) == "1 sends have an unknown outcome"


def test_a_refused_record_is_no_input(tmp_path: Path) -> None:
    story = Story()
    story.histories.settle([(0, 59)], Outcome.REJECTED)
    assert not judged(tmp_path / "run", right(range(59)), story=story).findings


def test_evidence_without_the_input_is_none(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", right())
    folder.inputs.unlink()
    manifest.write(folder)
    with pytest.raises(EvidenceError, match=r"inputs\.parquet"):
        judge(folder, replace(SPEC, results=REFERENCE))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_both_judges_name_the_same_results(tmp_path: Path, data: Any) -> None:
    final = data.draw(st.booleans())
    results: list[Result] = [one for one in right() for _ in range(data.draw(st.sampled_from([0, 1, 1, 1, 2])))]
    odd: list[Result] = [
        (None, 0),
        ({"country": None, "hour": 1, "orders": "13", "amount": True}, 1),
        ({"country": "DE", "hour": 1, "orders": "13.0", "amount": None}, 2),
        ({"country": "FR", "hour": "0", "orders": 7, "amount": [1]}, 0),
        ({"country": "FR", "hour": 0.0, "orders": 7, "amount": {"a": 1}}, 0),
        ({"country": 'D"E', "hour": 0, "orders": 1e3, "amount": -1e-7}, 0),
    ]
    results += data.draw(st.lists(st.sampled_from(odd), max_size=4))
    results = data.draw(st.permutations(results))
    path = tmp_path / f"run-{data.draw(st.integers(0, 1 << 60))}"
    judged(path, results, replace(REFERENCE, final=final))


# --- the query ----------------------------------------------------------------------------------------------------------------------


def compute(sql: str, key: tuple[str, ...] = ("country",), values: tuple[str, ...] = ("orders",)) -> dict[Any, Any]:
    table = pa.table({"record": [json.dumps(record) for record in RECORDS]})
    columns = {f"_{name}": list(range(60)) for name in ("producer", "sequence", "partition", "offset")}
    return {k: one.values for k, one in computed(BySql(key, values, sql), table, columns).items()}


def test_it_sees_fields_and_places() -> None:
    assert compute("SELECT country, count(*) AS orders FROM input WHERE _offset < 6 GROUP BY country") == {("DE",): ("4",), ("FR",): ("2",)}


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("SELECT county, 1 AS orders FROM input", "The columns of input are: number, country, amount, _producer"),
        ("SELECT country FROM input GROUP BY country", "expected a column orders, it has: country"),
        ("SELECT country, 1 AS orders FROM input", "it gives two rows for the result of country"),
        ("SELECT * FROM read_csv('/etc/passwd')", "reference cannot be evaluated"),
        ("SELEC", "reference cannot be evaluated"),
    ],
)
def test_a_query_that_does_not_fit_is_refused(sql: str, complaint: str) -> None:
    with pytest.raises(QueryError) as refused:
        compute(sql)
    assert complaint in str(refused.value)


# --- an experiment ------------------------------------------------------------------------------------------------------------------


def described(**job: Any) -> dict[str, Any]:
    results = {"key": ["country"], "values": ["orders"], "reference": "x.sql"}
    given = {"engine": "command", "command": ["x"], "promises": "exactly-once", "results": results, **job}
    return {"job": {name: value for name, value in given.items() if value is not None}, "workload": {"source": "synthetic"}}


def test_a_job_that_delivers_results_is_held_to_results() -> None:
    experiment = Experiment.model_validate(described())
    assert experiment.of_results
    assert experiment.keeps_values
    assert {str(anomaly) for anomaly in experiment.forbidden} == {"MISSING", "UNEXPECTED", "WRONG_VALUE", "REPEATED", "DROPPED"}
    assert Experiment.model_validate({**described(), "expect": ["MISSING"], "guarantee": "at-most-once"})


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        ({"delivers": {"kafka": {"identity": {"key": True}}}}, "leave `identity`, `expected` and `also_promises` out"),
        ({"expected": {"explode": 2}}, "leave `identity`, `expected` and `also_promises` out"),
        ({"results": {"key": ["a"], "values": ["a"], "reference": "x"}}, "a is named more than once"),
        ({"results": None, "delivers": {"postgres": {"table": "t"}}}, "expected the `identity` of a row, or `results`"),
    ],
)
def test_an_experiment_that_contradicts_itself_is_refused(job: Any, complaint: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Experiment.model_validate(described(**job))
    assert complaint in str(refused.value)


def test_anomalies_of_records_cannot_be_expected_of_it() -> None:
    with pytest.raises(ValidationError, match="LOST is about records, which results are not"):
        Experiment.model_validate({**described(), "expect": ["LOST"], "guarantee": "at-most-once"})


@pytest.mark.parametrize("broken", [False, True])
def test_the_suite_knows_such_results(tmp_path: Path, broken: bool) -> None:
    results, terms = right(), replace(SPEC, results=REFERENCE)
    if broken:
        results[0] = ({**(results[0][0] or {}), "orders": 99}, 0)
    folder = written(tmp_path / "run", results)
    judgement = judge(folder, terms)
    write_reconciliation(folder, judgement.table)
    judgement.verdict.write(folder)
    folder.schedule.write_text(json.dumps({"injections": [{"injection": "kill_executor-1", "fault": "kill_executor"}]}))
    suite_spec(terms).write(folder)
    evaluation = evaluate(folder)
    assert evaluation.errors == []
    assert evaluation.unjudged is None
    assert evaluation.disagreement is None
    failing = [result.expectation for result in evaluation.results if not result.success]
    assert failing == (["expect_no_result_to_be_wrong"] if broken else [])
