"""The vertical Hoeffding tree without Spark: the model, the statistics of an attribute of a leaf, and their messages.

Kourtellis et al., "VHT: Vertical Hoeffding Tree", IEEE Big Data 2016. The model sorts each row to a leaf and sends its
attributes to the statistics. Each time another `GRACE_ROWS` rows have reached a leaf, the model asks the statistics of
all attributes of this leaf for their best split, and splits the leaf if the Hoeffding bound allows it.

The answers take time. The published tree goes on meanwhile, so its predictions depend on the speed of the messages.
Here a leaf holds its rows back until all answers have arrived. Other leaves continue. All rows are sorted in the order
of their numbers, and a prediction depends only on earlier rows of the same path. The predictions are therefore those of
a tree that processes one row after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from penstock.apps.mst.hoeffding import DELTA, GRACE_ROWS, MAX_DEPTH, Example, Prediction

BINS, VALUES = 16, 256  # thresholds are at the bounds of 16 equal parts of the values 0 to 255
TIE = 0.05  # bound below which the best of two equal attributes is taken


class Split(msgspec.Struct, frozen=True, array_like=True):
    """The best split of one attribute. Rows with a smaller value than the threshold go to the left."""

    gain: float  # information gain in bits
    threshold: int
    left: tuple[int, ...]  # rows of each class that go to the left


class Leaf(msgspec.Struct, array_like=True):
    """A leaf, and the rows that it holds back while it waits for answers."""

    inherited: list[int]  # rows of each class that were at the parent before it was split
    rows: list[int]  # rows of each class since then; the statistics have the same ones
    asking: bool = False
    answers: dict[int, Split] = msgspec.field(default_factory=dict)
    held: list[Example] = msgspec.field(default_factory=list)

    @staticmethod
    def new(inherited: list[int]) -> Leaf:
        return Leaf(inherited, [0] * len(inherited))


class Sorted(msgspec.Struct, frozen=True):
    """A row that reached a leaf, with its prediction."""

    leaf: int
    example: Example
    predicted: int | None


class Attempt(msgspec.Struct, frozen=True):
    """A request for the best splits of a leaf after this number of rows."""

    leaf: int
    rows: int


class Model(msgspec.Struct, array_like=True):
    """The tree: inner nodes and leaves by number (1 is the root, 2n and 2n + 1 are the children of n)."""

    features: int
    classes: int
    turn: int = 0  # number of the next row
    nodes: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)  # attribute and threshold
    leaves: dict[int, Leaf] = msgspec.field(default_factory=dict)
    early: dict[int, Example] = msgspec.field(default_factory=dict)  # rows that arrived before an earlier one

    def learn(self, examples: Iterable[Example]) -> Iterator[Sorted | Attempt]:
        """Sort rows to leaves in the order of their numbers."""
        self.early |= {example[0]: example for example in examples}
        while self.turn in self.early:
            example = self.early.pop(self.turn)
            self.turn += 1
            yield from self._sort(example)

    def answer(self, number: int, attribute: int, split: Split) -> Iterator[Sorted | Attempt]:
        """Receive the best split of an attribute. After the last one the held rows continue."""
        leaf = self.leaves[number]
        leaf.answers[attribute] = split
        if len(leaf.answers) < self.features:
            return
        chosen = chosen_attribute(leaf.answers, sum(leaf.rows), self.classes)
        held, leaf.held = leaf.held, []
        if chosen is None:
            leaf.asking, leaf.answers = False, {}
        else:
            split = leaf.answers[chosen]
            right = [rows - gone for rows, gone in zip(leaf.rows, split.left, strict=True)]
            del self.leaves[number]
            self.nodes[number] = (chosen, split.threshold)
            self.leaves |= {2 * number: Leaf.new(list(split.left)), 2 * number + 1: Leaf.new(right)}
        for example in held:
            yield from self._sort(example)

    def _sort(self, example: Example) -> Iterator[Sorted | Attempt]:
        number = 1
        while number in self.nodes:
            attribute, threshold = self.nodes[number]
            number = 2 * number + (example[2][attribute] >= threshold)
        leaf = self.leaves.setdefault(number, Leaf.new([0] * self.classes))
        if leaf.asking:
            leaf.held.append(example)
            return
        known = [sum(pair) for pair in zip(leaf.inherited, leaf.rows, strict=True)]
        yield Sorted(leaf=number, example=example, predicted=majority(known))
        leaf.rows[example[1]] += 1
        if sum(leaf.rows) % GRACE_ROWS == 0 and number < 2**MAX_DEPTH:
            leaf.asking = True
            yield Attempt(leaf=number, rows=sum(leaf.rows))


class Statistics(msgspec.Struct, array_like=True):
    """The rows of one leaf by class and part of the values of one attribute."""

    counts: list[list[int]]  # [part][class]
    asked: int = 0  # number of rows after which a split is to be answered; 0: none

    @staticmethod
    def empty(classes: int) -> Statistics:
        return Statistics([[0] * classes for _ in range(BINS)])

    def batch(self, rows: Iterable[tuple[int, int, int]]) -> Split | None:
        """Process (value, class, rows of an attempt or 0) in any order, and return the answer if it is due.

        The leaf sends no rows after an attempt until it has the answer, so that at most one attempt is open.
        """
        for value, label, asked in rows:
            if asked:
                self.asked = asked
            else:
                self.counts[value * BINS // VALUES][label] += 1
        if self.asked == 0 or sum(map(sum, self.counts)) < self.asked:
            return None
        self.asked = 0
        return best_split(self.counts)


def majority(rows: Sequence[int]) -> int | None:
    """Return the most frequent class, the first one of equals; None without rows.

    >>> majority([2, 5, 5]), majority([0, 0])
    (1, None)
    """
    return max(range(len(rows)), key=rows.__getitem__) if any(rows) else None


def entropy(rows: Sequence[int]) -> float:
    """Return the entropy of the classes in bits.

    >>> entropy([4, 4]), entropy([8, 0])
    (1.0, 0.0)
    """
    total = sum(rows)
    return sum(-count / total * math.log2(count / total) for count in rows if count)


def best_split(counts: Sequence[Sequence[int]]) -> Split:
    """Return the threshold with the highest gain of information; the gain is 0 if all rows are in one part.

    >>> best_split([[5, 0], [3, 0], [0, 8], *[[0, 0]] * 13])
    Split(gain=1.0, threshold=32, left=(8, 0))
    """
    total = [sum(column) for column in zip(*counts, strict=True)]
    whole, rows = entropy(total), sum(total)
    best = Split(0.0, 0, tuple(0 for _ in total))
    left = [0] * len(total)
    for part in range(1, BINS):
        left = [sum(pair) for pair in zip(left, counts[part - 1], strict=True)]
        right = [all_rows - gone for all_rows, gone in zip(total, left, strict=True)]
        gain = whole - (sum(left) * entropy(left) + sum(right) * entropy(right)) / rows
        if any(left) and any(right) and gain > best.gain:
            best = Split(gain, part * VALUES // BINS, tuple(left))
    return best


def chosen_attribute(splits: dict[int, Split], rows: int, classes: int) -> int | None:
    """Return the attribute to split, if its gain exceeds the second best by the Hoeffding bound, else None.

    >>> chosen_attribute({0: Split(0.1, 16, (1,)), 1: Split(0.9, 64, (1,))}, rows=100, classes=2)
    1
    >>> chosen_attribute({0: Split(0.8, 16, (1,)), 1: Split(0.9, 64, (1,))}, rows=100, classes=2)
    """
    first, *others = sorted(splits, key=lambda attribute: (-splits[attribute].gain, attribute))
    second = splits[others[0]].gain if others else 0.0
    bound = math.log2(classes) * math.sqrt(math.log(1 / DELTA) / (2 * rows))
    gain = splits[first].gain
    return first if gain > 0 and (gain - second > bound or bound < TIE) else None


def sequential(examples: Iterable[Example], features: int, classes: int) -> Iterator[Prediction]:
    """Yield the predictions of a tree that processes one row after the other, and keeps the rows of each leaf.

    A leaf begins with the class counts of its half of the split, but its statistics begin empty, as in the model.
    """
    nodes: dict[int, tuple[int, int]] = {}
    inherited: dict[int, list[int]] = {1: [0] * classes}
    own: dict[int, list[Example]] = {1: []}
    for n, label, values in examples:
        number = 1
        while number in nodes:
            attribute, threshold = nodes[number]
            number = 2 * number + (values[attribute] >= threshold)
        rows = list(inherited[number])
        for example in own[number]:
            rows[example[1]] += 1
        yield n, label, majority(rows)
        own[number].append((n, label, values))
        rows[label] += 1
        if len(own[number]) % GRACE_ROWS or number >= 2**MAX_DEPTH:
            continue
        splits = {}
        for attribute in range(features):
            counts = [[0] * classes for _ in range(BINS)]
            for _, seen, at in own[number]:
                counts[at[attribute] * BINS // VALUES][seen] += 1
            splits[attribute] = best_split(counts)
        chosen = chosen_attribute(splits, len(own[number]), classes)
        if chosen is not None:
            nodes[number] = (chosen, splits[chosen].threshold)
            left = list(splits[chosen].left)
            total = [sum(example[1] == label for example in own[number]) for label in range(classes)]
            inherited |= {2 * number: left, 2 * number + 1: [a - b for a, b in zip(total, left, strict=True)]}
            own |= {2 * number: [], 2 * number + 1: []}
