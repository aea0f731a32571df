"""A borrowed tensor is the same memory, and keeps nobody's."""

import pytest
import torch

from legato.device.borrow import unowned


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool])
def test_an_unowned_tensor_is_the_same_memory_with_the_same_strides(dtype: torch.dtype) -> None:
    whole = torch.arange(24).view(4, 6).to(dtype)
    part = whole[1:, 2:4]
    named = unowned(part)
    assert (named.data_ptr(), named.shape, named.stride(), named.dtype) == (
        part.data_ptr(),
        part.shape,
        part.stride(),
        dtype,
    )
    named.fill_(1)
    assert torch.equal(part, torch.ones(3, 2, dtype=dtype))
    assert torch.equal(whole[0], torch.arange(6).to(dtype)), "nothing beside the part is written"


def test_an_unowned_tensor_does_not_keep_the_memory() -> None:
    tensor = torch.zeros(8)
    storage = tensor.untyped_storage()
    before = torch._C._storage_Use_Count(storage._cdata)
    named = unowned(tensor)
    assert torch._C._storage_Use_Count(storage._cdata) == before
    assert named.untyped_storage()._cdata != storage._cdata


def test_an_empty_tensor_may_be_borrowed() -> None:
    assert unowned(torch.zeros(0, 3)).shape == (0, 3)
