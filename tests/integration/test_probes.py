"""Probes: what a client feels behind a proxy with each kind of toxic, and no longer once it is removed; on both links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.faults import FAULTS
from streamproof.faults.network.toxic import Toxic, links
from streamproof.testbed import probes
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError, free_port

TOXICS = [fault for fault in FAULTS.values() if isinstance(fault, Toxic)]
ON_LINKS = [(fault, link) for fault in TOXICS for link in ("kafka", "postgres") if "link" in fault.parameters_model.model_fields]
ON_KAFKA = [(fault, "kafka") for fault in TOXICS if "link" not in fault.parameters_model.model_fields]


@pytest.fixture
def proxies(testbed: Testbed) -> Iterator[None]:
    yield
    for proxy in testbed.links:
        testbed.proxies.reset(proxy)


@pytest.mark.parametrize(("fault", "link"), [*ON_LINKS, *ON_KAFKA], ids=lambda each: getattr(each, "name", each))
def test_a_probe_feels_a_toxic_until_it_is_healed_from_its_journaled_target(
    testbed: Testbed, proxies: None, fault: Any, link: str, tmp_path: Any
) -> None:
    parameters = fault.parameters_model.model_validate({"link": link} if (fault, link) in ON_LINKS else {})
    proxies = fault.proxies(testbed, parameters)
    way = links(testbed)[proxies[0]]
    before = fault.measure(way, parameters)
    assert not fault.felt(parameters, before, fault.measure(way, parameters)).passed, "nothing is felt before anything is there"

    toxics = {f"test-{stream}": stream for stream in fault.streams}
    for proxy in proxies:
        for toxic, stream in toxics.items():
            testbed.proxies.add(proxy, toxic, fault.kind, stream, fault.attributes(parameters))
    felt = fault.felt(parameters, before, fault.measure(way, parameters))
    assert felt.passed, felt

    folder = RunFolder.create(tmp_path / "run")
    for _ in range(2):
        assert all(check.passed for check in fault.heal(testbed, folder, {"proxies": proxies, "toxics": toxics}))
    assert all(testbed.proxies.toxics(proxy) == {} for proxy in proxies)
    assert not fault.felt(parameters, before, fault.measure(way, parameters)).passed


def test_healing_a_toxic_leaves_anothers_alone(testbed: Testbed, proxies: None, tmp_path: Any) -> None:
    testbed.proxies.add("kafka-driver", "anothers", "latency", "downstream", {"latency": 1})
    target = {"proxies": ["kafka-driver"], "toxics": {"streamproof-bandwidth-upstream": "upstream"}}
    FAULTS["bandwidth"].heal(testbed, RunFolder.create(tmp_path / "run"), target)
    assert list(testbed.proxies.toxics("kafka-driver")) == ["anothers"]


def test_a_probe_without_a_server_is_an_error_that_names_it() -> None:
    with (
        pytest.raises(TestbedError, match=r"kafka behind .* does not take a probe's connection"),
        probes.kafka_echo(f"127.0.0.1:{free_port()}"),
    ):
        pass
    with (
        pytest.raises(TestbedError, match="postgres does not take a probe's connection"),
        probes.postgres_echo(f"host=127.0.0.1 port={free_port()}"),
    ):
        pass
