"""How a run ended, for a reader or a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.text import Text

from streamproof.cli.running import EXIT_CODES
from streamproof.cli.terminal import COLOURS, say
from streamproof.evidence.folder import RunFolder
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

SHOWN_WINDOWS = 3
SHOWN_RECORDS = 10
JSON_RECORDS = 1000


def end_run(folder: RunFolder, as_json: bool) -> NoReturn:
    """Show how a run ended, and leave with its exit code."""
    verdict = Verdict.read(folder)
    if not as_json:
        say_verdict(folder, verdict)
    records = anomalous(pq.read_table(folder.reconciliation)) if folder.reconciliation.exists() else []
    leave(folder, verdict, records, as_json, [])


def anomalous(reconciliation: pa.Table) -> list[dict[str, Any]]:
    """The rows of anomalous records."""
    return [row for row in reconciliation.to_pylist() if row["row"] == "record"]


def leave(folder: RunFolder, verdict: Verdict, records: list[dict[str, Any]], as_json: bool, lines: list[str]) -> NoReturn:
    """Show a verdict with its anomalous records, and leave with its exit code."""
    if as_json:
        document = {**verdict.to_json(), "folder": str(folder.path), "records": records[:JSON_RECORDS]}
        print(json.dumps(document, indent=1, default=str))
        raise typer.Exit(EXIT_CODES[verdict.outcome])
    for line in lines:
        say(line, style="yellow")
    for row in records[:SHOWN_RECORDS]:
        say(f"{row['anomaly']}: {row['blame']}")
    if len(records) > SHOWN_RECORDS:
        say(f"... and {len(records) - SHOWN_RECORDS} more; all are in {folder.reconciliation.name}")
    say_verdict(folder, verdict)


def say_verdict(folder: RunFolder, verdict: Verdict) -> NoReturn:
    """Print the verdict and leave with its exit code."""
    colour = COLOURS[verdict.outcome]
    for injection in verdict.injections:
        passed = sum(check.passed for check in injection.evidence)
        say(f"{injection.injection}: {passed} of {len(injection.evidence)} evidence checks passed")
    for line in _cost(verdict):
        say(line)
    say(Text.assemble((verdict.outcome, f"bold {colour}"), f": {verdict.reason}"))
    say(f"{folder.report if folder.report.exists() else folder.path}")
    raise typer.Exit(EXIT_CODES[verdict.outcome])


def _cost(verdict: Verdict) -> Iterator[str]:
    """What the faults cost, and beside the run without them; verdicts of older runs may not say."""
    for injection in verdict.injections:
        first, caught_up = injection.first_output_s, injection.caught_up_s
        if first is not None and caught_up is not None:
            yield f"{injection.injection}: new output after {first:.1f} s, the backlog was gone after {caught_up:.1f} s"
    if verdict.baseline is not None:
        ratios = verdict.baseline.ratios
        rates = ", ".join(f"{phase} {_times(ratio)}" for phase, ratio in ratios.records_per_s.items())
        yield f"beside {verdict.baseline.run}, without faults: longest gap {_times(ratios.longest_gap_s)}; records/s {rates}"
    if verdict.windows is not None and verdict.windows.missed and verdict.outcome == RunOutcome.PASSED:
        missed = verdict.windows.missed
        named = ", ".join(missed[:SHOWN_WINDOWS]) + (
            f" and {len(missed) - SHOWN_WINDOWS} more windows" if len(missed) > SHOWN_WINDOWS else ""
        )
        yield f"not killed in {named}: `streamproof sweep` kills the job of an experiment in each"
    yield from (f"not judged: {what}" for what in verdict.not_judged)
    yield from verdict.notes


def _times(ratio: float | None) -> str:
    return "not known" if ratio is None else f"{ratio:.2f} times"
