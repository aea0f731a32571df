"""Whole decode steps of random models in a CUDA graph, by which changes of the kernels' settings are judged.

A kernel that is faster alone may make its neighbours slower: what a step does not gain from is not taken.
"""

# ruff: noqa: TID251 (times are taken with CUDA's own events and graphs, not with the engine's)
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from decode_tuning import MODELS as HEADS
from fused_kernel_checks import WIDTHS, Width, config_of, randomise
from kernel_settings import Early, Settings, Tables, apply
from product_checks import DEVICE
from product_list import PRODUCTS
from product_tuning import ROW_CLASSES
from tuned_tables import Decode, DecodeKey

from legato.attention.backends.triton import TritonBackend
from legato.attention.protocol import AttentionMetadata
from legato.attention.setup import AttentionSetup
from legato.device.facts import DeviceFacts
from legato.kernels.argmax import argmax
from legato.kvcache.storage import allocate
from legato.models.registry import model_class
from legato.runner.attention_contexts import InlineAttention

NUM_LAYERS = {"smollm2-135m": 30, "llama-3.1-8b": 6}
"""As many as give no layer its weights or keys from the L2 cache."""
CONTEXT, BLOCK_SIZE, MAX_MODEL_LEN = 256, 16, 4096
REPLAYS = 25
NOT_SLOWER = 1.003
"""What a table's entries may take longer, which is noise, and be taken."""
OTHER_ROUNDING = 0.2
"""By how much logits may differ, relative to their norm, where kernels round otherwise: wrong ones differ by one."""
FASTER = 0.995
"""What a way to start early must at least come to, to be taken."""
LATE = Early(narrow_rows=(), near_lines=0)
"""Kernels that wait for the end of the one before them."""


class Timed(NamedTuple):
    """A step."""

    milliseconds: float
    logits: torch.Tensor


class RandomModel:
    """A model of random weights, with a cache, whose steps can be timed at any number of requests."""

    def __init__(self, width: Width, facts: DeviceFacts) -> None:
        config = config_of(
            width,
            architecture="LlamaForCausalLM",
            vocab_size=PRODUCTS[width.name][-1].out_size,
            num_layers=NUM_LAYERS[width.name],
        )
        self._model = model_class(config.architecture)(config, torch.bfloat16, DEVICE)
        randomise(self._model)
        most = max(ROW_CLASSES)
        setup = AttentionSetup(
            model=config,
            device=facts,
            dtype="bfloat16",
            block_size=BLOCK_SIZE,
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=most,
        )
        self._backend = TritonBackend(setup)
        groups = type(self._model).layer_groups(config)
        self._own_blocks = CONTEXT // BLOCK_SIZE
        num_blocks = 1 + most * self._own_blocks
        self._caches = allocate(
            groups, num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype=torch.bfloat16, device=DEVICE
        )
        for cache in self._caches.values():
            cache.key.normal_()
            cache.value.normal_()

    def metadata(self, batch: int) -> AttentionMetadata:
        """Return a decode of one token for each of ``batch`` requests, all of them ``CONTEXT`` tokens long."""
        table = torch.zeros(batch, MAX_MODEL_LEN // BLOCK_SIZE, dtype=torch.int32, device=DEVICE)
        own = 1 + torch.arange(batch * self._own_blocks, dtype=torch.int32, device=DEVICE).view(batch, -1)
        table[:, : self._own_blocks] = own
        return AttentionMetadata(
            query_start_loc=torch.arange(batch + 1, dtype=torch.int32, device=DEVICE),
            seq_lens=torch.full((batch,), CONTEXT, dtype=torch.int32, device=DEVICE),
            block_table=table,
            slot_mapping=own[:, -1].long() * BLOCK_SIZE + BLOCK_SIZE - 1,
            num_tokens=batch,
            num_reqs=batch,
            query_len=1,
            max_query_len=1,
            key_ints={},
        )

    def step(self, token_ids: torch.Tensor, metadata: AttentionMetadata) -> torch.Tensor:
        """Find the next tokens; return the logits."""
        context = InlineAttention(self._backend, self._caches, metadata)
        hidden = self._model(token_ids, metadata.seq_lens.long() - 1, context)
        logits = self._model.compute_logits(hidden)
        argmax(logits)
        return logits

    def time(self, batch: int) -> Timed:
        """Return the median time of a step's graph, and what its last replay found."""
        metadata, token_ids = self.metadata(batch), torch.arange(batch, device=DEVICE)
        self.step(token_ids, metadata)  # compiles
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self.step(token_ids, metadata)
        times = []
        for _ in range(REPLAYS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return Timed(statistics.median(times[REPLAYS // 5 :]), logits.clone())


def of_rows(tables: Tables, model: str, num_rows: int) -> Tables:
    """Return the entries of ``tables`` that a step of ``model`` with ``num_rows`` looks up."""
    shapes = {(one.table_name, one.out_size, one.in_size) for one in PRODUCTS[model]}
    return {
        name: {key: tiling for key, tiling in table.items() if key[0] == num_rows and (name, *key[1:]) in shapes}
        for name, table in tables.items()
    }


def with_rows(settings: Settings, tables: Tables, model: str, num_rows: int) -> Settings:
    """Return ``settings`` in which a step of ``model`` with ``num_rows`` looks up what it does in ``tables``."""
    gone, new = of_rows(settings.tables, model, num_rows), of_rows(tables, model, num_rows)
    changed = {
        name: {key: tiling for key, tiling in table.items() if key not in gone[name]} | dict(new[name])
        for name, table in settings.tables.items()
    }
    return replace(settings, tables=changed)


def with_decode(settings: Settings, decodes: Mapping[DecodeKey, Decode], key: DecodeKey) -> Settings:
    """Return ``settings`` in which decodes of ``key`` are done as in ``decodes``: by the rules if not in it."""
    others = {other: decode for other, decode in settings.decodes.items() if other != key}
    return replace(settings, decodes=others | ({key: decodes[key]} if key in decodes else {}))


def judge_steps(before: Settings, tuned: Settings, early: Early, facts: DeviceFacts) -> Iterator[dict[str, Any]]:
    """Yield a row for each model and number of rows: a step's time as it was and with each change that it gains from.

    The row's ``settings`` are ``tuned`` without the changes that did not pay, those of the last row without all those.
    """
    heads = {one.model: one for one in HEADS}
    settings = tuned
    for model in NUM_LAYERS:
        for num_rows in ROW_CLASSES:
            settings = with_rows(settings, before.tables, model, num_rows)
            settings = with_decode(settings, before.decodes, heads[model].key(num_rows))
    for width in WIDTHS[: len(NUM_LAYERS)]:
        model = RandomModel(width, facts)
        for num_rows in ROW_CLASSES:
            key = heads[width.name].key(num_rows)
            best = timed(model, settings, num_rows)
            row: dict[str, Any] = {"model": width.name, "rows": num_rows, "before_ms": best.milliseconds}
            row |= {"taken": [], "wrong": []}
            changes = {
                "decode": partial(with_decode, decodes=tuned.decodes, key=key),
                "tilings": partial(with_rows, tables=tuned.tables, model=width.name, num_rows=num_rows),
            }
            for name, change in changes.items():
                trial = change(settings)
                if trial == settings:
                    continue
                found = timed(model, trial, num_rows)
                row[f"{name}_ms"] = found.milliseconds
                row[f"{name}_difference"] = difference = relative_difference(found.logits, best.logits)
                if not difference < OTHER_ROUNDING:
                    row["wrong"].append(f"{name}, {width.name}, {num_rows} rows: {difference:.3f}")
                elif found.milliseconds <= best.milliseconds * NOT_SLOWER:
                    settings, best = trial, found
                    row["taken"].append(name)
            for name, one in (("late", LATE), ("early", early), ("early_only", early._replace(near_lines=0))):
                found = timed(model, replace(settings, early=one), num_rows)
                row[f"{name}_ms"] = found.milliseconds
                if not torch.equal(found.logits, best.logits):  # the same kernels in the same order
                    row["wrong"].append(f"{name}, {width.name}, {num_rows} rows")
            yield row | {"ms": best.milliseconds, "settings": settings}
        del model


def timed(model: RandomModel, settings: Settings, num_rows: int) -> Timed:
    """Time a step with ``settings``."""
    apply(settings)
    return model.time(num_rows)


def relative_difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return ‖found - expected‖ / ‖expected‖."""
    return ((found.float() - expected.float()).norm() / expected.float().norm()).item()


def choose_early(rows: list[dict[str, Any]], present: Early, early: Early) -> Early:
    """Return how early the kernels of narrow models are to start, by the steps' times of one such model.

    In steps of those rows that it makes faster without changing what they find; of rows not measured, as they do now.
    """
    near_lines = early.near_lines
    if sum(row["early_only_ms"] for row in rows) < sum(row["early_ms"] for row in rows) * FASTER:
        near_lines = 0
    name = "early_ms" if near_lines else "early_only_ms"
    faster = {row["rows"] for row in rows if not row["wrong"] and row[name] < row["late_ms"] * FASTER}
    unknown = set(present.narrow_rows) - {row["rows"] for row in rows}
    return Early(tuple(sorted(faster | unknown)), near_lines)
