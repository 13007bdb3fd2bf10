"""A topic that was recorded: what the file holds, in which order, and what of it is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamproof.evidence import locations
from streamproof.evidence.locations import ENVELOPE, Kind, Location
from streamproof.load import files, recorded
from streamproof.load.placing import placed
from streamproof.load.recorded import Recorded
from streamproof.load.recorder import by_time
from streamproof.load.spec import Workload

HEADER = Location(Kind.HEADER, ("id",), True)
RECORDS = [
    Recorded(b"k1", b'{"n":1}', (("trace", b"\x00\xff"), ("id", b"theirs"), ("none", None)), 1000, 0, 7),
    Recorded(None, b"\x00\x01 not JSON", (), None, 1, 3),
    Recorded(b"\xff", b"", (), 3000, 1, 4),
]


def test_what_was_recorded_is_read_as_it_was(tmp_path: Path) -> None:
    recorded.write(tmp_path / "orders.parquet", RECORDS)
    assert list(files.events(tmp_path / "orders.parquet", None)) == RECORDS
    many = [*RECORDS] * 40
    recorded.write(tmp_path / "orders.parquet", many)
    found = Workload.model_validate({"file": {"path": str(tmp_path / "orders.parquet")}})
    assert found.records == 120
    found.check(HEADER)


def test_partitions_are_merged_by_time_and_each_keeps_its_order() -> None:
    def record(partition: int, offset: int, at_ms: int | None) -> Recorded:
        return Recorded(None, b"", (), at_ms, partition, offset)

    first = [record(0, 0, 10), record(0, 1, 50), record(0, 2, 20)]
    second = [record(1, 0, 5), record(1, 1, None), record(1, 2, 40)]
    merged = [(each.partition, each.offset) for each in by_time({0: first, 1: second})]
    assert merged == [(1, 0), (1, 1), (0, 0), (1, 2), (0, 1), (0, 2)]


def test_the_identity_takes_its_place_beside_what_the_record_had() -> None:
    first, second, _ = RECORDS
    sent = placed(HEADER, True, 3, 4, first.key, first.value or b"", first.headers)
    name = locations.text(3, 4).encode()
    assert sent.headers == [("id", name), ("trace", b"\x00\xff"), ("none", None)], "the job's own header is the identity's place"
    assert (sent.key, sent.value) == (b"k1", b'{"n":1}')
    keyless = placed(HEADER, True, 0, 0, None, second.value or b"", second.headers)
    assert keyless.key is None
    assert keyless.sha256 != placed(HEADER, True, 0, 0, b"", second.value or b"").sha256, "an empty key is a key"
    assert placed(Location(Kind.KEY, (), False), False, 0, 5, first.key, b"", first.headers).key == locations.text(0, 5).encode()


@pytest.mark.parametrize(
    ("location", "says"),
    [
        (ENVELOPE, r"record 2 \(offset 1/3\): expected a JSON object, .*came .*`header`"),
        (Location(Kind.JSON, ("/id",), False), r"record 2 \(offset 1/3\): expected a JSON object"),
        (Location(Kind.KEY, (), False), None),
    ],
)
def test_a_value_that_cannot_hold_the_identity_is_named_before_anything_is_sent(
    location: Location, says: str | None, tmp_path: Path
) -> None:
    recorded.write(tmp_path / "orders.parquet", RECORDS)
    if says is None:
        files.check(tmp_path / "orders.parquet", None, location)
        return
    with pytest.raises(files.NotReadable, match=says):
        files.check(tmp_path / "orders.parquet", None, location)


def test_a_record_without_a_value_and_a_key_of_another_name_are_refused(tmp_path: Path) -> None:
    recorded.write(tmp_path / "orders.parquet", [Recorded(b"k", None)])
    with pytest.raises(files.NotReadable, match=r"record 1 \(offset 0/0\) has no value"):
        files.check(tmp_path / "orders.parquet", None, HEADER)
    with pytest.raises(files.NotReadable, match="have keys of their own: leave out `key`, which is shop"):
        list(files.events(tmp_path / "orders.parquet", "shop"))
