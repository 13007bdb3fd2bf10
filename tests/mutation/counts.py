"""Evidence that does not add up, or that shows too little: the first must not be judged, the second proves nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder
from tests.mutation.damage import Damage
from tests.mutation.evidence import ACKED, INDETERMINATE, Evidence

DAMAGES: dict[str, Damage] = {}
Spoil = Callable[[RunFolder], None]


def _damage(function: Damage) -> Damage:
    DAMAGES[function.__name__] = function
    return function


def _spoilt(evidence: Evidence, spoil: Spoil, complaint: str) -> bool:
    """What is changed in the folder; the suites do not count the files."""
    evidence.spoil, evidence.spoilt, evidence.only_checkers = spoil, complaint, True
    return True


# --- files that are not what the drain left -------------------------------------------------------------------------------------------


def _of_a_file(name: str, change: Callable[[Path], None]) -> None:
    def damage(evidence: Evidence, rng: np.random.Generator) -> bool:
        file = str(rng.choice(["sent/00000.parquet", "delivered/00000.parquet", "delivered/drain.json", "source.json", "progress.jsonl"]))
        return _spoilt(evidence, lambda folder: change(folder.path / file), f"{file} is damaged evidence: manifest.json expects")

    DAMAGES[name] = damage


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


_of_a_file("a_file_gone", Path.unlink)
_of_a_file("a_file_cut_short", _cut)
_of_a_file("a_bit_of_a_file_flipped", _flip)


@_damage
def a_file_added(evidence: Evidence, rng: np.random.Generator) -> bool:
    def spoil(folder: RunFolder) -> None:
        shutil.copy(folder.delivered / "00000.parquet", folder.delivered / "00009.parquet")

    return _spoilt(evidence, spoil, "00009.parquet is damaged evidence: manifest.json expects no such file")


@_damage
def no_manifest(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _spoilt(evidence, lambda folder: folder.manifest.unlink(), "manifest.json is missing")


# --- numbers that do not fit each other -----------------------------------------------------------------------------------------------


@_damage
def a_load_of_another_count(evidence: Evidence, rng: np.random.Generator) -> bool:
    outcome, by = str(rng.choice(["acked", "rejected", "indeterminate"])), int(rng.integers(1, 1000))

    def spoil(folder: RunFolder) -> None:
        lines = [json.loads(line) for line in folder.journal.path.read_text().splitlines()]
        changed = [{**line, outcome: line[outcome] + by} if line["event"] == "load_finished" else line for line in lines]
        folder.journal.path.write_text("".join(json.dumps(line) + "\n" for line in changed))

    return _spoilt(evidence, spoil, f"records are {outcome.upper()}")


@_damage
def a_drain_of_another_count(evidence: Evidence, rng: np.random.Generator) -> bool:
    count = len(evidence.ids) + int(rng.integers(1, 1000))

    def spoil(folder: RunFolder) -> None:
        folder.drain.write_text(json.dumps({**json.loads(folder.drain.read_text()), "records": count}))
        manifest.write(folder)

    return _spoilt(evidence, spoil, f"says {count} records")


@_damage
def an_end_before_the_last_record(evidence: Evidence, rng: np.random.Generator) -> bool:
    def spoil(folder: RunFolder) -> None:
        drain = json.loads(folder.drain.read_text())
        folder.drain.write_text(json.dumps({**drain, "end_offsets": dict.fromkeys(drain["end_offsets"], 0)}))
        manifest.write(folder)

    return len(evidence.ids) > 0 and _spoilt(evidence, spoil, "ends at 0")


@_damage
def an_outcome_that_is_none(evidence: Evidence, rng: np.random.Generator) -> bool:
    evidence.set(evidence.sent, "outcome", int(rng.integers(0, len(evidence.sent_ids))), "UNKNOWN")
    evidence.spoilt = "is none of ACKED, REJECTED, INDETERMINATE"
    return True


@_damage
def a_place_of_the_source_given_twice(evidence: Evidence, rng: np.random.Generator) -> bool:
    records = np.flatnonzero((evidence.sent["outcome"] == ACKED) & (evidence.sent["offset"] >= 0))
    if len(records) < 2:
        return False
    one, other = rng.choice(records, 2, replace=False)
    for name in ("partition", "offset"):
        evidence.set(evidence.sent, name, one, evidence.sent[name][other])
    evidence.spoilt = "holds two records at one place"
    return True


# --- evidence that shows too little ---------------------------------------------------------------------------------------------------


@_damage
def most_outcomes_unknown(evidence: Evidence, rng: np.random.Generator) -> bool:
    """Most records are said to have no answer, and half of these are lost: nobody sees it."""
    once = evidence.once()
    records = rng.permutation(once)[: len(once) - max(len(once) // 10, 1)]
    gone = evidence.rows_of(int(record) for record in records[::2])
    evidence.keep(~np.isin(np.arange(len(evidence.ids)), gone))
    evidence.set(evidence.sent, "outcome", records, INDETERMINATE)
    evidence.set(evidence.sent, "offset", records, -1)
    return len(records) > 0.1 * len(evidence.sent_ids)


@_damage
def all_sent_in_one_phase(evidence: Evidence, rng: np.random.Generator) -> bool:
    evidence.set(evidence.sent, "sent_at", slice(None), int(evidence.sent["sent_at"].min()))
    return True


@_damage
def a_fault_behind_the_last_output(evidence: Evidence, rng: np.random.Generator) -> bool:
    evidence.injected_ms = int(evidence.delivered["delivered_at"].max(initial=0)) + int(rng.integers(1, 5000))
    return True


@_damage
def no_output_after_the_fault(evidence: Evidence, rng: np.random.Generator) -> bool:
    """A strategy that may lose: what was to come after the fault is gone."""
    if evidence.guarantee != "at-most-once" or len(evidence.ids) < 2:
        return False
    evidence.injected_ms = int(np.median(evidence.delivered["delivered_at"]))
    late = np.flatnonzero(evidence.delivered["delivered_at"] >= evidence.injected_ms)
    gone = np.isin(evidence.sent_ids, evidence.ids[late]) & (evidence.sent["outcome"] == ACKED)
    evidence.lose(int(record) for record in np.flatnonzero(gone))
    evidence.keep(evidence.delivered["delivered_at"] < evidence.injected_ms)
    return True
