"""Host memory that a device copies from and to while the host goes on. Owns how such copies are made.

On a GPU the memory is page-locked, without which a copy makes the host wait. The allocator of page-locked memory keeps
what a copy still needs, so that an array may be dropped as soon as its copy is under way.
"""

import numpy as np
import torch


def host_buffer(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a host tensor [size] that ``device`` can copy from without the host waiting."""
    return torch.empty(size, dtype=dtype, pin_memory=device.type != "cpu")


def on_host(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return ``values`` as a host tensor that ``device`` can copy from without the host waiting.

    ``values`` belong to the tensor afterwards: for the CPU it is the same memory.
    """
    host = torch.from_numpy(values)
    return host if device.type == "cpu" else host.pin_memory()


def upload(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return ``values`` as a new tensor on ``device``; the copy is under way when this returns.

    ``values`` belong to the tensor afterwards: on the CPU it is the same memory.
    """
    return on_host(values, device).to(device, non_blocking=True)


def download(tensor: torch.Tensor) -> torch.Tensor:
    """Return a host copy of a device tensor, which holds its values once an event recorded after this has passed."""
    # On the CPU a copy too: the tensor is a buffer that the next step overwrites.
    return tensor.clone() if tensor.device.type == "cpu" else tensor.to("cpu", non_blocking=True)
