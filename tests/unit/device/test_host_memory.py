"""Copies between host and device that nobody waits for, and the check that nobody does."""

import numpy as np
import pytest
import torch

from legato.device.host_memory import download, host_buffer, upload
from legato.device.protocol import Device
from legato.errors import GraphCaptureError


@pytest.fixture(autouse=True)
def inference_mode():
    with torch.inference_mode():
        yield


def test_values_go_to_the_device_and_come_back(device: Device) -> None:
    values = np.array([[3, 1], [4, 1]])
    with device.forbid_waiting():
        tensor = upload(values.copy(), device.torch_device)
        host = download(tensor * 2)
        copied = device.record_event()
    copied.wait()
    assert tensor.device.type == device.facts.kind
    assert host.device.type == "cpu"
    assert host.tolist() == (values * 2).tolist()


def test_a_download_keeps_what_the_tensor_held_when_it_is_overwritten_afterwards(device: Device) -> None:
    tensor = torch.zeros(1000, device=device.torch_device)
    host = download(tensor)
    tensor.fill_(7)
    device.synchronize()
    assert not host.any()


def test_an_uploaded_array_may_be_dropped_at_once(device: Device) -> None:
    tensors = [upload(np.full(5000, number), device.torch_device) for number in range(50)]
    device.synchronize()
    assert [tensor.unique().tolist() for tensor in tensors] == [[number] for number in range(50)]


def test_a_host_buffer_is_copied_from_without_waiting(device: Device) -> None:
    buffer = host_buffer(3, torch.int32, device.torch_device).fill_(9)
    tensor = torch.zeros(3, dtype=torch.int32, device=device.torch_device)
    with device.forbid_waiting():
        tensor.copy_(buffer, non_blocking=True)
    device.synchronize()
    assert tensor.tolist() == [9, 9, 9]


@pytest.mark.parametrize(
    "wait",
    [
        lambda tensor: tensor.tolist(),
        lambda tensor: tensor.sum().item(),
        lambda tensor: tensor[tensor > 0],
        lambda tensor: tensor.nonzero(),
        lambda tensor: torch.tensor([1, 2, 3], device=tensor.device),
        lambda tensor: bool(tensor.any()),
    ],
    ids=["tolist", "item", "mask", "nonzero", "host data", "bool"],
)
def test_what_waits_for_the_device_is_refused_where_it_is_forbidden_and_allowed_again_after(device, wait) -> None:
    tensor = torch.ones(3, device=device.torch_device)
    with device.forbid_waiting(), pytest.raises((GraphCaptureError, RuntimeError)):
        wait(tensor)
    wait(tensor)
