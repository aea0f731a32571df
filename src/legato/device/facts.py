"""What a device is, as a value: decisions about it are made and tested where the device is not."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Kind and, of a GPU, compute capability and size."""

    kind: str
    """``cpu`` or ``cuda``."""
    capability: tuple[int, int] = (0, 0)
    """CUDA compute capability; (0, 0) elsewhere."""
    name: str = "cpu"
    num_multiprocessors: int = 0

    def __str__(self) -> str:
        if self.kind != "cuda":
            return self.kind
        major, minor = self.capability
        return f"{self.name} (sm{major}{minor})"


CPU = DeviceFacts(kind="cpu")
