# SPDX-License-Identifier: MIT
"""The update phase on paper: which rank owns what of which block, and what passes between
whom in which round. Written from what the headers of src/comm promise and not from their
sources, so that the tests have something to hold the program against.

Lengths are in elements; ranks that share a host's memory are given by their host numbers.
"""

import math

ALIGN = 16  # elements
REDUCE, RETURN = 0, 1
FLAT_LIMIT = 8  # most hosts that trade all with all when nobody says how
MIB = 1 << 20


def span(elems):
    return (elems + ALIGN - 1) // ALIGN * ALIGN


def row_owners(plan, rows, width):
    """Of each row of a tensor that is first in production order: {owner: elements}."""
    found, begin = [{} for _ in range(rows)], 0
    for elems, owner in (part for parts in plan.parts for part in parts):
        end = begin + elems
        for row in range(begin // width, min(rows, -(-end // width))):
            common = min(end, (row + 1) * width) - max(begin, row * width)
            found[row][owner] = found[row].get(owner, 0) + common
        begin = end
    return found


def model_elems(layers, width, positions, vocab):
    """Length of production order: each tensor of each layer to its 64 bytes."""
    padded = (vocab + 127) // 128 * 128
    layer = (6 * span(width) + span(3 * width) + span(4 * width) + span(3 * width * width) +
             span(width * width) + 2 * span(4 * width * width))
    return span(padded * width) + span(positions * width) + 2 * span(width) + layers * layer


class Grid:
    """Ranks as numbers of several digits: digit j is what partners of round j differ in."""

    def __init__(self, ranks, hosts=None, rounds="auto"):
        """`hosts`: of each rank, when those of one host may share memory."""
        self.ranks, self.inside = ranks, 1
        counts = {h: hosts.count(h) for h in hosts} if hosts else {}
        if counts and len(set(counts.values())) == 1:
            self.inside = next(iter(counts.values()))
        order = list(range(ranks))
        if self.inside > 1:
            order.sort(key=lambda r: (hosts.index(hosts[r]), r))
        self.rank_at = order
        self.radixes = [self.inside] if self.inside > 1 else []
        across = ranks // self.inside
        if across > 1 and (rounds == "flat" or (rounds == "auto" and across <= FLAT_LIMIT)):
            self.radixes.append(across)
        else:
            self.radixes += prime_factors(across)
        self.radixes = self.radixes or [1]
        self.digits = {}
        for place, rank in enumerate(order):
            self.digits[rank] = []
            for radix in self.radixes:
                self.digits[rank].append(place % radix)
                place //= radix

    def nested(self):
        """Ranks in the order in which the first digit counts slowest."""
        return sorted(range(self.ranks), key=lambda r: self.digits[r])

    def spread(self):
        """Ranks in the order in which the host counts fastest."""
        places = range(self.ranks)
        return [self.rank_at[p] for p in sorted(places, key=lambda p: (p % self.inside, p))]

    def is_inside(self, digit):
        return digit == 0 and self.inside > 1

    def share_host(self, a, b):
        return self.inside > 1 and self.digits[a][1:] == self.digits[b][1:]


def prime_factors(n):
    found, f = [], 2
    while n > 1:
        while n % f == 0:
            found.append(f)
            n //= f
        f += 1
    return found


class Plan:
    def __init__(self, elems, grid, strategy, block="auto", roots=1):
        """`block`: bytes, auto or one."""
        self.elems, self.grid, self.strategy, self.roots = elems, grid, strategy, roots
        self.replicated = strategy == "allreduce"
        self.rounds = len(grid.radixes)
        edges = self._edges(block)
        self.blocks = [end - begin for begin, end in zip(edges, edges[1:])]
        self.parts = [self._cut(b, n) for b, n in enumerate(self.blocks)]

    def _edges(self, block):
        units, turn = self.elems // ALIGN, 1
        if self.strategy == "reduce-broadcast":
            turn = self.grid.ranks // math.gcd(self.grid.ranks, self.roots)
        if block == "auto":
            block = MIB
            if self.strategy in ("reduce-scatter", "allreduce"):
                block = max(4 * MIB, self.grid.ranks * 65536)
        if block == "one":
            count = 1
        elif units < turn:
            count = units
        else:
            turns = (4 * self.elems + turn * block // 2) // (turn * block)
            count = turn * min(max(turns, 1), units // turn)
        return [i * units // count * ALIGN for i in range(count + 1)]

    def _owners(self, b):
        if self.strategy == "central":
            return [0]
        if self.strategy == "reduce-broadcast":
            order = self.grid.spread()
            return [order[(b * self.roots + i) % len(order)] for i in range(self.roots)]
        return self.grid.nested()

    def _cut(self, b, elems):
        """(elements, owner) of each part."""
        owners, units = self._owners(b), elems // ALIGN
        edges = [i * units // len(owners) * ALIGN for i in range(len(owners) + 1)]
        return [(end - begin, owner)
                for begin, end, owner in zip(edges, edges[1:], owners) if end > begin]

    def owned(self, rank):
        return sum(n for parts in self.parts for n, owner in parts if owner == rank)

    def updated(self, rank):
        return self.elems if self.replicated else self.owned(rank)

    def sends(self, phase, rank):
        """{(round, block, peer): elements} that a rank sends in a step."""
        found = {}
        for round_ in range(self.rounds):
            digit = round_ if phase == REDUCE else self.rounds - 1 - round_
            for b, parts in enumerate(self.parts):
                for elems, owner in parts:
                    for peer in self._to(phase, digit, rank, owner):
                        key = round_, b, peer
                        found[key] = found.get(key, 0) + elems
        return found

    def _to(self, phase, digit, rank, owner):
        """Who gets this owner's part from `rank` when partners differ in `digit`. What a
        rank has of a part in a reduction it passes on until the part is at its owner; in a
        return the part goes the same way back."""
        mine, owners = self.grid.digits[rank], self.grid.digits[owner]
        if phase == REDUCE:
            if mine[:digit] != owners[:digit] or mine[digit] == owners[digit]:
                return []
            wanted = [mine[:digit] + [owners[digit]] + mine[digit + 1:]]
        else:
            if mine[:digit + 1] != owners[:digit + 1]:
                return []
            wanted = [mine[:digit] + [d] + mine[digit + 1:]
                      for d in range(self.grid.radixes[digit]) if d != mine[digit]]
        return [r for r in range(self.grid.ranks) if self.grid.digits[r] in wanted]

    def in_memory(self, phase, round_):
        """Nothing of this round is on the wire."""
        digit = round_ if phase == REDUCE else self.rounds - 1 - round_
        return self.grid.is_inside(digit) and (phase == REDUCE or not self.replicated)

    def wire_elems(self, phase, rank):
        return sum(n for (round_, _, _), n in self.sends(phase, rank).items()
                   if not self.in_memory(phase, round_))
