"""The kernel that turns and stores, against its torch reference: in Triton's interpreter, or on a GPU."""

# ruff: noqa: E402 (Triton decides at its import whether kernels are interpreted)
import os

import pytest
import torch

ON_GPU = torch.accelerator.is_available()
if not ON_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="Triton is not installed")
if not ON_GPU and not triton.knobs.runtime.interpret:
    pytest.skip("there is no GPU, and Triton was imported without its interpreter", allow_module_level=True)

from legato.kernels.rotary import HeadNorm, Rotation, rotate_and_store_reference
from legato.kernels.rotary_triton import rotate_and_store

pytestmark = [pytest.mark.gpu] if ON_GPU else []
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
EXACT = {torch.float16, torch.bfloat16} if ON_GPU else {torch.float16}
"""Where all sums and products of the reference round alike; the interpreter rounds bfloat16 toward zero."""
SHAPES = [(4, 2, 64), (9, 3, 64), (32, 8, 128), (5, 5, 96), (17, 1, 256), (2, 1, 16)]
"""Query heads, key heads, head size."""


class Step:
    """Heads, angles, weights and caches of some tokens; slots lie scattered."""

    def __init__(
        self, shape: tuple[int, int, int], dtype: torch.dtype, *, num_tokens: int = 3, rotary_dim: int | None = None
    ) -> None:
        torch.manual_seed(0)
        self.num_heads, self.num_kv_heads, head_dim = shape
        self.dtype = dtype
        self.heads = self.draw(num_tokens, self.num_heads + 2 * self.num_kv_heads, head_dim) * 3
        half = torch.randn(num_tokens, 1, (rotary_dim or head_dim) // 2)
        cos, sin = half.cos(), half.sin()
        table = torch.cat([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1).to(DEVICE, dtype)
        self.cos, self.sin = table.split(1, dim=1)  # views of one tensor, as a model looks them up
        self.norm = HeadNorm(query_weight=self.draw(head_dim), key_weight=self.draw(head_dim), eps=1e-6)
        self.caches = self.draw(2, 3, 16, self.num_kv_heads, head_dim)
        self.slots = (torch.randperm(47) + 1)[:num_tokens].to(DEVICE)

    def draw(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(DEVICE, self.dtype)

    def check(self, *, normalised: bool) -> None:
        rotation = Rotation(cos=self.cos, sin=self.sin, norm=self.norm if normalised else None)
        kept, expected, found = self.heads.clone(), self.caches.clone(), self.caches.clone()
        expected_query = rotate_and_store_reference(self.heads, rotation, *expected, self.slots)
        query = rotate_and_store(self.heads, rotation, *found, self.slots)
        assert torch.equal(self.heads, kept)
        assert query.is_contiguous()
        assert torch.equal(found[1], expected[1])
        untouched = torch.ones(48, dtype=torch.bool)
        untouched[self.slots] = False
        assert torch.equal(found[0].flatten(0, 1)[untouched], self.caches[0].flatten(0, 1)[untouched])
        for one, other in ((query, expected_query), (found[0], expected[0])):
            self.compare(one, other, exactly=self.dtype in EXACT and not normalised)

    def compare(self, found: torch.Tensor, expected: torch.Tensor, *, exactly: bool) -> None:
        """Equal, or within two roundings of the dtype and of sums in another order."""
        if exactly:
            assert torch.equal(found, expected)
        unit = torch.finfo(self.dtype).eps
        atol = max(2 * unit * expected.float().abs().max().item(), 1e-6)
        torch.testing.assert_close(found.float(), expected.float(), rtol=2 * unit, atol=atol)


@pytest.mark.parametrize("normalised", [False, True], ids=["turned", "normalised"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_queries_turn_and_keys_and_values_land_in_their_slots(
    shape: tuple[int, int, int], dtype: torch.dtype, normalised: bool
) -> None:
    Step(shape, dtype).check(normalised=normalised)


@pytest.mark.parametrize("normalised", [False, True], ids=["turned", "normalised"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 32), (96, 40), (256, 64)])
def test_dimensions_beyond_the_rotary_ones_go_with_them_unturned(
    head_dim: int, rotary_dim: int, dtype: torch.dtype, normalised: bool
) -> None:
    Step((5, 2, head_dim), dtype, rotary_dim=rotary_dim).check(normalised=normalised)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_key_is_stored_as_a_query_of_its_values_is_turned(dtype: torch.dtype) -> None:
    step = Step((2, 2, 64), dtype)
    step.heads[:, 2:4] = step.heads[:, :2]
    rotation = Rotation(cos=step.cos, sin=step.sin)
    query = rotate_and_store(step.heads, rotation, *step.caches, step.slots)
    assert torch.equal(step.caches[0].flatten(0, 1)[step.slots], query)


def test_tokens_may_lie_apart() -> None:
    step = Step((4, 2, 64), torch.float16)
    wide = torch.zeros(3, 11, 64, dtype=torch.float16, device=DEVICE)
    wide[:, :8] = step.heads
    step.heads = wide[:, :8]
    step.check(normalised=False)


def test_a_step_without_tokens_launches_nothing() -> None:
    step = Step((4, 2, 64), torch.float16, num_tokens=0)
    kept = step.caches.clone()
    query = rotate_and_store(step.heads, Rotation(cos=step.cos, sin=step.sin), *step.caches, step.slots)
    assert query.shape == (0, 4, 64)
    assert torch.equal(step.caches, kept)
