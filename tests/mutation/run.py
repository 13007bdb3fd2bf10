"""``python -m tests.mutation.run``: damage histories in every known way; is each damage found, and named rightly?

Of each mutant the truth is known: it is *detected* when the outcome is what the truth asks for (FAILED when the guarantee, or a promise of
the strategy, forbids what was done), and *named rightly* when the records in the reconciliation are those that were damaged, with the
right anomaly, and no other. Beside the mutants as many legal histories go the same way: an outcome that they do not deserve, or a record
that is named without cause, is a *false alarm*.

Prints a table and writes ``build/mutate.json``. Exit code 1: a damage that is forbidden was missed or named wrongly, or there was a false
alarm. The same seed makes the same mutants.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee, Promise
from streamproof.verdict.judge import Second, Terms, judge
from streamproof.verdict.scan import ranges, scan
from streamproof.verdict.second_opinion import disagreement
from tests.mutation import clean, damage, legal, results
from tests.mutation.evidence import Evidence
from tests.mutation.results import Computed

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "mutation" / "runs"
FORBIDDEN = {
    "at-most-once": {"DUPLICATED", "PHANTOM", "CORRUPTED"},
    "at-least-once": {"LOST", "PHANTOM", "CORRUPTED", "AHEAD"},
    "exactly-once": {"LOST", "DUPLICATED", "PHANTOM", "CORRUPTED", "AHEAD"},
    "ordered": {"REORDERED"},
    "atomic": {"TORN"},
}
FORBIDDEN_RESULTS = {
    "at-most-once": {"UNEXPECTED", "WRONG_VALUE", "REPEATED", "DROPPED"},
    "at-least-once": {"MISSING", "UNEXPECTED", "WRONG_VALUE", "DROPPED"},
    "exactly-once": {"MISSING", "UNEXPECTED", "WRONG_VALUE", "REPEATED", "DROPPED"},
}
"""What the words mean, written down here once more: ``streamproof.verdict.guarantee`` is one of the things that are tested."""
MUTANTS, LEGAL, SEED = 15_000, 12_000, 20_261_121
REAL_SHARE, REAL_RUNS, RESULTS_SHARE = 0.08, 24, 0.2
SCALES = ((scan.BAND, ranges._BLOCK_BITS), (64, 3), (11, 1))
"""Records in a band, and bits of an offset in a block: as they are, and so small that even these histories have many of each."""
DAMAGES = [*damage.DAMAGES, *results.DAMAGES]
History = Evidence | Computed
Named = tuple[Any, ...]


@dataclass
class Tally:
    """How many mutants of one kind there were, of how many the damage was forbidden, and what became of them."""

    mutants: int = 0
    forbidden: int = 0
    detected: int = 0
    named_rightly: int = 0


@dataclass
class Result:
    by_kind: dict[str, Tally] = field(default_factory=lambda: {kind: Tally() for kind in DAMAGES})
    legal: Counter[str] = field(default_factory=Counter)
    legal_histories: int = 0
    false_alarms: int = 0
    real: int = 0
    asked_twice: int = 0
    wrong: list[str] = field(default_factory=list)

    def opinion(self) -> Second:
        """SQL is asked about every fortieth: it takes longer than all the rest."""
        asked = (self.total("mutants") + self.legal_histories) % 40 == 0
        self.asked_twice += asked
        return disagreement if asked else unasked

    def total(self, name: str) -> int:
        return sum(getattr(tally, name) for tally in self.by_kind.values())

    @property
    def right(self) -> bool:
        return not self.wrong

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: self.total(name) for name in ("mutants", "forbidden", "detected", "named_rightly")},
            "of_real_runs": self.real,
            "second_opinions": self.asked_twice,
            "legal_histories": self.legal_histories,
            "false_alarms": self.false_alarms,
            "by_kind": {kind: vars(tally) for kind, tally in self.by_kind.items()},
            "legal_by_change": dict(sorted(self.legal.items())),
            "wrong": self.wrong[:100],
        }


def due(evidence: History) -> str:
    """The outcome that such evidence must have."""
    if isinstance(evidence, Computed):
        if any(anomaly in FORBIDDEN_RESULTS[evidence.guarantee] for anomaly, _ in evidence.truth):
            return "FAILED"
        return "PASSED" if evidence.rightly().results else "INCONCLUSIVE"
    banned = FORBIDDEN[evidence.guarantee].union(*(FORBIDDEN[promise] for promise in evidence.promises))
    countable = banned if evidence.complete else banned - {"LOST", "TORN"}
    if any(anomaly in countable for anomaly, _, _ in evidence.truth):
        return "FAILED"
    acked = (evidence.sent["outcome"] == "ACKED").any() if len(evidence.sent["outcome"]) else False
    return "PASSED" if acked and evidence.complete and len(evidence.progress) > 2 else "INCONCLUSIVE"


def unasked(*_: Any) -> None:
    """No second opinion."""


def judged(evidence: History, path: Path, second: Second = disagreement, scale: tuple[int, int] = SCALES[0]) -> tuple[str, Counter[Named]]:
    """What the verdict on this evidence says: its outcome, and each record that it names. Evidence that it refuses has its complaint."""
    folder: RunFolder = evidence.write(path)
    scan.BAND, ranges._BLOCK_BITS = scale
    promises = frozenset(Promise(promise) for promise in evidence.promises)
    declared = evidence.declared if isinstance(evidence, Computed) else None
    terms = Terms("run", "mutant", "job", "strategy", Guarantee(evidence.guarantee), (), (), 1, promises=promises, stateful=declared)
    try:
        judgement = judge(folder, terms, second)
    except EvidenceError as error:
        return f"refused: {error}", Counter()
    named: Counter[Named] = Counter()
    if declared is not None:
        named.update(
            (str(finding.anomaly), finding.result or f"batch {finding.batch} of start {finding.start}") for finding in judgement.findings
        )
    table = judgement.table.to_pydict() if declared is None else {"row": []}
    for number, row in enumerate(table["row"]):
        if row == "record":
            columns = ("start", "batch") if table["anomaly"][number] == Anomaly.TORN else ("producer", "sequence")
            named[table["anomaly"][number], *(table[column][number] for column in columns)] += 1  # type: ignore[index]
    counted = {anomaly: count for anomaly, count in judgement.verdict.to_json()["anomalies"].items() if count}
    if counted != dict(Counter(anomaly for anomaly, *_ in named.elements())):
        return f"counts {counted} of {sorted(named.elements(), key=str)[:5]}", named
    outcome = judgement.verdict.to_json()["outcome"]
    return f"ERROR: {judgement.verdict.to_json()['reason']}" if outcome == "ERROR" else str(outcome), named


def mutate(result: Result, kind: str, evidence: History, rng: np.random.Generator, path: Path) -> bool:
    """One mutant; False when this history offers nothing to damage so."""
    before = due(evidence)
    assert before == "PASSED", f"a history that is to be damaged must be clean, this one is {before}"
    if isinstance(evidence, Computed):
        if not results.DAMAGES[kind](evidence, rng):
            return False
    elif not damage.DAMAGES[kind](evidence, rng):
        return False
    tally = result.by_kind[kind]
    outcome, named = judged(evidence, path, result.opinion(), SCALES[tally.mutants % len(SCALES)])
    expected = due(evidence)
    tally.mutants += 1
    if evidence.spoilt is not None:
        tally.forbidden += 1
        hit = right = outcome.startswith("refused") and evidence.spoilt in outcome
    else:
        tally.forbidden += expected == "FAILED"
        hit, right = outcome == expected, named == evidence.truth
    tally.detected += hit
    tally.named_rightly += right
    if not hit or not right:
        result.wrong.append(_told(kind, evidence, outcome, expected, named))
    return True


def tolerate(result: Result, evidence: History, changes: list[str], path: Path) -> None:
    """One legal history."""
    outcome, named = judged(evidence, path, result.opinion(), SCALES[result.legal_histories % len(SCALES)])
    result.legal_histories += 1
    result.legal.update(changes)
    expected = due(evidence)
    unknown = isinstance(evidence, Computed) and evidence.undecided and outcome == "INCONCLUSIVE"  # then nothing may be certain
    if not (outcome == expected or unknown) or named != evidence.truth or outcome == "FAILED":
        result.false_alarms += 1
        result.wrong.append(_told("legal: " + ", ".join(changes), evidence, outcome, expected, named))


def _told(what: str, evidence: History, outcome: str, expected: str, named: Counter[Named]) -> str:
    missing, surplus = evidence.truth - named, named - evidence.truth
    held = ", ".join([evidence.guarantee, *sorted(evidence.promises)])
    return f"{what} ({held}): {outcome}, due {expected}; missing {sorted(missing, key=str)[:4]}, surplus {sorted(surplus, key=str)[:4]}"


def real_histories(folders: list[Path]) -> list[Evidence]:
    return [evidence for folder in folders if folder.is_dir() for evidence in clean.runs(folder, REAL_RUNS)]


def run(seed: int, mutants: int, legal_histories: int, folders: list[Path]) -> Result:
    """As many mutants of each kind, and legal histories."""
    pa.set_cpu_count(1)
    result, rng, real = Result(), np.random.default_rng(seed), real_histories(folders)
    path = Path(tempfile.mkdtemp(prefix="mutate-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        for kind in _kinds(mutants):
            for _ in range(100):
                from_run = kind in damage.DAMAGES and bool(real) and rng.random() < REAL_SHARE
                evidence = real[int(rng.integers(0, len(real)))].copy() if from_run else _clean(rng, kind)
                if due(evidence) == "PASSED" and mutate(result, kind, evidence, rng, path):
                    result.real += from_run
                    break
            else:
                result.wrong.append(f"{kind}: no history could be damaged so")
        for evidence in real:
            tolerate(result, evidence, ["a real run"], path)
        while result.legal_histories < legal_histories:
            found = results.legal(rng) if rng.random() < RESULTS_SHARE else legal.history(rng)
            tolerate(result, *found, path)
    finally:
        shutil.rmtree(path)
        scan.BAND, ranges._BLOCK_BITS = SCALES[0]
    return result


def _clean(rng: np.random.Generator, kind: str) -> History:
    return results.make(rng) if kind in results.DAMAGES else clean.make(rng, str(rng.choice(clean.MADE)))


def _kinds(mutants: int) -> Iterator[str]:
    for number in range(mutants):
        yield DAMAGES[number % len(DAMAGES)]


def table(result: Result, seconds: float) -> str:
    width = max(map(len, DAMAGES))
    lines = [f"{'damage':{width}}  mutants  forbidden  detected  named rightly"]
    for kind, tally in result.by_kind.items():
        flaw = "" if tally.detected == tally.named_rightly == tally.mutants else "  <--"
        lines.append(f"{kind:{width}}  {tally.mutants:7}  {tally.forbidden:9}  {tally.detected:8}  {tally.named_rightly:13}{flaw}")
    found = result.to_dict()
    lines.append(f"{'all':{width}}  {found['mutants']:7}  {found['forbidden']:9}  {found['detected']:8}  {found['named_rightly']:13}")
    lines.append(f"{len(DAMAGES)} kinds; {result.real} mutants are of real runs; {result.asked_twice} were put to the second opinion too")
    lines.append(f"{result.legal_histories} legal histories, {result.false_alarms} false alarms; {seconds:.0f} s")
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
    result = run(given.seed, given.mutants, given.legal, [FIXTURES, given.runs])
    seconds = time.monotonic() - begun
    print(table(result, seconds))
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    found = {"seed": given.seed, "seconds": round(seconds, 1), **result.to_dict()}
    (build / "mutate.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0 if result.right else 1


if __name__ == "__main__":
    sys.exit(main())
