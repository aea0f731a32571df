"""What tuning changes in the kernels of this process: tables of tilings and of decodes, and how early they start."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tuned_tables import PRODUCT_TABLES, Decode, DecodeKey, ProductKey

from legato.kernels import early_start_triton, linear_measured
from legato.kernels.linear_tilings import Tiling
from legato.kernels.paged_attention_measured import DECODES

Tables = Mapping[str, Mapping[ProductKey, Tiling]]


class Early(NamedTuple):
    """Which steps' kernels start early."""

    narrow_rows: tuple[int, ...]
    """Rows of the narrow models' steps in which they do, rounded up to a power of two."""
    wide_rows: tuple[int, ...]
    """The same of wider models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One way to run all kernels."""

    tables: Tables
    decodes: Mapping[DecodeKey, Decode]
    early: Early


def present_settings() -> Settings:
    """Return what is set now."""
    return Settings(
        tables={name: dict(getattr(linear_measured, name)) for name in PRODUCT_TABLES},
        decodes=dict(DECODES),
        early=present_early(),
    )


def present_early() -> Early:
    """Return how early kernels start now."""
    return Early(early_start_triton.NARROW_ROWS, early_start_triton.WIDE_ROWS)


def set_early(early: Early) -> None:
    """Let kernels start as ``early`` says."""
    early_start_triton.NARROW_ROWS, early_start_triton.WIDE_ROWS = early


def apply(settings: Settings) -> None:
    """Let every launch from now on follow ``settings``."""
    for name, tilings in settings.tables.items():
        table = getattr(linear_measured, name)
        table.clear()
        table.update(tilings)
    DECODES.clear()
    DECODES.update(settings.decodes)
    set_early(settings.early)
