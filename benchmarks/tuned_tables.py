"""What tuning leaves: the source of the kernels' tables, written whole. Owns their form; measures nothing."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from product_list import PRODUCTS

from legato.kernels.linear_tilings import Tiling

Key = TypeVar("Key")
Value = TypeVar("Value")
KERNELS = Path("src/legato/kernels")
PRODUCT_TABLES = {
    "TILINGS": "Of products without a norm before them, whether or not they are added to a residual.",
    "NORM_TILINGS": "Of products behind a norm.",
    "GATED_TILINGS": "Of gated products, all behind a norm: the output width is that of the product, half the weights' "
    "rows.",
}
ProductKey = tuple[int, int, int]
"""(rows rounded up to a power of two, width of the output, width of the input)"""
DecodeKey = tuple[int, int]
"""(width of a head as it is computed, (request, key head) pairs rounded up to a power of two)"""
Decode = tuple[int, int, int, int, bool, bool]
"""(keys of a tile, warps, stages, splits, whether all is asked for at once, whether warps have keys of their own)"""


def products_source(tables: Mapping[str, Mapping[ProductKey, Tiling]], measured_on: str) -> str:
    """Return the module that holds ``tables`` of tilings, by name."""
    lines = [
        '"""Which tiling computes which product of few rows: written by ``benchmarks/tune_kernels.py``.',
        "",
        f"Measured on {measured_on}.",
        "A shape is absent where torch's own operations are as fast, or where nobody has measured.",
        "Keys are (rows rounded up to a power of two, width of the output, width of the input).",
        '"""',
        "",
        "from legato.kernels.linear_tilings import Tiling",
        "",
    ]
    for name, meaning in PRODUCT_TABLES.items():
        lines.append(f"{name}: dict[tuple[int, int, int], Tiling] = {{")
        comment = ""
        for key in sorted(tables[name], key=lambda key: (*_first_use(name, key), key[1:], key[0])):
            if (used := _first_use(name, key)[1]) != comment:
                lines.append(f"    # {used}" if used else "    # others")
                comment = used
            lines.append(f"    {key}: {_tiling_source(tables[name][key])},")
        lines += ["}", f'"""{meaning}"""']
    return "\n".join(lines) + "\n"


def decodes_source(table: Mapping[DecodeKey, Decode], measured_on: str) -> str:
    """Return the module that holds the decodes' ``table``."""
    annotated = "DECODES: dict[tuple[int, int], tuple[int, int, int, int, bool, bool]] = {"
    lines = [
        '"""Tiles and splits of decodes whose shape was measured: written by ``benchmarks/tune_kernels.py``.',
        "",
        f"Measured on {measured_on}." if table else "None has been: all follow the rules.",
        '"""',
        "",
        annotated if table else f"{annotated}}}",
    ]
    if table:
        lines += [*(f"    {key}: {decode}," for key, decode in sorted(table.items())), "}"]
    lines += [
        '"""(width of a head as it is computed, (request, key head) pairs rounded up to a power of two): (keys of a',
        "tile, warps, stages, splits at most, whether all is asked for at once, whether warps have keys of their own).",
        'Of 2-byte elements and at most 16 rows."""',
    ]
    return "\n".join(lines) + "\n"


def with_constants(source: str, constants: Mapping[str, object]) -> str:
    """Return ``source`` with each of ``constants`` set, all of which it assigns at the beginning of a line."""
    lines = source.split("\n")
    for name, value in constants.items():
        (place,) = [index for index, line in enumerate(lines) if line.startswith(f"{name} = ")]
        lines[place] = f"{name} = {value}"
    return "\n".join(lines)


def merged(table: Mapping[Key, Value], measured: Iterable[Key], chosen: Mapping[Key, Value]) -> dict[Key, Value]:
    """Return ``table`` with what was ``chosen`` in the place of all that was ``measured``."""
    gone = set(measured)
    return {key: value for key, value in table.items() if key not in gone} | dict(chosen)


def _first_use(table: str, key: ProductKey) -> tuple[int, str]:
    """Return where the first product of this shape stands in the list of products, and its name."""
    uses = [
        (index, f"{model}: {product.name}")
        for index, (model, product) in enumerate((model, one) for model, those in PRODUCTS.items() for one in those)
        if product.table_name == table and (product.out_size, product.in_size) == key[1:]
    ]
    return min(uses, default=(len(PRODUCTS) * 10, ""))


def _tiling_source(tiling: Tiling) -> str:
    defaults = Tiling._field_defaults
    named = [
        f"{name}={_literal(value)}" for name, value in tiling._asdict().items() if value != defaults.get(name, value)
    ]
    required = [str(value) for name, value in tiling._asdict().items() if name not in defaults]
    return f"Tiling({', '.join([*required, *named])})"


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
