"""A drafter on given prompts: what is counted, on a tiny engine; and the loop, on one whose requests end as told."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
import tiny_engine

from legato.bench.contestant import DraftCounts, NewTokens, StepCounts
from legato.bench.drafter import DrafterWorkload, measure_drafter
from legato.bench.legato_contestant import LegatoContestant, plain_and_drafting
from legato.bench.request_loop import Asked, RequestLoop
from legato.bench.subject import Subject
from legato.cli.bench_drafter import DrafterOptions

PROMPTS = [tuple(range(first, first + 6)) for first in (3, 20, 40)]
SUBJECT = Subject(engine="told", version="1", model="m", dtype="float32")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> tuple[LegatoContestant, LegatoContestant]:
    folder = tiny_engine.write_config(tmp_path_factory.mktemp("model"))
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    options = tiny_engine.options(folder, max_num_seqs=2, speculative_config=config, prefix_caching=False)
    plain, drafting = plain_and_drafting(options)
    return plain, drafting


def workload(end_token_ids: frozenset[int] = frozenset(), output_len: int = 24) -> DrafterWorkload:
    return DrafterWorkload(
        method="ngram",
        num_speculative_tokens=3,
        asked=tuple(Asked(prompt=prompt, output_len=output_len) for prompt in PROMPTS),
        max_tokens=output_len,
        end_token_ids=end_token_ids,
        cases=(("ngram-b1", 1), ("ngram-b2", 2)),
    )


def test_a_row_has_what_drafts_brought_beside_plain_decoding_with_the_same_answers(
    engines: tuple[LegatoContestant, LegatoContestant],
) -> None:
    plain, drafting = engines
    assert plain.core.config.speculative is None
    rows = list(measure_drafter(drafting, plain, workload()))
    assert [(row.case, row.batch_size) for row in rows] == [("ngram-b1", 1), ("ngram-b2", 2)]
    for row in rows:
        assert (row.engine, row.num_prompts, row.output_tokens) == ("legato", 3, 3 * 24)
        assert row.same_as_plain == 1.0
        assert row.acceptance_length == pytest.approx(1 + sum(row.acceptance_rates))
        assert len(row.acceptance_rates) == 3
        assert row.over_plain == pytest.approx(row.output_tok_per_s / (row.plain_tok_per_s or 0))


def test_answers_end_at_the_tokens_that_the_model_ends_with(
    engines: tuple[LegatoContestant, LegatoContestant],
) -> None:
    plain, drafting = engines
    [answer] = RequestLoop(plain).run([Asked(prompt=PROMPTS[0], output_len=24)], 1, lambda *_: None)
    end = answer.token_ids[10]
    place = answer.token_ids.index(end)
    loop = RequestLoop(drafting, frozenset({end}))
    [shorter] = loop.run([Asked(prompt=PROMPTS[0], output_len=24)], 1, lambda *_: None)
    assert shorter.token_ids == answer.token_ids[: place + 1]


class Told:
    """An engine whose requests run for as many steps as the first id of their prompt, and say it in each.

    Each step is a round of one draft, which stands in requests of more than three steps.
    """

    name = "told"
    subject = SUBJECT

    def __init__(self) -> None:
        self.left: dict[str, list[int]] = {}
        self.judged = DraftCounts()

    def add(self, request_id: str, prompt: tuple[int, ...], output_len: int, end_token_ids: frozenset[int]) -> None:
        self.left[request_id] = [prompt[0]] * prompt[0]

    def step(self) -> Sequence[NewTokens]:
        news = []
        for request_id, left in list(self.left.items()):
            self.judged += DraftCounts(num_judged=1, stood=(int(left[0] > 3),))
            news.append(NewTokens(request_id=request_id, token_ids=[left.pop()], finished=not left))
            if not left:
                del self.left[request_id]
        return news

    def counts(self) -> StepCounts | None:
        return None

    def drafts(self) -> DraftCounts:
        return self.judged


def test_answers_stand_in_the_order_asked_whichever_ends_first() -> None:
    asked = [Asked(prompt=(steps,), output_len=9) for steps in (5, 1, 3, 2)]
    answers = RequestLoop(Told()).run(asked, 2, lambda *_: None)
    assert [answer.token_ids for answer in answers] == [[5] * 5, [1], [3] * 3, [2] * 2]


def told(*prompts: tuple[int, ...], batch_size: int) -> DrafterWorkload:
    asked = tuple(Asked(prompt=prompt, output_len=9) for prompt in prompts)
    return replace(workload(), asked=asked, cases=(("told", batch_size),))


def test_what_warmed_the_engine_up_does_not_count() -> None:
    [row] = measure_drafter(Told(), None, told((5,), (1,), batch_size=1))
    assert row.acceptance_length == pytest.approx(1 + 5 / 6)
    assert row.output_tokens == 6
    assert (row.plain_tok_per_s, row.over_plain, row.same_as_plain) == (None, None, None)


class Untold(Told):
    """One that keeps its drafts to itself."""

    def drafts(self) -> DraftCounts:
        return DraftCounts()


def test_an_engine_that_does_not_tell_of_drafts_has_no_acceptance() -> None:
    [row] = measure_drafter(Untold(), None, told((5,), batch_size=1))
    assert (row.acceptance_length, row.acceptance_rates) == (None, ())


def test_one_size_is_named_as_asked_and_several_by_their_size() -> None:
    assert DrafterOptions(batch_size=(16,), case="mine").cases("eagle3-k3") == (("mine", 16),)
    assert DrafterOptions(batch_size=(1, 8)).cases("eagle3-k3") == (("eagle3-k3-b1", 1), ("eagle3-k3-b8", 8))
