"""The steps of a run. Each takes the run's folder, reads what earlier steps wrote, writes its own part, and may be repeated.

    prepare -> (run_pipeline | generate_load | inject_faults) -> drain -> verify -> expect -> report, and always restore

The CLI and Airflow's tasks call the same function, :func:`perform`. A step that fails says so in the journal, which ends the others
that wait beside it.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import logging
import os
import platform
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from streamproof import engines, extras, settings
from streamproof.engines.spark.registry import PIPELINES
from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.evidence.progress import Progress
from streamproof.experiment import model
from streamproof.experiment.model import Experiment
from streamproof.experiment.schedule import Schedule, plan
from streamproof.faults import FAULTS
from streamproof.history.record import HistoryError
from streamproof.jobs.context import RunContext, RunEnded
from streamproof.jobs.job import Job
from streamproof.load import timed, workload
from streamproof.load.gate import Gate
from streamproof.report.report import render
from streamproof.run import healing, injector, lock, spark_check, supervisor, watchdog
from streamproof.sinks import outputs, payloads
from streamproof.suites import own
from streamproof.suites.evaluate import Evaluation, agree, with_own, without_own
from streamproof.suites.evaluate import evaluate as evaluate_here
from streamproof.testbed import chosen, embedded, postgres
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError
from streamproof.verdict.decide import RunOutcome, Terms, judge, notes, without_evidence, write_reconciliation

DRAIN_S = 150.0
log = logging.getLogger("streamproof.run.stages")


# --- before a run -----------------------------------------------------------------------------------------------------------------


def create(found: Experiment, name: str | None = None, owner: int | None = None) -> RunFolder:
    """Make the run's folder. ``owner`` is the pid of the one process that carries the run, None when many do.

    Repeating it with the ``name`` of an existing run gives that run. Raises BadInput when the experiment cannot be planned.
    """
    extras.require(*extras.RUN)
    schedule = plan(found)
    check_suite(found)
    settings.runs().mkdir(parents=True, exist_ok=True)
    if name is None:
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{found.name}"
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        name = next(candidate for candidate in names if not (settings.runs() / candidate).exists())
    folder = RunFolder.create(settings.runs() / name)
    if not folder.experiment.exists():
        write_atomically(folder.schedule, schedule.to_json())
        write_atomically(folder.path / "owner.json", json.dumps({"pid": owner}))
        if found.suite is not None:
            write_atomically(own.path(folder), json.dumps(found.suite.document(), indent=1))
        folder.journal.append("run_created", run=folder.name, seed=found.seed)
        write_atomically(folder.experiment, found.to_yaml())
    return folder


def check_suite(found: Experiment) -> None:
    """Raises BadInput naming each of the user's own expectations that cannot be evaluated."""
    if found.suite is None:
        return
    try:
        own.check(found.suite.document())
    except own.SuiteError as error:
        raise BadInput(str(error)) from error


def perform(name: str, folder: RunFolder, **options: Any) -> None:
    """Do one step and journal it; ``options`` go to the step. Raises what it raises, RunEnded when it ended because the run did."""
    begun = time.monotonic()
    folder.journal.append("step_started", step=name, pid=os.getpid())
    log.info("step %s", name)
    try:
        with lock.beating(folder.name):
            STEPS[name](folder, **options)
    except RunEnded as error:
        folder.journal.append("step_ended", step=name, reason=str(error))
        raise
    except BaseException as error:  # journaled and raised again: the steps beside this one must learn of it, whatever it is
        folder.journal.append("step_failed", step=name, error=f"{type(error).__name__}: {error}")
        raise
    folder.journal.append("step_finished", step=name, seconds=round(time.monotonic() - begun, 3))


# --- the steps --------------------------------------------------------------------------------------------------------------------


def prepare(folder: RunFolder) -> None:
    """Take the lock, heal what others left, bring the testbed up, make the run's topics, describe its job.

    A testbed whose Kafka has another number of brokers than the experiment asks for is rebuilt, once no other run holds it.
    """
    found = load(folder)
    for injection in Schedule.read(folder).injections:
        if (reason := FAULTS[injection.fault].prevented()) is not None:
            raise TestbedError(f"{injection.fault} cannot be done on this machine: {reason}")
    owner = folder.read_json(folder.path / "owner.json")["pid"]
    held = lock.holder()
    if held is not None and held.run != folder.name and lock.is_stale(held):
        log.warning("run %s did not give the testbed back: healing", held.run)
        lock.release(held.run)
    lock.acquire(folder.name, folder.path, owner)
    try:
        watchdog.start(folder)
        healing.heal_all(spare=folder.path)  # what they left may be what keeps the testbed from coming up
        testbed = embedded.up(log.info, None if embedded.status() else found.brokers)
        if len(testbed.kafka) != found.brokers:  # now that nobody else uses it
            testbed = embedded.up(log.info, found.brokers)
            folder.journal.append("kafka_rebuilt", brokers=found.brokers)
        testbed = chosen.of(folder, testbed)
        for proxy in testbed.links:
            if not testbed.proxies.enabled(proxy):
                raise TestbedError(f"the proxy {proxy} is disabled: enable it, the job could not reach anything through it")
        _set_the_scene(folder, found, testbed)
    except BaseException:  # whatever it was: a run that was not prepared must not hold the testbed
        lock.release(folder.name)
        raise


def _set_the_scene(folder: RunFolder, found: Experiment, testbed: Testbed) -> None:
    """Under the lock: make the run's topics, describe its job."""
    folder.journal.append("testbed_taken", folder=testbed.folder)
    name = f"sp-{folder.name}"
    job = found.spec.job(
        testbed,
        name=name,
        folder=str(folder.path),
        bootstrap=testbed.driver_kafka,
        input_topic=f"{name}.in",
        output_topic=f"{name}.out",
        batch_records=found.micro_batch,
        transaction_timeout_ms=found.transaction_timeout_s * 1000,
        postgres=testbed.pipeline_postgres,
    )
    job.write()
    count = found.workload.partitions
    Cluster(testbed.direct_kafka).create_topics({job.input_topic: count})
    outputs.of(job).create(job, testbed, count)
    write_atomically(folder.path / "deadline.json", json.dumps({"at": time.time() + found.timeout_s}))


def run_pipeline(folder: RunFolder) -> None:
    """Supervise the job's driver until the run is done."""
    supervisor.run_pipeline(context(folder))


def generate_load(folder: RunFolder) -> None:
    """Send the workload, as far as the gate is open, and record what became of each record.

    Repeated after its end it sends nothing. Repeated after it was killed it goes on behind the last record that was to be sent before:
    nothing is sent twice, and what the killed one left unsettled is INDETERMINATE.
    """
    if folder.journal.last("load_finished") is not None:
        log.info("the workload was sent before")
        return
    here, found = context(folder), load(folder)
    events = _events(folder, found)
    sender = workload.Sender(folder, here.testbed.direct_kafka, here.job.input_topic)
    gate, sent, begun = Gate(folder), sender.reached, time.monotonic()
    before = workload.settled(folder)
    events = itertools.islice(events, sent, None)
    size = min(workload.MAX_CHUNK, max(1, here.job.batch_records // 2))
    folder.journal.append("load_started", records=found.workload.records)
    try:
        while chunk := list(itertools.islice(events, size)):
            due = sent + len(chunk)
            here.wait_for(
                "the gate of the workload to open",
                lambda due=due: gate.records() >= due and workload.pace(due - sender.reached, begun, found.workload.rate_per_s),  # type: ignore[misc]
                here.deadline - time.monotonic(),
            )
            sender.send(sent, chunk, sender.partitions())
            sent = due
        sender.send_late(sender.partitions())
    finally:
        sender.save()
    counts = {str(outcome).lower(): count + before[outcome] for outcome, count in sender.counts.items()}
    folder.journal.append("load_finished", **counts)
    log.info("sent %d records: %s", sent, counts)


def _events(folder: RunFolder, found: Experiment) -> Iterator[workload.Event]:
    if found.declared is None:
        return workload.events(found.workload, found.seed)
    events = timed.events(found.workload, found.stateful, found.seed, joins=PIPELINES[found.pipeline].joins)
    timed.write(folder, events)
    return timed.payloads(events)


def inject_faults(folder: RunFolder) -> None:
    """Lead the run through its phases and strike by the schedule."""
    injector.conduct(context(folder), Schedule.read(folder))


def drain(folder: RunFolder) -> None:
    """Read everything that was delivered."""
    job, testbed = Job.read(folder), chosen.current(folder)
    drained = outputs.of(job).drain(folder, job, testbed, DRAIN_S)
    ends = Cluster(testbed.direct_kafka).end_offsets(job.input_topic)
    write_atomically(folder.source, json.dumps({"end_offsets": {str(partition): end for partition, end in sorted(ends.items())}}))
    if load(folder).keeps_values:
        payloads.keep(folder, job, testbed, drained, DRAIN_S)


def verify(folder: RunFolder, spark: str | None = None) -> None:
    """Check the histories against each other, here or by a Spark job on the master ``spark``; write ``reconciliation.parquet`` and
    ``verdict.json``."""
    judgement = judge(folder, terms(folder)) if spark is None else spark_check.judged(folder, terms(folder), spark)
    write_reconciliation(folder, judgement.table)
    write_verdict(folder, judgement.verdict)
    log.info("%s: %s", judgement.verdict["outcome"], judgement.verdict["reason"])


def expect(folder: RunFolder, evaluate: Callable[[RunFolder], Evaluation] = evaluate_here) -> None:
    """Evaluate the expectation suite. It and the verdict must agree, or the run is an ERROR. The user's own suite may make it FAILED."""
    stored = folder.read_json(folder.verdict)
    verdict = without_own(stored)
    evaluation = evaluate(folder)
    conflict = agree(verdict, evaluation)
    if conflict is not None:
        write_verdict(folder, {**verdict, "outcome": RunOutcome.ERROR, "as_expected": False, "reason": conflict})
        log.error("%s", conflict)
    elif (found := with_own(verdict, evaluation)) != stored:
        write_verdict(folder, found)
        log.info("%s: %s", found["outcome"], found["reason"])


def report(folder: RunFolder) -> None:
    """Record the run in the history, write ``report.html``."""
    _remember(folder)
    log.info("report: %s", render(folder, settings.cache()))


def restore(folder: RunFolder) -> None:
    """Leave the testbed as it was found. A run that broke or was stopped gets the verdict that says so."""
    aborted, failed = folder.journal.last("aborted"), _failed_step(folder)
    if aborted is None and failed is None and not folder.verdict.exists():
        # Its other steps may still be at work (Airflow starts a teardown at once): the journal tells them to end.
        folder.journal.append("aborted", reason="the run was stopped before it had a verdict")
        aborted = folder.journal.last("aborted")
    if aborted is not None:
        _overrule(folder, RunOutcome.ABORTED, aborted["reason"])
    elif failed is not None:
        _overrule(folder, RunOutcome.ERROR, f"step {failed['step']} failed: {failed['error']}")
    if folder.journal.last("testbed_taken") is not None and embedded.known() is not None:
        healing.give_back(folder)
    _note(folder)
    _remember(folder)  # `report` may have come before, or may never come: the history has what the run ends with


def _remember(folder: RunFolder) -> None:
    """Record the run in the history. When that fails the run keeps its verdict, and says so among its notes."""
    from streamproof.run import recording  # SQLAlchemy takes a moment to import, which most steps need not wait for

    if not folder.verdict.exists():
        return
    try:
        recording.record(folder)
    except (HistoryError, EvidenceError, BadInput) as error:
        folder.journal.append("history_failed", error=str(error))
        log.error("the run is not in the history: %s", error)
        _note(folder)


def _note(folder: RunFolder) -> None:
    """Add to the verdict what the journal has told since it was written."""
    told, unwritten = notes(folder.journal.events()), folder.journal.last("history_failed")
    if unwritten is not None:
        told.append(f"it could not be written to the history ({unwritten['error']}): `streamproof history import` takes it in later")
    if told and folder.verdict.exists():
        stored = folder.read_json(folder.verdict)
        write_verdict(folder, {**stored, "notes": list(dict.fromkeys([*stored.get("notes", []), *told]))})


def _failed_step(folder: RunFolder) -> dict[str, Any] | None:
    """The first step that failed and was not repeated with success."""
    failures: dict[str, dict[str, Any]] = {}
    for event in folder.journal.events("step_failed", "step_finished"):
        if event["event"] == "step_failed":
            failures.setdefault(event["step"], event)
        else:
            failures.pop(event["step"], None)
    return min(failures.values(), key=lambda event: str(event["at"]), default=None)


def overruling(folder: RunFolder) -> tuple[RunOutcome, str] | None:
    """The outcome that the run has whatever its records say, and why: it was stopped, a step failed, its two judges disagreed, or
    the user's own suite does not hold."""
    aborted, restored = folder.journal.last("aborted"), folder.journal.last("restored")
    if aborted is not None and (restored is None or aborted["at"] <= restored["at"]):  # what comes later stops nothing any more
        return RunOutcome.ABORTED, aborted["reason"]
    if (failed := _failed_step(folder)) is not None:
        return RunOutcome.ERROR, f"step {failed['step']} failed: {failed['error']}"
    if folder.verdict.exists():
        stored = read_verdict(folder)
        broke_suite = bool((stored.get("suite") or {}).get("failed"))
        if broke_suite or stored["outcome"] in (RunOutcome.ABORTED, RunOutcome.ERROR):
            return RunOutcome(stored["outcome"]), stored["reason"]
    return None


def _overrule(folder: RunFolder, outcome: RunOutcome, reason: str) -> None:
    """Whatever the records say, the run as a whole is ``outcome``."""
    if folder.verdict.exists():
        found = folder.read_json(folder.verdict)
        if found["outcome"] != outcome:
            write_verdict(folder, {**found, "outcome": outcome, "as_expected": False, "reason": reason})
    else:
        write_verdict(folder, without_evidence(terms(folder), outcome, reason))


STEPS: dict[str, Callable[..., None]] = {
    step.__name__: step for step in (prepare, run_pipeline, generate_load, inject_faults, drain, verify, expect, report, restore)
}


def abort(folder: RunFolder, reason: str) -> None:
    """Stop a run: its steps end by themselves once they see the journal, its driver is killed, the testbed restored; it is ABORTED.

    A run that was judged and restored before is left as it is; one that was judged only keeps its verdict.
    """
    if folder.verdict.exists() and folder.journal.last("restored") is not None:
        supervisor.kill_drivers(folder)
        return
    if not any(event["step"] == "expect" for event in folder.journal.events("step_finished")):
        folder.journal.append("aborted", reason=reason)
    restore(folder)


# --- what the steps share ---------------------------------------------------------------------------------------------------------


def load(folder: RunFolder) -> Experiment:
    return model.load(folder.experiment)


def context(folder: RunFolder) -> RunContext:
    """The run as its stages and its faults see it. Raises BadInput when it was not prepared."""
    if not (folder.path / "job.json").exists():
        raise BadInput(f"run {folder.name} was not prepared: it has no job.json")
    experiment, job = load(folder), engines.read_job(folder)
    left_s = folder.read_json(folder.path / "deadline.json")["at"] - time.time()
    return RunContext(
        folder=folder,
        testbed=chosen.current(folder),
        job=job,
        engine=engines.of(job),
        profile=experiment.profile,
        progress=Progress(folder),
        rng=random.Random(f"scene:{experiment.seed}"),
        deadline=time.monotonic() + left_s,
        records=experiment.workload.records,
    )


def terms(folder: RunFolder) -> Terms:
    """What the run is judged by, from its own folder."""
    found = load(folder)
    return Terms(
        run=folder.name,
        experiment=found.name,
        pipeline=found.pipeline,
        strategy=found.label,
        guarantee=found.promised,
        expected=tuple(found.expect),
        planned=tuple(injection.injection for injection in Schedule.read(folder).injections),
        seed=found.seed,
        versions=versions(),
        promises=found.promises,
        stateful=found.declared,
        recover_within_s=found.recover_within_s,
    )


def write_verdict(folder: RunFolder, verdict: dict[str, Any]) -> None:
    write_atomically(folder.verdict, json.dumps(verdict, indent=1))


def read_verdict(folder: RunFolder) -> dict[str, Any]:
    """The stored verdict. Raises EvidenceError when it is missing or is none."""
    found = folder.read_json(folder.verdict)
    if not isinstance(found, dict) or found.get("outcome") not in list(RunOutcome) or not isinstance(found.get("reason"), str):
        raise EvidenceError(f"{folder.verdict} is not a verdict: `streamproof check` judges the run again from its evidence")
    return found


def versions() -> dict[str, str]:
    """What runs here, by name."""
    packages = ("pyspark", "confluent-kafka", "kafka-python", "psycopg", "great-expectations", "apache-airflow", "toxiproxy-python")
    found = {"python": platform.python_version(), "kafka": "4.1.0", "postgres": postgres.VERSION}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


__all__ = ["STEPS", "abort", "context", "create", "load", "overruling", "perform", "read_verdict", "terms", "versions"]
