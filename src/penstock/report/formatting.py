"""Numbers, times and shares as short texts, for tables and pages."""

from __future__ import annotations

UNKNOWN = "-"


def count(number: float | None) -> str:
    """Format a number of rows or a rate.

    >>> count(None), count(0), count(0.25), count(12.5), count(2000.4), count(1234567), count(25_000_000)
    ('-', '0', '0.25', '12', '2,000', '1,234,567', '25.0M')
    """
    if number is None:
        return UNKNOWN
    if 0 < number < 10 and number != int(number):
        return f"{number:.2g}"
    return f"{number:,.0f}" if number < 1e7 else f"{number / 1e6:,.1f}M"


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """
    >>> plural(1, "slot"), plural(2, "query", "queries")
    ('1 slot', '2 queries')
    """
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def seconds(time_s: float | None) -> str:
    """Format a short time with three digits.

    >>> seconds(None), seconds(0.0), seconds(2e-7), seconds(12.5e-6), seconds(0.0021), seconds(0.81), seconds(75.0)
    ('-', '0 s', '0.2 us', '12.5 us', '2.1 ms', '810 ms', '75 s')
    """
    if time_s is None:
        return UNKNOWN
    if time_s == 0:
        return "0 s"
    for unit, unit_s in (("us", 1e-6), ("ms", 1e-3)):
        if round(time_s / unit_s, 1) < 1000:
            return f"{_three_digits(time_s / unit_s)} {unit}"
    return f"{_three_digits(time_s)} s"


def duration(time_s: float | None) -> str:
    """Format a long time with its two largest units.

    >>> duration(None), duration(0.4), duration(75.2), duration(3600.0), duration(93784.0)
    ('-', '0.4 s', '1 min 15 s', '1 h', '1 d 2 h')
    """
    if time_s is None:
        return UNKNOWN
    if time_s < 10:
        return f"{time_s:.2g} s"
    left_s, parts = round(time_s), []
    for unit, unit_s in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if left_s >= unit_s:
            parts.append(f"{left_s // unit_s} {unit}")
            left_s %= unit_s
        elif parts:
            break
    return " ".join(parts[:2])


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.0%}"


def in_parentheses(text: str) -> str:
    """
    >>> in_parentheses("12 us"), in_parentheses(UNKNOWN)
    ('(12 us)', '-')
    """
    return text if text == UNKNOWN else f"({text})"


def shortened(text: str, max_length: int) -> str:
    """Remove the middle of a long text; its end is usually more informative.

    >>> shortened("abcdefghij", 6), shortened("abc", 6)
    ('abc … hij', 'abc')
    """
    return text if len(text) <= max_length else f"{text[: max_length // 2]} … {text[-(max_length // 2) :]}"


def _three_digits(number: float) -> str:
    if number >= 100:
        return f"{number:.0f}"
    return f"{number:.2f}".rstrip("0").rstrip(".") if number < 10 else f"{number:.1f}".rstrip("0").rstrip(".")
