"""Judge a run's evidence with Great Expectations, and compare that with the verdict.

:func:`evaluate` writes, below the run's ``expectations/``: ``evidence.sqlite`` (the evidence as tables), ``gx/`` (the Great Expectations
project: suite, checkpoint, validation), ``data_docs/`` (pages that open offline) and ``results.json`` (the :class:`Evaluation`). It starts
from nothing each time, so it may be repeated.

Great Expectations takes seconds to import, the evaluation itself well under one; ``streamproof.suites.worker`` imports ahead of time.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.suites import data_docs, own, tables
from streamproof.verdict.decide import Decision, RunOutcome
from streamproof.verdict.verdict import OwnSuite, Verdict

SAMPLE = 20
_SITE = "run"


@dataclass(frozen=True)
class Result:
    """One expectation: ``observed`` says in words what was found, ``unexpected`` counts the rows that should not be there."""

    expectation: str
    description: str
    success: bool
    observed: str
    unexpected: int
    sample: list[dict[str, Any]]


@dataclass(frozen=True)
class Evaluation:
    """What the suite found. ``errors`` are expectations that could not be evaluated: then ``success`` says nothing of the run.

    ``own`` are the results of the user's own suite, ``own_suite`` is its name; they are no part of ``success``.
    """

    suite: str
    success: bool
    errors: list[str]
    results: list[Result]
    notes: list[str]
    data_docs: str
    seconds: float
    own_suite: str | None = None
    own: list[Result] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Evaluation:
        groups = {group: [Result(**result) for result in found.get(group, [])] for group in ("results", "own")}
        return cls(**{**found, **groups})


def results_path(folder: RunFolder) -> Path:
    """Where :func:`evaluate` leaves its :class:`Evaluation`."""
    return Path(folder.expectations) / "results.json"


def disagreement(by_records: Decision, evaluation: Evaluation) -> tuple[str | None, str | None]:
    """Where the suite and the checkers' decision contradict each other, and which expectations could not be evaluated; each None or a
    sentence. A run that broke or was stopped says nothing of its records, so there is nothing to contradict."""
    if by_records.outcome in (RunOutcome.ERROR, RunOutcome.ABORTED):
        return None, None
    if evaluation.errors:
        return None, f"{len(evaluation.errors)} expectations could not be evaluated: {'; '.join(evaluation.errors)}"
    if evaluation.success == by_records.as_expected:
        return None, None
    if evaluation.success:
        return f"the verdict is {by_records.outcome} ({by_records.reason}), but every expectation holds", None
    failed = ", ".join(f"{result.expectation} (observed: {result.observed})" for result in evaluation.results if not result.success)
    return f"the verdict is {by_records.outcome}, but these expectations do not hold: {failed}", None


def own_suite(evaluation: Evaluation) -> OwnSuite | None:
    """What the user's own suite says, for the verdict; None when the run has none."""
    if evaluation.own_suite is None:
        return None
    failed = [result for result in evaluation.own if not result.success]
    return OwnSuite(
        name=evaluation.own_suite,
        expectations=len(evaluation.own),
        failed=tuple(result.description for result in failed),
        failures=tuple(f"{result.description} does not hold ({result.observed})" for result in failed),
    )


def warm_up() -> None:
    """Import Great Expectations, with its usage statistics off. Takes seconds the first time."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import; a run's evidence is nobody else's business
    logging.getLogger("great_expectations").setLevel(logging.WARNING)  # its info lines speak of its own fields, by the hundred
    import streamproof.suites.expectations  # noqa: F401


def evaluate(folder: RunFolder) -> Evaluation:
    """Run the suite over a run's evidence and write what it found. Raises EvidenceError when there is no verdict to compare with."""
    warm_up()
    started = time.monotonic()
    verdict = Verdict.read(folder).to_json()
    database = tables.load(folder, verdict)
    project, site = Path(folder.expectations) / "gx", Path(folder.expectations) / "data_docs"
    for directory in (project, site):
        shutil.rmtree(directory, ignore_errors=True)
    context = _project(project, site)
    suite, outcome = _validate(context, verdict, database)
    results, errors = _results(outcome, {type(expectation).__name__: str(expectation.description) for expectation in suite.expectations})
    success = bool(outcome.success) and not errors
    own_suite, own_results, own_errors = _own(context, folder, verdict)
    errors += own_errors
    groups = {suite.name: [asdict(result) for result in results]}
    if own_suite is not None:
        groups[own_suite] = [asdict(result) for result in own_results]
    data_docs.make_self_contained(site, verdict, groups, errors)
    evaluation = Evaluation(
        suite=suite.name,
        success=success,
        errors=errors,
        results=results,
        notes=list(suite.notes or []),
        data_docs=str((site / "index.html").relative_to(folder.path)),
        seconds=round(time.monotonic() - started, 3),
        own_suite=own_suite,
        own=own_results,
    )
    write_atomically(results_path(folder), json.dumps(evaluation.to_dict(), indent=1, default=str) + "\n")
    return evaluation


def _project(project: Path, site: Path) -> Any:
    """A Great Expectations project with nothing in it but a site for its pages."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="file", project_root_dir=project)
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    for name in context.get_site_names():
        context.delete_data_docs_site(name)
    context.add_data_docs_site(
        _SITE,
        {
            "class_name": "SiteBuilder",
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(site)},
        },
    )
    return context


def _validate(context: Any, verdict: dict[str, Any], database: Path) -> tuple[Any, Any]:
    """The suite, and its validation result for the one batch that a run is."""
    from streamproof.suites.expectations import build

    source = context.data_sources.add_sqlite("evidence", connection_string=f"sqlite:///{database}")
    batch = source.add_table_asset("run", table_name="summary").add_batch_definition_whole_table("whole run")
    suite = context.suites.add(build(verdict))
    return suite, _run(context, "delivery", verdict, batch, suite, "COMPLETE")


def _run(context: Any, name: str, verdict: dict[str, Any], batch: Any, suite: Any, result_format: str, **parameters: Any) -> Any:
    """The validation result of ``suite`` over ``batch``; its pages are written."""
    import great_expectations as gx
    from great_expectations.checkpoint.actions import UpdateDataDocsAction

    validation = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=batch, suite=suite))
    checkpoint = gx.Checkpoint(
        name=name,
        validation_definitions=[validation],
        actions=[UpdateDataDocsAction(name="data docs", site_names=[_SITE])],
        result_format={"result_format": result_format},
    )
    run = gx.RunIdentifier(run_name=str(verdict.get("run")))
    (only,) = context.checkpoints.add(checkpoint).run(run_id=run, **parameters).run_results.values()
    return only


def _own(context: Any, folder: RunFolder, verdict: dict[str, Any]) -> tuple[str | None, list[Result], list[str]]:
    """The user's own suite over the delivered records: its name, its results, and what could not be evaluated."""
    import great_expectations as gx

    if not own.path(folder).exists():
        return None, [], []
    given = folder.read_json(own.path(folder))
    name = f"own: {given['name']}"
    suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=given["expectations"]))
    asset = context.data_sources.add_pandas("output").add_dataframe_asset("records")
    batch = asset.add_batch_definition_whole_dataframe("whole output")
    outcome = _run(context, "own", verdict, batch, suite, "SUMMARY", batch_parameters={"dataframe": own.columns(folder)})
    results, errors = [], []
    for expectation, found in _paired(suite.expectations, outcome.results):
        message = _exception(found.exception_info) if found is not None else "was not evaluated"
        if message is not None:
            errors.append(f"{name}: {own.said(expectation)}: {message}")
        detail = (found.result or {}) if found is not None else {}
        results.append(
            Result(
                expectation=expectation.expectation_type,
                description=own.said(expectation),
                success=message is None and bool(found.success),
                observed=f"could not be evaluated: {message}" if message is not None else own.observed(detail),
                unexpected=int(detail.get("unexpected_count") or 0),
                sample=[],
            )
        )
    return name, results, errors


def _paired(expectations: Any, results: Any) -> list[tuple[Any, Any]]:
    """Each expectation with its result, None where there is none: Great Expectations gives them in an order of its own."""
    of = {result.expectation_config.id: result for result in results}
    return [(expectation, of.get(expectation.id)) for expectation in expectations]


def _results(outcome: Any, descriptions: dict[str, str]) -> tuple[list[Result], list[str]]:
    """The results in the suite's order, and a sentence for each expectation that could not be evaluated."""
    results, errors = [], []
    for found in outcome.results:
        name = "".join(word.capitalize() for word in found.expectation_config.type.split("_"))
        message = _exception(found.exception_info)
        if message is not None:
            errors.append(f"{name}: {message}")
        detail = found.result or {}
        unexpected = detail.get("details") or {}
        results.append(
            Result(
                expectation=name,
                description=descriptions[name],
                success=bool(found.success),
                observed=f"could not be evaluated: {message}" if message is not None else str(detail.get("observed_value")),
                unexpected=int(unexpected.get("unexpected_row_count") or 0),
                sample=[dict(row) for row in (unexpected.get("unexpected_rows") or [])[:SAMPLE]],
            )
        )
    order = list(descriptions)
    missing = [name for name in order if name not in {result.expectation for result in results}]
    errors += [f"{name}: was not evaluated" for name in missing]
    return sorted(results, key=lambda result: order.index(result.expectation)), sorted(errors)


def _exception(info: dict[str, Any] | None) -> str | None:
    """The first line of what went wrong inside an expectation. ``info`` is one exception, or one per metric that raised."""
    each = [info or {}] if "raised_exception" in (info or {}) else [one for one in (info or {}).values() if isinstance(one, dict)]
    messages = [str(one.get("exception_message")) for one in each if one.get("raised_exception")]
    return messages[0].splitlines()[0] if messages else None


def main(arguments: list[str]) -> int:
    """``python -m streamproof.suites.evaluate RUN_FOLDER``: exits 0 when every expectation holds, 1 when not, 2 on bad input, 3 on
    errors."""
    if len(arguments) != 1:
        print("usage: python -m streamproof.suites.evaluate RUN_FOLDER", file=sys.stderr)
        return 2
    try:
        folder = RunFolder.open(arguments[0])
        evaluation = evaluate(folder)
    except EvidenceError as error:
        print(error, file=sys.stderr)
        return 2
    for result in evaluation.results:
        print(f"{'holds' if result.success else 'FAILS'}  {result.expectation}: {result.observed}")
    for error_text in evaluation.errors:
        print(f"error  {error_text}", file=sys.stderr)
    for result in evaluation.own:
        print(f"{'holds' if result.success else 'FAILS'}  {evaluation.own_suite}: {result.description}: {result.observed}")
    print(f"{folder.path / evaluation.data_docs} ({evaluation.seconds} s)")
    if evaluation.errors:
        return 3
    return 0 if evaluation.success and all(result.success for result in evaluation.own) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
