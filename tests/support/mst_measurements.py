"""The measurements of the MST paper if they are on this machine, and generated ones of the same form."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.papers import mst_data
from penstock.models.mst.samples import ThroughputSamples

PUBLISHED, GENERATED = "published", "generated"
both = pytest.mark.parametrize("origin", [PUBLISHED, GENERATED])


def measurements(origin: str) -> Mapping[str, ThroughputSamples]:
    """Return the samples by application; skip the test if the published ones are not there."""
    if origin == GENERATED:
        return mst_data.generated_samples()
    if not mst_data.SAMPLES.exists():
        pytest.skip(f"the authors' measurements are not at {mst_data.SAMPLES}")
    return mst_data.published_samples()
