"""Which testbed a run uses: the embedded one, or that with an external Kafka in place of its own."""

from __future__ import annotations

import yaml

from streamproof.evidence.folder import RunFolder
from streamproof.testbed import embedded, external
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.external import External


def of(folder: RunFolder, here: Testbed) -> Testbed:
    """The testbed of a run, where ``here`` is the embedded one. A run without an experiment has touched no other."""
    if not folder.experiment.exists():
        return here
    described = (yaml.safe_load(folder.experiment.read_text()) or {}).get("external")
    return here if described is None else external.outside(here, External.model_validate(described), folder.name)


def current(folder: RunFolder) -> Testbed:
    """The testbed of a run that was prepared. Raises TestbedError when the embedded one is not up."""
    return of(folder, embedded.current())
