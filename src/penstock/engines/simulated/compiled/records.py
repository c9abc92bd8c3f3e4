"""Record types that the compiled loops share.

One array of records is one argument and one place in memory, which keeps the loops fast. Python code reads a field of
all records as an array, for example `replicas["due_s"]`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NONE = -1  # replaces an index that does not exist

# An array of records. NumPy's type hints do not describe fields, and checking them takes mypy seconds.
Records = Any


def record(**fields: type) -> Any:
    """Return the record type with these fields, in this order."""
    return np.dtype(list(fields.items()))


RATE = record(from_s=float, per_s=float)  # arrivals per second from `from_s` on
