"""The second judge: evaluate a run's data with Great Expectations, and compare the result with the checkers' findings.

:func:`evaluate` opens the run's raw histories as a database (:mod:`streamproof.suites.expectations`), evaluates the suites of the run's
guarantee and promises over it, and compares, record by record, what their queries name with the reconciliation. It writes, below the run's
``expectations/``: ``gx/`` (the Great Expectations project: suite, checkpoint, validation), ``data_docs/`` (pages that open offline) and
``results.json`` (the :class:`Evaluation`). It starts from nothing each time, so it may be repeated; the database is removed afterwards.

Great Expectations takes seconds to import, the evaluation of a small run itself about one; ``streamproof.suites.worker`` imports ahead of
time.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.suites import agreement, data_docs, own, shipped, spec
from streamproof.suites.spec import SuiteSpec

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
    """What the suites found. ``errors`` are expectations that could not be evaluated: then ``success`` says nothing of the run.

    ``disagreement`` says which records only one of the two judges names. ``unjudged`` says why the suites do not judge the results of this
    stateful job. ``own`` are the results of the user's own suite, ``own_suite`` is its name; they are no part of ``success``.
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
    disagreement: str | None = None
    unjudged: str | None = None

    @property
    def error(self) -> str | None:
        """A sentence when an expectation could not be evaluated."""
        return f"{len(self.errors)} expectations could not be evaluated: {'; '.join(self.errors)}" if self.errors else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Evaluation:
        groups = {group: [Result(**result) for result in document.get(group, [])] for group in ("results", "own")}
        return cls(**{**document, **groups})


def results_path(folder: RunFolder) -> Path:
    """Where :func:`evaluate` leaves its :class:`Evaluation`."""
    return Path(folder.expectations) / "results.json"


def warm_up() -> None:
    """Import Great Expectations, with its usage statistics off. Takes seconds the first time."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import; a run's evidence is nobody else's business
    logging.getLogger("great_expectations").setLevel(logging.WARNING)  # its info lines speak of its own fields, by the hundred
    import streamproof.suites.expectations.runs  # noqa: F401


def is_warm() -> bool:
    """Whether this process has imported it."""
    return "great_expectations" in sys.modules


def evaluate(folder: RunFolder) -> Evaluation:
    """Run the suites over a run's evidence and write what they found. Raises EvidenceError when the evidence, or what it is to be held to,
    cannot be read."""
    warm_up()
    started = time.monotonic()
    verdict, suite_spec = folder.read_json(folder.verdict), spec.read(folder)
    project, site = Path(folder.expectations) / "gx", Path(folder.expectations) / "data_docs"
    for directory in (project, site):
        shutil.rmtree(directory, ignore_errors=True)
    context = _project(project, site)
    with _database(folder, suite_spec) as database:
        suite = context.suites.add(_suite(suite_spec, database.unjudged))
        results, errors = _validate(context, verdict, database, suite)
    success = all(result.success for result in results) and not errors
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
        disagreement=database.disagreement,
        unjudged=database.unjudged,
    )
    write_atomically(results_path(folder), json.dumps(evaluation.to_dict(), indent=1, default=str) + "\n")
    return evaluation


@dataclass(frozen=True)
class _Database:
    """A run's database in a file, closed; what the suites' queries name was compared with the reconciliation."""

    file: Path
    config: dict[str, Any]
    disagreement: str | None
    unjudged: str | None


@contextmanager
def _database(folder: RunFolder, suite_spec: SuiteSpec) -> Iterator[_Database]:
    """Make the run's database; remove it in the end."""
    import duckdb

    from streamproof.suites.expectations import database
    from streamproof.suites.expectations.files import Unreadable

    scratch = Path(folder.path) / agreement.SPILL
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    file, config = scratch / "run.duckdb", database.settings(scratch / "spill")
    try:
        with database.building(folder.path, file, config, [anomaly.lower() for anomaly in suite_spec.asked]) as connection:
            disagreement = agreement.disagreement(connection, suite_spec.asked, folder.reconciliation)
            unjudged = agreement.reason_unjudged(connection)
        yield _Database(file, config, disagreement, unjudged)
    except (Unreadable, duckdb.Error) as error:
        raise EvidenceError(f"{folder.path}: the expectation suites cannot read the evidence: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _suite(suite_spec: SuiteSpec, unjudged: str | None) -> Any:
    """All that is expected of the run, as one suite with the name of its guarantee."""
    import great_expectations as gx

    parts = [shipped.read(name) for name in suite_spec.suites]
    notes = [note for part in parts[:1] for note in part["notes"]]
    expectations = [expectation for part in parts for expectation in part["expectations"]]
    own.load_project([expectation["type"] for expectation in expectations])
    if unjudged is not None:
        expectations = [expectation for expectation in expectations if expectation["type"] not in shipped.OF_RESULTS]
        notes.append(f"The results are judged by the checkers alone: {unjudged}.")
    return gx.ExpectationSuite(name=str(suite_spec.guarantee), expectations=expectations, notes=notes)


def _project(project: Path, site: Path) -> Any:
    """A Great Expectations project with nothing in it but a site for its pages."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    from streamproof.suites.views import INDEX_VIEW, VIEW

    context = gx.get_context(mode="file", project_root_dir=project)
    # Its file of variables is empty. It would be parsed again for every setting that is read: a seventh of an evaluation.
    for file in project.rglob("config_variables.yml"):
        file.unlink()
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    for name in context.get_site_names():
        context.delete_data_docs_site(name)
    site_config: Any = {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": INDEX_VIEW},
        "site_section_builders": {section: {"view": VIEW} for section in ("expectations", "validations")} | {"profiling": "None"},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(site)},
    }
    context.add_data_docs_site(_SITE, site_config)
    return context


def _validate(context: Any, verdict: dict[str, Any], database: _Database, suite: Any) -> tuple[list[Result], list[str]]:
    """The results of the suite, for the one batch that a run is, and a sentence for each expectation that could not be evaluated."""
    from streamproof.suites.expectations import runs

    batch = runs.batch(context, database.file, database.config)
    try:
        outcome = _run(context, "delivery", verdict, batch, suite, "COMPLETE")
    finally:
        source = batch.data_asset.datasource
        for engine in (source.get_execution_engine().engine, source.get_engine()):
            engine.dispose()  # the file is closed, so that it can be removed
    pairs = _paired(suite.expectations, outcome.results)
    results = [_result(expectation, validation) for expectation, validation in pairs]
    errors = [(expectation.expectation_type, _error(validation)) for expectation, validation in pairs]
    return results, [f"{kind}: {error}" for kind, error in errors if error is not None]


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
    own_suite = folder.read_json(own.path(folder))
    own.load_project([str(expectation["type"]) for expectation in own_suite["expectations"]])
    name = f"own: {own_suite['name']}"
    suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=own_suite["expectations"]))
    asset = context.data_sources.add_pandas("output").add_dataframe_asset("records")
    batch = asset.add_batch_definition_whole_dataframe("whole output")
    outcome = _run(context, "own", verdict, batch, suite, "SUMMARY", batch_parameters={"dataframe": own.columns(folder)})
    pairs = _paired(suite.expectations, outcome.results)
    results = [
        replace(
            _result(expectation, validation), description=own.describe(expectation), observed=_observed(validation, own.observed), sample=[]
        )
        for expectation, validation in pairs
    ]
    errors = [(own.describe(expectation), _error(validation)) for expectation, validation in pairs]
    return name, results, [f"{name}: {description}: {error}" for description, error in errors if error is not None]


def _paired(expectations: Any, results: Any) -> list[tuple[Any, Any]]:
    """Each expectation with its result, None where there is none: Great Expectations gives them in an order of its own."""
    of = {result.expectation_config.id: result for result in results}
    return [(expectation, of.get(expectation.id)) for expectation in expectations]


def _result(expectation: Any, validation: Any) -> Result:
    """One expectation's result; of one that could not be evaluated, why."""
    detail = (validation.result or {}) if validation is not None else {}
    unexpected = detail.get("details") or {}
    return Result(
        expectation=expectation.expectation_type,
        description=str(expectation.description or expectation.expectation_type),
        success=_error(validation) is None and bool(validation.success),
        observed=_observed(validation, lambda detail: str(detail.get("observed_value"))),
        unexpected=int(unexpected.get("unexpected_row_count") or detail.get("unexpected_count") or 0),
        sample=[dict(row) for row in (unexpected.get("unexpected_rows") or [])[:SAMPLE]],
    )


def _observed(validation: Any, in_words: Callable[[dict[str, Any]], str]) -> str:
    error = _error(validation)
    return in_words(validation.result or {}) if error is None else f"could not be evaluated: {error}"


def _error(validation: Any) -> str | None:
    """Why an expectation could not be evaluated; None when it was."""
    return "was not evaluated" if validation is None else _exception(validation.exception_info)


def _exception(info: dict[str, Any] | None) -> str | None:
    """The first line of what went wrong inside an expectation. ``info`` is one exception, or one per metric that raised."""
    info = info or {}
    exceptions = [info] if "raised_exception" in info else [value for value in info.values() if isinstance(value, dict)]
    messages = [str(exception.get("exception_message")) for exception in exceptions if exception.get("raised_exception")]
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
