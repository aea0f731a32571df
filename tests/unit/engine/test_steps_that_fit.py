"""An engine's long steps are as large as its graphs, and give the tokens that they give without graphs."""

from pathlib import Path

from tiny_engine import build, kv_bytes, request, tokens, write_config

OPTIONS = {
    "block_size": 16,
    "max_model_len": 1600,
    "max_num_batched_tokens": 1536,
    "kv_cache_memory_bytes": kv_bytes(num_blocks=400, block_size=16),
    "graph_sizes": (4, 1024, 1536),
}
REQUESTS = [request("short", [5, 6, 7], max_tokens=6), request("long", [1 + i % 90 for i in range(1100)], max_tokens=3)]


def test_a_prompt_that_would_be_padded_by_hundreds_of_tokens_is_cut_to_the_graph_below(tmp_path: Path) -> None:
    folder = write_config(tmp_path, max_position_embeddings=2048)
    core = build(folder, graph_policy="full_and_piecewise", **OPTIONS)
    found = tokens(core, REQUESTS)
    first, second, *_ = core.step_log.recent
    assert (first.mode, first.num_tokens, first.num_tokens_padded) == ("piecewise", 1024, 1024)
    assert second.num_tokens == 1 + 1103 - 1024
    assert found == tokens(build(folder, graph_policy="none", **OPTIONS), REQUESTS)


def test_prompts_that_need_two_steps_are_divided_between_them_and_answered_as_before(tmp_path: Path) -> None:
    folder = write_config(tmp_path, max_position_embeddings=2048)
    prompts = [request(str(first), [1 + (first + i) % 90 for i in range(700)], max_tokens=3) for first in range(3)]
    core = build(folder, graph_policy="full_and_piecewise", **(OPTIONS | {"graph_sizes": (4, 1024, 1088, 1536)}))
    found = tokens(core, prompts)
    assert [record.num_tokens for record in core.step_log.recent][:2] == [1024, 1 + 2100 - 1024]
    assert found == {one.request_id: tokens(core, [one])[one.request_id] for one in prompts}
