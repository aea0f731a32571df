"""What a token's noise depends on beside seed and position: a scattered number of its id.

A generator object would make a token depend on the order in which rows are drawn; a counter-based hash does not, and
:mod:`legato.kernels.log_exponential` is one. So the same seed gives the same text whatever else is in the batch, on
whichever row, and inside a graph, which freezes a generator's host state but not a tensor.
"""

import torch

from legato.kernels.splitmix import signed
from legato.sampling.seeds import mix_seed


def token_hashes(vocab_size: int, device: torch.device) -> torch.Tensor:
    """Return a scattered number for each token id.  # [vocab] int32"""
    numbers = [signed(mix_seed(token_id) & 0xFFFFFFFF, 32) for token_id in range(vocab_size)]
    return torch.tensor(numbers, dtype=torch.int32, device=device)
