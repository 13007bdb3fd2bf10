"""What was checked of each injection, for the report."""

from __future__ import annotations

from typing import Any

from streamproof.evidence.folder import RunFolder


def claims(folder: RunFolder, verdict: dict[str, Any]) -> list[tuple[str, str, str, str, int, str]]:
    """Every checked statement about every injection, planned or started, as the journal has it: injection, fault, kind, claim, holds,
    detail.

    An injection of which nothing was checked has a row that does not hold. Healing without a claim is a heal that had nothing to undo.
    """
    names = {str(injection["injection"]): str(injection.get("fault")) for injection in verdict.get("injections") or []}
    last: dict[tuple[str, str], dict[str, Any]] = {}  # a step that was repeated told its part again: the last word counts
    for event in folder.journal.events("injection_started", "injection_evidence", "injection_healed", "injection_failed"):
        name = str(event["injection"])
        if event["event"] == "injection_started":
            names[name] = str(event.get("fault", names.get(name)))
        names.setdefault(name, name.rsplit("-", 1)[0])
        last[name, str(event["event"])] = event
    rows = []
    for name, fault in names.items():
        evidence = last.get((name, "injection_evidence"))
        error = str(last.get((name, "injection_failed"), {}).get("error") or "")
        for claim in (evidence or {}).get("claims") or [_unproven("no evidence was recorded", error)]:
            rows.append((name, fault, "evidence", *_claim(claim)))
        healed = last.get((name, "injection_healed"))
        nothing = _unproven("no heal was recorded", "") if healed is None else {"claim": "nothing had to be undone", "holds": True}
        for claim in (healed or {}).get("claims") or [nothing]:
            rows.append((name, fault, "heal", *_claim(claim)))
    return rows


def _unproven(claim: str, detail: str) -> dict[str, Any]:
    return {"claim": claim, "holds": False, "detail": detail}


def _claim(claim: dict[str, Any]) -> tuple[str, int, str]:
    return str(claim.get("claim")), int(bool(claim.get("holds"))), str(claim.get("detail") or "")
