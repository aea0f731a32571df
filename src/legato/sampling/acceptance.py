"""Acceptance of drafts at stated rates, instead of the target's choice: for benchmarks without a trained drafter."""

from collections.abc import Sequence

import torch


class SyntheticAcceptance:
    """Owns the bounds that coins are compared with."""

    def __init__(self, rates: Sequence[float], device: torch.device) -> None:
        """``rates`` [k]: the chance that draft i stands, given that those before it do."""
        self.bounds = torch.zeros(len(rates), dtype=torch.int32, device=device)  # [k]
        self.set_rates(rates)

    @torch.inference_mode()
    def set_rates(self, rates: Sequence[float]) -> None:
        """Accept at other rates [k] from now on; graphs read them where they are."""
        # Random bits are the odd numbers from -2^31 + 1 to -1: all are below 0, none below -2^31.
        self.bounds.copy_(torch.tensor([round((rate - 1.0) * 2**31) for rate in rates]))
