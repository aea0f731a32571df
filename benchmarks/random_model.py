"""A model of random weights with a cache, whose whole decode steps are timed in a CUDA graph."""

from typing import NamedTuple

import torch
from fused_kernel_checks import Width, config_of, randomise
from graph_timing import time_calls
from product_checks import DEVICE
from product_list import PRODUCTS
from product_tuning import ROW_CLASSES

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
BLOCK_SIZE, MAX_MODEL_LEN = 16, 4096


class Timed(NamedTuple):
    """A step."""

    milliseconds: float
    logits: torch.Tensor


class RandomModel:
    """A model of random weights, with a cache, whose steps can be timed at any number of requests."""

    def __init__(self, width: Width, facts: DeviceFacts, context: int = 256) -> None:
        """``context``: tokens of each request, whole blocks of them."""
        assert context % BLOCK_SIZE == 0
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
        self._context, self._own_blocks = context, context // BLOCK_SIZE
        num_blocks = 1 + most * self._own_blocks
        self._caches = allocate(
            groups, num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype=torch.bfloat16, device=DEVICE
        )
        for cache in self._caches.values():
            cache.key.normal_()
            cache.value.normal_()

    def metadata(self, batch: int) -> AttentionMetadata:
        """Return a decode of one token for each of ``batch`` requests, all of them as long."""
        table = torch.zeros(batch, MAX_MODEL_LEN // BLOCK_SIZE, dtype=torch.int32, device=DEVICE)
        own = 1 + torch.arange(batch * self._own_blocks, dtype=torch.int32, device=DEVICE).view(batch, -1)
        table[:, : self._own_blocks] = own
        return AttentionMetadata(
            query_start_loc=torch.arange(batch + 1, dtype=torch.int32, device=DEVICE),
            seq_lens=torch.full((batch,), self._context, dtype=torch.int32, device=DEVICE),
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
        logits: list[torch.Tensor] = []
        microseconds = time_calls([lambda: logits.append(self.step(token_ids, metadata))])
        return Timed(microseconds / 1e3, logits[-1].clone())  # the last are the graph's own
