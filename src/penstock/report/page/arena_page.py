"""The page of the arena: winners, bars, worst cases first, and their decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.control.arena.matches import Match
from penstock.control.arena.standings import bars, winners
from penstock.report.arena_tables import HEADINGS, bars_cells, standings_cells
from penstock.report.page.render import page_environment

_WORST, _WORST_OF_OTHERS = 40, 10


def arena_page(matches: Sequence[Match]) -> str:
    """Return the page of these results."""
    won = winners(matches)
    return (
        page_environment()
        .get_template("arena.html.j2")
        .render(
            title="Arena of policies",
            matches=len(matches),
            cells=len(won),
            wins=Counter(winner.policy for winner in won).most_common(),
            bars=bars_cells(bars(matches)),
            worst=worst_cases(matches),
            winners=[
                (
                    str(winner.cell),
                    winner.policy,
                    f"{winner.margin:.0%}",
                    f"{winner.best.late:.1%}",
                    f"{winner.best.relative_cost:.2f}",
                    f"{winner.best.schedule_cost:.2f}",
                )
                for winner in won
            ],
            headings=HEADINGS,
            standings=standings_cells(matches),
        )
    )


def worst_cases(matches: Sequence[Match]) -> list[Match]:
    """Return the worst results of policy auto, then those of each other policy."""
    policies = sorted({match.policy for match in matches}, key=lambda name: (name != "auto", name))
    return [match for policy in policies for match in _worst_of(policy, matches)]


def _worst_of(policy: str, matches: Sequence[Match]) -> list[Match]:
    own = [match for match in matches if match.policy == policy]
    count = _WORST if policy == "auto" else _WORST_OF_OTHERS
    return sorted(own, key=lambda match: (-max(1.0, match.late / match.allowed_late), -match.schedule_cost))[:count]
