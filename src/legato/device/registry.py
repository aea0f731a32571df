"""Which devices there are, and opening one."""

from legato.device.protocol import Device
from legato.device.recording import RecordingDevice
from legato.errors import ConfigError


def open_device(name: str) -> Device:
    """Return the device that ``--device`` names; ``auto`` takes the best that this version drives.

    Raises ConfigError for one that it does not.
    """
    if name in ("auto", "cpu"):
        return RecordingDevice()
    raise ConfigError(
        f"device {name} cannot be opened", {"requested": f"--device {name}", "options": "--device cpu"}
    )
