"""``--compile`` while an engine is built: what generates code, and the model with it."""

from typing import TYPE_CHECKING

from legato.engine.progress import BuildProgress
from legato.engine.resolve import Resolved
from legato.errors import ConfigError
from legato.models.causal_lm import CausalLM
from legato.runner.step_program import CausalModel

if TYPE_CHECKING:
    from legato.compilation.compiled_model import PieceCompiler


def piece_compiler(resolved: Resolved) -> "PieceCompiler | None":
    """Return what generates code between attention calls; None: nothing does.

    Raises ConfigError, before a weight is read, for an unknown one or one that this machine lacks the tools for.
    """
    name = resolved.config.compile
    if name == "none":
        return None
    if name != "inductor":
        raise ConfigError("unknown value of --compile", {"requested": name, "options": "none | inductor"})
    from legato.compilation.inductor import check_inductor, inductor

    check_inductor(resolved.device.facts.kind)
    return inductor


def compiled(
    resolved: Resolved, model: CausalModel, compiler: "PieceCompiler | None", show: BuildProgress
) -> CausalModel:
    """Return ``model`` with generated code between its attention calls, or as it is where it has that or needs none."""
    if compiler is None or not isinstance(model, CausalLM):
        return model
    from legato.compilation.compiled_model import compile_model  # PyTorch's tracer takes seconds to import

    with show.counting(f"compiling the model with {resolved.config.compile}") as progress:
        result = compile_model(
            model,
            resolved.device.torch_device,
            compiler,
            max_num_tokens=resolved.config.scheduler.max_num_batched_tokens,
            progress=progress,
        )
    show.compiled(str(result.report))
    return result
