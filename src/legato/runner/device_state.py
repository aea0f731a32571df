"""What a running request keeps on the device, by row: its next input, the drafts behind that, length, block table.

A decode step reads its inputs here and writes the next ones back, so that a whole step can be replayed without the
host. The last row is the null row: it never advances, and all its blocks are the null block.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from legato.device.host_memory import upload
from legato.flow.scheduled_batch import BlockAppend
from legato.kernels.row_state import RowState, advance


class DeviceState:
    """``max_num_seqs`` rows and the null row."""

    def __init__(self, max_num_seqs: int, max_blocks: int, device: torch.device, num_drafts: int = 0) -> None:
        """``max_blocks``: of a row's block table; ``num_drafts``: most that a drafter makes for a row."""
        num_rows = max_num_seqs + 1
        self.null_row = max_num_seqs
        self.next_tokens = torch.zeros(num_rows, dtype=torch.int64, device=device)  # [num_rows]
        self.num_computed = torch.zeros(num_rows, dtype=torch.int64, device=device)  # [num_rows]
        self.block_table = torch.zeros(num_rows, max_blocks, dtype=torch.int32, device=device)
        self.drafts = torch.zeros(num_rows, num_drafts, dtype=torch.int64, device=device)

    def reset(self) -> None:
        """Empty all rows, in place."""
        for tensor in self.tensors().values():
            tensor.zero_()

    def admit(self, rows: Sequence[int], num_computed_tokens: Sequence[int]) -> None:
        """Begin a request on each of ``rows``, with so many tokens in the cache already."""
        if not rows:
            return
        places, computed = upload(np.array([rows, num_computed_tokens]), self.num_computed.device).unbind()
        self.num_computed.index_copy_(0, places, computed)
        self.block_table.index_fill_(0, places, 0)

    def append_blocks(self, appends: Iterable[BlockAppend]) -> None:
        """Write new blocks into their rows' tables, all in one operation."""
        cells = [
            (append.row, append.start + index, block)
            for append in appends
            for index, block in enumerate(append.block_ids)
        ]
        if not cells:
            return
        rows, columns, blocks = upload(np.array(cells), self.block_table.device).unbind(1)
        self.block_table.index_put_((rows, columns), blocks.to(torch.int32))

    def commit(
        self, rows: torch.Tensor, seq_lens: torch.Tensor, token_ids: torch.Tensor, drafts: torch.Tensor | None = None
    ) -> None:
        """Advance ``rows`` [num_reqs] to ``seq_lens`` with ``token_ids`` as next inputs; the null row stays.

        ``drafts`` [num_reqs, k] int64: what may follow these.
        """
        advance(rows, seq_lens, token_ids, self.row_state, self.null_row, drafts)

    @property
    def row_state(self) -> RowState:
        """What kernels read and write of all rows."""
        return RowState(**self.tensors())

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the device tensors by name."""
        return {
            "next_tokens": self.next_tokens,
            "num_computed": self.num_computed,
            "block_table": self.block_table,
            "drafts": self.drafts,
        }
