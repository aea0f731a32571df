"""Tensors that name memory without owning it. Owns the one way to make them."""

import torch


def unowned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor at the same address, of the same sizes and strides, that does not keep the memory.

    The allocator may give the memory to others once its owners are gone: whoever reads the result then must know that
    the right values are there.
    """
    steps = zip(tensor.size(), tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    storage = torch._C._construct_storage_from_data_pointer(
        tensor.data_ptr(), tensor.device, extent * tensor.element_size()
    )
    named = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return named.set_(storage, 0, tensor.size(), tensor.stride())
