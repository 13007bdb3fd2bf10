"""Stateful jobs: histories of micro-batches and their results, damage to these, and what is legal.

The results come from the reference in ``tests.support.stateful``, which walks event by event; the damage is done to them, or to the job
that makes them (a batch taken in twice, records left out, a watermark that is too small). What must be found is where the two sets of
results differ.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder
from streamproof.verdict.stateful.reference import Deduplication, Join, Sessions, Totals, Windows
from tests.support import stateful
from tests.support.stateful import Event, Model, Output, Result, Story, job

MINUTE = 60_000
MODELS: tuple[Model, ...] = (
    Windows(MINUTE, MINUTE, MINUTE),
    Windows(3 * MINUTE, MINUTE, 2 * MINUTE),
    Sessions(2 * MINUTE, MINUTE),
    Join(2 * MINUTE),
    Join(MINUTE, outer=True, before_ms=MINUTE, after_ms=MINUTE),
    Totals(),
    Deduplication(3 * MINUTE),
)
GUARANTEES = ("exactly-once", "at-least-once", "at-most-once")
ABOUT = {Windows: ("key", "begin"), Sessions: ("key", "begin"), Join: ("left", "right"), Totals: ("key", "count"), Deduplication: ("id",)}
RUBBISH = "something that is no result"
Found = tuple[str, str]


@dataclass
class Computed:
    """What a stateful job was given and delivered. ``truth`` is what a checker must find: an anomaly, and the words for the result."""

    guarantee: str
    model: Model
    story: Story
    output: Output
    truth: Counter[Any] = field(default_factory=Counter)
    promises: frozenset[str] = frozenset()
    spoilt: str | None = None
    undecided: bool = False
    """Whether there are sends without an answer: then some results may be one thing or another."""
    spoil: Callable[[RunFolder], None] | None = None
    only_checkers: bool = False

    def write(self, path: Path) -> RunFolder:
        shutil.rmtree(path / "results", ignore_errors=True)
        folder = stateful.write(path / "results", self.story, self.output)
        if self.spoil is not None:
            self.spoil(folder)
        return folder

    def rightly(self) -> Output:
        return job(self.story, self.model)


def make(rng: np.random.Generator, *, undecided: bool = False) -> Computed:
    """A clean history of 3 to 8 batches of up to 8 events: some keys, here and there a restart, some events late."""
    model = MODELS[int(rng.integers(0, len(MODELS)))]
    streams, count = len(model.delays_ms), int(rng.integers(3, 9))
    batches, now = [], 0
    for _ in range(count):
        now += int(rng.integers(0, 5))
        batches.append([_event(rng, now, streams, undecided) for _ in range(int(rng.integers(1, 9)))])
    starts = (1 + np.cumsum(rng.random(count) < 0.2)).tolist()
    unread = [_event(rng, now, streams, undecided) for _ in range(int(rng.integers(0, 3)))] if undecided else []
    story = Story(batches, starts, [replace(event, sure=False) for event in unread])
    return Computed(str(rng.choice(GUARANTEES)), model, story, job(story, model), undecided=undecided)


def _event(rng: np.random.Generator, now: int, streams: int, undecided: bool) -> Event:
    at = max(now - int(rng.choice([0, 0, 0, 1, 2, 6])), 0)
    sure = not undecided or bool(rng.random() > 0.1)
    return Event(at * MINUTE, str(rng.choice(list("abc"))), int(rng.integers(-3, 9)), int(rng.integers(0, streams)), sure)


# --- what must be found -----------------------------------------------------------------------------------------------------------------


def _name(model: Model, about: tuple[Any, ...]) -> str:
    """A result in the words of a report."""
    if isinstance(model, Join):
        left, right = (None if identity is None else identity.replace("-", "/", 1) for identity in about)
        partner = "without a partner" if right is None else f"joined with record {_decimal(right)}"
        return f"record {_decimal(str(left))} {partner}"
    if isinstance(model, Totals):
        return f"the total of {about[0]} after {about[1]} records"
    at = datetime.fromtimestamp(about[1] / 1000, UTC)
    return f"the {'session' if isinstance(model, Sessions) else 'window'} of {about[0]} from {at:%Y-%m-%d %H:%M}"


def _decimal(identity: str) -> str:
    producer, _, sequence = identity.partition("/")
    return f"{int(producer, 16)}/{int(sequence, 16)}"


def _about(model: Model, result: Result) -> tuple[Any, ...]:
    return tuple(result.get(name) for name in ABOUT[type(model)])


def _parsed(found: Any) -> Result | None:
    if not isinstance(found, bytes):
        return dict(found)
    try:
        return dict(json.loads(found))
    except ValueError:
        return None


def differences(model: Model, right: Output, output: Output, story: Story) -> Counter[Found]:
    """How ``told`` differs from what is right. Not for de-duplication, whose results may be one event or another."""
    results = [(result, _parsed(result)) for result in output.results]
    due = {_about(model, result): result for result in right.results}
    copies: dict[tuple[Any, ...], list[Result]] = {}
    found: Counter[Found] = Counter({("UNEXPECTED", RUBBISH): sum(parsed is None for _, parsed in results)})
    for _, parsed in results:
        if parsed is not None:
            copies.setdefault(_about(model, parsed), []).append(parsed)
    for about in due.keys() | copies.keys():
        name, own = _name(model, about), copies.get(about, [])
        found["MISSING", name] += not own
        found["UNEXPECTED", name] += about not in due
        found["WRONG_VALUE", name] += about in due and any(each != due[about] for each in own)
        found["REPEATED", name] += about in due and len(own) > 1
    for place, (rightly, dropped) in enumerate(zip(right.dropped, output.dropped, strict=True)):
        found["DROPPED", f"batch {place} of start {story.start(place)}"] += rightly != dropped
    return +found


# --- damage -----------------------------------------------------------------------------------------------------------------------------

Damage = Callable[[Computed, np.random.Generator], bool]
DAMAGES: dict[str, Damage] = {}
_RESULTS = (Windows, Sessions, Join, Totals)


def _damage(*kinds: type) -> Callable[[Callable[[Computed, np.random.Generator], object]], Damage]:
    """Registers a damage to what such jobs ``told``. What it changed is compared with what is right; nothing changed is no damage."""

    def register(change: Callable[[Computed, np.random.Generator], object]) -> Damage:
        def damage(found: Computed, rng: np.random.Generator) -> bool:
            if not isinstance(found.model, kinds) or not found.output.results:
                return False
            change(found, rng)
            found.truth = differences(found.model, found.rightly(), found.output, found.story)
            return bool(found.truth)

        DAMAGES[change.__name__] = damage
        return damage

    return register


def _some(found: Computed, rng: np.random.Generator, most: int = 3) -> list[int]:
    count = len(found.output.results)
    return sorted(rng.choice(count, min(count, int(rng.integers(1, most + 1))), replace=False).tolist(), reverse=True)


def _value(model: Model) -> str:
    return "left_value" if isinstance(model, Join) else "sum"


@_damage(*_RESULTS)
def result_lost(found: Computed, rng: np.random.Generator) -> None:
    for at in _some(found, rng):
        del found.output.results[at]


@_damage(*_RESULTS)
def results_all_lost(found: Computed, rng: np.random.Generator) -> None:
    found.output.results.clear()


@_damage(Windows, Sessions, Totals)
def results_of_a_key_lost(found: Computed, rng: np.random.Generator) -> None:
    key = found.output.results[_some(found, rng, 1)[0]]["key"]
    found.output.results = [result for result in found.output.results if result["key"] != key]


@_damage(*_RESULTS)
def result_doubled(found: Computed, rng: np.random.Generator) -> None:
    found.output.results += [found.output.results[at] for at in _some(found, rng)]


@_damage(*_RESULTS)
def results_all_doubled(found: Computed, rng: np.random.Generator) -> None:
    found.output.results *= 2


@_damage(*_RESULTS)
def result_one_too_high(found: Computed, rng: np.random.Generator) -> None:
    _add(found, _some(found, rng), 1)


@_damage(*_RESULTS)
def result_one_too_low(found: Computed, rng: np.random.Generator) -> None:
    _add(found, _some(found, rng), -1)


def _add(found: Computed, rows: Iterable[int], amount: int) -> None:
    name = _value(found.model)
    for at in rows:
        found.output.results[at] = {**found.output.results[at], name: found.output.results[at][name] + amount}


@_damage(Windows, Sessions)
def count_one_too_high(found: Computed, rng: np.random.Generator) -> None:
    for at in _some(found, rng):
        found.output.results[at] = {**found.output.results[at], "count": found.output.results[at]["count"] + 1}


@_damage(Sessions)
def session_ends_later(found: Computed, rng: np.random.Generator) -> None:
    for at in _some(found, rng):
        found.output.results[at] = {**found.output.results[at], "end": found.output.results[at]["end"] + MINUTE}


@_damage(*_RESULTS)
def values_swapped(found: Computed, rng: np.random.Generator) -> None:
    name, rows = _value(found.model), _some(found, rng, 2)
    one, other = (found.output.results[at] for at in (rows[0], rows[-1]))
    found.output.results[rows[0]], found.output.results[rows[-1]] = {**one, name: other[name]}, {**other, name: one[name]}


@_damage(*_RESULTS)
def result_doubled_with_another_value(found: Computed, rng: np.random.Generator) -> None:
    found.output.results.append(found.output.results[_some(found, rng, 1)[0]])
    _add(found, [len(found.output.results) - 1], 5)


@_damage(Windows, Sessions)
def result_moved_in_time(found: Computed, rng: np.random.Generator) -> None:
    for at in _some(found, rng, 1):
        found.output.results[at] = {**found.output.results[at], "begin": found.output.results[at]["begin"] + MINUTE}


@_damage(Windows, Sessions, Totals)
def result_given_to_another_key(found: Computed, rng: np.random.Generator) -> None:
    for at in _some(found, rng, 1):
        found.output.results[at] = {**found.output.results[at], "key": str(rng.choice(["a", "b", "c", "nobody"]))}


@_damage(Join)
def joined_with_another(found: Computed, rng: np.random.Generator) -> None:
    for at in _some(found, rng, 1):
        found.output.results[at] = {**found.output.results[at], "right": "0-ffff", "right_value": 1}


@_damage(Join)
def partner_forgotten(found: Computed, rng: np.random.Generator) -> None:
    for at in _some(found, rng, 1):
        found.output.results[at] = {name: value for name, value in found.output.results[at].items() if not name.startswith("right")}


@_damage(*_RESULTS)
def rubbish_delivered(found: Computed, rng: np.random.Generator) -> None:
    found.output.results.append(b"rubbish")  # type: ignore[arg-type]


@_damage(*_RESULTS)
def result_cut_off(found: Computed, rng: np.random.Generator) -> None:
    at = _some(found, rng, 1)[0]
    found.output.results[at] = json.dumps(found.output.results[at]).encode()[: int(rng.integers(0, 12))]  # type: ignore[call-overload]


@_damage(Windows, Join)
def more_late_rows_dropped(found: Computed, rng: np.random.Generator) -> None:
    found.output.dropped[int(rng.integers(0, len(found.output.dropped)))] += int(rng.integers(1, 4))


@_damage(Windows, Join)
def fewer_late_rows_dropped(found: Computed, rng: np.random.Generator) -> None:
    late = np.flatnonzero(found.output.dropped)
    if len(late):
        found.output.dropped[int(rng.choice(late))] -= 1


@_damage(Windows, Sessions, Totals)
def batch_taken_in_twice(found: Computed, rng: np.random.Generator) -> None:
    at = int(rng.integers(0, len(found.story.batches)))
    batches = [batch * (1 + (place == at)) for place, batch in enumerate(found.story.batches)]
    found.output.results = job(replace(found.story, batches=batches), found.model).results


@_damage(Totals)
def state_lost(found: Computed, rng: np.random.Generator) -> None:
    at = int(rng.integers(1, len(found.story.batches)))
    forgotten: list[list[Event]] = [[] for _ in range(at)]
    later = job(Story([*forgotten, *found.story.batches[at:]]), found.model).results
    found.output.results = [*job(Story(found.story.batches[:at]), found.model).results, *later]


@_damage(Windows)
def watermark_too_small(found: Computed, rng: np.random.Generator) -> None:
    found.output = job(found.story, replace(found.model, delay_ms=0))


@_damage(Windows)
def watermark_too_large(found: Computed, rng: np.random.Generator) -> None:
    found.output = job(found.story, replace(found.model, delay_ms=5 * MINUTE))


def deduplicated_lost(found: Computed, rng: np.random.Generator) -> bool:
    """One of those that passed is gone, where no other of its batch could have passed in its place."""
    if not isinstance(found.model, Deduplication):
        return False
    batches = [[event.key for event in batch] for batch in found.story.batches]
    place_of = [place for place, batch in enumerate(batches) for _ in batch]
    numbers = [int(result["id"].partition("-")[2], 16) for result in found.output.results]
    keys = [key for batch in batches for key in batch]
    only = [at for at, number in enumerate(numbers) if batches[place_of[number]].count(keys[number]) == 1]
    if not only:
        return False
    at = int(rng.choice(only))
    found.truth["MISSING", _passage(found, at)] += 1
    del found.output.results[at]
    return True


def deduplicated_doubled(found: Computed, rng: np.random.Generator) -> bool:
    if not isinstance(found.model, Deduplication) or not found.output.results:
        return False
    at = int(rng.integers(0, len(found.output.results)))
    found.truth["REPEATED", _passage(found, at)] += 1
    found.output.results.append(found.output.results[at])
    return True


def deduplicated_of_nobody(found: Computed, rng: np.random.Generator) -> bool:
    if not isinstance(found.model, Deduplication) or not found.output.results:
        return False
    found.truth["UNEXPECTED", "a record that should not have passed"] += 1
    found.output.results.append({"id": "0-ffff"})
    return True


def _passage(found: Computed, at: int) -> str:
    """How a result is called: its key, and how often that had passed before."""
    events = [event for _, event in found.story.events()]
    keys = [events[int(result["id"].partition("-")[2], 16)].key for result in found.output.results]
    return f"passage {keys[:at].count(keys[at])} of {keys[at]}"


DAMAGES.update({function.__name__: function for function in (deduplicated_lost, deduplicated_doubled, deduplicated_of_nobody)})


def batch_line_lost(found: Computed, rng: np.random.Generator) -> bool:
    """A line of ``batches.jsonl`` is gone, and not the last: then nobody knows which batch read what."""
    place = int(rng.integers(0, len(found.story.batches) - 1))

    def spoil(folder: RunFolder) -> None:
        lines = folder.batches.read_text().splitlines(keepends=True)
        folder.batches.write_text("".join(line for number, line in enumerate(lines) if number != place))
        manifest.write(folder)

    found.spoil, found.spoilt = spoil, f"batch {place} is missing"
    return True


DAMAGES["batch_line_lost"] = batch_line_lost


# --- what is legal ----------------------------------------------------------------------------------------------------------------------


def legal(rng: np.random.Generator) -> tuple[Computed, list[str]]:
    """A history in which nothing is wrong, or only what its guarantee allows; and what is unusual about it."""
    found = make(rng, undecided=bool(rng.random() < 0.4))
    changes = ["sends without an answer"] if found.undecided else []
    if rng.random() < 0.5:
        found.output.results = [found.output.results[at] for at in rng.permutation(len(found.output.results)).tolist()]
        changes.append("results in any order")
    if rng.random() < 0.3:
        silent = int(rng.integers(0, len(found.output.dropped)))
        found.output.dropped[silent] = None  # type: ignore[call-overload]
        changes.append("a batch that was not reported")
    if rng.random() < 0.3 and not found.undecided:
        excused = {"at-least-once": result_doubled, "at-most-once": result_lost}.get(found.guarantee)
        whole = None not in found.output.dropped
        if excused is not None and whole and excused(found, rng):
            changes.append("what the guarantee allows")
    return found, changes
