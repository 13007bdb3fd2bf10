"""What is expected of a run, one class per expectation, as Great Expectations runs them.

Each expectation is a query for the rows that should not be there, over ``{batch}`` (the run's one-row ``summary``) joined with the other
tables of ``evidence``. Beside it stands a query that says in words what was observed, for those who read the result.

The suite holds exactly when the verdict is PASSED, because it asks the same questions of the same evidence by another way:
    - what the guarantee forbids is not there (what it allows is not asked for, and the suite's notes say so),
    - the run could have shown it: something was acknowledged, every phase had micro-batches, the drain reached the end,
    - the faults were real: each has evidence, each was healed, and after each the job went on,
    - a negative control was caught,
    - and the verdict's counts are those of the records it names.
"""

from __future__ import annotations

from typing import Any, ClassVar

from great_expectations import ExpectationSuite
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation
from sqlalchemy import text

from streamproof.suites.tables import forbidden
from streamproof.verdict.anomaly import Anomaly


class RunExpectation(UnexpectedRowsExpectation):
    """A query for what should not be there, and ``observed_query`` for one sentence about what is.

    Each query holds a ``JOIN``: to one without, Great Expectations adds an alias of its own behind ``{batch}``, and ours then breaks it.
    """

    unexpected_rows_query: str = ""
    observed_query: ClassVar[str] = ""

    def _validate(self, metrics: dict[str, Any], runtime_configuration: Any = None, execution_engine: Any = None) -> Any:
        result = super()._validate(metrics, runtime_configuration, execution_engine)
        count, found = result["result"]["observed_value"], result["result"].get("details", {})
        observed = execution_engine.execute_query(text(self.observed_query)).scalar()  # Data Docs print it as it is
        return {**result, "result": {"observed_value": observed, "details": {**found, "unexpected_row_count": count}}}


class ExpectSourceToBeComplete(RunExpectation):
    unexpected_rows_query: str = """
        SELECT run.acked, counted.acked AS acked_in_partitions, counted.outcomes, placed.partition, placed.highest, placed.end_offset
        FROM {batch} AS run JOIN (
            SELECT COALESCE(SUM(acked), 0) AS acked, COALESCE(SUM(acked + indeterminate + rejected), 0) AS outcomes FROM partitions
        ) AS counted LEFT JOIN (
            SELECT * FROM offsets WHERE highest >= end_offset OR acked > highest + 1
        ) AS placed
        WHERE COALESCE(run.acked, 0) = 0 OR run.acked <> counted.acked
           OR run.acked + run.indeterminate + run.rejected <> counted.outcomes OR placed.partition IS NOT NULL"""
    description: str = (
        "The source is complete: records were acknowledged, every send has an outcome, each acknowledged record has a place of its own in "
        "the input, and the partitions' counts add up to them."
    )
    observed_query: ClassVar[str] = """
        SELECT COALESCE(acked, 'no') || ' acknowledged; ' || (SELECT COALESCE(SUM(acked), 0) || ' in ' || COUNT(*) FROM partitions)
               || ' partitions' FROM summary"""


class ExpectDrainToReachTheEnd(RunExpectation):
    unexpected_rows_query: str = """
        SELECT run.drain_complete, run.drain_reason FROM {batch} AS run JOIN (SELECT 1) WHERE NOT run.drain_complete"""
    description: str = "The drain read the output to its end, so that a record which was not found is not there."
    observed_query: ClassVar[str] = """
        SELECT CASE WHEN drain_complete THEN 'reached the end after ' || delivered || ' records'
               ELSE 'did not reach the end: ' || COALESCE(drain_reason, 'no reason was recorded') END FROM summary"""


class ExpectEveryPhaseToHaveBatches(RunExpectation):
    unexpected_rows_query: str = "SELECT phases.* FROM {batch} AS run JOIN phases ON phases.batches = 0"
    description: str = "The job committed micro-batches before, during and after the faults: it worked, it was hit at work, it came back."
    observed_query: ClassVar[str] = "SELECT group_concat(phase || ' ' || batches, ', ') FROM phases"


class ExpectEveryFaultToHaveEvidence(RunExpectation):
    unexpected_rows_query: str = """
        SELECT claims.injection, claims.claim, claims.detail
        FROM {batch} AS run JOIN claims ON claims.kind = 'evidence' AND NOT claims.holds"""
    description: str = "Every fault really happened: what it was to change in the system was read back there, and had changed."
    observed_query: ClassVar[str] = """
        SELECT COALESCE(SUM(holds), 0) || ' of ' || COUNT(*) || ' claims hold, ' || COUNT(DISTINCT injection) || ' injected'
        FROM claims WHERE kind = 'evidence'"""


class ExpectEveryFaultToBeHealed(RunExpectation):
    unexpected_rows_query: str = """
        SELECT claims.injection, claims.claim, claims.detail
        FROM {batch} AS run JOIN claims ON claims.kind = 'heal' AND NOT claims.holds"""
    description: str = "Every fault was undone, and that was read back too: the recovery is the job's own."
    observed_query: ClassVar[str] = """
        SELECT (SELECT COUNT(*) FROM (SELECT injection FROM claims WHERE kind = 'heal' GROUP BY injection HAVING MIN(holds) = 1))
               || ' of ' || COUNT(DISTINCT injection) || ' healed' FROM claims WHERE kind = 'heal'"""


class ExpectOutputAfterEveryFault(RunExpectation):
    unexpected_rows_query: str = "SELECT injections.* FROM {batch} AS run JOIN injections ON injections.first_output_s IS NULL"
    description: str = "After every fault the job committed new output."
    observed_query: ClassVar[str] = """
        SELECT CASE WHEN COUNT(*) = 0 THEN 'no fault was planned' WHEN COUNT(first_output_s) < COUNT(*)
               THEN 'no output after ' || (COUNT(*) - COUNT(first_output_s)) || ' of ' || COUNT(*) || ' faults'
               ELSE 'after ' || ROUND(MAX(first_output_s), 1) || ' s at the latest; the backlog was gone after '
               || COALESCE(ROUND(MAX(caught_up_s), 1) || ' s', 'a time that is not known') END FROM injections"""


class ExpectRecoveryInTime(RunExpectation):
    unexpected_rows_query: str = """
        SELECT injections.* FROM {batch} AS run JOIN injections
        ON injections.caught_up_s IS NULL OR injections.caught_up_s > run.recover_within_s"""
    description: str = "The job recovered in time: after every fault its backlog was gone within what the experiment allows."
    observed_query: ClassVar[str] = """
        SELECT COALESCE('at the latest ' || ROUND(MAX(injections.caught_up_s), 1) || ' s after the fault', 'no fault was planned')
               || ', allowed are ' || MAX(summary.recover_within_s) || ' s' FROM summary LEFT JOIN injections"""


class _ExpectNoAnomaly(RunExpectation):
    """None of the records that the reconciliation names shows one certain anomaly."""


def _without(anomaly: Anomaly) -> tuple[str, str]:
    """The queries of an expectation that no record shows ``anomaly``."""
    return (
        f"SELECT records.* FROM {{batch}} AS run JOIN records ON records.anomaly = '{anomaly}'",
        f"SELECT COUNT(*) || ' {anomaly}' FROM records WHERE anomaly = '{anomaly}'",
    )


class ExpectNoRecordLost(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.LOST)[0]
    observed_query: ClassVar[str] = _without(Anomaly.LOST)[1]
    description: str = "No record is lost: each one that the source acknowledged was delivered."


class ExpectNoRecordDuplicated(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.DUPLICATED)[0]
    observed_query: ClassVar[str] = _without(Anomaly.DUPLICATED)[1]
    description: str = "No record is duplicated: none was delivered more than once."


class ExpectNoPhantomRecord(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.PHANTOM)[0]
    observed_query: ClassVar[str] = _without(Anomaly.PHANTOM)[1]
    description: str = "No record is a phantom: each one that was delivered had been sent, and had not been refused."


class ExpectNoCorruptedRecord(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.CORRUPTED)[0]
    observed_query: ClassVar[str] = _without(Anomaly.CORRUPTED)[1]
    description: str = "No record is corrupted: each one that was delivered has the checksum it was sent with."


class ExpectNoRecordReordered(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.REORDERED)[0]
    observed_query: ClassVar[str] = _without(Anomaly.REORDERED)[1]
    description: str = "No record is reordered: those of each key left in the order in which they were read."


class ExpectNoBatchTorn(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.TORN)[0]
    observed_query: ClassVar[str] = _without(Anomaly.TORN)[1]
    description: str = "No micro-batch is torn: each became visible as a whole."


class ExpectNoCommitAheadOfOutput(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.AHEAD)[0]
    observed_query: ClassVar[str] = _without(Anomaly.AHEAD)[1]
    description: str = "No offset was committed ahead of its output: a crash between the two would have lost the records."


class ExpectNoResultMissing(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.MISSING)[0]
    observed_query: ClassVar[str] = _without(Anomaly.MISSING)[1]
    description: str = "No result is missing: each one that is due by computing again was delivered."


class ExpectNoResultUnexpected(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.UNEXPECTED)[0]
    observed_query: ClassVar[str] = _without(Anomaly.UNEXPECTED)[1]
    description: str = "No result is unexpected: each one that was delivered is found by computing again."


class ExpectResultsToBeEqual(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.WRONG_VALUE)[0]
    observed_query: ClassVar[str] = _without(Anomaly.WRONG_VALUE)[1]
    description: str = "Aggregates are equal: each result says what computing it again from the acknowledged records says."


class ExpectNoResultRepeated(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.REPEATED)[0]
    observed_query: ClassVar[str] = _without(Anomaly.REPEATED)[1]
    description: str = "No result is repeated: none was delivered more than once."


class ExpectLateRowsToBeDroppedAsDeclared(_ExpectNoAnomaly):
    unexpected_rows_query: str = _without(Anomaly.DROPPED)[0]
    observed_query: ClassVar[str] = _without(Anomaly.DROPPED)[1]
    description: str = "Late rows are dropped as declared: in each micro-batch exactly those that the declared delay has it drop."


class ExpectNegativeControlToBite(RunExpectation):
    unexpected_rows_query: str = "SELECT expected.* FROM {batch} AS run JOIN expected ON expected.observed = 0"
    description: str = "The negative control bites: the anomalies that this experiment provokes were found, so the check can fail."
    observed_query: ClassVar[str] = "SELECT group_concat(observed || ' ' || anomaly, ', ') FROM expected"


class ExpectVerdictToMatchItsRecords(RunExpectation):
    unexpected_rows_query: str = """
        SELECT run.lost, run.duplicated, run.phantom, run.corrupted, found.*
        FROM {batch} AS run JOIN (SELECT COUNT(*) FILTER (WHERE anomaly = 'LOST') AS lost_records,
            COUNT(*) FILTER (WHERE anomaly = 'DUPLICATED') AS duplicated_records,
            COUNT(*) FILTER (WHERE anomaly = 'PHANTOM') AS phantom_records,
            COUNT(*) FILTER (WHERE anomaly = 'CORRUPTED') AS corrupted_records,
            COUNT(*) FILTER (WHERE anomaly IN ('REORDERED', 'TORN', 'AHEAD')) AS other_records,
            COUNT(*) FILTER (WHERE anomaly IN ('MISSING', 'UNEXPECTED', 'WRONG_VALUE', 'REPEATED', 'DROPPED')) AS result_records
            FROM records) AS found
        WHERE run.lost IS NOT found.lost_records OR run.duplicated IS NOT found.duplicated_records
           OR run.phantom IS NOT found.phantom_records OR run.corrupted IS NOT found.corrupted_records
           OR COALESCE(run.reordered, 0) + COALESCE(run.torn, 0) + COALESCE(run.ahead, 0) <> found.other_records
           OR run.wrong_results <> found.result_records"""
    description: str = "The verdict's counts are those of the records that the reconciliation names, one by one."
    observed_query: ClassVar[str] = """
        SELECT (SELECT COUNT(*) FROM records) || ' records named, ' || COALESCE(lost + duplicated + phantom + corrupted
               + COALESCE(reordered, 0) + COALESCE(torn, 0) + COALESCE(ahead, 0) + wrong_results, 'none') || ' counted' FROM summary"""


_OF_ANOMALY: dict[Anomaly, type[RunExpectation]] = {
    Anomaly.LOST: ExpectNoRecordLost,
    Anomaly.DUPLICATED: ExpectNoRecordDuplicated,
    Anomaly.PHANTOM: ExpectNoPhantomRecord,
    Anomaly.CORRUPTED: ExpectNoCorruptedRecord,
    Anomaly.REORDERED: ExpectNoRecordReordered,
    Anomaly.TORN: ExpectNoBatchTorn,
    Anomaly.AHEAD: ExpectNoCommitAheadOfOutput,
    Anomaly.MISSING: ExpectNoResultMissing,
    Anomaly.UNEXPECTED: ExpectNoResultUnexpected,
    Anomaly.WRONG_VALUE: ExpectResultsToBeEqual,
    Anomaly.REPEATED: ExpectNoResultRepeated,
    Anomaly.DROPPED: ExpectLateRowsToBeDroppedAsDeclared,
}


def build(verdict: dict[str, Any]) -> ExpectationSuite:
    """The suite for a run with the verdict's guarantee and expected anomalies. Raises EvidenceError when the guarantee is unknown."""
    banned = forbidden(verdict)
    chosen: list[type[RunExpectation]] = [_OF_ANOMALY[anomaly] for anomaly in Anomaly if anomaly in banned]
    chosen += [ExpectSourceToBeComplete, ExpectEveryPhaseToHaveBatches, ExpectDrainToReachTheEnd]
    chosen += [ExpectEveryFaultToHaveEvidence, ExpectEveryFaultToBeHealed, ExpectOutputAfterEveryFault]
    if verdict.get("recover_within_s") is not None:
        chosen.append(ExpectRecoveryInTime)
    if verdict.get("expected_anomalies"):
        chosen.append(ExpectNegativeControlToBite)
    chosen.append(ExpectVerdictToMatchItsRecords)
    allowed = [str(anomaly) for anomaly in verdict.get("anomalies") or () if anomaly not in banned]
    name = str(verdict["guarantee"])
    what = f"{', '.join(allowed)}: not expected to be absent" if allowed else "no anomaly"
    note = f"{name.capitalize()} allows {what}."
    return ExpectationSuite(name=name, expectations=[expectation() for expectation in chosen], notes=[note])
