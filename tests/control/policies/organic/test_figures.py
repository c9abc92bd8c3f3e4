"""The directions of figures 5, 10, 11 and 14 to 16 of the Joker paper, with the costs of the reproduction.

The costs were calibrated with one point of figure 5: fission only reaches a speedup of 5 at 32 multiplications.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from benchmarks.papers.joker import (
    DOUBLING,
    WORKS,
    balanced,
    doubling_load,
    four_operators,
    selectivities,
    unbalanced,
)
from benchmarks.papers.joker_runs import Adapted, X, adapted
from penstock.apps import joker
from penstock.control.policies.adaptation_parameters import Variant
from penstock.plan import diff

pytestmark = pytest.mark.long


def tried(result: Adapted, split: str) -> list[tuple[bool, str | None]]:
    """Return whether each change splits the pipeline after this operator, and its verdict."""
    changes = [(diff(row.old, row.new), row) for row in result.changes if row.new and row.reason_code != "roll-back"]
    return [(split in change.cuts_added, row.verdict) for change, row in changes]


@pytest.mark.parametrize("work", WORKS)
def test_joint_adaptation_is_faster_than_either_kind_alone_at_every_cost(work: int) -> None:
    """Figure 5. Four pipelines give at most 4; adding less than 10 % ends fission alone at 11 replicas."""
    speedups = {variant: four_operators(variant, work).speedup for variant in Variant}
    assert 1.9 <= speedups[Variant.FUSION_ONLY] <= 4.0
    assert 4.9 <= speedups[Variant.FISSION_ONLY] <= 11.0
    for joint in (Variant.FUSION_FIRST, Variant.FISSION_FIRST):
        assert speedups[joint] > max(speedups[Variant.FUSION_ONLY], speedups[Variant.FISSION_ONLY])
    if work == max(WORKS):
        assert speedups[Variant.FUSION_FIRST] >= 18.0  # the paper reports 20


def test_the_changes_of_the_region_with_selectivities_if_transfers_are_costly() -> None:
    """Figure 10: split reverted, 2 replicas kept, split reverted, 3 replicas kept, split kept; then nothing is kept."""
    changes = tried(selectivities(x=800.0, distribution=800.0), "m2_256")
    assert changes[:5] == [
        (True, "rolled back"),
        (False, "kept"),
        (True, "rolled back"),
        (False, "kept"),
        (True, "kept"),
    ]
    assert {verdict for _, verdict in changes[5:]} <= {"rolled back"}


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.95])
def test_the_bottleneck_threshold_causes_no_overshoot(threshold: float) -> None:
    """Figure 11: the load doubles from 40 to 640 ktps; one replica processes 500 ktps."""
    result = doubling_load(threshold)
    last_s, last_per_s = DOUBLING[-1]
    assert [row.at_s >= last_s for row in result.kept] == [True]  # the second replica is kept under the last load only
    assert result.plan.replicas["m1_256"] == 2
    assert fmean(result.rows_per_s[-10:]) == pytest.approx(last_per_s, rel=0.03)


@pytest.mark.parametrize(("distribution", "limit"), [(X, 16.0), (0.0, 11.5)])
def test_the_split_threshold_with_unbalanced_costs(distribution: float, limit: float) -> None:
    """Figure 14: at 0.2, four replicas are added in four steps. At 0.1, splits are tried and reverted.

    They are tried before each replica if the sender distributes rows, as in Joker. Otherwise the distribution adds to
    the overhead of each replica, so that the predicted gain of later splits is below 0.1.
    """
    usual, low = (unbalanced(threshold, distribution, limit) for threshold in (0.2, 0.1))
    assert [row.new.replicas["m1_43"] for row in usual.kept if row.new is not None] == [2, 3, 4, 5]
    assert not any(is_split for is_split, _ in tried(usual, "m1_43"))
    splits = [verdict for is_split, verdict in tried(low, "m1_43") if is_split]
    assert set(splits) == {"rolled back"} and (len(splits) >= 4 if distribution == 0.0 else len(splits) >= 1)
    assert low.plan == usual.plan


def test_the_split_threshold_with_balanced_costs() -> None:
    """Figure 15: at 0.9 no pipeline is split, and the throughput is lower."""
    split, whole = balanced(0.2), balanced(0.9)
    assert split.plan.cuts == {"m1_26"} and not whole.plan.cuts
    assert tried(split, "m1_26")[0] == (True, "kept")
    assert whole.speedup < 0.9 * split.speedup


def test_the_third_change_of_the_region_with_five_operators() -> None:
    """Figure 16: pipelines of the operators 1 to 3, 4 and 5, and two replicas."""
    third = adapted(joker.five_operators(), work=3136, periods=14).kept[2].new
    assert third is not None
    assert third.cuts == {"m3_32", "m4_1024"} and third.replicas["m1_1024"] == 2
