"""What follows a payload: the drain's decoders and the second judge's SQL say the same of it, as docs/verdicts.md defines it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamproof.evidence import identity
from streamproof.evidence.envelopes import closed
from tests.unit.test_second_reader import _judged, _rows, _write

ENDS_THE_VALUE = (
    b"}",
    b"}\n",
    b',"a":-0}',
    b',"a":1e999}',
    b',"a":1' + b"0" * 400 + b"}",
    b',"a":"\x7f"}',
    b',"a":"NaN, Infinity,}"}',
    b',"a":"\\"NaN,}"}',
    b',"\xef\xbb\xbf":1}',
    b',"a":"\xff"}',
    b',"a":"\xed\xa0\x80"}',
    b',"\xc3\xa4\xff":1}',
    b',"a":"\\ud800"}',
    b',"a":"\\udc00\\ud800"}',
    b',"a":"\\ud83d\\ude00"}',
    b',"a":"\\\\ud800"}',
    b',"\\ud800":1}',
    b',"id\\u0000":1}',
    b',"":0,"":1}',
    b',"nested":{"id":1,"payload":2}}',
    b',"a":' + b"[" * 900 + b"]" * 900 + b"}",
)
DOES_NOT = (
    b"",
    b",}",
    b"}}",
    b"}\x00",
    b"5}",
    b".5}",
    b"e5}",
    b'"x"}',
    b"\xa0}",
    b"\xef\xbb\xbf}",
    b"} /* c */",
    b',/* c */"a":1}',
    b',"a":NaN}',
    b',"a":nan}',
    b',"a":-Infinity}',
    b',"a":[Infinity]}',
    b',"a":inf}',
    b',"a":1,}',
    b',"a":[1, ]}',
    b',"a":\xff}',
    b',"a":"\x00"}',
    b',"a":"\t"}',
    b',"a":"\\x"}',
    b',"a":"\\\\\\ud80"}',
    b",'a':1}",
    b',"a":01}',
    b',"a":+1}',
    b',"a":0x10}',
    b',"a":1 "b":2}',
    b',"i\\u0064":"\xff"}',
)


@pytest.mark.parametrize("tails", [ENDS_THE_VALUE, DOES_NOT], ids=["ends the value", "does not"])
def test_every_decoder_of_the_drain_says_the_same(tails: tuple[bytes, ...]) -> None:
    for tail in tails:
        data, at, end = np.frombuffer(tail + b" ", np.uint8), np.array([0]), np.array([len(tail)])
        expected = tails is ENDS_THE_VALUE
        assert (identity.closes(tail), bool(closed(data, at, end)[0])) == (expected, expected), tail


def test_both_judges_name_the_same_tails(tmp_path: Path) -> None:
    rows, tails = _rows(), (*ENDS_THE_VALUE, *DOES_NOT)
    assert len(tails) <= len(rows)
    for row, tail in zip(rows, tails, strict=False):
        head = identity.PREFIX_LENGTH + int(row["value"][25:33], 16)
        row["value"] = row["value"][:head] + tail
    verdict, conflict = _judged(_write(tmp_path / "run", rows, rows))
    assert conflict is None
    assert verdict.anomalies["CORRUPTED"] == len(DOES_NOT)
