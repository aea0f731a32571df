"""Choosing the attention backend of a model, before anything is built. Owns the choice and its reasons."""

from dataclasses import dataclass

from legato.attention.graph_support import Support
from legato.attention.protocol import AttentionBackend
from legato.attention.registry import backends_named, load_backend
from legato.attention.setup import AttentionSetup
from legato.errors import BackendError
from legato.kvcache.spec import LayerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """One backend for all layer groups, with what it supports and why the better ones were passed over."""

    name: str
    backend: type[AttentionBackend]
    support: Support
    passed_over: tuple[tuple[str, str], ...]
    """(backend, why not)."""


def model_support(backend: type[AttentionBackend], setup: AttentionSetup, groups: tuple[LayerGroup, ...]) -> Support:
    """Return the lowest support over the layer groups, naming the group that sets it."""
    levels = [(group, backend.support(setup, group.spec)) for group in groups]
    group, support = min(levels, key=lambda pair: pair[1].level)
    return Support(level=support.level, reason=f"{support.reason} (layer group {group.name})")


def select_backend(requested: str, setup: AttentionSetup, groups: tuple[LayerGroup, ...]) -> BackendChoice:
    """Return the first backend that serves the model among those that ``requested`` names; ``auto`` names all.

    Raises BackendError: with its own reasons where one backend is named, with the reasons of all where several are.
    """
    names = backends_named(requested)
    refused: list[tuple[str, str]] = []
    for name in names:
        backend = load_backend(name)
        try:
            support = model_support(backend, setup, groups)
        except BackendError as error:
            if len(names) == 1:
                raise
            refused.append((name, "; ".join(map(str, error.details.values()))))
            continue
        return BackendChoice(name=name, backend=backend, support=support, passed_over=tuple(refused))
    which = "attention backend" if requested == "auto" else f"backend of {requested!r}"
    raise BackendError(f"no {which} serves this model on {setup.device}", dict(refused))
