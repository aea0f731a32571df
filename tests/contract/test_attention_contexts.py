"""Both attention contexts turn, store and attend as a dense float64 computation does, eagerly and replayed."""

from collections.abc import Callable, Iterator

import pytest
import torch
from attention_cases import Case
from dense_oracle import dense_attention

from legato.attention.backends.reference import ReferenceBackend
from legato.attention.protocol import AttentionContext, AttentionMetadata
from legato.device.protocol import Device, DeviceGraph
from legato.graphs.segments import EagerCall, SegmentedCapture
from legato.kernels.rotary import HeadNorm, Rotation
from legato.kvcache.storage import LayerCache
from legato.runner.attention_contexts import BreakingAttention, InlineAttention
from legato.runner.step_shape import StepShape
from legato.runner.step_sizes import StepSizes

NUM_TOKENS, BLOCK_SIZE = 5, 8
ATOL = {"cpu": (torch.float32, 1e-5), "cuda": (torch.bfloat16, 4e-2)}
CASES = {
    "heads of 64": Case(query_lens=(NUM_TOKENS,), seq_lens=(NUM_TOKENS,), num_kv_heads=3, group=3, head_dim=64),
    "heads of 96": Case(query_lens=(NUM_TOKENS,), seq_lens=(NUM_TOKENS,), num_kv_heads=9, group=1, head_dim=96),
    "heads of 128": Case(query_lens=(NUM_TOKENS,), seq_lens=(NUM_TOKENS,), num_kv_heads=8, group=4, head_dim=128),
    "heads of 256": Case(query_lens=(NUM_TOKENS,), seq_lens=(NUM_TOKENS,), num_kv_heads=1, group=2, head_dim=256),
}


@pytest.fixture(autouse=True)
def inference_mode() -> Iterator[None]:
    """As the runner does."""
    with torch.inference_mode():
        yield


class Step:
    """One request's first tokens, at fixed addresses; two padded tokens follow them."""

    def __init__(self, case: Case, device: Device, *, rotary_dim: int, normalised: bool) -> None:
        self.case, self.place = case, device.torch_device
        self.dtype, self.atol = ATOL[device.facts.kind]
        cache_shape = (4, BLOCK_SIZE, case.num_kv_heads, case.head_dim)
        self.cache = LayerCache(key=self.empty(*cache_shape), value=self.empty(*cache_shape))
        self.heads = self.empty(NUM_TOKENS + 2, case.num_heads + 2 * case.num_kv_heads, case.head_dim)
        self.out = self.empty(NUM_TOKENS + 2, case.num_heads * case.head_dim)
        weights = 0.5 + torch.rand(2, case.head_dim, generator=torch.Generator().manual_seed(0)).to(
            self.place, self.dtype
        )
        norm = HeadNorm(query_weight=weights[0], key_weight=weights[1], eps=1e-6) if normalised else None
        angles = torch.arange(NUM_TOKENS + 2)[:, None] * 100.0 ** -torch.linspace(0, 1, rotary_dim // 2)
        cos, sin = angles.cos(), angles.sin()
        table = torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)], dim=1)
        cos, sin = table.to(self.place, self.dtype).split(1, dim=1)
        self.rotation = Rotation(cos=cos, sin=sin, norm=norm)
        self.metadata = AttentionMetadata(
            query_start_loc=torch.tensor([0, NUM_TOKENS], dtype=torch.int32, device=self.place),
            seq_lens=torch.tensor([NUM_TOKENS], dtype=torch.int32, device=self.place),
            block_table=torch.tensor([[2, 1]], dtype=torch.int32, device=self.place),
            slot_mapping=torch.tensor([16, 17, 18, 19, 20, 0, 0], device=self.place),
            num_tokens=NUM_TOKENS + 2,
            num_reqs=1,
            query_len=None,
            max_query_len=NUM_TOKENS,
            key_ints={},
        )
        self.sizes = StepSizes()
        self.own_shape = StepShape(num_tokens=NUM_TOKENS, num_reqs=1, query_len=None, max_query_len=NUM_TOKENS)

    def empty(self, *shape: int) -> torch.Tensor:
        return torch.full(shape, float("nan"), dtype=self.dtype, device=self.place)

    def load(self, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.heads.copy_(torch.randn(self.heads.shape, generator=random))
        for tensor in (self.cache.key, self.cache.value, self.out):
            tensor.fill_(float("nan"))

    def run(self, context: AttentionContext) -> None:
        self.out.copy_(context.attend(self.case.layer, self.heads * 1, self.rotation))

    def check(self) -> None:
        case = self.case
        query, key, value = (
            self.heads[:NUM_TOKENS].cpu().double().split((case.num_heads, case.num_kv_heads, case.num_kv_heads), dim=1)
        )
        norm = self.rotation.norm
        query = self.turned(query, None if norm is None else norm.query_weight)
        key = self.turned(key, None if norm is None else norm.key_weight)
        slots = self.metadata.slot_mapping[:NUM_TOKENS].cpu()
        keys, values = (cache.flatten(0, 1).cpu() for cache in (self.cache.key, self.cache.value))
        torch.testing.assert_close(keys[slots].double(), key, atol=self.atol, rtol=self.atol)
        assert torch.equal(values[slots].double(), value)
        for stored in (keys, values):
            others = torch.ones(len(stored), dtype=torch.bool)
            others[[0, *slots.tolist()]] = False  # slot 0, of the null block, takes what is padding
            assert stored[others].isnan().all()
        expected = dense_attention(query, key, value, scale=case.layer.scale, window=None).flatten(1)
        torch.testing.assert_close(self.out[:NUM_TOKENS].cpu().double(), expected, atol=self.atol, rtol=self.atol)

    def turned(self, heads: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Turn pairs of dimensions as complex numbers."""
        if weight is not None:
            heads = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + 1e-6) * weight.cpu().double()
        cos, sin = (table[:NUM_TOKENS].cpu().double().chunk(2, dim=-1)[1] for table in self.angles)
        half = cos.shape[-1]
        pairs = torch.complex(heads[..., :half], heads[..., half : 2 * half]) * torch.complex(cos, sin)
        return torch.cat([pairs.real, pairs.imag, heads[..., 2 * half :]], dim=-1)

    @property
    def angles(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.rotation.cos, self.rotation.sin


def backend(device: Device, case: Case) -> ReferenceBackend:
    return ReferenceBackend(case.setup(device.facts, ATOL[device.facts.kind][0]))


@pytest.mark.parametrize("normalised", [False, True], ids=["turned", "normalised"])
@pytest.mark.parametrize("share", [1, 2], ids=["all dimensions", "half of them"])
@pytest.mark.parametrize("case", CASES)
def test_an_eager_step_equals_the_dense_oracle(case: str, share: int, normalised: bool, device: Device) -> None:
    step = Step(CASES[case], device, rotary_dim=CASES[case].head_dim // share, normalised=normalised)
    step.load(0)
    step.run(InlineAttention(backend(device, step.case), {0: step.cache}, step.metadata))
    step.check()


def segments_of(step: Step, device: Device) -> tuple[DeviceGraph | EagerCall, ...]:
    capture = SegmentedCapture(device)
    context = BreakingAttention(backend(device, step.case), {0: step.cache}, step.metadata, capture, step.sizes)
    with step.sizes.of(step.own_shape):
        return capture.capture(lambda: step.run(context), whole=False)


def whole_of(step: Step, device: Device) -> tuple[DeviceGraph | EagerCall, ...]:
    context = InlineAttention(backend(device, step.case), {0: step.cache}, step.metadata)
    return SegmentedCapture(device).capture(lambda: step.run(context), whole=True)


@pytest.mark.parametrize("normalised", [False, True], ids=["turned", "normalised"])
@pytest.mark.parametrize("capture", [whole_of, segments_of])
def test_a_replay_on_new_heads_equals_the_dense_oracle(
    capture: Callable[[Step, Device], tuple[DeviceGraph | EagerCall, ...]], normalised: bool, device: Device
) -> None:
    step = Step(CASES["heads of 64"], device, rotary_dim=64, normalised=normalised)
    step.load(0)
    step.run(InlineAttention(backend(device, step.case), {0: step.cache}, step.metadata))  # as before every capture
    parts = capture(step, device)
    for seed in (1, 2):
        step.load(seed)
        with step.sizes.of(step.own_shape):
            for part in parts:
                part.replay()
        device.synchronize()
        step.check()


def test_keys_and_values_are_stored_by_the_segment_before_the_break(device: Device) -> None:
    step = Step(CASES["heads of 64"], device, rotary_dim=64, normalised=False)
    step.load(0)
    step.run(InlineAttention(backend(device, step.case), {0: step.cache}, step.metadata))
    first, eager, _ = segments_of(step, device)
    assert isinstance(eager, EagerCall)
    step.load(1)
    first.replay()
    device.synchronize()
    slots = step.metadata.slot_mapping[:NUM_TOKENS]
    assert torch.equal(step.cache.value.flatten(0, 1)[slots], step.heads[:NUM_TOKENS, -step.case.num_kv_heads :])
