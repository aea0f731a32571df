"""Random weights for a model of which only the configuration exists."""

from collections.abc import Iterable

import torch


def fill_with_random(parameters: Iterable[tuple[str, torch.Tensor]], seed: int) -> None:
    """Draw every parameter in place: the same seed gives the same weights on the same kind of device.

    Matrices have a standard deviation of one over the root of their input width, which keeps activations and logits
    near unit scale; norm weights lie near 1, biases near 0. None is zero, so that no fault hides behind one.
    """
    generators: dict[torch.device, torch.Generator] = {}
    for name, parameter in parameters:
        generator = generators.setdefault(parameter.device, torch.Generator(parameter.device).manual_seed(seed))
        if parameter.dim() > 1:
            parameter.normal_(0.0, parameter.shape[-1] ** -0.5, generator=generator)
        else:
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.02, generator=generator)
