"""Which devices there are, and opening one. The CUDA module is imported only where a GPU is asked for."""

import torch

from legato.device.protocol import Device
from legato.device.recording import RecordingDevice
from legato.errors import ConfigError


def open_device(name: str) -> Device:
    """Return the device that ``--device`` names; ``auto`` takes a GPU where there is one.

    Raises ConfigError where there is no such device.
    """
    if name == "cpu":
        return RecordingDevice()
    if torch.accelerator.is_available() and torch.accelerator.current_accelerator() == torch.device("cuda"):
        from legato.device.cuda import CudaDevice

        return CudaDevice()
    if name == "auto":
        return RecordingDevice()
    raise ConfigError(f"there is no {name} device", {"requested": f"--device {name}", "options": "--device cpu"})
