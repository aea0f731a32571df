"""What tuning writes into the sources: read back, it is what was chosen."""

from pathlib import Path

import pytest

from legato.kernels import linear_measured, paged_attention_measured
from legato.kernels.linear_tilings import Tiling

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)


def read(source: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(source, names)
    return names


def test_a_written_table_of_products_is_what_was_given() -> None:
    from tuned_tables import PRODUCT_TABLES, products_source

    tables = {name: dict(getattr(linear_measured, name)) for name in PRODUCT_TABLES}
    tables["GATED_TILINGS"][64, 1536, 576] = Tiling(16, 64, 4, 5, block_rows=64, splits=2, norm="weights")
    tables["TILINGS"][2, 11, 13] = Tiling(16, 64, 4, 5)  # of no product that is tuned
    written = read(products_source(tables, "one GPU"))
    assert {name: written[name] for name in PRODUCT_TABLES} == tables


def test_the_committed_table_of_products_is_as_tuning_writes_it() -> None:
    from tuned_tables import PRODUCT_TABLES, products_source

    tables = {name: getattr(linear_measured, name) for name in PRODUCT_TABLES}
    committed = Path(linear_measured.__file__).read_text()
    measured_on = committed.partition("Measured on ")[2].partition(".\n")[0]
    assert products_source(tables, measured_on) == committed


@pytest.mark.parametrize("table", [{}, {(64, 256): (64, 4, 5, 2, True, True), (64, 4): (32, 2, 4, 16, True, False)}])
def test_a_written_table_of_decodes_is_what_was_given(
    table: dict[tuple[int, int], tuple[int, int, int, int, bool, bool]],
) -> None:
    from tuned_tables import decodes_source

    assert read(decodes_source(table, "one GPU"))["DECODES"] == table
    assert type(table) is type(paged_attention_measured.DECODES)


def test_what_was_measured_takes_the_place_of_what_was_there() -> None:
    from tuned_tables import merged

    old, new = Tiling(16, 64, 4, 5), Tiling(32, 64, 4, 5)
    table = {(1, 8, 8): old, (2, 8, 8): old, (4, 8, 8): old}
    assert merged(table, [(1, 8, 8), (2, 8, 8)], {(1, 8, 8): new}) == {(1, 8, 8): new, (4, 8, 8): old}


def test_a_constant_is_set_where_it_is_assigned_and_nowhere_else() -> None:
    from tuned_tables import with_constants

    source = 'ROWS = 1\n"""ROWS = 1 is said here."""\nMOST = ROWS\n'
    assert with_constants(source, {"ROWS": 64}) == 'ROWS = 64\n"""ROWS = 1 is said here."""\nMOST = ROWS\n'
    with pytest.raises(ValueError, match="not enough values"):
        with_constants(source, {"OTHER": 1})
