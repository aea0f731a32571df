"""Where the parts of a split decode leave their results. Owns two buffers that never move."""

import torch


class SplitWorkspace:
    """Partial results of a split decode, allocated once: graphs keep its address."""

    def __init__(self, rows: int, head_dim: int, device: torch.device) -> None:
        self.rows = rows
        self.partial = torch.empty(rows * head_dim, dtype=torch.float32, device=device)  # [rows, head_dim]
        self.log_sums = torch.empty(rows, dtype=torch.float32, device=device)  # [rows], base 2
