"""The run that a faulted one stands beside: the same experiment with the same seed and versions, without its faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from streamproof import settings
from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.experiment.model import Experiment
from streamproof.run import stages
from streamproof.verdict.verdict import Verdict

SUFFIX = "-baseline"
LONGEST_NAME = 60
log = logging.getLogger("streamproof.run.baseline")


def without_faults(experiment: Experiment) -> Experiment:
    """The baseline of ``experiment``. Raises BadInput when it has no faults itself."""
    if not experiment.faults:
        raise BadInput(f"--baseline: {experiment.name} has no faults, there is nothing to compare: leave the option out")
    name = experiment.name[: LONGEST_NAME - len(SUFFIX)] + SUFFIX
    return Experiment.model_validate({**experiment.model_dump(), "name": name, "faults": [], "expect": []})


def find(experiment: Experiment) -> RunFolder | None:
    """The last run of ``experiment``, whatever its name, that PASSED with the versions that are installed now; None when there is none."""
    return next((folder for folder in _runs() if _fits(folder, experiment)), None)


def _runs() -> Iterator[RunFolder]:
    paths = sorted(settings.runs().glob("*/verdict.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    return (RunFolder(path.parent) for path in paths)


def _fits(folder: RunFolder, experiment: Experiment) -> bool:
    try:
        verdict = Verdict.read(folder)
        if not verdict.as_expected or verdict.versions != stages.versions() or verdict.output_s is None:
            return False
        return stages.load(folder).model_copy(update={"name": experiment.name}) == experiment
    except (EvidenceError, BadInput) as error:  # a damaged run is no baseline, and no reason not to look at the others
        log.info("%s cannot be a baseline: %s", folder.name, error)
        return False
