from __future__ import annotations

from decimal import Decimal, getcontext
from fractions import Fraction
from math import factorial, pi, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.models.queueing import ModelError, UnstableError, erlang_b, erlang_c


def exact_b(servers: int, load: Fraction) -> Fraction:
    """The definition: (a^c / c!) / sum_j a^j / j!"""
    return (load**servers / factorial(servers)) / sum(load**j / factorial(j) for j in range(servers + 1))


def decimal_b(servers: int, load: float) -> Decimal:
    """1/B = sum_j c (c-1) ... (c-j+1) / a^j in 40 digits: independent of the recursion and without overflow."""
    getcontext().prec = 40
    a, term, total = Decimal(load), Decimal(1), Decimal(1)
    for j in range(servers):
        term *= (servers - j) / a
        total += term
        if term < total * Decimal("1e-35"):
            break
    return 1 / total


@pytest.mark.parametrize(("trunks", "load"), [(10, 4.461), (20, 12.03), (50, 37.90), (100, 84.06)])
def test_erlang_b_table_at_one_per_cent(trunks: int, load: float) -> None:
    """Rows of the standard Erlang B table for 1 % loss."""
    assert erlang_b(trunks, load) == pytest.approx(0.01, rel=2e-3)


@pytest.mark.parametrize(
    ("servers", "load", "printed"),
    [(1, Fraction(1, 2), Fraction(1, 2)), (2, Fraction(1), Fraction(1, 3)), (3, Fraction(2), Fraction(4, 9))],
)
def test_erlang_c_of_textbooks(servers: int, load: Fraction, printed: Fraction) -> None:
    assert erlang_c(servers, float(load)) == pytest.approx(float(printed), rel=1e-14)


@given(st.integers(1, 60), st.fractions(Fraction(1, 50), 80, max_denominator=50))
@settings(deadline=None)
def test_against_exact_fractions(servers: int, load: Fraction) -> None:
    b = exact_b(servers, load)
    assert erlang_b(servers, float(load)) == pytest.approx(float(b), rel=1e-12)
    if load < servers:
        rho = load / servers
        assert erlang_c(servers, float(load)) == pytest.approx(float(b / (1 - rho * (1 - b))), rel=1e-11)


@pytest.mark.parametrize("servers", [1, 10, 150, 1_000, 10_000, 100_000])
@pytest.mark.parametrize("rho", [0.5, 0.9, 0.99, 0.999])
def test_relative_error_up_to_a_hundred_thousand_servers(servers: int, rho: float) -> None:
    load = servers * rho
    b = decimal_b(servers, load)
    if b > Decimal("1e-300"):
        assert abs(Decimal(erlang_b(servers, load)) / b - 1) < Decimal("1e-10")
        c = b / (1 - Decimal(load) / servers * (1 - b))
        assert abs(Decimal(erlang_c(servers, load)) / c - 1) < Decimal("1e-10")
    else:
        assert 0 <= erlang_b(servers, load) < 1e-299


@pytest.mark.parametrize("servers", [1_000, 20_000, 100_000])
@pytest.mark.parametrize("load", [1.0, 1.0001, 1.01, 1.5, 20.0])
def test_relative_error_under_overload(servers: int, load: float) -> None:
    assert abs(Decimal(erlang_b(servers, servers * load)) / decimal_b(servers, servers * load) - 1) < Decimal("1e-12")


@pytest.mark.parametrize("load", [10**9, 10**11])
def test_as_many_servers_as_load_at_any_size(load: int) -> None:
    """1/B(a, a) = sqrt(pi a / 2) + 2/3 + O(1/sqrt(a)) (Jagerman, Bell System Technical Journal 53(3), 1974)."""
    assert 1 / erlang_b(load, float(load)) == pytest.approx(sqrt(pi * load / 2) + 2 / 3, rel=1e-10)


def test_infinitely_many_servers_lose_nothing() -> None:
    assert erlang_b(10**15, 3.0) == erlang_c(10**15, 3.0) == 0.0


def test_overload_loses_the_surplus() -> None:
    """In the fluid limit, c servers under a load of 3c lose two thirds of it."""
    assert erlang_b(100_000, 300_000.0) == pytest.approx(2 / 3, abs=1e-4)


def test_nothing_offered() -> None:
    assert erlang_b(3, 0.0) == 0.0
    assert erlang_b(0, 0.0) == 1.0
    assert erlang_c(3, 0.0) == 0.0


def test_bad_input() -> None:
    with pytest.raises(UnstableError, match="It needs at least 3 servers"):
        erlang_c(2, 2.0)
    with pytest.raises(ModelError, match="offered load is nan"):
        erlang_b(2, float("nan"))
    with pytest.raises(ModelError, match="offered load is -1"):
        erlang_c(2, -1.0)
    with pytest.raises(ModelError, match="number of servers is 0"):
        erlang_c(0, 0.5)
