"""What can be wrong with samples and with what is asked of them."""

from __future__ import annotations

from penstock.dataflow.errors import PenstockError


class SamplesError(PenstockError):
    """The samples, or what is asked of them, cannot give a model."""
