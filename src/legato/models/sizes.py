"""How much memory a module's tensors take, whether they exist or not."""

from torch import nn


def module_bytes(module: nn.Module) -> int:
    """Return the bytes of parameters and tables, each counted once."""
    tensors = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())
