"""The Nexmark generator against the published definition, and hand-computed results of the oracles."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.apps import nexmark
from penstock.apps.nexmark import generator, streams
from penstock.apps.nexmark.settings import NexmarkSettings
from penstock.dataflow.load import load

EVENTS = 100_000
DEFAULTS = NexmarkSettings()


def test_the_proportions_are_1_to_3_to_46() -> None:
    kinds = (streams.PERSON, streams.AUCTION, streams.BID)
    assert [kind.rows(EVENTS) for kind in kinds] == [2_000, 6_000, 92_000]
    for events in (0, 1, 2, 4, 5, 49, 50, 51, 149):
        assert sum(kind.rows(events) for kind in kinds) == events


def test_ids_are_consecutive_from_1000() -> None:
    assert [person.id for person in streams.persons(EVENTS, DEFAULTS)] == list(range(1_000, 3_000))
    assert [auction.id for auction in streams.auctions(EVENTS, DEFAULTS)] == list(range(1_000, 7_000))


@pytest.mark.parametrize("ratio", [2, 5])
def test_all_but_one_in_ratio_are_hot(ratio: int) -> None:
    settings = NexmarkSettings(hot_auction_ratio=ratio, hot_bidder_ratio=ratio, hot_seller_ratio=ratio)
    bids, auctions = streams.bids(EVENTS, settings), streams.auctions(EVENTS, settings)
    # One id in a hundred is hot; the others are spread over a hundred open auctions or a thousand persons.
    hot = [
        sum((bid.auction - 1_000) % 100 == 0 for bid in bids) / len(bids),
        sum((bid.bidder - 1_000) % 100 == 1 for bid in bids) / len(bids),
        sum((auction.seller - 1_000) % 100 == 0 for auction in auctions) / len(auctions),
    ]
    assert hot == pytest.approx([1 - 1 / ratio + 0.01 / ratio] * 3, abs=0.02)


def test_bids_refer_to_auctions_in_flight_and_auctions_to_active_persons() -> None:
    settings = NexmarkSettings(hot_auction_ratio=1, hot_seller_ratio=1, in_flight_auctions=40, active_persons=30)
    auctions = [bid.auction - 1_000 - 3 * (k // 46) for k, bid in enumerate(streams.bids(EVENTS, settings))]
    assert (min(auctions), max(auctions)) == (2 - 40, 2 + 10)  # up to ten auctions that do not exist yet
    sellers = [auction.seller - 1_000 - k // 3 for k, auction in enumerate(streams.auctions(EVENTS, settings))]
    assert (min(sellers), max(sellers)) == (1 - 30, 10)


def test_prices_are_log_uniform_from_100_to_100_million() -> None:
    prices = np.array([bid.price for bid in streams.bids(EVENTS, DEFAULTS)])
    assert prices.min() >= 100 and prices.max() < 100_000_000
    decades = Counter(len(str(price)) for price in prices.tolist())
    assert [decades[digits] / len(prices) for digits in range(3, 9)] == pytest.approx([1 / 6] * 6, abs=0.01)


def test_events_are_out_of_order_and_none_is_late_with_the_delay_of_the_watermark() -> None:
    settings = NexmarkSettings(events_per_s=100, disorder_ms=700)
    for times in (
        [bid.at_ms for bid in streams.bids(EVENTS, settings)],
        [auction.at_ms for auction in streams.auctions(EVENTS, settings)],
    ):
        latest = np.maximum.accumulate(times)
        behind = latest[:-1] - np.array(times[1:])
        assert 600 < behind.max() < 700


def test_auctions_last_as_long_as_it_takes_to_open_those_in_flight() -> None:
    settings = NexmarkSettings(events_per_s=500, in_flight_auctions=60)
    lengths = [auction.expires_ms - auction.at_ms for auction in streams.auctions(EVENTS, settings)]
    mean_ms = 60 * 50 / 3 / 500 * 1000
    assert min(lengths) >= 1 and max(lengths) <= settings.max_auction_ms == 2 * mean_ms
    assert sum(lengths) / len(lengths) == pytest.approx(mean_ms, rel=0.02)


def test_rows_have_the_sizes_of_the_definition() -> None:
    for columns, mean_bytes in ((generator.persons, 200), (generator.auctions, 500), (generator.bids, 100)):
        made = columns(np.arange(5_000), DEFAULTS)
        text = sum(
            len(word) for column in made.values() if not isinstance(column, np.ndarray) for word in column.tolist()
        )
        numbers = 8 * sum(isinstance(column, np.ndarray) for column in made.values())
        assert text / 5_000 + numbers == pytest.approx(mean_bytes, rel=0.15)


@pytest.mark.parametrize("value", [0, -1, 2.5, "many"])
def test_a_setting_that_is_no_positive_number_is_refused(value: Any) -> None:
    with pytest.raises(
        penstock.DataflowError, match=f"Nexmark has disorder_ms={value!r}; give a whole number of 1 or more"
    ):
        nexmark.q5.flow(disorder_ms=value)


def test_the_rate_of_events_is_divided_among_the_sources() -> None:
    flow = nexmark.q3.flow(rows=1_000, rows_per_s=500)
    assert [(flow[name].source.rows, flow[name].source.rows_per_s) for name in ("persons", "auctions")] == [
        (20, 10),
        (60, 30),
    ]


def test_a_query_is_named_on_the_command_line_with_its_arguments() -> None:
    flow = load("penstock.apps.nexmark:q5(rows=500, rows_per_s=100, hot_auction_ratio=3, output='out')")
    assert flow.name == "q5" and flow["bids"].source.rows == 460
    assert flow["out"].sink == penstock.parquet("out")
    for query in nexmark.QUERIES:
        load(f"penstock.apps.nexmark:{query.__name__.rpartition('.')[2]}").check()


def small_auction(monkeypatch: pytest.MonkeyPatch, auctions: list[streams.Auction], bids: list[streams.Bid]) -> None:
    monkeypatch.setattr(streams, "auctions", lambda rows, settings: auctions)
    monkeypatch.setattr(streams, "bids", lambda rows, settings: bids)


def bid(auction: int, price: int, at_ms: int) -> streams.Bid:
    return streams.Bid(auction=auction, bidder=1, price=price, at_ms=at_ms, arrived_ms=at_ms, extra="")


def test_only_bids_while_the_auction_is_open_can_win(monkeypatch: pytest.MonkeyPatch) -> None:
    auction = streams.Auction(id=7, at_ms=2_000, expires_ms=3_000, seller=5, category=10)
    last = streams.Auction(id=8, at_ms=60_000, expires_ms=60_500, seller=5, category=10)
    too_early, first, at_end, too_late = bid(7, 90, 1_999), bid(7, 10, 2_000), bid(7, 20, 3_000), bid(7, 80, 3_001)
    small_auction(
        monkeypatch, [auction, last], [too_early, first, at_end, too_late, bid(8, 50, 60_100), bid(9, 1, 61_000)]
    )
    # The second auction is still open at the last watermark.
    assert nexmark.q4.oracle(6) == Counter({(5_000, 10, 20, 1): 1, (10_000, 10, 20, 1): 1})
    assert nexmark.q6.oracle(6) == Counter({(5, 7, 3_000, 20): 1})


def test_the_mean_is_that_of_the_last_ten_auctions(monkeypatch: pytest.MonkeyPatch) -> None:
    sales = [streams.Auction(id=n, at_ms=n * 100, expires_ms=n * 100 + 50, seller=5, category=10) for n in range(12)]
    end = [streams.Auction(id=99, at_ms=90_000, expires_ms=90_001, seller=6, category=10), bid(98, 1, 90_000)]
    small_auction(monkeypatch, [*sales, end[0]], [*(bid(n, n, n * 100) for n in range(12)), end[1]])  # type: ignore[list-item]
    means = {auction: mean for (_, auction, _, mean) in nexmark.q6.oracle(12)}
    assert means[9] == 4 and means[10] == 5 and means[11] == 6  # 0..9, 1..10, 2..11; the halves are dropped


def test_all_auctions_with_the_highest_count_are_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    small_auction(monkeypatch, [], [bid(1, 5, 1_000), bid(2, 5, 1_500), bid(3, 5, 11_000), bid(3, 5, 30_000)])
    hot = nexmark.q5.oracle(4)
    assert (1, 1, 10_000) in hot and (2, 1, 10_000) in hot and (3, 1, 12_000) in hot
    assert max(end_ms for _, _, end_ms in hot) == 20_000  # 22,000 was reached by no bid


def test_equal_highest_bids_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    small_auction(monkeypatch, [], [bid(1, 5, 1_000), bid(2, 5, 9_999), bid(3, 9, 10_000), bid(4, 1, 20_999)])
    assert set(nexmark.q7.oracle(4)) == {(1, 1, 5, 1_000), (2, 1, 5, 9_999)}
