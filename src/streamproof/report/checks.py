"""What was checked of each injection, for the report."""

from __future__ import annotations

from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import EvidenceCheck, InjectionEvidence, InjectionFailed, InjectionHealed, InjectionStarted


def checks(folder: RunFolder, verdict: dict[str, Any]) -> list[tuple[str, str, str, str, int, str]]:
    """Every check of every injection, planned or started, as the journal has it: injection, fault, kind, check, passed, detail.

    An injection of which nothing was checked has a row that did not pass. Healing without a check is a heal that had nothing to undo.
    """
    names = {str(injection["injection"]): str(injection.get("fault")) for injection in verdict.get("injections") or []}
    # A stage that was repeated journals again: the last event counts.
    evidence = {event.injection: event.checks for event in folder.journal.all(InjectionEvidence)}
    healed = {event.injection: event.checks for event in folder.journal.all(InjectionHealed)}
    errors = {event.injection: event.error for event in folder.journal.all(InjectionFailed)}
    names |= {event.injection: event.fault for event in folder.journal.all(InjectionStarted)}
    for name in (*evidence, *healed, *errors):
        names.setdefault(name, name.rsplit("-", 1)[0])
    rows = []
    for name, fault in names.items():
        for check in evidence.get(name) or [EvidenceCheck("no evidence was recorded", False, errors.get(name, ""))]:
            rows.append((name, fault, "evidence", *_check(check)))
        nothing = EvidenceCheck("nothing had to be undone", True) if name in healed else EvidenceCheck("no heal was recorded", False)
        for check in healed.get(name) or [nothing]:
            rows.append((name, fault, "heal", *_check(check)))
    return rows


def _check(check: EvidenceCheck) -> tuple[str, int, str]:
    return check.check, int(check.passed), check.detail
