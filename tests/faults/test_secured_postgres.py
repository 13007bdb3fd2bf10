"""Runs that deliver to a PostgreSQL of somebody else's, over TLS: with a proxy that is cut, and without any. Nothing else is touched."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.journal import Restored
from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed import credentials, reached
from streamproof.testbed.embedded import POSTGRES_PROXY, Testbed
from streamproof.testbed.external import External, outside
from streamproof.testbed.process import TestbedError
from tests.faults.test_secured import Watch, holding
from tests.support.secured import Authority
from tests.support.secured_postgres import USER, SecuredPostgres, secured_postgres

RECORDS = 3000
THEIRS = "their-postgres"
VARIABLES = {"environment": {"username": "SECURED_USER", "password": "SECURED_PASSWORD"}}


@pytest.fixture(scope="module")
def postgres(home: Path) -> Iterator[SecuredPostgres]:
    with tempfile.TemporaryDirectory() as folder, secured_postgres(Authority(Path(folder))) as started:
        yield started


@pytest.fixture(autouse=True)
def _logged_in(postgres: SecuredPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURED_USER", USER)
    monkeypatch.setenv("SECURED_PASSWORD", postgres.password)


@pytest.fixture
def proxied(testbed: Testbed, postgres: SecuredPostgres) -> Iterator[dict[str, Any]]:
    """What an experiment says of it, with a proxy at a Toxiproxy that is there."""
    testbed.proxies.ensure(THEIRS, f"127.0.0.1:{postgres.proxy}", f"127.0.0.1:{postgres.port}")
    yield {
        "postgres": postgres.described(VARIABLES),
        "may_break": {"toxiproxy": f"127.0.0.1:{testbed.toxiproxy_port}", "postgres": THEIRS},
    }
    testbed.proxies.destroy(THEIRS)


def performed(
    postgres: SecuredPostgres, testbed: Testbed, caplog: pytest.LogCaptureFixture, external: dict[str, Any], **experiment: Any
) -> dict[str, Any]:
    others = postgres.others()
    workload = {"source": "synthetic", "records": RECORDS}
    described = {"name": "secured", "testbed": "external", "external": external, "workload": workload, "seed": 12, "timeout_s": 600}
    with Watch(postgres.password) as watch, caplog.at_level(logging.DEBUG, "streamproof"):
        folder = runner.run(Experiment.model_validate({**described, **experiment}))
    assert watch.seen == set()
    assert holding(postgres.password, folder.path, Path(testbed.folder)) == []
    assert postgres.password not in caplog.text
    assert not credentials.folder_of(folder.name).exists()
    assert folder.journal.last(Restored) is not None
    assert postgres.others() == others, "the run's schema is gone, and what is somebody else's is as it was"
    verdict: dict[str, Any] = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["postgres_two_phase_commit", "postgres_ledger"])
def test_an_encrypted_link_to_postgres_is_cut(
    testbed: Testbed, postgres: SecuredPostgres, proxied: dict[str, Any], caplog: pytest.LogCaptureFixture, strategy: str
) -> None:
    performed(postgres, testbed, caplog, proxied, strategy=strategy, faults=[{"fault": "cut_postgres", "at": 0.4}])


@pytest.mark.slow
def test_a_driver_is_killed_whose_postgres_has_no_proxy(
    testbed: Testbed, postgres: SecuredPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    external = {"postgres": postgres.described(VARIABLES, proxied=False)}
    performed(postgres, testbed, caplog, external, strategy="postgres_upsert", faults=[{"fault": "kill_driver", "at": 0.4}])
    assert testbed.proxies.toxics(POSTGRES_PROXY) == {}


@pytest.mark.slow
def test_a_name_that_the_certificate_does_not_hold_and_a_missing_right_are_named(
    testbed: Testbed, postgres: SecuredPostgres, tmp_path: Path
) -> None:
    with secured_postgres(Authority(tmp_path), "db.example") as other, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECURED_PASSWORD", other.password)
        with pytest.raises(TestbedError, match=r"does not match host name.*subjectAltName"):
            reached.check(outside(testbed, External.model_validate({"postgres": other.described(VARIABLES)}), "b-run"))
    credentials.forget("b-run")
    with postgres.administrator() as connection:
        connection.execute(f"REVOKE CREATE ON DATABASE app FROM {USER}")
        try:
            without_proxy = postgres.described(VARIABLES, proxied=False)
            with pytest.raises(TestbedError, match="no right to CREATE in the database app"):
                reached.check(outside(testbed, External.model_validate({"postgres": without_proxy}), "c-run"))
        finally:
            connection.execute(f"GRANT CREATE ON DATABASE app TO {USER}")
            credentials.forget("c-run")
