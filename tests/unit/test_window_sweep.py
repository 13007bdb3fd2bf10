"""What the sweep of a job tries, and what it comes to."""

from __future__ import annotations

from streamproof.jobs.windows import Window
from streamproof.run.window_sweep import Crash, Result, Sweep, crashes

KNOWN = [
    Window("offsets", "COMMIT orders", 9, 1.0),
    Window("COMMIT orders", "COMMIT progress", 9, 1.0),
    Window("COMMIT progress", "offsets", 9, 1),
]


def result(crash: Crash, outcome: str = "PASSED", hit: bool = True, **found: int) -> Result:
    return Result(crash, outcome, "", found, hit, "run")


def test_each_window_and_each_message_is_tried() -> None:
    tried = crashes(KNOWN)
    assert [(one.where, one.linger_s) for one in tried if one.fault == "kill_at_window"] == [
        ("offsets > COMMIT orders", 0.0),
        ("COMMIT orders > COMMIT progress", 0.0),
        ("COMMIT progress > offsets", 0.0),
        ("offsets > COMMIT orders", 1.0),
        ("COMMIT orders > COMMIT progress", 1.0),
    ]
    lost = [(one.fault, one.where, one.nth) for one in tried if one.fault != "kill_at_window"]
    assert lost == [(fault, *step) for fault in ("lose_answer", "drop_request") for step in (("COMMIT orders", 1), ("COMMIT progress", 2))]
    assert [one.spec.parameters for one in tried if one.fault == "lose_answer"] == [
        {"message": "COMMIT", "nth": 1},
        {"message": "COMMIT", "nth": 2},
    ]


def test_a_statement_is_found_by_its_table() -> None:
    known = [Window("INSERT orders", "INSERT progress", 9, 1.0)]
    lost = [one.spec.parameters for one in crashes(known) if one.fault == "drop_request"]
    assert [(one["message"], one["sql"]) for one in lost] == [("INSERT", "orders"), ("INSERT", "progress")]


def test_a_sweep_passes_only_when_every_window_was_hit() -> None:
    all_hit = Sweep(tuple(KNOWN), tuple(map(result, crashes(KNOWN))))
    assert (all_hit.outcome, all_hit.reason) == ("PASSED", "killed in 3 of 3 windows, 4 answers and requests lost")
    missed = Sweep(tuple(KNOWN), tuple(result(one, hit="progress > offsets" not in one.where) for one in crashes(KNOWN)))
    assert missed.outcome == "INCONCLUSIVE"
    assert missed.reason.endswith("never hit: COMMIT progress > offsets")


def test_what_broke_the_job_is_named() -> None:
    first, *others = crashes(KNOWN)
    broken = Sweep(tuple(KNOWN), (result(first, "FAILED", LOST=150), *map(result, others)))
    assert broken.outcome == "FAILED"
    assert "150 LOST by kill_at_window at offsets > COMMIT orders" in broken.reason
