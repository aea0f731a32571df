"""What a log shows of kernels that are compiled: no bar, but a line for each."""

import io

from rich.console import Console

from legato.engine.progress import BuildProgress


def test_a_log_names_each_kernel_before_it_is_compiled() -> None:
    file = io.StringIO()
    with BuildProgress(Console(file=file, width=200)).compiling("flash_attn_2") as tell:
        tell(0, 2, "query_len 1 (the driver compiles it)")
        assert "flash_attn_2 kernels, 1 of 2: query_len 1 (the driver compiles it)" in file.getvalue()
        tell(1, 2, "mixed batches")
    assert "2 of 2: mixed batches" in file.getvalue()
    assert "compiled flash_attn_2" not in file.getvalue(), "it took no time"
