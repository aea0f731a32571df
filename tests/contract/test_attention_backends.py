"""Every registered attention backend equals a dense float64 computation, eagerly and replayed, padding or not."""

from collections.abc import Callable, Iterator

import pytest
import torch
from attention_cases import Case, Problem

from legato.attention.planning import PlanningBackend, PreparedBatch
from legato.attention.protocol import AttentionBackend
from legato.attention.registry import ALIASES, BACKENDS, backends_named, load_backend
from legato.attention.setup import AttentionSetup
from legato.device.protocol import Device
from legato.errors import BackendError
from legato.kvcache.spec import KVSpec, MLASpec, RecurrentSpec

NAMES = (*BACKENDS, "torch_sdpa+reference", "triton+flash_attn_3", "flashinfer+triton")
"""All that are registered, and some pairs of them."""
DECODE = Case(query_lens=(1, 1, 1, 1), seq_lens=(1, 7, 33, 64), uniform=True)
MIXED = Case(query_lens=(1, 9, 1, 30, 4), seq_lens=(50, 9, 1, 45, 36))
CASES: dict[str, Case] = {
    "prefill": Case(query_lens=(5, 17, 1), seq_lens=(5, 17, 1)),
    "chunked prefill": Case(query_lens=(8, 3, 16), seq_lens=(40, 20, 33)),
    "decode": DECODE,
    "mixed": MIXED,
    "one request": Case(query_lens=(1,), seq_lens=(20,), uniform=True, num_padded=0),
    "more padding than requests": Case(query_lens=(1, 1), seq_lens=(3, 18), uniform=True, num_padded=6),
    "a thousand tokens": Case(query_lens=(1, 1), seq_lens=(1000, 513), uniform=True),
    "a chunk after a thousand tokens": Case(query_lens=(24, 1), seq_lens=(1024, 700), group=1),
}
CASES |= {
    f"uniform width {width}": Case(query_lens=(width,) * 3, seq_lens=(width, 30, 41), uniform=True)
    for width in range(2, 9)
}
for group in range(1, 9):
    CASES[f"group of {group}, decode"] = Case(
        query_lens=(1, 1), seq_lens=(19, 40), uniform=True, group=group, num_kv_heads=2
    )
    CASES[f"group of {group}, mixed"] = Case(query_lens=(1, 12), seq_lens=(25, 20), group=group, num_kv_heads=1)
for head_dim in (64, 96, 128, 256):
    CASES[f"head size {head_dim}, decode"] = Case(query_lens=(1, 1), seq_lens=(19, 40), uniform=True, head_dim=head_dim)
    CASES[f"head size {head_dim}, mixed"] = Case(query_lens=(1, 12), seq_lens=(25, 20), head_dim=head_dim)
for block_size in (8, 16, 32, 64, 128, 256):
    CASES[f"block size {block_size}, decode"] = Case(
        query_lens=(1, 1, 1), seq_lens=(block_size, block_size + 1, 70), uniform=True, block_size=block_size
    )
    CASES[f"block size {block_size}, mixed"] = Case(
        query_lens=(block_size, 1, 3), seq_lens=(block_size, 3 * block_size, 50), block_size=block_size
    )
for head_dim, group, width in ((128, 4, 4), (64, 8, 8), (256, 1, 2)):
    CASES[f"uniform width {width}, group of {group}, head size {head_dim}"] = Case(
        query_lens=(width,) * 3, seq_lens=(width, 150, 41), uniform=True, group=group, head_dim=head_dim
    )
for window in (1, 4, 16, 100):
    CASES[f"window {window}, decode"] = Case(query_lens=(1, 1, 1), seq_lens=(2, 40, 120), uniform=True, window=window)
    CASES[f"window {window}, mixed"] = Case(query_lens=(20, 1, 7), seq_lens=(20, 33, 110), window=window)
    CASES[f"window {window}, uniform width 3"] = Case(query_lens=(3, 3), seq_lens=(3, 40), uniform=True, window=window)
_WIDE = {"seq_lens": (32_768, 20_001), "num_kv_heads": 2, "group": 4, "head_dim": 128}
LONG = {
    "decode": Case(query_lens=(1, 1), uniform=True, **_WIDE),
    "uniform width 4": Case(query_lens=(4, 4), uniform=True, **_WIDE),
    "mixed": Case(query_lens=(40, 1), **_WIDE),
}
_MANY = {"num_kv_heads": 8, "group": 4, "head_dim": 128}
REPEATED = {
    "many short requests": Case(query_lens=(3, 2) * 127, seq_lens=(20, 35) * 127, **_MANY),
    "chunks": Case(query_lens=(90, 40, 1), seq_lens=(90, 200, 150), **_MANY),
    "decode": Case(query_lens=(1,) * 64, seq_lens=(20, 200) * 32, uniform=True, **_MANY),
}
NUM_REPEATS = {"cpu": 1, "cuda": 100}
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
DTYPES = {"cpu": torch.float32, "cuda": torch.bfloat16}
"""The type that each kind of device is checked with most."""


Check = Callable[[str, Case, Device, torch.dtype], None]


@pytest.fixture(autouse=True)
def inference_mode() -> Iterator[None]:
    """As the runner does."""
    with torch.inference_mode():
        yield


def backend_for(name: str, case: Case, device: Device, dtype: torch.dtype) -> AttentionBackend:
    """Build a backend for a case, or skip with its own reason."""
    setup = case.setup(device.facts, dtype)
    backend = load_backend(name)
    try:
        backend.support(setup, case.spec)
    except BackendError as error:
        pytest.skip(f"{name} on {device.facts.kind}: {error.summary}")
    return backend(setup)


def prepare(backend: AttentionBackend, case: Case) -> None:
    """Announce a case, as the runner does before a step, to a backend that plans on the host."""
    if isinstance(backend, PlanningBackend) and backend.plans(case.width):
        backend.prepare(
            PreparedBatch(
                num_reqs=case.num_reqs, query_len=case.width, query_lens=case.query_lens, seq_lens=case.seq_lens
            )
        )


def attend(backend: AttentionBackend, problem: Problem) -> None:
    backend.forward(problem.case.layer, problem.query, problem.cache, problem.metadata, problem.out)


def check_eagerly(name: str, case: Case, device: Device, dtype: torch.dtype) -> None:
    backend = backend_for(name, case, device, dtype)
    problem = Problem(case, dtype, device.torch_device)
    for seed, data in enumerate((case, case.rotated())):
        problem.load(data, seed)
        attend(backend, problem)
        problem.check(TOLERANCE[dtype])
        problem.out.fill_(float("nan"))
        prepare(backend, data)
        attend(backend, problem)
        problem.check(TOLERANCE[dtype])


def check_replayed(name: str, case: Case, device: Device, dtype: torch.dtype) -> None:
    backend = backend_for(name, case, device, dtype)
    level = backend.support(case.setup(device.facts, dtype), case.spec).level
    if level < case.needed_level:
        pytest.skip(f"{name} on {device.facts.kind}: {level.name} does not capture such a batch")
    problem = Problem(case, dtype, device.torch_device)
    problem.load(case, 0)
    prepare(backend, case)
    attend(backend, problem)
    device.synchronize()
    prepare(backend, case)
    capture = device.begin_capture()
    try:
        attend(backend, problem)
    except BaseException:
        capture.abandon()
        raise
    graph = capture.end()
    for seed, data in enumerate((case.rotated(), case, case.rotated().rotated()), start=1):
        problem.load(data, seed)
        prepare(backend, data)
        graph.replay()
        device.synchronize()
        problem.check(TOLERANCE[dtype])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_an_eager_call_equals_the_dense_oracle(name: str, case: str, device: Device) -> None:
    check_eagerly(name, CASES[case], device, DTYPES[device.facts.kind])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_replay_on_new_data_equals_the_dense_oracle(name: str, case: str, device: Device) -> None:
    check_replayed(name, CASES[case], device, DTYPES[device.facts.kind])


@pytest.mark.parametrize("case", ["prefill", "decode", "mixed", "window 4, mixed", "uniform width 4"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_other_data_types_equal_the_dense_oracle_too(name: str, dtype: torch.dtype, case: str, device: Device) -> None:
    check_eagerly(name, CASES[case], device, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("check", [check_eagerly, check_replayed])
@pytest.mark.parametrize("name", NAMES)
def test_very_long_sequences_equal_the_dense_oracle(name: str, check: Check, case: str, device: Device) -> None:
    if device.facts.kind == "cpu":
        pytest.skip("long sequences are for GPUs")
    check(name, LONG[case], device, torch.bfloat16)


@pytest.mark.parametrize("case", REPEATED)
@pytest.mark.parametrize("name", NAMES)
def test_the_same_batch_gives_the_same_bits_each_time(name: str, case: str, device: Device) -> None:
    """A canary holds a replay to an eager step: a kernel that races with itself makes it fail now and then."""
    backend = backend_for(name, REPEATED[case], device, DTYPES[device.facts.kind])
    problem = Problem(REPEATED[case], DTYPES[device.facts.kind], device.torch_device)
    problem.load(REPEATED[case], 0)
    attend(backend, problem)
    first = problem.out.clone()
    num_real = sum(REPEATED[case].query_lens)
    for _ in range(NUM_REPEATS[device.facts.kind]):
        problem.out.fill_(float("nan"))
        attend(backend, problem)
        assert torch.equal(problem.out[:num_real], first[:num_real])


@pytest.mark.parametrize("case", ["mixed", "decode"])
@pytest.mark.parametrize("name", NAMES)
def test_the_cache_is_read_and_never_written(name: str, case: str, device: Device) -> None:
    dtype = DTYPES[device.facts.kind]
    backend = backend_for(name, CASES[case], device, dtype)
    problem = Problem(CASES[case], dtype, device.torch_device)
    problem.load(CASES[case], 3)
    before = problem.cache.key.clone(), problem.cache.value.clone()
    attend(backend, problem)
    for cache, old in zip((problem.cache.key, problem.cache.value), before, strict=True):
        assert torch.equal(cache.nan_to_num(7.0), old.nan_to_num(7.0))


def supporting_setup(name: str, device: Device) -> AttentionSetup:
    dtype = DTYPES[device.facts.kind]
    backend_for(name, DECODE, device, dtype)
    return DECODE.setup(device.facts, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_support_is_a_value_with_a_reason(name: str, device: Device) -> None:
    setup = supporting_setup(name, device)
    first, second = (load_backend(name).support(setup, DECODE.spec) for _ in range(2))
    assert first == second
    assert first.reason


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spec", [MLASpec(latent_dim=8, rope_dim=4), RecurrentSpec(state_elements=8)], ids=str)
def test_a_cache_that_a_backend_cannot_read_is_refused_with_a_reason(name: str, spec: KVSpec, device: Device) -> None:
    with pytest.raises(BackendError) as caught:
        load_backend(name).support(DECODE.setup(device.facts, DTYPES[device.facts.kind]), spec)
    assert caught.value.details


@pytest.mark.parametrize("name", NAMES)
def test_key_ints_are_named_host_integers(name: str, device: Device) -> None:
    setup = supporting_setup(name, device)
    for num_reqs, query_len, max_seq_len in [(1, 1, 1), (4, 1, 64), (3, 4, 50), (2, None, 64)]:
        ints = load_backend(name).key_ints(setup, num_reqs=num_reqs, query_len=query_len, max_seq_len=max_seq_len)
        assert isinstance(ints, tuple)
        assert all(isinstance(key, str) and type(value) is int for key, value in ints)


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_bears_the_name_it_is_registered_under(name: str) -> None:
    assert load_backend(name).name == name


def test_every_name_stands_for_registered_backends_in_upper_and_lower_case() -> None:
    names = {name: (name,) for name in BACKENDS} | ALIASES | {"auto": tuple(BACKENDS)}
    for name, backends in names.items():
        assert backends_named(name) == backends_named(name.upper()) == backends
        assert set(backends) <= set(BACKENDS)
    assert not set(ALIASES) & set(BACKENDS)


def test_an_unknown_backend_is_an_error_that_lists_the_known_names() -> None:
    with pytest.raises(BackendError) as caught:
        backends_named("unheard of")
    assert all(name in str(caught.value) for name in [*BACKENDS, *ALIASES])
