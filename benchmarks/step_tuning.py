"""The choice of the kernels' settings by whole decode steps.

A kernel that is faster alone may make its neighbours slower: what a step does not gain from is not taken. Each part of
a step is changed by itself, with kernels that start early and once more without.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from decode_tuning import MODELS as HEADS
from decode_tuning import Heads
from fused_kernel_checks import WIDTHS
from kernel_settings import Early, Settings, apply
from product_list import PRODUCTS
from product_tuning import ROW_CLASSES
from random_model import NUM_LAYERS, RandomModel, Timed
from tuned_tables import Decode, DecodeKey, ProductKey, merged

from legato.device.facts import DeviceFacts
from legato.kernels.early_start_triton import NARROW
from legato.kernels.linear_tilings import Tiling

FASTER = 0.997
"""What a step must at least come to with a change, to take it: less is noise."""
OTHER_ROUNDING = 0.2
"""By how much logits may differ, relative to their norm, where kernels round otherwise: wrong ones differ by one."""
FINALISTS = 4
NEARLY = 1.2
"""How much longer than the fastest alone a tiling may take alone, to be tried in a step."""
WAYS = {
    "late": Early(narrow_rows=(), wide_rows=()),
    "early": Early(narrow_rows=ROW_CLASSES, wide_rows=ROW_CLASSES),
}
Change = Callable[[Settings], Settings]
Tilings = Mapping[tuple[str, ProductKey], Sequence[Tiling | None]]
"""Of products, by table and key, the fastest alone first; None: torch."""


def finalists(products: Iterable[Mapping[str, Any]]) -> Tilings:
    """Return the tilings worth trying in steps, by the rows of :func:`product_tuning.tune_product`."""
    found: dict[tuple[str, ProductKey], Sequence[Tiling | None]] = {}
    for row in products:
        tried = row["tried"]
        near = [(us, Tiling(*tiling)) for *tiling, us in tried[:FINALISTS] if us <= NEARLY * tried[0][-1]]
        every: list[tuple[float, Tiling | None]] = [*near, (row["torch_us"], None)]
        found[row["table"], row["key"]] = [tiling for _, tiling in sorted(every, key=lambda one: one[0])]
    return found


def with_tiling(settings: Settings, table: str, key: ProductKey, tiling: Tiling | None) -> Settings:
    """Return ``settings`` in which a product is tiled so; None: left to torch."""
    tiled = merged(settings.tables[table], [key], {} if tiling is None else {key: tiling})
    return replace(settings, tables={**settings.tables, table: tiled})


def with_decode(settings: Settings, key: DecodeKey, decode: Decode | None) -> Settings:
    """Return ``settings`` in which decodes of ``key`` are done so; None: by the rules."""
    return replace(settings, decodes=merged(settings.decodes, [key], {} if decode is None else {key: decode}))


def undecided(tuned: Settings, before: Settings) -> Settings:
    """Return ``tuned`` with all that steps decide as it was ``before``."""
    settings = tuned
    for model in NUM_LAYERS:
        heads = heads_of(model)
        for num_rows in ROW_CLASSES:
            settings = with_decode(settings, heads.key(num_rows), before.decodes.get(heads.key(num_rows)))
            for product in PRODUCTS[model]:
                key = (num_rows, product.out_size, product.in_size)
                settings = with_tiling(settings, product.table_name, key, before.tables[product.table_name].get(key))
    return settings


def heads_of(model: str) -> Heads:
    """Return what decodes of ``model`` look like."""
    return next(heads for heads in HEADS if heads.model == model)


def changes(
    model: str, num_rows: int, tilings: Tilings, decodes: Mapping[DecodeKey, Decode]
) -> dict[str, list[Change]]:
    """Return what may be changed in a step, by the part that it changes."""
    key = heads_of(model).key(num_rows)
    parts: dict[str, list[Change]] = {"decode": [partial(with_decode, key=key, decode=decodes.get(key))]}
    for product in PRODUCTS[model]:
        place = product.table_name, (num_rows, product.out_size, product.in_size)
        parts[product.name] = [
            partial(with_tiling, table=place[0], key=place[1], tiling=tiling) for tiling in tilings.get(place, (None,))
        ]
    return parts


@dataclass(slots=True)
class Descent:
    """What becomes of a step that takes one change after the other."""

    settings: Settings
    first: Timed
    best: Timed
    taken: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def try_out(self, model: RandomModel, settings: Settings, parts: Sequence[str], num_rows: int) -> None:
        """Time a step with ``settings``, in which ``parts`` are others, and take them where that is faster."""
        if settings == self.settings:
            return
        one = timed(model, settings, num_rows)
        difference = relative_difference(one.logits, self.first.logits)
        if not difference < OTHER_ROUNDING:
            self.wrong.append(f"{', '.join(parts)}, {num_rows} rows: {difference:.3f}")
        elif one.milliseconds <= self.best.milliseconds * FASTER:
            self.settings, self.best = settings, one
            self.taken = [*(taken for taken in self.taken if taken not in parts), *parts]


def descend(model: RandomModel, settings: Settings, parts: Mapping[str, Sequence[Change]], num_rows: int) -> Descent:
    """Change one part after the other where that makes the step faster.

    Before that, all parts at once, each to what comes first in its list: neighbours may gain only together.
    """
    first = timed(model, settings, num_rows)
    found = Descent(settings, first, first)
    together, others = settings, []
    for name, ways in parts.items():
        if ways[0](together) != together:
            together, others = ways[0](together), [*others, name]
    found.try_out(model, together, others, num_rows)
    for name, ways in parts.items():
        for change in ways:
            found.try_out(model, change(found.settings), [name], num_rows)
    return found


def tune_steps(
    before: Settings, tilings: Tilings, decodes: Mapping[DecodeKey, Decode], at: Collection[int], facts: DeviceFacts
) -> Iterator[dict[str, Any]]:
    """Yield a row for each model ``at`` each number of rows: a step's times, and the ``settings`` so far."""
    settings = before
    for width in WIDTHS[: len(NUM_LAYERS)]:
        model = RandomModel(width, facts)
        rows_field = "narrow_rows" if width.hidden <= NARROW else "wide_rows"
        for num_rows in at:
            present = timed(model, before, num_rows)
            parts = changes(width.name, num_rows, tilings, decodes)
            ends = {way: descend(model, replace(settings, early=early), parts, num_rows) for way, early in WAYS.items()}
            late, early = ends["late"], ends["early"]
            wrong = late.wrong + early.wrong
            if not torch.equal(late.first.logits, early.first.logits):  # the same kernels in the same order
                wrong.append(f"early, {num_rows} rows")
            pays = early.best.milliseconds <= late.best.milliseconds * FASTER
            those = set(getattr(settings.early, rows_field)) - {num_rows} | ({num_rows} if pays else set())
            chosen = early if pays else late
            settings = replace(chosen.settings, early=settings.early._replace(**{rows_field: tuple(sorted(those))}))
            yield {
                "model": width.name,
                "rows": num_rows,
                "before_ms": present.milliseconds,
                **{f"{way}_ms": end.best.milliseconds for way, end in ends.items()},
                "early": pays,
                "taken": chosen.taken,
                "wrong": [f"{width.name}, {one}" for one in wrong],
                "settings": settings,
            }
        del model


def timed(model: RandomModel, settings: Settings, num_rows: int) -> Timed:
    """Time a step with ``settings``."""
    apply(settings)
    return model.time(num_rows)


def relative_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return ‖found - expected‖ / ‖expected‖."""
    return ((found.float() - expected.float()).norm() / expected.float().norm()).item()
