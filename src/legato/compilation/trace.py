"""A model -> the graph of its forward pass. Owns the one call of torch.compile, and what a model may not do in it.

The graph is taken once, for every number of tokens, and is Legato's own from then on: no guard is evaluated in a step.
What a guard would have to watch is refused here.
"""

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch import fx
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, ShapeEnv, free_unbacked_symbols

from legato.compilation.attend_operation import TracedAttention
from legato.compilation.traced_forms import substitute_traced_forms
from legato.errors import ModelError
from legato.models.causal_lm import CausalLM

_EXAMPLE_TOKENS = 16
"""Tokens of the trace: a hint to the compiler, no limit."""
_FEWEST_TOKENS = 3
"""A size that has one value alone is none that varies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedForward:
    """A forward pass as a graph, with what it was traced over."""

    graph: fx.GraphModule
    inputs: tuple[Any, ...]
    """In the order of the graph's placeholders: parameters and tables, ids, positions, and their length."""
    input_ids: torch.Tensor
    positions: torch.Tensor

    @property
    def placeholders(self) -> list[fx.Node]:
        """The graph's inputs."""
        return list(self.graph.graph.find_nodes(op="placeholder"))

    @property
    def result(self) -> fx.Node:
        """The hidden states."""
        (results,) = self.graph.graph.output_node().args
        assert isinstance(results, (tuple, list)) and isinstance(results[0], fx.Node)
        return results[0]


def trace(model: CausalLM, device: torch.device, max_num_tokens: int) -> TracedForward:
    """Return the graph of ``model``'s forward pass, for 1 to ``max_num_tokens`` tokens.

    Raises ModelError, naming the place in the model, where the pass is not one graph for all of these.
    """
    substitute_traced_forms()
    most = max(max_num_tokens, _FEWEST_TOKENS)
    num_tokens = min(_EXAMPLE_TOKENS, most - 1)
    input_ids = torch.zeros(num_tokens, dtype=torch.int64, device=device)
    positions = torch.arange(num_tokens, dtype=torch.int64, device=device)
    for tensor in (input_ids, positions):
        torch._dynamo.mark_dynamic(tensor, 0, min=2, max=most)
    keeper = _Keeper()
    try:
        torch.compile(_forward_of(model), backend=keeper, fullgraph=True)(input_ids, positions)
    except _Traced:
        return TracedForward(graph=keeper.graph, inputs=keeper.inputs, input_ids=input_ids, positions=positions)
    except (torch._dynamo.exc.TorchDynamoException, ConstraintViolationError) as error:
        raise _untraceable(model, error) from error
    raise ModelError("this model cannot be compiled: it computes nothing", {"found": type(model).__name__})


class _Traced(Exception):
    """The graph has been taken; there is nothing to compute."""


class _Keeper:
    """The backend that torch.compile is given: keeps the graph and the inputs of its first call."""

    graph: fx.GraphModule
    inputs: tuple[Any, ...]

    def __call__(self, graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graph = graph
        fake_mode = torch._guards.TracingContext.get().fake_mode
        assert fake_mode is not None and fake_mode.shape_env is not None
        _refuse_host_reads(graph)
        _refuse_conditions(fake_mode.shape_env)
        return self._keep

    def _keep(self, *inputs: Any) -> Any:
        self.inputs = inputs
        raise _Traced


def _refuse_host_reads(graph: fx.GraphModule) -> None:
    """Raise where the host would wait for a value, or a shape would depend on one."""
    for node in graph.graph.nodes:
        if free_unbacked_symbols(node.meta.get("example_value")):
            lines = [line.strip() for line in (node.stack_trace or "").splitlines() if "File" in line]
            raise ModelError(
                "this model cannot be compiled: the host reads what the device computes",
                {"found": node.format_node(), "place": lines[-1] if lines else node.name, "options": "--compile none"},
            )


def _refuse_conditions(shapes: ShapeEnv) -> None:
    """Raise where the graph holds for some numbers of tokens only."""
    for guard in shapes.guards:
        if guard.expr.is_Equality and all(side.is_Symbol for side in guard.expr.args):
            continue  # that ids and positions are equally long
        is_fixed = any(shapes.replace(symbol).is_number for symbol in guard.expr.free_symbols)
        if is_fixed or shapes.simplify(guard.expr) != True:  # noqa: E712  # an expression, no bool
            raise ModelError(
                "this model cannot be compiled: what it computes depends on the number of tokens",
                {
                    "found": guard.expr,
                    "place": guard.sloc.maybe_user_loc or guard.sloc.framework_loc,
                    "options": "--compile none",
                },
            )


def _forward_of(model: CausalLM) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the forward pass as a function of its own.

    PyTorch keeps what it traced, and counts how often, on the code object: a copy, which goes when the trace is done.
    """
    context = TracedAttention()

    def forward(input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        torch._check(input_ids.shape[0] == positions.shape[0])  # one size for both, in the whole graph
        hidden: torch.Tensor = model(input_ids, positions, context)
        return hidden

    return types.FunctionType(forward.__code__.replace(), globals(), "forward", None, forward.__closure__)


def _untraceable(model: CausalLM, error: Exception) -> ModelError:
    if isinstance(error, torch._dynamo.exc.BackendCompilerFailed) and isinstance(error.inner_exception, ModelError):
        return error.inner_exception
    lines = str(error).strip().splitlines()
    stack = getattr(error, "real_stack", None) or ()
    place = f"{stack[-1].filename}:{stack[-1].lineno} in {stack[-1].name}" if stack else type(model).__name__
    return ModelError(
        "this model cannot be compiled: its forward pass is not one graph",
        {"found": lines[0] if lines else type(error).__name__, "place": place, "options": "--compile none"},
    )
