"""Writes those parts of ``docs/*.md`` that come from the code, so that they cannot drift from it. ``python docs/generate.py [--check]``

A part lies between ``<!-- generated: NAME -->`` and ``<!-- end -->``; ``PARTS`` says where each comes from. Everything else in the
documents is written by hand and left alone. With ``--check`` nothing is written: exit code 1 tells that a document is not what the code
says, and which.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import typer
from pydantic import BaseModel

from streamproof import registry
from streamproof.cli.main import app
from streamproof.cli.running import EXIT_CODES
from streamproof.engines.command.job import CommandSpec, OwnJobSpec
from streamproof.engines.command.placeholders import PLACEHOLDERS, SECRETS
from streamproof.engines.dstreams.spec import DStreamsSpec
from streamproof.engines.flink.spec import FlinkSpec
from streamproof.engines.kafka_streams.spec import KafkaStreamsSpec
from streamproof.engines.spark.registry import PIPELINES, Strategy
from streamproof.engines.spark.spec import SparkSpec
from streamproof.engines.storm.spec import StormSpec
from streamproof.evidence import batches, events, histories, journal, payloads
from streamproof.evidence.outcome import Outcome
from streamproof.experiment import catalogue as catalogue_of_faults
from streamproof.experiment.model import Experiment, FaultSpec, Random, Stateful
from streamproof.faults import Fault
from streamproof.history import changes, compare, junit, matrix
from streamproof.history import metrics as history_metrics
from streamproof.history import record as remembered
from streamproof.load import workload
from streamproof.load.spec import Source, Workload
from streamproof.suites.expectations import results as suites_of_results
from streamproof.testbed import listeners, rights
from streamproof.testbed.credentials import Credentials
from streamproof.testbed.external import External, MayBreak
from streamproof.testbed.external_kafka import Kafka, Sasl, Tls
from streamproof.testbed.external_postgres import Postgres
from streamproof.testbed.external_spark import Spark
from streamproof.testbed.roles import Template
from streamproof.verdict import decide, reconciliation
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.checks import accounts, atomicity, commits, order, unjudged, vanished
from streamproof.verdict.guarantee import Guarantee, Promise, allowed, forbidden
from streamproof.verdict.stateful import deduplication, joins, results, sessions, totals, watermark, windows
from streamproof.verdict.timing import baseline, recovery

STATEFUL: dict[str, ModuleType] = {
    "results": results,
    "given": events,
    "batches": batches,
    "watermark": watermark,
    "windows": windows,
    "sessions": sessions,
    "joins": joins,
    "deduplication": deduplication,
    "totals": totals,
    "suites": suites_of_results,
}
# The documents list what the package brings, and not what this project registers besides.
FAULTS: dict[str, Fault] = registry.installed("faults")
STRATEGIES: dict[str, Strategy] = registry.installed("strategies")
DOCS = Path(__file__).resolve().parent
PART = re.compile(r"(<!-- generated: (?P<name>[a-z_:]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def code(names: Iterable[Any]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"


def paragraphs(about: object) -> list[str]:
    """The docstring of the module in which ``about``'s class is written, as paragraphs of Markdown, without its title."""
    module = inspect.getmodule(type(about))
    text = inspect.cleandoc((module and module.__doc__) or "").replace("``", "`")
    apart = re.sub(r"^(The model|Evidence|Checked against):", r"\n**\1:**", re.sub(r" (Evidence):", r"\n\1:", text), flags=re.MULTILINE)
    return [" ".join(part.split()) for part in re.split(r"\n{2,}", apart)[1:]]


# --- strategies -------------------------------------------------------------------------------------------------------------------


def strategies() -> str:
    rows = (
        (
            f"[`{name}`](#{name})",
            ", ".join([str(strategy.guarantee), *sorted(strategy.promises)]),
            code(sorted(forbidden(strategy.guarantee, strategy.promises))),
            code(sorted(allowed(strategy.guarantee, strategy.promises))),
            strategy.summary,
        )
        for name, strategy in STRATEGIES.items()
    )
    return table(("strategy", "promises", "which forbids", "and allows", "in short"), rows)


def failpoints(strategy: Strategy) -> str:
    rows = (
        (f"`{at.name}`", at.at, ", ".join(at.actions), at.window, code(sorted(at.provokes)), code(sorted(at.allows)))
        for at in strategy.failpoints
    )
    return table(("step", "passed by", "can be", "a crash there", "must show", "may show"), rows)


def protocol(strategy: Strategy) -> str:
    """The protocol, its steps and its crash windows, as the strategy's own docstring tells them."""
    module = inspect.getmodule(type(strategy))
    return "```text\n" + inspect.cleandoc((module and module.__doc__) or "") + "\n```\n"


# --- faults -----------------------------------------------------------------------------------------------------------------------


def faults() -> str:
    rows = ((f"[`{name}`](#{name})", fault.target, fault.summary, _own_job(name)) for name, fault in FAULTS.items())
    return table(("fault", "target", "in short", "your own job"), rows)


def _own_job(name: str) -> str:
    """Into which jobs of the user's own a fault can be injected."""
    which = catalogue_of_faults.own_jobs(catalogue_of_faults.describe(name))
    return "–" if which is None else which or "yes"


def catalogue() -> str:
    return "\n".join(f"### `{name}`\n\n{fault(found)}" for name, found in FAULTS.items())


def fault(found: Fault) -> str:
    said = "\n\n".join(paragraphs(found))
    return f"{found.summary}. Its target: {found.target}.\n\n{said}\n\n{_parameters(found)}\n{_admits(found)} {_admits_own(found)}\n"


def _parameters(found: Fault) -> str:
    fields = found.parameters_model.model_json_schema().get("properties", {})
    rows = ((f"`{name}`", _default(about), _range(about), about.get("description", "")) for name, about in fields.items())
    return table(("parameter", "default", "may be", "meaning"), rows) if fields else "It has no parameters.\n"


def _range(about: dict[str, Any]) -> str:
    if "enum" in about:
        return ", ".join(about["enum"])
    if "minimum" in about and "maximum" in about:
        return f"{about['minimum']} to {about['maximum']}"
    return str(about.get("type") or " or ".join(part.get("type") or "one of the actions" for part in about.get("anyOf", []))).replace(
        "null", "absent"
    )


def _admits(found: Fault) -> str:
    refused = _refused(found, "kafka_to_kafka")
    taken = [name for name in STRATEGIES if name not in refused]
    if not refused:
        return "It can be injected into a job with any strategy."
    if not taken:
        stateful = next(name for name, pipeline in PIPELINES.items() if pipeline.stateful)
        taken = [name for name in STRATEGIES if name not in _refused(found, stateful) and STRATEGIES[name].takes_results]
        if taken:
            return f"It can be injected into a job with a stateful pipeline, and {code(taken)}."
        return f"It can be injected into a job with none of the built-in strategies ({next(iter(refused.values()))})."
    return f"It can be injected into a job with {code(taken)}; others are refused ({next(iter(refused.values()))})."


def _refused(found: Fault, pipeline: str) -> dict[str, str]:
    """Why the fault is refused, by the strategy of a job with this pipeline."""
    refused: dict[str, str] = {}
    for name in STRATEGIES:
        try:
            found.check(SparkSpec(name, pipeline).profile, {})
        except ValueError as error:
            refused[name] = str(error)
    return refused


def _admits_own(found: Fault) -> str:
    which = catalogue_of_faults.own_jobs(catalogue_of_faults.describe(found.name))
    if which is None:
        return "It cannot be injected into a job of your own."
    return f"It can be injected into {f'a job of your own {which}' if which else 'any job of your own'}."


# --- verdicts ---------------------------------------------------------------------------------------------------------------------


def _terms(kind: type[StrEnum]) -> dict[str, str]:
    """What a docstring of the form ``NAME: meaning.`` says about each name."""
    text = " ".join((kind.__doc__ or "").split())
    found = re.findall(rf"({'|'.join(kind.__members__)}): (.*?)(?=\s(?:{'|'.join(kind.__members__)}): |$)", text)
    missing = set(kind.__members__) - {name for name, _ in found}
    if missing:
        raise ValueError(f"the docstring of {kind.__name__} does not explain {sorted(missing)}")
    return dict(found)


def outcomes() -> str:
    return table(("outcome of a send", "meaning"), ((f"`{name}`", what) for name, what in _terms(Outcome).items()))


def anomalies() -> str:
    return table(("anomaly", "meaning"), ((f"`{name}`", what) for name, what in _terms(Anomaly).items()))


def guarantees() -> str:
    extra = {promise.forbidden: f"forbidden if *{promise}*" for promise in Promise}
    of_records = [anomaly for anomaly in Anomaly if anomaly not in RESULT_KINDS]
    rows = (
        (str(kind), *("forbidden" if anomaly in kind.forbidden else extra.get(anomaly, "allowed") for anomaly in of_records))
        for kind in Guarantee
    )
    return table(("guarantee", *(f"`{anomaly}`" for anomaly in of_records)), rows)


def guarantees_of_results() -> str:
    rows = (
        (str(kind), *("forbidden" if anomaly in kind.forbidden_results else "allowed" for anomaly in RESULT_KINDS)) for kind in Guarantee
    )
    return table(("guarantee", *(f"`{anomaly}`" for anomaly in RESULT_KINDS)), rows)


def keys(model: type[BaseModel]) -> str:
    """What may stand in a document of this model."""
    fields = model.model_json_schema()["properties"]
    rows = ((f"`{name}`", _default(about), about.get("description", "")) for name, about in fields.items())
    return table(("key", "default", "meaning"), rows)


def keys_beside(model: type[BaseModel], base: type[BaseModel]) -> str:
    """What may stand in a document of this model and not in one of its base."""
    fields = model.model_json_schema()["properties"]
    rows = ((f"`{name}`", _default(about), about.get("description", "")) for name, about in fields.items() if name not in base.model_fields)
    return table(("key", "default", "meaning"), rows)


def _default(about: dict[str, Any]) -> str:
    default = about.get("default")
    return f"`{default}`" if isinstance(default, int | float | str) else "–"


def payloads_of_the_workload() -> str:
    """The first event of each source."""
    rows = []
    for source in Source:
        key, payload = next(workload.events(Workload(source=source, records=100), seed=1))
        rows.append((f"`{source}`", f"`{key}`", f"`{payload.decode()}`"))
    return table(("source", "key", "payload"), rows)


def pipelines() -> str:
    rows = (
        (f"`{name}`", each.summary, code([name for name, strategy in STRATEGIES.items() if strategy.takes_results or not each.stateful]))
        for name, each in PIPELINES.items()
    )
    return table(("pipeline", "in short", "strategies"), rows)


def promises() -> str:
    return table(("promise", "meaning"), ((f"*{name.lower()}*", what) for name, what in _terms(Promise).items()))


def rules() -> str:
    """The rules by which an outcome is decided, in their order."""
    lines = [(outcome, _sentences(rule)) for outcome, rule in decide.RULES] + [(decide.RunOutcome.PASSED, "Otherwise.")]
    return table(("", "outcome", "when"), tuple((str(number), f"`{outcome}`", when) for number, (outcome, when) in enumerate(lines, 1)))


def journal_events() -> str:
    """The events of a run's journal, with their own fields."""
    rows = []
    for name, kind in journal.EVENTS.items():
        names = [each.name for each in dataclasses.fields(kind)[1:] if each.name != "details"]
        rows.append((f"`{name}`", ", ".join(f"`{field}`" for field in names), _sentences(kind)))
    return table(("event", "fields", "when"), tuple(rows))


def _sentences(documented: object) -> str:
    """A docstring on one line."""
    return " ".join((documented.__doc__ or "").replace("``", "`").split())


def exit_codes() -> str:
    return table(("outcome of a run", "exit code"), ((f"`{outcome}`", str(number)) for outcome, number in EXIT_CODES.items()))


def told(module: ModuleType) -> str:
    """What the code says of itself: the docstring of the module that does it."""
    return "```text\n" + inspect.cleandoc(module.__doc__ or "") + "\n```\n"


def columns(schema: pa.Schema) -> str:
    version = (schema.metadata or {})[b"schema_version"].decode()
    return table(("column", "type"), ((f"`{field.name}`", str(field.type)) for field in schema)) + f"\nSchema version {version}.\n"


# --- history ----------------------------------------------------------------------------------------------------------------------


def metrics() -> str:
    rows = ((f"`{name}`", code(labels), about) for name, (about, labels) in history_metrics.METRICS.items())
    return table(("metric", "labels beside the cell's", "meaning"), rows)


# --- the command line ------------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command with its arguments and options, as the command line itself lists them."""
    return "\n".join(_command(("streamproof",), typer.main.get_command(app)))


def _command(path: tuple[str, ...], command: Any) -> Iterable[str]:
    if len(path) > 1:
        yield f"## `{' '.join(path)}`\n\n{_sentences_of(command.help)}\n\n{_parameters_of(command)}"
    for name, each in sorted(getattr(command, "commands", {}).items()):
        if not each.hidden:
            yield from _command((*path, name), each)


def _sentences_of(text: str | None) -> str:
    return " ".join((text or "").replace("``", "`").split())


def _parameters_of(command: Any) -> str:
    rows = []
    for each in command.params:
        options = [*each.opts, *each.secondary_opts]
        name = code(options) if each.param_type_name == "option" else f"`{each.name}`"
        default = "required" if each.required else "–" if each.default in (None, False, ()) else f"`{each.default}`"
        rows.append((name, default, _sentences_of(getattr(each, "help", None)) or "–"))
    return table(("argument or option", "default", "meaning"), rows) if rows else "It takes no arguments.\n"


# --- architecture ------------------------------------------------------------------------------------------------------------------------


def requirements() -> str:
    rows = []
    for line in (DOCS.parent / "requirements.in").read_text().splitlines():
        pinned, _, why = line.partition("#")
        if pinned.strip():
            rows.append((f"`{pinned.strip()}`", why.strip()))
    return table(("package", "why it is here"), rows)


def listening() -> str:
    rows = ((each.name, each.asks_for, each.allows) for each in listeners.ALL)
    return table(("listener", "asks for", "a client can then"), rows)


def rights_of_a_run() -> str:
    rows = (
        (
            f"{right.operation} on {right.resource} `{rights.PREFIX}*`",
            right.why + ("; only for a job with transactions" if right.transactions else ""),
            f"`--operation {right.operation} --{right.option} {rights.PREFIX}`",
        )
        for right in rights.RIGHTS
    )
    return table(("right", "what needs it", "`kafka-acls.sh --resource-pattern-type prefixed`"), rows)


def placeholders() -> str:
    only_env = {name: f"{holds}; in the values of `env` only" for name, holds in SECRETS.items()}
    return table(("placeholder", "holds"), ((f"`{{{name}}}`", holds) for name, holds in {**PLACEHOLDERS, **only_env}.items()))


def example() -> str:
    return "```python\n" + (DOCS.parent / "pipelines" / "foreach_batch.py").read_text() + "```\n"


PARTS: dict[str, Callable[[], str]] = {
    "strategies": strategies,
    **{f"strategy:{name}": lambda found=found: failpoints(found) for name, found in STRATEGIES.items()},  # type: ignore[misc]
    **{f"protocol:{name}": lambda found=found: protocol(found) for name, found in STRATEGIES.items()},  # type: ignore[misc]
    "faults": faults,
    "catalogue": catalogue,
    "outcomes": outcomes,
    "anomalies": anomalies,
    "guarantees": guarantees,
    "guarantees_of_results": guarantees_of_results,
    "stateful_options": lambda: keys(Stateful),
    "experiment": lambda: keys(Experiment),
    "workload": lambda: keys(Workload),
    "workload_payloads": payloads_of_the_workload,
    "fault_keys": lambda: keys(FaultSpec),
    "random": lambda: keys(Random),
    "job": lambda: keys(CommandSpec),
    "flink": lambda: keys_beside(FlinkSpec, OwnJobSpec),
    "dstreams": lambda: keys_beside(DStreamsSpec, OwnJobSpec),
    "kafka_streams": lambda: keys_beside(KafkaStreamsSpec, OwnJobSpec),
    "storm": lambda: keys_beside(StormSpec, OwnJobSpec),
    "pipelines": pipelines,
    **{f"stateful:{name}": lambda found=found: told(found) for name, found in STATEFUL.items()},  # type: ignore[misc]
    "events": lambda: columns(events.EVENTS),
    "payloads": lambda: columns(payloads.PAYLOADS),
    "promises": promises,
    "exit_codes": exit_codes,
    "accounts": lambda: told(accounts),
    "order": lambda: told(order),
    "atomicity": lambda: told(atomicity),
    "unjudged": lambda: told(unjudged),
    "commits": lambda: told(commits),
    "vanished": lambda: told(vanished),
    "rules": rules,
    "journal": journal_events,
    "recovery": lambda: told(recovery),
    "baseline": lambda: told(baseline),
    "sent": lambda: columns(histories.SENT),
    "delivered": lambda: columns(histories.DELIVERED),
    "reconciliation": lambda: columns(reconciliation.RECONCILIATION),
    "history": lambda: told(remembered),
    "changes": lambda: told(changes),
    "compare": lambda: told(compare),
    "matrix": lambda: told(matrix),
    "junit": lambda: told(junit),
    "metrics_told": lambda: told(history_metrics),
    "metrics": metrics,
    "commands": commands,
    "requirements": requirements,
    "listeners": listening,
    "placeholders": placeholders,
    "rights": rights_of_a_run,
    "external": lambda: keys(External),
    "external_kafka": lambda: keys(Kafka),
    "tls": lambda: keys(Tls),
    "sasl": lambda: keys(Sasl),
    "credentials": lambda: keys(Credentials),
    "external_postgres": lambda: keys(Postgres),
    "external_spark": lambda: keys(Spark),
    "may_break": lambda: keys(MayBreak),
    "template": lambda: keys(Template),
    "example": example,
}


def rewritten(text: str) -> str:
    """A document with every generated part as the code has it now. Raises KeyError for a part that nothing generates."""
    return PART.sub(lambda part: f"{part[1]}{PARTS[part['name']]()}{part[3]}", text)


def named(text: str) -> list[str]:
    """The generated parts that a document holds."""
    return [part["name"] for part in PART.finditer(text)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="docs/generate.py", description="Write the parts of docs/*.md that come from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a document is not what the code says")
    check = parser.parse_args().check
    stale = []
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text()
        after = rewritten(before)
        if after != before:
            stale.append(path.name)
            if not check:
                path.write_text(after)
    for name in stale:
        print(f"docs/{name} {'is not what the code says: run `python docs/generate.py`' if check else 'rewritten'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
