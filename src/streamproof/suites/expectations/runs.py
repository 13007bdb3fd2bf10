"""What is expected of a run, one class for each expectation. Great Expectations knows them by their names once this module is imported.

Each expectation is a query for the rows that should not be there, over the database that :mod:`.database` makes of a run's folder, and
a query that says in words what was observed. What the drain may not have seen yet is not missing: LOST, TORN and MISSING count only once
the drain has reached the end of the output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import great_expectations as gx
from great_expectations.expectations.expectation import BatchExpectation

SHOWN = 200
"""As many of the unexpected rows are in a result, as Great Expectations has it."""


def batch(context: Any, file: Path | str, config: dict[str, Any]) -> Any:
    """The one batch that a run is: the database in ``file``, opened with ``config``."""
    source = context.data_sources.add_sql(
        "run", connection_string=f"duckdb:///{Path(file).resolve()}", kwargs={"connect_args": {"config": config}}
    )
    return source.add_query_asset("run", query="SELECT * FROM progress").add_batch_definition_whole_table("whole run")


def suite(path: Path | str) -> Any:
    """The suite in a JSON file."""
    return gx.ExpectationSuite(**json.loads(Path(path).read_text()))


class RunExpectation(BatchExpectation):
    """``unexpected_query`` asks for what should not be there, ``observed_query`` for one sentence about what is.

    The queries are run here, within one connection: Great Expectations' own metric reads its result after it gave the connection back,
    and then DuckDB has forgotten it.
    """

    metric_dependencies = ()
    unexpected_query: ClassVar[str] = ""
    observed_query: ClassVar[str] = ""

    def _validate(self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None) -> dict[str, Any]:
        with execution_engine.get_connection() as connection:
            query = self._unexpected(connection)
            count = int(connection.exec_driver_sql(f"SELECT count(*) FROM ({query})").scalar())
            result = connection.exec_driver_sql(f"SELECT * FROM ({query}) LIMIT {SHOWN}") if count else None
            rows = [dict(row) for row in result.mappings()] if result is not None else []
            observed = connection.exec_driver_sql(self.observed_query).scalar()
        return {
            "success": count == 0,
            "result": {"observed_value": observed, "details": {"unexpected_row_count": count, "unexpected_rows": rows}},
        }

    def _unexpected(self, connection: Any) -> str:
        return self.unexpected_query


# --- the run could have shown it ------------------------------------------------------------------------------------------------------


class ExpectSourceToBeComplete(RunExpectation):
    description: str = (
        "The source is complete: records were acknowledged, and each partition holds as many offsets as it acknowledged records, "
        "each of them before its end."
    )
    unexpected_query: ClassVar[str] = """
        SELECT partition, acked, highest, end_offset FROM (
            SELECT partition, count(*) AS acked, max("offset") AS highest FROM sent WHERE outcome = 'ACKED' GROUP BY partition
        ) LEFT JOIN source_ends USING (partition) WHERE highest >= end_offset OR acked > end_offset
        UNION ALL
        SELECT NULL, 0, NULL, NULL WHERE NOT EXISTS (FROM sent WHERE outcome = 'ACKED')"""
    observed_query: ClassVar[str] = """
        SELECT count(*) || ' acknowledged in ' || count(DISTINCT partition) || ' partitions' FROM sent WHERE outcome = 'ACKED'"""


class ExpectOutcomesToBeKnown(RunExpectation):
    description: str = "The outcomes are known: at most 5 % of the sends are INDETERMINATE, for whatever becomes of these is right."
    unexpected_query: ClassVar[str] = "SELECT * FROM known WHERE round(indeterminate / greatest(sends, 1), 6) > 0.05"
    observed_query: ClassVar[str] = "SELECT indeterminate || ' of ' || sends || ' sends are INDETERMINATE' FROM known"


class ExpectSomethingToBeDelivered(RunExpectation):
    description: str = "Something was delivered."
    unexpected_query: ClassVar[str] = "SELECT 'nothing was delivered' AS reason WHERE NOT EXISTS (FROM deliveries)"
    observed_query: ClassVar[str] = "SELECT count(*) || ' delivered' FROM deliveries"


class ExpectEveryPhaseToHaveSends(RunExpectation):
    description: str = "Records were sent and acknowledged before, during and after the faults."
    unexpected_query: ClassVar[str] = "SELECT * FROM sent_in WHERE acked = 0"
    observed_query: ClassVar[str] = "SELECT string_agg(phase || ' ' || acked, ', ' ORDER BY number) FROM sent_in"


class ExpectDrainToReachTheEnd(RunExpectation):
    description: str = "The drain read the output to its end, so that a record which was not found is not there."
    unexpected_query: ClassVar[str] = "SELECT * FROM drain WHERE NOT complete"
    observed_query: ClassVar[str] = """
        SELECT if(complete, 'reached the end', 'did not reach the end: ' || coalesce(reason, 'no reason was recorded')) FROM drain"""


class ExpectEveryPhaseToHaveBatches(RunExpectation):
    description: str = "The job committed micro-batches before, during and after the faults: it worked, it was hit at work, it came back."
    unexpected_query: ClassVar[str] = "SELECT * FROM phases WHERE batches = 0"
    observed_query: ClassVar[str] = "SELECT string_agg(phase || ' ' || batches, ', ') FROM phases"


class ExpectEveryFaultToHaveEvidence(RunExpectation):
    description: str = "Every fault really happened: what it was to change in the system was read back there, and had changed."
    unexpected_query: ClassVar[str] = "SELECT injection, statement, detail FROM checks WHERE kind = 'evidence' AND NOT passed"
    observed_query: ClassVar[str] = """
        SELECT count(*) FILTER (passed) || ' of ' || count(*) || ' checks passed, ' || count(DISTINCT injection) || ' injected'
        FROM checks WHERE kind = 'evidence'"""


class ExpectEveryFaultToBeHealed(RunExpectation):
    description: str = "Every fault was undone, and that was read back too: the recovery is the job's own."
    unexpected_query: ClassVar[str] = "SELECT injection, statement, detail FROM checks WHERE kind = 'heal' AND NOT passed"
    observed_query: ClassVar[str] = """
        SELECT count(*) FILTER (healed) || ' of ' || count(*) || ' healed'
        FROM (SELECT bool_and(passed) AS healed FROM checks WHERE kind = 'heal' GROUP BY injection)"""


class ExpectOutputAfterEveryFault(RunExpectation):
    description: str = "After every fault the job delivered new output."
    unexpected_query: ClassVar[str] = "SELECT injection FROM injections WHERE NOT coalesce(first_output, false)"
    observed_query: ClassVar[str] = """
        SELECT if(count(*) = 0, 'no fault was planned', 'after ' || count(*) FILTER (first_output) || ' of ' || count(*) || ' faults')
        FROM injections"""


class ExpectRecoveryInTime(RunExpectation):
    description: str = "The job recovered in time: after every fault its backlog was gone within what the experiment allows."
    unexpected_query: ClassVar[str] = """
        SELECT injection, caught_up_ms / 1000 AS caught_up_s, recover_within_s FROM injections CROSS JOIN spec
        WHERE caught_up_ms IS NULL OR caught_up_ms > recover_within_s * 1000"""
    observed_query: ClassVar[str] = """
        SELECT coalesce('at the latest ' || round(max(caught_up_ms) / 1000, 1) || ' s after the fault', 'no fault was planned')
               || ', allowed are ' || any_value(recover_within_s) || ' s' FROM spec LEFT JOIN injections ON true"""


# --- what was delivered ---------------------------------------------------------------------------------------------------------------


def _unless_drained(view: str) -> tuple[str, str]:
    """The queries over an anomaly that is not known before the drain has read everything."""
    query = f"SELECT * FROM {view} WHERE (SELECT complete FROM drain)"
    return (
        query,
        f"SELECT count(*) || if((SELECT complete FROM drain), '', ' as far as the output was read') || ' {view.upper()}' FROM {view}",
    )


def _always(view: str) -> tuple[str, str]:
    return f"SELECT * FROM {view}", f"SELECT count(*) || ' {view.upper()}' FROM {view}"


class ExpectNoRecordToBeLost(RunExpectation):
    description: str = "No record is lost: each one that the source acknowledged was delivered."
    unexpected_query, observed_query = _unless_drained("lost")


class ExpectNoRecordToBeDuplicated(RunExpectation):
    description: str = "No record is duplicated: none was delivered more than once."
    unexpected_query, observed_query = _always("duplicated")


class ExpectNoPhantomRecord(RunExpectation):
    description: str = "No record is a phantom: each one that was delivered had been sent, and had not been refused."
    unexpected_query, observed_query = _always("phantom")


class ExpectNoRecordToBeCorrupted(RunExpectation):
    description: str = "No record is corrupted: each one that was delivered has the checksum it was sent with."
    unexpected_query, observed_query = _always("corrupted")


class ExpectNoRecordToBeReordered(RunExpectation):
    description: str = "No record is reordered: those of each key left in the order in which they were read."
    unexpected_query, observed_query = _always("reordered")


class ExpectNoBatchToBeTorn(RunExpectation):
    description: str = "No micro-batch is torn: each became visible as a whole."
    unexpected_query, observed_query = _unless_drained("torn")


class ExpectEveryBatchToBeJudged(RunExpectation):
    description: str = "Every batch is judged: each copy names the batch that wrote it, and reports say what each visible batch read."
    unexpected_query: ClassVar[str] = "SELECT * FROM unjudged_atomic"
    observed_query: ClassVar[str] = """
        SELECT coalesce(string_agg(records || ' ' || missing, ', '), 'every copy and batch was judged') FROM unjudged_atomic"""


class ExpectTheOrderToBeJudged(RunExpectation):
    description: str = "The order is judged: the place in the source is known of each acknowledged record that has a key."
    unexpected_query: ClassVar[str] = "SELECT * FROM unjudged_ordered"
    observed_query: ClassVar[str] = """
        SELECT coalesce(string_agg(records || ' ' || missing, ', '), 'every place was known') FROM unjudged_ordered"""


class ExpectNoRecordToVanish(RunExpectation):
    description: str = "No record vanishes: what one version of the output showed, each later one shows."
    unexpected_query, observed_query = _always("vanished")


class ExpectEveryVersionToBeJudged(RunExpectation):
    description: str = "Every version is judged: the output keeps versions, and the files of each one can be read."
    unexpected_query: ClassVar[str] = "SELECT * FROM unjudged_monotonic"
    observed_query: ClassVar[str] = "SELECT coalesce(string_agg(missing, ', '), 'every version was judged') FROM unjudged_monotonic"


class ExpectNoOffsetToBeCommittedAheadOfItsOutput(RunExpectation):
    description: str = "No offset was committed ahead of its output: a crash between the two would have lost the records."
    unexpected_query: ClassVar[str] = "SELECT * FROM offset_ahead UNION ALL SELECT * FROM unordered"
    observed_query: ClassVar[str] = """
        SELECT (SELECT count(*) FROM offset_ahead) || ' OFFSET_AHEAD'
               || if(count(*) = 0, '', ', ' || count(*) || ' whose times are not known well enough') FROM unordered"""


class ExpectNoResultToBeMissing(RunExpectation):
    description: str = "No result is missing: each one that is due by computing again was delivered."
    unexpected_query, observed_query = _unless_drained("missing")


class ExpectNoUnexpectedResult(RunExpectation):
    description: str = "No result is unexpected: each one that was delivered is found by computing again."
    unexpected_query, observed_query = _always("unexpected")


class ExpectNoResultToBeWrong(RunExpectation):
    description: str = "No result is wrong: each says what computing it again from the acknowledged records says."
    unexpected_query, observed_query = _always("wrong_value")


class ExpectNoResultToBeRepeated(RunExpectation):
    description: str = "No result is repeated: none was delivered more than once."
    unexpected_query, observed_query = _always("repeated")


class ExpectLateRowsToBeDroppedAsDeclared(RunExpectation):
    description: str = "Late rows are dropped as declared: in each micro-batch exactly those that the declared delay has it drop."
    unexpected_query, observed_query = _always("dropped")


class ExpectResultsToBeDue(RunExpectation):
    description: str = "Results were due, so that one could have been missing."
    unexpected_query: ClassVar[str] = "SELECT 'no result was due' AS reason WHERE NOT EXISTS (FROM due)"
    observed_query: ClassVar[str] = "SELECT count(*) || ' results were due' FROM due"


class ExpectNegativeControlToBeObserved(RunExpectation):
    """``expected`` of the run's spec names the anomalies."""

    description: str = "The negative control was observed: the anomalies that this experiment provokes were found, so the check can fail."
    observed_query: ClassVar[str] = """
        SELECT 'expected: ' || coalesce(string_agg(anomaly, ', '), 'nothing')
        FROM (SELECT unnest(from_json(expected, '["VARCHAR"]')) AS anomaly FROM spec)"""

    def _unexpected(self, connection: Any) -> str:
        (expected,) = (json.loads(row[0]) for row in connection.exec_driver_sql("SELECT CAST(expected AS VARCHAR) FROM spec").fetchall())
        queries = [f"SELECT '{anomaly}' AS anomaly WHERE NOT EXISTS (FROM {anomaly.lower()})" for anomaly in expected]
        return " UNION ALL ".join(queries) or "SELECT 'nothing' AS anomaly WHERE false"
