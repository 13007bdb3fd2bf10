"""``python -m tests.mutation.run``: damage histories in every known way; does each judge find each damage, and name it rightly?

There are two judges, and each is asked alone: the checkers, by the verdict that they lead to, and the queries of the expectation suites.
Of each mutant the truth is known: it is *detected* when the outcome is what the truth asks for (FAILED when the guarantee, or a promise of
the strategy, forbids what was done), and *named rightly* when the records that the judge names are those that were damaged, with the right
anomaly, and no other. With the mutants as many legal histories go the same way: an outcome that they do not deserve, or a record that is
named without cause, is a *false alarm*.

The suites are not asked about results that they do not compute: those of sessions, de-duplication and totals, and of sends whose outcome is
unknown.

Prints a table and writes ``build/mutate.json``. Exit code 1: a damage that is forbidden was missed or named wrongly, or there was a false
alarm. The same seed makes the same mutants, however many processes share the work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.run.stages import suite_spec
from streamproof.suites import agreement
from streamproof.suites.expectations import database, files, records
from streamproof.suites.expectations import results as computed
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee, Promise
from streamproof.verdict.judge import RunSpec, judge
from streamproof.verdict.scan import ranges, scan
from tests.mutation import clean, counts, damage, due_otherwise, legal, results, second_reading, times, unjudged, values, versions  # noqa: F401
from tests.mutation.evidence import INJECTION, Evidence
from tests.mutation.results import Computed

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "mutation" / "runs"
FORBIDDEN = {
    "at-most-once": {"DUPLICATED", "PHANTOM", "CORRUPTED"},
    "at-least-once": {"LOST", "PHANTOM", "CORRUPTED", "OFFSET_AHEAD"},
    "exactly-once": {"LOST", "DUPLICATED", "PHANTOM", "CORRUPTED", "OFFSET_AHEAD"},
    "ordered": {"REORDERED"},
    "atomic": {"TORN"},
    "monotonic": {"VANISHED"},
}
FORBIDDEN_RESULTS = {
    "at-most-once": {"UNEXPECTED", "WRONG_VALUE", "REPEATED", "DROPPED"},
    "at-least-once": {"MISSING", "UNEXPECTED", "WRONG_VALUE", "DROPPED"},
    "exactly-once": {"MISSING", "UNEXPECTED", "WRONG_VALUE", "REPEATED", "DROPPED"},
}
"""What the words mean, written down here once more: ``streamproof.verdict.guarantee`` is one of the things that are tested."""
MOST_UNKNOWN = 0.05
JUDGES = ("checkers", "suites")
PARTS = 24
"""The work is shared in so many parts, each with a seed of its own: so many processes can take part."""
MUTANTS, LEGAL, SEED = 15_000, 12_000, 20_261_121
REAL_SHARE, REAL_RUNS, RESULTS_SHARE = 0.08, 24, 0.2
SCALES = ((scan.RANGE_SIZE, ranges._BUCKET_BITS), (64, 3), (11, 1))
"""Records in a range, and bits of an offset in a bucket: as they are, and so small that even these histories have many of each."""
OF_RECORDS = {**damage.DAMAGES, **counts.DAMAGES, **second_reading.DAMAGES, **due_otherwise.DAMAGES}
DAMAGES = [*OF_RECORDS, *results.DAMAGES]
_FOLDERS: list[Path] = []
"""What this process has written to."""
History = Evidence | Computed
Named = tuple[Any, ...]


@dataclass
class Score:
    """How one judge did: about how many mutants it was asked, how many it detected and named rightly, and its false alarms."""

    asked: int = 0
    detected: int = 0
    named_rightly: int = 0
    false_alarms: int = 0

    def add(self, other: Score) -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


def _scores() -> dict[str, Score]:
    return {name: Score() for name in JUDGES}


@dataclass
class Tally:
    """How many mutants of one kind there were, of how many the damage was forbidden, and what each judge made of them."""

    mutants: int = 0
    forbidden: int = 0
    scores: dict[str, Score] = field(default_factory=_scores)


@dataclass
class Result:
    by_kind: dict[str, Tally] = field(default_factory=lambda: {kind: Tally() for kind in DAMAGES})
    legal: Counter[str] = field(default_factory=Counter)
    legal_histories: int = 0
    of_legal: dict[str, Score] = field(default_factory=_scores)
    real: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Result) -> None:
        """Take in what another part of the work came to."""
        for kind, tally in other.by_kind.items():
            self.by_kind[kind].mutants += tally.mutants
            self.by_kind[kind].forbidden += tally.forbidden
            for name, score in tally.scores.items():
                self.by_kind[kind].scores[name].add(score)
        for name, score in other.of_legal.items():
            self.of_legal[name].add(score)
        self.legal.update(other.legal)
        self.legal_histories += other.legal_histories
        self.real += other.real
        self.wrong += other.wrong

    def total(self, judge_name: str) -> Score:
        """Of all mutants, and its false alarms in legal histories."""
        found = Score(false_alarms=self.of_legal[judge_name].false_alarms)
        for tally in self.by_kind.values():
            found.add(tally.scores[judge_name])
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "mutants": sum(tally.mutants for tally in self.by_kind.values()),
            "forbidden": sum(tally.forbidden for tally in self.by_kind.values()),
            "of_real_runs": self.real,
            "legal_histories": self.legal_histories,
            "judges": {name: {**vars(self.total(name)), "legal_asked": self.of_legal[name].asked} for name in JUDGES},
            "by_kind": {
                kind: {"mutants": tally.mutants, "forbidden": tally.forbidden, **{name: vars(tally.scores[name]) for name in JUDGES}}
                for kind, tally in self.by_kind.items()
            },
            "legal_by_change": dict(sorted(self.legal.items())),
            "wrong": self.wrong[:100],
        }


def due(evidence: History) -> str:
    """The outcome that such evidence must have."""
    if isinstance(evidence, Computed):
        if any(anomaly in FORBIDDEN_RESULTS[evidence.guarantee] for anomaly, _ in evidence.truth):
            return "FAILED"
        return "PASSED" if evidence.rightly().results and evidence.output.results else "INCONCLUSIVE"
    if any(anomaly in _countable(evidence) for anomaly, _, _ in evidence.truth):
        return "FAILED"
    if "OFFSET_AHEAD" in _countable(evidence) and times.unjudged(evidence):
        return "INCONCLUSIVE"
    outcomes = evidence.outcomes()
    known = outcomes["ACKED"] > 0 and outcomes["INDETERMINATE"] <= MOST_UNKNOWN * outcomes.total()
    shown = known and evidence.complete and len(evidence.ids) > 0 and evidence.every_phase_shows_something()
    shown = shown and evidence.output_after_the_fault() and not evidence.unjudged
    return "PASSED" if shown else "INCONCLUSIVE"


def _countable(evidence: History) -> set[str]:
    """What makes a run FAILED: what is forbidden, as far as the output was read."""
    if isinstance(evidence, Computed):
        return FORBIDDEN_RESULTS[evidence.guarantee]
    banned = FORBIDDEN[evidence.guarantee].union(*(FORBIDDEN[promise] for promise in evidence.promises))
    return banned if evidence.complete else banned - {"LOST", "TORN"}


def _terms(evidence: History) -> RunSpec:
    promises = frozenset(Promise(promise) for promise in evidence.promises)
    model = evidence.model if isinstance(evidence, Computed) else None
    planned = () if isinstance(evidence, Computed) or evidence.injected_ms is None else (INJECTION,)
    guarantee = Guarantee(evidence.guarantee)
    counted = isinstance(evidence, Evidence) and evidence.expected is not None
    return RunSpec("run", "mutant", "job", "strategy", guarantee, (), planned, 1, promises=promises, reference_model=model, counted=counted)


def judged(evidence: History, path: Path, scale: tuple[int, int] = SCALES[0]) -> tuple[str, Counter[Named]]:
    """What the checkers say on this evidence: the outcome, and each record that they name. Evidence that they refuse has the complaint."""
    folder: RunFolder = evidence.write(path)
    scan.RANGE_SIZE, ranges._BUCKET_BITS = scale
    spec = _terms(evidence)
    try:
        judgement = judge(folder, spec)
    except EvidenceError as error:
        return f"refused: {error}", Counter()
    named: Counter[Named] = Counter()
    if spec.reference_model is not None:
        named.update(
            (str(finding.anomaly), finding.result or f"batch {finding.batch} of start {finding.start}") for finding in judgement.findings
        )
    table = judgement.table.to_pydict() if spec.reference_model is None else {"row": []}
    for number, row in enumerate(table["row"]):
        if row == "record":
            columns = ("start", "batch") if table["anomaly"][number] == Anomaly.TORN else ("producer", "sequence")
            named[table["anomaly"][number], *(table[column][number] for column in columns)] += 1  # type: ignore[index]
    counted = {anomaly: count for anomaly, count in judgement.verdict.to_json()["anomalies"].items() if count}
    if counted != dict(Counter(anomaly for anomaly, *_ in named.elements())):
        return f"counts {counted} of {sorted(named.elements(), key=str)[:5]}", named
    return str(judgement.verdict.outcome), named


class Suites:
    """The queries of the expectation suites, over one database that is filled anew for each history."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        self._fresh = fresh
        self._connection = duckdb.connect(config=database.settings(path / "spill"))

    def close(self) -> None:
        self._connection.close()

    def judged(self, evidence: History, path: Path) -> tuple[str, Counter[Named]] | None:
        """What they say on evidence that was written: as :func:`judged`. None where they compute no results to compare with."""
        if isinstance(evidence, Evidence) and evidence.reread is not None and not self._fresh:
            with contextlib.closing(Suites(path, fresh=True)) as suites:  # other tables than those of an output that was read once
                return suites.judged(evidence, path)
        try:
            named = self._named(evidence, path)
            if (contradiction := agreement.misread(self._connection)) is not None:
                return f"refused: {contradiction}", Counter()
        except files.Unreadable as error:
            return f"refused: {error}", Counter()
        if named is None:
            return None
        if any(anomaly in _countable(evidence) for anomaly, *_ in named):
            return "FAILED", named
        if isinstance(evidence, Evidence):
            evidence = replace(evidence, truth=Counter(), unjudged=self._unjudged(evidence))
        return due(evidence).replace("FAILED", "PASSED"), named

    def _unjudged(self, evidence: Evidence) -> bool:
        """Whether they leave a promise unjudged."""
        return any(self._connection.execute(f"FROM unjudged_{promise}").fetchall() for promise in evidence.promises)

    def _named(self, evidence: History, path: Path) -> Counter[Named] | None:
        asked, computation = _terms(evidence).asked, suite_spec(_terms(evidence)).computation
        if computation is None:
            database.histories(self._connection, path, database.HISTORIES)
            records.define(self._connection)
        else:
            database.histories(self._connection, path / "results", database.HISTORIES)
            computed.define(self._connection, path / "results", computation)
            if self._connection.execute("FROM unjudged").fetchall():
                return None
        named: Counter[Named] = Counter()
        for anomaly in asked:
            rows = self._connection.execute(f"SELECT {_columns(anomaly, computation is not None)} FROM {anomaly.lower()}").fetchall()
            named.update((str(anomaly), *row) for row in rows)
        return named


def _columns(anomaly: Anomaly, of_results: bool) -> str:
    if of_results:
        return "'batch ' || batch || ' of start ' || start" if anomaly is Anomaly.DROPPED else "name"
    return "start, batch" if anomaly is Anomaly.TORN else "producer, sequence"


def mutate(result: Result, kind: str, evidence: History, rng: np.random.Generator, path: Path, suites: Suites) -> bool:
    """One mutant; False when this history offers nothing to damage so."""
    before = due(evidence)
    assert before == "PASSED", f"a history that is to be damaged must be clean, this one is {before}"
    if isinstance(evidence, Computed):
        if not results.DAMAGES[kind](evidence, rng):
            return False
    elif not OF_RECORDS[kind](evidence, rng):
        return False
    tally = result.by_kind[kind]
    expected = due(evidence)
    of_checkers, only_theirs = judged(evidence, path, SCALES[tally.mutants % len(SCALES)]), evidence.only_checkers
    opinions = {
        "checkers": None if isinstance(evidence, Evidence) and evidence.only_suites else of_checkers,
        "suites": None if only_theirs else suites.judged(evidence, path),
    }
    tally.mutants += 1
    tally.forbidden += evidence.spoilt is not None or expected == "FAILED"
    for name, opinion in opinions.items():
        if opinion is None:
            continue
        outcome, named = opinion
        if evidence.spoilt is not None:
            hit = right = outcome.startswith("refused") and evidence.spoilt in outcome
        else:
            hit, right = outcome == expected, named == evidence.truth
        tally.scores[name].add(Score(1, int(hit), int(right)))
        if not hit or not right:
            result.wrong.append(f"{name}: {_told(kind, evidence, outcome, expected, named)}")
    return True


def tolerate(result: Result, evidence: History, changes: list[str], path: Path, suites: Suites) -> None:
    """One legal history."""
    opinions = {"checkers": judged(evidence, path, SCALES[result.legal_histories % len(SCALES)]), "suites": suites.judged(evidence, path)}
    result.legal_histories += 1
    result.legal.update(changes)
    expected = due(evidence)
    for name, opinion in opinions.items():
        if opinion is None:
            continue
        outcome, named = opinion
        result.of_legal[name].asked += 1
        unknown = isinstance(evidence, Computed) and evidence.undecided and outcome == "INCONCLUSIVE"  # then nothing may be certain
        if not (outcome == expected or unknown) or named != evidence.truth or outcome == "FAILED":
            result.of_legal[name].false_alarms += 1
            result.wrong.append(f"{name}: {_told('legal: ' + ', '.join(changes), evidence, outcome, expected, named)}")


def _told(what: str, evidence: History, outcome: str, expected: str, named: Counter[Named]) -> str:
    missing, surplus = evidence.truth - named, named - evidence.truth
    held = ", ".join([evidence.guarantee, *sorted(evidence.promises)])
    return f"{what} ({held}): {outcome}, due {expected}; missing {_listed(missing)}, surplus {_listed(surplus)}"


def _listed(named: Counter[Named]) -> str:
    """How many of each anomaly, and the first of them."""
    counts = Counter(anomaly for anomaly, *_ in named.elements())
    return f"{', '.join(f'{count} {anomaly}' for anomaly, count in sorted(counts.items()))} {sorted(named, key=str)[:4]}"


def real_histories(folders: list[Path]) -> list[Evidence]:
    return [evidence for folder in folders if folder.is_dir() for evidence in clean.runs(folder, REAL_RUNS)]


def run(seed: int, mutants: int, legal_histories: int, folders: list[Path], part: int = 0, parts: int = 1) -> Result:
    """As many mutants of each kind, and legal histories: of these the share of one ``part`` of the work."""
    pa.set_cpu_count(1)
    result, rng, real = Result(), np.random.default_rng((seed, part) if parts > 1 else seed), real_histories(folders)
    path = Path(tempfile.mkdtemp(prefix="mutate-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    _FOLDERS.append(path)
    try:
        with contextlib.closing(Suites(path)) as suites:
            for number in range(part, mutants, parts):
                _mutant(result, DAMAGES[number // parts % len(DAMAGES)], real, rng, path, suites)
            for evidence in real[part::parts]:
                tolerate(result, evidence, ["a real run"], path, suites)
            while result.legal_histories < -(-legal_histories // parts):
                found = results.legal(rng) if rng.random() < RESULTS_SHARE else legal.history(rng)
                tolerate(result, *found, path, suites)
    finally:
        shutil.rmtree(path)
        _FOLDERS.remove(path)
        scan.RANGE_SIZE, ranges._BUCKET_BITS = SCALES[0]
    return result


def _mutant(result: Result, kind: str, real: list[Evidence], rng: np.random.Generator, path: Path, suites: Suites) -> None:
    for _ in range(100):
        from_run = kind in OF_RECORDS and bool(real) and rng.random() < REAL_SHARE
        evidence = real[int(rng.integers(0, len(real)))].copy() if from_run else _clean(rng, kind)
        if due(evidence) == "PASSED" and mutate(result, kind, evidence, rng, path, suites):
            result.real += from_run
            return
    result.wrong.append(f"{kind}: no history could be damaged so")


def run_side_by_side(seed: int, mutants: int, legal_histories: int, folders: list[Path]) -> Result:
    """The same in :data:`PARTS` parts, on all cores."""
    result = Result()
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), spawned, initializer=_end_with, initargs=(os.getpid(),)) as pool:
        jobs = [pool.submit(run, seed, mutants, legal_histories, folders, part, PARTS) for part in range(PARTS)]
        for number, job in enumerate(jobs, 1):
            result.add(job.result())
            print(f"{number} of {PARTS} parts; wrong so far: {len(result.wrong)}", flush=True)
    return result


def _end_with(parent: int) -> None:
    """A process of the pool takes its files away and ends when the one that gave it the work is gone, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        for path in _FOLDERS:
            shutil.rmtree(path, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _clean(rng: np.random.Generator, kind: str) -> History:
    return results.make(rng) if kind in results.DAMAGES else clean.make(rng, str(rng.choice(clean.MADE)))


def table(result: Result, seconds: float) -> str:
    width = max(map(len, DAMAGES))
    head = "".join(f"  | {name}: asked  detected  named rightly" for name in JUDGES)
    lines = [f"{'damage':{width}}  mutants  forbidden{head}"]
    for kind, tally in result.by_kind.items():
        scores = tally.scores.values()
        flaw = "" if all(score.detected == score.named_rightly == score.asked for score in scores) else "  <--"
        told = "".join(
            f"  | {score.asked:{len(name) + 7}}  {score.detected:8}  {score.named_rightly:13}" for name, score in tally.scores.items()
        )
        lines.append(f"{kind:{width}}  {tally.mutants:7}  {tally.forbidden:9}{told}{flaw}")
    found = result.to_dict()
    lines.append(f"{len(DAMAGES)} kinds, {found['mutants']} mutants, {result.real} of them of real runs; {found['forbidden']} forbidden")
    for name in JUDGES:
        score = result.total(name)
        of_asked = f"{score.detected} detected, {score.named_rightly} named rightly of {score.asked} asked"
        lines.append(f"{name}: {of_asked}; {score.false_alarms} false alarms in {result.of_legal[name].asked} legal histories")
    lines.append(f"{seconds:.0f} s")
    return "\n".join([*lines, *(f"WRONG  {each}" for each in result.wrong[:20])])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.run", description="Damage histories and see what the verdict finds.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--mutants", type=int, default=MUTANTS)
    parser.add_argument("--legal", type=int, default=LEGAL, help="how many legal histories")
    parser.add_argument("--runs", type=Path, default=ROOT / ".streamproof" / "runs", help="a folder with real runs, where there is one")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    begun = time.monotonic()
    result = run_side_by_side(given.seed, given.mutants, given.legal, [FIXTURES, given.runs])
    seconds = time.monotonic() - begun
    print(table(result, seconds))
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    found = {"seed": given.seed, "seconds": round(seconds, 1), **result.to_dict()}
    (build / "mutate.json").write_text(json.dumps(found, indent=1) + "\n")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
