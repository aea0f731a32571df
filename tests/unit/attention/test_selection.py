import pytest

from legato.attention.graph_support import GraphSupport, Support
from legato.attention.registry import ALIASES, BACKENDS, load_backend
from legato.attention.selection import model_support, select_backend
from legato.attention.setup import AttentionSetup
from legato.config.model import ModelConfig, RopeConfig
from legato.device.facts import CPU, DeviceFacts
from legato.errors import BackendError
from legato.kvcache.spec import FullAttentionSpec, KVSpec, LayerGroup, RecurrentSpec, SlidingWindowSpec

FULL = LayerGroup(name="full", layers=(0,), spec=FullAttentionSpec(num_kv_heads=2, head_dim=8))
WINDOW = LayerGroup(name="window_4", layers=(1,), spec=SlidingWindowSpec(num_kv_heads=2, head_dim=8, window=4))
RECURRENT = LayerGroup(name="recurrent", layers=(2,), spec=RecurrentSpec(state_elements=4))
MODEL = ModelConfig(
    architecture="LlamaForCausalLM",
    vocab_size=10,
    hidden_size=32,
    intermediate_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    rope=RopeConfig(),
)


def setup(device: DeviceFacts = CPU) -> AttentionSetup:
    return AttentionSetup(model=MODEL, device=device, dtype="float32", block_size=16, max_model_len=64, max_num_seqs=4)


class UniformOnWindows:
    """Sees less in windowed layers."""

    @classmethod
    def support(cls, setup: AttentionSetup, spec: KVSpec) -> Support:
        windowed = isinstance(spec, SlidingWindowSpec)
        level = GraphSupport.UNIFORM if windowed else GraphSupport.ALWAYS
        return Support(level=level, reason="windows are slow" if windowed else "all is well")


def test_a_model_has_the_lowest_level_of_its_layer_groups_and_the_group_is_named() -> None:
    support = model_support(UniformOnWindows, setup(), (FULL, WINDOW))
    assert support.level is GraphSupport.UNIFORM
    assert support.reason == "windows are slow (layer group window_4)"


def test_auto_takes_the_first_backend_that_serves_and_keeps_the_reasons_against_the_better_ones() -> None:
    choice = select_backend("auto", setup(), (FULL, WINDOW))
    assert choice.name == "torch_sdpa"
    better = list(BACKENDS)[: list(BACKENDS).index("torch_sdpa")]
    assert [name for name, _ in choice.passed_over] == better
    assert all(why for _, why in choice.passed_over)


def test_a_requested_backend_is_taken_or_refused_never_replaced() -> None:
    assert select_backend("reference", setup(), (FULL,)).name == "reference"
    with pytest.raises(BackendError, match="torch_sdpa"):
        select_backend("torch_sdpa", setup(DeviceFacts(kind="cuda", capability=(9, 0), name="a GPU")), (FULL,))


def test_where_no_backend_serves_the_error_names_them_all() -> None:
    with pytest.raises(BackendError) as caught:
        select_backend("auto", setup(), (FULL, RECURRENT))
    assert set(caught.value.details) == set(BACKENDS)


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BackendError, match="auto"):
        select_backend("magic", setup(), (FULL,))


@pytest.mark.parametrize("requested", ["REFERENCE", "TORCH_SDPA"])
def test_names_of_other_engines_find_their_backend(requested: str) -> None:
    assert select_backend(requested, setup(), (FULL,)).name == requested.lower()


def test_a_name_that_stands_for_two_backends_takes_the_first_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALIASES, "plain", ("triton", "reference"))
    choice = select_backend("Plain", setup(), (FULL,))
    assert choice.name == "reference"
    assert [name for name, _ in choice.passed_over] == ["triton"]


def test_a_name_that_stands_for_two_backends_is_refused_with_both_ones_reasons() -> None:
    with pytest.raises(BackendError, match="FLASH_ATTN") as caught:
        select_backend("FLASH_ATTN", setup(), (FULL,))
    assert set(caught.value.details) == {"flash_attn_3", "flash_attn_2"}
    assert all(caught.value.details.values())


def test_the_reference_serves_any_device() -> None:
    gpu = DeviceFacts(kind="cuda", capability=(8, 0), name="a GPU")
    assert load_backend("reference").support(setup(gpu), FULL.spec).level is GraphSupport.ALWAYS
