"""Where the parts of a split decode leave their results, and meet. Owns buffers that never move."""

import torch


class SplitWorkspace:
    """Partial results of a split decode, allocated once: graphs keep its address.

    Parts meet as :mod:`legato.kernels.split_workspace` says: each launch finds the counters at zero and leaves them so.
    """

    def __init__(self, rows: int, head_dim: int, device: torch.device) -> None:
        self.rows = rows
        self.partial = torch.empty(rows * head_dim, dtype=torch.float32, device=device)  # [rows, head_dim]
        self.log_sums = torch.empty(rows, dtype=torch.float32, device=device)  # [rows], base 2
        self.counters = torch.zeros(rows, dtype=torch.int32, device=device)  # of each (request, key head) pair
