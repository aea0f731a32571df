"""The variants that graphs hold can be captured once and replayed with other rows, positions, logits and parameters."""

import pytest
import torch
from sampling_cases import request_of, state_of

from legato.device.recording import RecordingDevice
from legato.graphs.modes import SamplerVariant
from legato.sampling.sampler import sample

VOCAB = 50


@pytest.mark.parametrize("variant", [SamplerVariant.GREEDY, SamplerVariant.TEMPERATURE, SamplerVariant.FILTERED])
def test_a_replay_gives_the_tokens_of_an_eager_call(variant: SamplerVariant) -> None:
    generator = torch.Generator().manual_seed(0)
    state = state_of(*(request_of(seed=seed, top_k=20) for seed in range(4)), vocab_size=VOCAB)
    logits, rows = torch.zeros(3, VOCAB), torch.zeros(3, dtype=torch.int64)
    positions, tokens = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    capture = RecordingDevice().begin_capture()
    tokens.copy_(sample(logits, rows, positions, state, variant))
    graph = capture.end()
    for step in range(30):
        state.admit(step % 4, request_of(seed=100 + step, temperature=0.5 + step / 10, top_p=0.9))
        logits.copy_(torch.randn(3, VOCAB, generator=generator) * 2)
        rows.copy_(torch.randint(0, 5, (3,), generator=generator))
        positions.copy_(torch.randint(0, 99, (3,), generator=generator))
        graph.replay()
        assert tokens.tolist() == sample(logits, rows, positions, state, variant).tolist()
