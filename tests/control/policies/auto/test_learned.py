"""What policy auto remembers of its plans."""

from __future__ import annotations

from penstock.control.policies.auto.learned import Learned


def learned() -> Learned:
    """A memory in which plan a met its target in 60 windows, and plan b missed it in all of them."""
    memory = Learned()
    memory.use_target((2.0, None))
    for number in range(60):
        for plan, is_late in (("a", False), ("b", True)):
            memory.add_result(
                plan, 4, level=7, late=is_late, measured_s=1.5, predicted_s=1.0, at_s=10.0 * number, span_s=1.0
            )
    return memory


def test_plans_are_judged_by_the_windows_at_their_load() -> None:
    memory = learned()
    assert memory.has_held("a", 7) and not memory.has_failed("a", 7)
    assert memory.has_failed("b", 7) and not memory.has_held("b", 7)
    assert not memory.has_held("a", 20)  # a much higher load


def test_another_target_forgets_which_plans_were_late_and_keeps_the_correction() -> None:
    memory = learned()
    correction = memory.correction("a")
    assert correction > 1.0
    memory.use_target((2.0, None))
    assert memory.has_held("a", 7)
    memory.use_target((1.0, None))
    assert not memory.has_held("a", 7) and not memory.has_failed("b", 7)
    assert memory.correction("a") == correction
    restored = Learned.of(memory.memory())
    assert restored.target == (1.0, None)
    restored.use_target((1.0, 0.95))
    assert restored.target == (1.0, 0.95)
