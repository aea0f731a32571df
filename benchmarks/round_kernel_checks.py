"""The comparison of the kernels between a round's models with their references, on a GPU."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from product_checks import DEVICE, draw, verdict

from legato.kernels.acceptance import Accepted, Coins, Verified, accept, accept_reference
from legato.kernels.draft_inputs import Judged, draft_inputs, draft_inputs_reference
from legato.kernels.log_exponential import log_exponential, log_exponential_reference
from legato.kernels.prompt_lookup import NewTokens, look_up, look_up_reference
from legato.kernels.row_state import (
    RowState,
    advance,
    advance_reference,
    uniform_inputs,
    uniform_inputs_reference,
)


def round_checks() -> list[dict[str, object]]:
    """Compare every operation with its reference; return a row for each result."""
    return [*row_state_checks(), *acceptance_checks(), *lookup_checks(), *noise_checks()]


def rows_of_requests() -> tuple[torch.Tensor, RowState]:
    """Return the rows of five requests, two of them on the null row, and what all rows hold."""
    state = RowState(
        next_tokens=torch.arange(9, device=DEVICE) * 7,
        num_computed=torch.tensor([0, 0, 16, 0, 0, 1490, 0, 0, 0], device=DEVICE),
        drafts=torch.randint(0, 50_000, (9, 5), device=DEVICE),
        block_table=torch.randint(0, 1 << 20, (9, 1500), dtype=torch.int32, device=DEVICE),
    )
    return torch.tensor([5, 0, 8, 2, 8], device=DEVICE), state


def row_state_checks() -> Iterator[dict[str, object]]:
    """Check what a step reads from its rows and writes back, and what a round's passes begin with."""
    rows, state = rows_of_requests()
    for width in (1, 4):
        for num_reqs in (1, 5):
            inputs = [
                form(rows[:num_reqs], state, width=width, block_size=16, max_position=1491)
                for form in (uniform_inputs, uniform_inputs_reference)
            ]
            yield from same_fields(f"uniform_inputs, {num_reqs} x {width}", *inputs)
    for drafts in (None, torch.arange(9, device=DEVICE).view(3, 3).t()):
        states = [RowState(*[tensor.clone() for tensor in state]) for _ in range(2)]
        for form, own in zip((advance, advance_reference), states, strict=True):
            form(rows[:3], rows[:3] + 20, rows[:3] + 3, own, 8, drafts)
        yield from same_fields("advance", *states)
    outcome = torch.tensor([[9, 8, 7, 6, 1 + request % 4] for request in range(5)], device=DEVICE)
    where = {"null_row": 8, "num_passes": 3, "block_size": 16, "max_position": 1491}
    for num_reqs in (1, 5):
        own, states = rows[:num_reqs], draw(9, 4096, dtype=torch.bfloat16)
        judged = Judged(own, outcome[:num_reqs], 1490 - own, own, states)
        found, expected = (form(judged, state.block_table, **where) for form in (draft_inputs, draft_inputs_reference))
        yield from same_fields(f"draft_inputs, {num_reqs}", found, expected)


def acceptance_checks() -> Iterator[dict[str, object]]:
    """Check which drafts stand, by the target's draws and by coins, in uniform batches and in mixed ones."""
    num_rows, width = 300, 4
    drafts = torch.randint(1, 4, (num_rows, width), device=DEVICE)
    seeds = torch.randint(-(1 << 62), 1 << 62, (num_rows, 6), device=DEVICE)[:, 3]
    bounds = torch.tensor([-1 << 30, -1 << 29, 0, -1 << 31], dtype=torch.int32, device=DEVICE)
    for num_reqs in (1, 257):
        rows = torch.randperm(num_rows, device=DEVICE)[:num_reqs]
        judged = Verified(
            sampled=torch.randint(1, 4, (num_reqs, width), device=DEVICE),
            given=None,
            rows=rows,
            drafts=drafts,
            num_drafts=torch.randint(0, width, (num_reqs,), device=DEVICE),
            first_positions=torch.randint(0, 9000, (num_reqs, width), device=DEVICE)[:, 0],
            first_places=torch.arange(3, num_reqs * width + 3, width, dtype=torch.int32, device=DEVICE),
        )
        for given in (None, torch.randint(-1, 4, (num_reqs,), device=DEVICE)):
            for coins in (None, Coins(seeds, bounds)):
                outcomes = torch.zeros(2, num_reqs, width + 3, dtype=torch.int64, device=DEVICE)
                places = [Accepted(outcome[:, :width], *outcome.t()[width:].contiguous()) for outcome in outcomes]
                for form, place in zip((accept, accept_reference), places, strict=True):
                    form(judged._replace(given=given), place, coins)
                yield from same_fields(f"accept, {num_reqs}", *places)


def same_fields(name: str, found: NamedTuple, expected: NamedTuple) -> Iterator[dict[str, object]]:
    """Compare integers field by field."""
    for field, one, other in zip(expected._fields, found, expected, strict=True):
        yield verdict(f"{name}, {field}", one.double(), other.double(), roundings=0)


def lookup_checks() -> Iterator[dict[str, object]]:
    """Check what follows latest tokens where they stood before, in short sequences and in long ones."""
    for num_reqs, capacity in ((1, 300), (65, 9000)):
        history = torch.randint(1, 5, (num_reqs, capacity), dtype=torch.int32, device=DEVICE)
        outcome = torch.randint(1, 5, (num_reqs, 5), device=DEVICE)
        last_positions = torch.randint(9, capacity, (num_reqs,), device=DEVICE)
        rows = torch.randperm(num_reqs, device=DEVICE)
        new = NewTokens(rows, outcome[:, :4], outcome[:, 4], last_positions)
        for _ in range(2):  # the second time over what the first one wrote
            histories = history, history.clone()
            found, expected = (
                form(own, new, num_drafts=4, shortest=1, longest=4)
                for form, own in zip((look_up, look_up_reference), histories, strict=True)
            )
            name = f"look_up, {num_reqs} x {capacity}"
            yield verdict(name, found.double(), expected.double(), roundings=0)
            yield verdict(f"{name}, history", histories[0].double(), histories[1].double(), roundings=0)


def noise_checks() -> Iterator[dict[str, object]]:
    """Check the noise of sampling, for the hashes of all tokens and for hashes of each row."""
    for shape in ((128256,), (5, 49152)):
        hashes = torch.randint(-(1 << 31), 1 << 31, shape, device=DEVICE).to(torch.int32)
        seeds = torch.randint(-(1 << 62), 1 << 62, (5, 6), device=DEVICE)[:, 3]
        given = seeds, torch.arange(5, device=DEVICE) * 1000, hashes
        yield verdict(f"log_exponential, {shape}", log_exponential(*given), log_exponential_reference(*given))
