"""Watermarks of several queries are joined when a plan changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.engines.spark.queries.watermarks import FILE, Watermarks, carry_over


@pytest.mark.parametrize(
    ("own", "stopped", "expected"),
    [
        (None, [{"all": [9, 4]}, {"all": [3, None]}], {"all": [9, 4]}),  # the second one has not run a batch
        ({"all": [3, 1]}, [{"all": [2, 4]}], {"all": [3, 4]}),
        ({"all": [None, None]}, [{"all": [None, 7]}], {"all": [None, 7]}),
        ({"left": [5]}, [{"right": [6]}], {"left": [5], "right": [6]}),
        ({"all": [5]}, [{"all": [6, 7]}], {"all": [6, 7]}),  # one of them has read it from a channel
        (None, [{}], None),
    ],
)
def test_the_latest_watermark_of_each_stream_counts(
    tmp_path: Path, own: Watermarks | None, stopped: list[Watermarks], expected: Watermarks | None
) -> None:
    checkpoint, *folders = [tmp_path / str(n) for n in range(len(stopped) + 1)]
    for folder, watermarks in zip((checkpoint, *folders), (own, *stopped), strict=True):
        folder.mkdir()
        if watermarks is not None:
            (folder / FILE).write_text(json.dumps(watermarks))
    carry_over(checkpoint, folders)
    file = checkpoint / FILE
    assert (json.loads(file.read_text()) if file.exists() else None) == expected
