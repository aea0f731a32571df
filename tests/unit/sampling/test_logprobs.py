"""Log-probabilities equal numpy's, with ranks and the best tokens."""

import numpy as np
import pytest
import torch

from legato.sampling.logprobs import gather_logprobs, token_logprobs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("top_n", [0, 1, 5])
def test_logprobs_ranks_and_best_tokens_are_those_of_the_definition(dtype: torch.dtype, top_n: int) -> None:
    logits = (torch.randn(6, 40, generator=torch.Generator().manual_seed(3)) * 4).to(dtype)
    chosen_ids = torch.tensor([0, 5, 39, 7, 7, 20])
    chosen, rank, top_ids, top_logprobs = gather_logprobs(logits, chosen_ids, top_n)
    exact = logits.double().numpy()
    exact = exact - np.log(np.exp(exact).sum(axis=1, keepdims=True))
    own = exact[np.arange(6), chosen_ids.numpy()]
    best = np.sort(exact, axis=1)[:, ::-1][:, :top_n]
    np.testing.assert_allclose(chosen.numpy(), own, atol=1e-5)
    np.testing.assert_array_equal(rank.numpy(), (exact > own[:, None]).sum(axis=1) + 1)
    np.testing.assert_allclose(top_logprobs.numpy(), best, atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(exact, top_ids.numpy(), axis=1), best, atol=1e-5)


def test_each_request_gets_as_many_best_tokens_as_it_asked_for() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0], [5.0, 0.0, 1.0, 2.0]])
    token_ids = torch.tensor([3, 0])
    first, second = token_logprobs(token_ids, gather_logprobs(logits, token_ids, 2), (2, 0))
    assert (first.token_id, first.rank, first.top_ids) == (3, 2, (1, 3))
    assert first.top_logprobs[1] == first.logprob
    assert (second.token_id, second.rank, second.top_ids, second.top_logprobs) == (0, 1, (), ())
