"""What the prior's network reads of a series: values in units of their own change, simple forecasts, statistics.

Everything here is the same for a·y + b with a > 0, except what only makes sense of values that are never negative.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PATCH = 8  # values a context token stands for
BACK = 8  # first seasons back that a future step looks at
BACK_SECOND = 3  # second seasons back
SEEN = 4  # of these, those that are told one by one
FAR = 1024  # steps ahead up to which widths were learned: beyond, features grow as logarithms
ROUGH = 0.2  # growth of a change with a doubled lag, where nothing was seen
DECAY = 0.3  # of the exponentially weighted mean
STEPS = 9  # lags 1, 2, 4 … 256 whose changes are measured
CYCLES = 4  # the same of 1, 2, 4 and 8 seasons
STATISTICS = 34 + STEPS + CYCLES
CANDIDATES = 13
POSITION = PATCH * 7 + 7  # numbers of a context token
FUTURE = CANDIDATES + 2 * (SEEN + 2) + 4 + 12 + 2  # numbers of a future token


class Units(NamedTuple):
    """The zero point and the unit of each row, in which a network sees it; each (rows, 1)."""

    level: Tensor
    unit: Tensor


class Context(NamedTuple):
    """The past of each row, in its own units."""

    z: Tensor  # (rows, length), 0 where missing
    seen: Tensor  # (rows, length), 1 or 0
    seasons: Tensor  # (rows, 2), at least 1
    told: Tensor  # (rows, 2), 1 where a season is known
    span: Tensor  # (rows, 1): steps from the first value seen to the end
    tokens: Tensor  # (rows, patches, POSITION)
    empty: Tensor  # (rows, patches): patches before the start of the series
    statistics: Tensor  # (rows, STATISTICS)
    lines: Lines
    by_steps: Tensor  # (rows, STEPS): log sizes of changes over 1, 2, 4 … steps
    by_cycles: Tensor  # (rows, CYCLES): the same over seasons


class Lines(NamedTuple):
    """What simple forecasts need of the whole past, each (rows, 1) unless said otherwise."""

    last: Tensor
    mean: Tensor
    slope: Tensor  # of the regression line, a step
    end: Tensor  # where the regression line stands at the last step
    smoothed: Tensor
    drift: Tensor  # mean seasonal difference, a step
    recent: Tensor  # the same of the last cycle
    moving: Tensor  # (rows, length): mean of the cycle that ends at each step


def squash(x: Tensor) -> Tensor:
    """asinh: nearly linear around 0, a logarithm far out."""
    return x.asinh()


def mean_of(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the last axis of what the mask lets through, kept as an axis; 0 of nothing."""
    return (values * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)


def size_of(values: Tensor, mask: Tensor) -> Tensor:
    """A mean of absolute values that outliers hardly move: (mean √|v|)²."""
    return mean_of(values.abs().sqrt(), mask).square()


def lagged(values: Tensor, seen: Tensor, lag: Tensor) -> tuple[Tensor, Tensor]:
    """Values so many steps before, by row, and whether both ends of that difference were seen."""
    index = torch.arange(values.shape[1]) - lag
    inside = (index >= 0).to(values.dtype)
    index = index.clamp(min=0)
    return values.gather(1, index), inside * seen * seen.gather(1, index)


def cycle_means(values: Tensor, seen: Tensor, lag: Tensor) -> Tensor:
    """Mean of the `lag` values that end at each step, (rows, length); of what there is, at the start."""
    start = torch.arange(values.shape[1]) - lag
    before = start.clamp(min=0)
    inside = (start >= 0).to(values.dtype)
    sums, counts = (values * seen).double().cumsum(1), seen.cumsum(1)
    total = sums - sums.gather(1, before) * inside
    count = counts - counts.gather(1, before) * inside
    return (total / count.clamp(min=1)).to(values.dtype)


def measure(values: Tensor, seen: Tensor, seasons: Tensor) -> tuple[Units, Tensor]:
    """Level and unit of each row, and whether the unit had to come from the level alone, (rows, 1).

    The level is the mean of the last cycle; the unit is the size of seasonal differences, or of what replaces them
    where there are fewer than three or all are 0: differences, distances from the mean, or the level (1 if that is
    0, too) over the number of values.
    """
    rows, length = values.shape
    first = seasons[:, :1]
    before, pairs = lagged(values, seen, first)
    cycle = (torch.arange(length) >= length - first).to(values.dtype) * seen
    newest = (torch.arange(length) * seen).argmax(1, keepdim=True)
    last = values.gather(1, newest)
    level = torch.where(cycle.sum(1, keepdim=True) > 0, mean_of(values, cycle), last)
    steps, both = lagged(values, seen, torch.ones_like(first))
    change = size_of(values - steps, both)
    seasonal = size_of(values - before, pairs) * (pairs.sum(1, keepdim=True) >= 3)
    around = size_of(values - mean_of(values, seen), seen)
    largest = (values.abs() * seen).amax(1, keepdim=True)
    least = 1e-6 * torch.maximum(around, 1e-6 * largest)
    unit = largest.new_zeros(rows, 1)
    for other in (seasonal, change, around):
        unit = torch.where(unit > least, unit, other)
    flat = unit <= least
    fallback = torch.where(level.abs() > 0, level.abs(), torch.ones_like(level))
    fallback = fallback / seen.sum(1, keepdim=True)
    return Units(level, torch.where(flat, fallback, unit)), flat.to(values.dtype)


def read(values: Tensor, seasons: Tensor) -> tuple[Context, Units]:
    """The past of rows (rows, length), nan where missing, in a length that is a multiple of `PATCH`."""
    seen = values.isfinite()
    values = torch.where(seen, values, 0.0)
    seen = seen.to(values.dtype)
    told = (seasons > 1).to(values.dtype)
    seasons = seasons.clamp(min=1)
    length = values.shape[1]
    units, flat = measure(values, seen, seasons)
    z = (((values - units.level) / units.unit) * seen).clamp(-1e6, 1e6).float()
    above = ((values * seen).amin(1, keepdim=True) >= 0).float()  # never negative
    zeros = mean_of((values == 0).to(values.dtype), seen)
    height = squash(units.level / units.unit)
    origin = torch.cat([above, above * zeros, above * height, flat], 1).float()
    seen, told = seen.float(), told.float()
    span = length - seen.argmax(1, keepdim=True)
    lines, statistics = describe(z, seen, seasons, span)
    by_steps = growth(z, seen, torch.ones_like(span), STEPS)
    by_cycles = growth(z, seen, seasons[:, :1], CYCLES)
    statistics = torch.cat([statistics, by_steps, by_cycles, told, origin], 1)
    tokens, empty = patches(z, seen, seasons, told, span)
    context = Context(
        z, seen, seasons, told, span, tokens, empty, statistics, lines, by_steps, by_cycles
    )  # fmt: skip
    return context, units


def growth(z: Tensor, seen: Tensor, lag: Tensor, count: int) -> Tensor:
    """Log sizes of the changes over 1, 2, 4 … lags, (rows, count), going on where there are fewer than three."""
    sizes = [torch.zeros_like(z[:, :1])]
    for power in range(count):
        before, both = lagged(z, seen, lag * 2**power)
        size = (size_of(z - before, both) + 1e-3).log()
        sizes.append(torch.where(both.sum(1, keepdim=True) >= 3, size, sizes[-1] + ROUGH))
    return torch.cat(sizes[1:], 1)


def growth_at(sizes: Tensor, lags: Tensor) -> Tensor:
    """What `growth` measured, at any number of lags (rows, steps), by linear interpolation of both logarithms."""
    place = lags.float().log2().clamp(max=sizes.shape[1] - 1)
    left = place.long().clamp(max=sizes.shape[1] - 2)
    below, above = sizes.gather(1, left), sizes.gather(1, left + 1)
    return below + (above - below) * (place - left)


def patches(z: Tensor, seen: Tensor, seasons: Tensor, told: Tensor, span: Tensor) -> tuple[Tensor, Tensor]:
    """The tokens of the past, (rows, patches, POSITION), and which of them lie before its start."""
    rows, length = z.shape
    columns = [squash(z), z.clamp(-3, 3), seen]
    for lag in (torch.ones_like(span), seasons[:, :1], seasons[:, 1:]):
        before, both = lagged(z, seen, lag)
        columns.append(squash((z - before) * both))
    columns.append(both)  # whether there was a second season before
    z_tokens = torch.stack(columns, -1).view(rows, length // PATCH, -1)
    age = torch.arange(length - PATCH // 2, 0, -PATCH, dtype=z.dtype).expand(rows, -1)
    angle = 2 * torch.pi * age[:, :, None] / seasons[:, None, :]
    place = torch.stack([age.log(), age / span, age / 64], -1)
    waves = torch.cat([angle.sin() * told[:, None], angle.cos() * told[:, None]], -1)
    empty = (seen.view(rows, -1, PATCH).cumsum(1).sum(-1)) == 0
    return torch.cat([z_tokens, place, waves], -1), empty


def describe(z: Tensor, seen: Tensor, seasons: Tensor, span: Tensor) -> tuple[Lines, Tensor]:
    """The lines that simple forecasts follow, and the statistics of each row, (rows, statistics)."""
    length = z.shape[1]
    count = seen.sum(1, keepdim=True)
    mean = mean_of(z, seen)
    time = torch.arange(length, dtype=z.dtype) - (length - 1)  # 0 at the last step
    middle = mean_of(time.expand_as(z), seen)
    spread = mean_of((time - middle).square(), seen)
    centred = (z - mean) * seen
    slope = mean_of(centred * (time - middle), seen) / spread.clamp(min=0.25)
    variance = mean_of(centred.square(), seen)
    weight = torch.exp(DECAY * time) * seen
    smoothed = (z * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1e-30)
    newest = (torch.arange(length) * seen).argmax(1, keepdim=True)
    last = z.gather(1, newest)
    ones = torch.ones_like(span)
    sizes, links, means = [], [], []
    lags = (ones, seasons[:, :1], seasons[:, 1:])
    for lag in lags:
        before, both = lagged(z, seen, lag)
        shifted = before - mean
        sizes.append(size_of(z - before, both))
        links.append(mean_of(centred * shifted, both) / variance.clamp(min=1e-12))
        means.append((z - before, both))
    step, both = means[0]
    again, twice = lagged(step, both, ones)
    turn = mean_of(step * again, twice) / mean_of(step.square(), both).clamp(min=1e-12)
    jump, pairs = means[1]
    after, paired = lagged(jump, pairs, ones)
    follow = mean_of(jump * after, paired) / mean_of(jump.square(), pairs).clamp(min=1e-12)
    drift = mean_of(jump, pairs) / seasons[:, :1]
    late = (time > -seasons[:, :1].clamp(min=8)).to(z.dtype)
    recent = mean_of(jump, pairs * late) / seasons[:, :1]
    newer = size_of(jump, pairs * late)
    wild = mean_of(jump.square(), pairs).sqrt()
    lines = Lines(
        last, mean, slope, mean - slope * middle, smoothed, drift, recent,
        cycle_means(z, seen, seasons[:, :1]),
    )  # fmt: skip
    lowest = torch.where(seen > 0, z, torch.inf).amin(1, keepdim=True)
    highest = torch.where(seen > 0, z, -torch.inf).amax(1, keepdim=True)
    same = ((step == 0) * both).sum(1, keepdim=True) / both.sum(1, keepdim=True).clamp(min=1)
    at_lowest = ((z == lowest) * seen).sum(1, keepdim=True) / count
    statistics = [
        count.log(), span.to(z.dtype).log(), seasons[:, :1].log(), seasons[:, 1:].log(),
        squash(span / seasons), squash(lowest), squash(highest), same, at_lowest,
        squash(drift * span), squash(recent * seasons[:, :1]), squash(slope * span),
        slope.square() * spread / variance.clamp(min=1e-12), 0.5 * (variance + 1e-9).log(),
        *((size + 1e-3).log() for size in sizes), *links, turn, follow, (newer + 1e-3).log(),
        (wild + 1e-3).log(), squash(mean), squash(last), squash(smoothed),
    ]  # fmt: skip
    return lines, torch.cat([part.to(z.dtype) for part in statistics], 1)


def ahead(context: Context, leads: Tensor) -> tuple[Tensor, Tensor]:
    """Simple forecasts of some steps, (rows, steps, CANDIDATES), and the future tokens, (rows, steps, FUTURE).

    `leads` are steps ahead, from 1, (steps,) or (rows, steps).
    """
    z, seen, lines = context.z, context.seen, context.lines
    rows, length = z.shape
    leads = leads.expand(rows, -1)
    h = leads.to(z.dtype)
    first, second = context.seasons[:, :1], context.seasons[:, 1:]

    def look_back(season: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Values 1 … most seasons back at the same phase, if seen, and the means of their cycles."""
        cycles = (leads + season - 1) // season  # seasons until the step
        back = torch.arange(most) + cycles[:, :, None]
        index = length - 1 + leads[:, :, None] - back * season[:, :, None]
        inside = (index >= 0).to(z.dtype).flatten(1)
        index = index.clamp(min=0).flatten(1)
        shape = (rows, leads.shape[1], most)
        found = inside * seen.gather(1, index)
        parts = (z.gather(1, index), found, lines.moving.gather(1, index))
        value, found, moving = (part.view(shape) for part in parts)
        return value * found, found, moving

    value, found, moving = look_back(first, BACK)
    later, found_later, _ = look_back(second, BACK_SECOND)
    phase = mean_of(value, found)[..., 0]
    season = newest_of(value, found, phase)
    second_back = torch.where(found[..., 1] > 0, value[..., 1], season)
    long_phase = mean_of(later, found_later)[..., 0]
    any_later = found_later.sum(-1) > 0
    long_phase = torch.where(any_later, long_phase, season)
    long_season = torch.where(any_later, newest_of(later, found_later, long_phase), season)
    index = mean_of(value - moving, found)[..., 0]
    cycles = (leads + first - 1) // first
    candidates = [
        lines.last.expand_as(h), season, phase, season + lines.drift * cycles * first,
        lines.end + lines.slope * h, lines.mean.expand_as(h), torch.zeros_like(h), second_back,
        long_season, long_phase, index, lines.smoothed.expand_as(h), index + lines.recent * h,
    ]  # fmt: skip
    simple = torch.stack(candidates, -1)
    around = [long_season - season, season - second_back, phase - season, index - phase]
    angle = 2 * torch.pi * h[:, :, None] / context.seasons[:, None, :]
    told = context.told[:, None]
    place = [
        h.log()[..., None], h.clamp(max=FAR).sqrt()[..., None] / 8, squash(h / context.span)[..., None],
        (h[..., None] / context.seasons[:, None]).asinh(), (h / 64).clamp(max=4)[..., None],
        angle.sin() * told, angle.cos() * told,
        (found.sum(-1) / BACK)[..., None], any_later.to(z.dtype)[..., None],
        growth_at(context.by_steps, leads)[..., None],
        growth_at(context.by_cycles, cycles)[..., None],
    ]  # fmt: skip
    tokens = [
        squash(simple), squash(value[..., :SEEN]), found[..., :SEEN], squash(later[..., :2]),
        found_later[..., :2], squash(torch.stack(around, -1)), *place,
    ]  # fmt: skip
    return simple.clamp(-1e6, 1e6).float(), torch.cat(tokens, -1).float()


def newest_of(values: Tensor, found: Tensor, otherwise: Tensor) -> Tensor:
    """The first value along the last axis that was found."""
    place = found.argmax(-1, keepdim=True)
    newest = values.gather(-1, place)[..., 0]
    return torch.where(found.sum(-1) > 0, newest, otherwise)
