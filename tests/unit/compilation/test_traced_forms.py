"""What the compiler sees computes what the kernel computes, and nothing that a model runs is left out."""

import torch
from compiled_models import CPU, MAX_TOKENS, tiny

from legato.compilation.trace import trace
from legato.compilation.traced_forms import TRACED_FORMS
from legato.kernels import linear as products
from legato.kernels.linear import Norm
from legato.kernels.rms_norm import rms_norm
from legato.kernels.silu_mul import silu_mul
from legato.kernels.token_lookups import token_lookups

torch.manual_seed(0)
ROWS, WEIGHT, BIAS = torch.randn(5, 16), torch.randn(24, 16), torch.randn(24)
NORM = Norm(torch.rand(16) + 0.5, 1e-5)
CASES = {
    products.linear: [((ROWS, WEIGHT), {}), ((ROWS, WEIGHT, BIAS), {"norm": NORM})],
    products.add_linear: [((torch.randn(5, 24), ROWS, WEIGHT), {}), ((torch.randn(5, 24), ROWS, WEIGHT, BIAS), {})],
    products.gated_linear: [((ROWS, WEIGHT), {"norm": NORM}), ((ROWS, WEIGHT, BIAS), {"norm": NORM})],
    silu_mul: [((ROWS,), {})],
    token_lookups: [((torch.tensor([4, 0]), ROWS, torch.tensor([1, 1]), torch.randn(3, 2, 4)), {})],
    rms_norm: [((ROWS, *NORM), {}), ((torch.randn(3, 2, 16), *NORM), {})],
}


def test_each_form_gives_what_its_kernel_gives_and_changes_no_argument() -> None:
    assert CASES.keys() == TRACED_FORMS.keys()
    for kernel, cases in CASES.items():
        for args, kwargs in cases:
            before = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
            given = TRACED_FORMS[kernel](*args, **kwargs)
            for arg, kept in zip(args, before, strict=True):
                assert not isinstance(arg, torch.Tensor) or torch.equal(arg, kept)
            torch.testing.assert_close(given, kernel(*before, **kwargs), atol=1e-5, rtol=1e-5)


def test_a_product_is_written_where_the_caller_wants_it() -> None:
    out = torch.empty(5, 24)
    assert TRACED_FORMS[products.linear](ROWS, WEIGHT, out=out) is out
    torch.testing.assert_close(out, ROWS @ WEIGHT.T)


def test_no_reference_of_ours_is_traced(tmp_path) -> None:
    for family in ("llama", "qwen2", "qwen3"):
        graph = trace(tiny(tmp_path / family, family), CPU, MAX_TOKENS).graph
        code = graph.code
        assert code.count("linear(") == 2 * 4, "four products a layer, whatever stands before or behind them"
        for mark in ("vector_norm", "hypot", "addcdiv", ".mm(", "triton"):
            assert mark not in code
