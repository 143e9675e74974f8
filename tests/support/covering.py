# SPDX-License-Identifier: MIT
"""Chooses few settings such that every pair of values occurs in one of them, and of some
factors every triple. Deterministic: the same factors give the same list."""

import itertools


def covering(factors, strong, allowed):
    """factors: {name: values}. Returns a list of {name: value} in which all pairs of values
    of any two factors, and all triples of the factors named in `strong`, occur together.
    allowed(setting) tells whether a setting that may still lack factors can be had; what
    cannot be had in any setting need not occur."""
    names = list(factors)
    groups = list(itertools.combinations(names, 2))
    groups += list(itertools.combinations([n for n in names if n in strong], 3))
    open_ = {(group, values) for group in groups
             for values in itertools.product(*(factors[n] for n in group))
             if allowed(dict(zip(group, values)))}
    chosen = []
    while open_:
        # The largest groups first: they hold the others.
        seed = min(open_, key=lambda t: (-len(t[0]), _place(factors, *t)))
        setting = _fill(dict(zip(*seed)), factors, groups, open_, allowed, len(chosen))
        open_ -= _tuples(setting, groups)
        chosen.append({name: setting[name] for name in names})
    return chosen


def _place(factors, group, values):
    return [(list(factors).index(n), factors[n].index(v)) for n, v in zip(group, values)]


def _tuples(setting, groups):
    return {(group, tuple(setting[n] for n in group)) for group in groups
            if all(n in setting for n in group)}


def _fill(setting, factors, groups, open_, allowed, turn):
    """The setting with all factors, each time with the value that closes most; equals take
    turns."""
    for name, values in factors.items():
        if name in setting:
            continue
        best, most = None, -1
        for i in range(len(values)):
            value = values[(i + turn) % len(values)]
            tried = dict(setting, **{name: value})
            if not allowed(tried):
                continue
            gain = len(_tuples(tried, groups) & open_)
            if gain > most:
                best, most = tried, gain
        if best is None:
            raise ValueError(f"{setting}: no {name} is allowed")
        setting = best
    return setting
