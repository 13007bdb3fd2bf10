"""``streamproof check RUN``: judge a run again, from its evidence alone."""

from __future__ import annotations

from streamproof.cli.arguments import RunArgument, SparkOption, run_folder
from streamproof.cli.outcome import anomalous, leave
from streamproof.cli.terminal import JsonOption
from streamproof.evidence.folder import EvidenceError
from streamproof.verdict.verdict import Verdict


def check(run: RunArgument, as_json: JsonOption = False, spark: SparkOption = None) -> None:
    """Judge a run again, from the evidence in its folder alone. Writes nothing."""
    from streamproof.run import spark_check, stages
    from streamproof.verdict.ending import Ending
    from streamproof.verdict.judge import judge
    from streamproof.verdict.verdict import decided, ending

    folder = run_folder(run)
    stored = Verdict.read(folder) if folder.verdict.exists() else None
    ended, spec = ending(folder, stored), stages.run_spec(folder)
    try:
        judgement = judge(folder, spec) if spark is None else spark_check.judged(folder, spec, spark)
        conflict = stages.disagreement(folder, judgement) if spark is None else None
    except EvidenceError as error:
        # A run that was stopped or broke need not have all its evidence.
        if ended == Ending():
            raise
        leave(folder, decided(spec.account(), ended), [], as_json, [f"its records say nothing: {error}"])
    records = anomalous(judgement.table)
    by_records = judgement.verdict
    account = by_records.with_expectations(stored)
    if spark is None:
        account = account.model_copy(update={"disagreement": conflict})
    verdict = decided(account, ended)
    lines = []
    if (verdict.outcome, verdict.reason) != (by_records.outcome, by_records.reason):
        lines = [f"its records alone say {by_records.outcome} ({by_records.reason}); but:"]
    elif stored is not None and stored.outcome is not verdict.outcome:
        lines = [f"the stored verdict says {stored.outcome} ({stored.reason}); the evidence says otherwise:"]
    leave(folder, verdict, records, as_json, lines)
