"""What a round launches beside the products and the attention of its layers: each is a node of its graph."""

import json
from collections import Counter
from pathlib import Path

import pytest
import tiny_engine
from launch_count import launches_of
from tiny_heads import TARGET, eagle3_config, eagle3_tensors, write_head

from legato.graphs.modes import SamplerVariant
from legato.runner.step_shape import StepShape

LAYERS = {"linear", "add_linear", "gated_linear", "rotate_and_store", "legato::paged_sdpa"}
PARTS = ("_requests", "_target", "_logits", "_accept", "_extend", "_propose", "_advance", "draft", "_hidden", "_sample")


def launches(folder: Path, num_reqs: int, num_drafts: int, **changes: object) -> dict[str, Counter[str]]:
    """Return what each part of a greedy step launches beside its layers."""
    core = tiny_engine.build(folder, graph_policy="none", kv_cache_memory_bytes=4_000_000, **changes)
    width = 1 + num_drafts
    shape = StepShape(
        num_tokens=num_reqs * width, num_reqs=num_reqs, query_len=width, max_query_len=width, num_drafts=num_drafts
    )
    counted = launches_of(lambda: core.runner.program.whole(shape, SamplerVariant.GREEDY), PARTS)
    parts: dict[str, Counter[str]] = {}
    for (part, name), count in counted.items():
        if name not in LAYERS:
            parts.setdefault(part, Counter())[name] = count
    return parts


def test_a_plain_step_reads_its_inputs_and_writes_the_next_ones_in_one_launch_each(tmp_path: Path) -> None:
    assert launches(tiny_engine.write_config(tmp_path), 4, 0) == {
        "_requests": {"uniform_inputs": 1},
        "_hidden": {"token_lookups": 1, "rms_norm": 1},
        "_sample": {"argmax": 1, "advance": 1},
    }


@pytest.mark.parametrize("synthetic", [False, True])
@pytest.mark.parametrize("num_reqs", [1, 4])
def test_each_border_of_a_round_is_one_launch(num_reqs: int, synthetic: bool, tmp_path: Path) -> None:
    head = write_head(tmp_path / "head", eagle3_config(), eagle3_tensors())
    decided = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.8} if synthetic else {}
    typed = json.dumps({"method": "eagle3", "model": str(head), "num_speculative_tokens": 3, **decided})
    target = tiny_engine.write_config(tmp_path / "target", **TARGET)
    found = launches(target, num_reqs, 3, speculative_config=typed)
    # Several requests' new tokens do not lie side by side among the results.
    gathered = {"aten::clone": 1} if num_reqs > 1 else {}
    assert found == {
        "_requests": {"uniform_inputs": 1},
        "_target": {"token_lookups": 1, "aten::copy_": 3, "rms_norm": 1},
        "_accept": {"argmax": 1, "accept": 1},
        "_extend": {"head_inputs": 1, **gathered},
        "_propose": {"draft_inputs": 1, "advance": 1},
        "draft": {"argmax": 3},
        "_advance": {"head_inputs": 2},
    }


def test_prompt_lookup_is_one_launch(tmp_path: Path) -> None:
    typed = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    found = launches(tiny_engine.write_config(tmp_path), 4, 3, speculative_config=typed)
    assert found["_propose"] == {"draft_inputs": 1, "look_up": 1, "advance": 1}
