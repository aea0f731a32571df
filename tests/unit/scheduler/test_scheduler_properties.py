"""Whatever happens around a request, it gets the tokens that it would get alone, and gives everything back."""

import string

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulated_device import VOCAB_SIZE, request
from simulated_engine import SimulatedEngine

from legato.errors import RequestError
from legato.scheduler.graph_fit import ANY_SIZE, GraphFit

MAX_MODEL_LEN = 26

prompts = st.builds(
    # Few families of prompts, so that prefixes are often equal.
    lambda family, length, last: (*((family + index * index) % 5 for index in range(length - 1)), last),
    st.integers(0, 1),
    st.integers(1, 18),
    st.integers(0, 2),
)


@st.composite
def requests(draw, request_id="", group=None):
    max_tokens = draw(st.integers(1, 20))
    return request(
        request_id,
        draw(prompts),
        max_tokens=max_tokens,
        min_tokens=draw(st.integers(0, max_tokens)),
        stop_token_ids=draw(st.frozensets(st.integers(0, VOCAB_SIZE - 1), max_size=2)),
        prompt_logprobs=draw(st.sampled_from((None, None, None, 1))),
        priority=draw(st.integers(0, 2)),
        arrival=float(draw(st.integers(0, 2))),
        group=group,
    )


fits = st.one_of(
    st.just(ANY_SIZE),
    st.builds(
        lambda sizes, padding: GraphFit(sizes=tuple(sorted(sizes)), least_tokens=1, most_padding=padding),
        st.sets(st.integers(1, 30), min_size=1, max_size=5),
        st.integers(0, 2),
    ),
)


@st.composite
def engines(draw):
    """Pools from slightly too small for one sequence to enough for two or three."""
    block_size = draw(st.integers(1, 5))
    num_drafts = draw(st.sampled_from((None, None, 1, 2, 5)))
    width = 1 + (num_drafts or 0)
    max_num_seqs = draw(st.integers(1, 5))
    num_blocks_of_longest = (MAX_MODEL_LEN + width - 1) // block_size
    return SimulatedEngine(
        block_size=block_size,
        num_blocks=draw(st.integers(num_blocks_of_longest - 1, 2 * num_blocks_of_longest + 6)),
        prefix_caching=draw(st.booleans()),
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=draw(st.integers(1, 12)) + (0 if num_drafts is None else max_num_seqs * width),
        policy=draw(st.sampled_from(("fcfs", "priority"))),
        max_queue=12,
        overlap=draw(st.booleans()),
        num_drafts=num_drafts,
        fit=draw(fits),
    )


class EngineUnderPressure(RuleBasedStateMachine):
    """Requests come, are aborted, and steps run, in any order."""

    def __init__(self):
        super().__init__()
        self.num_added = 0

    @initialize(engine=engines())
    def build(self, engine):
        self.engine = engine

    @rule(template=requests())
    def add(self, template):
        self._try_to_add(template, group=None)

    @rule(template=requests(), n=st.integers(2, 4))
    def add_siblings(self, template, n):
        group = f"group-{self.num_added}"
        for _ in range(n):
            self._try_to_add(template, group=group)

    @rule(count=st.integers(1, 6))
    @precondition(lambda self: self.engine.scheduler.has_work)
    def step(self, count):
        for _ in range(count):
            if self.engine.scheduler.has_work:
                self.engine.step()

    @rule()
    @precondition(lambda self: self.num_added % 4 == 3)
    def reset_prefix_cache(self):
        self.engine.scheduler.reset_prefix_cache()

    @rule(choice=st.integers(0, 50), in_between=st.booleans())
    @precondition(lambda self: self.engine.scheduler.has_work)
    def abort(self, choice, in_between):
        request_id = list(self.engine.requests)[choice % len(self.engine.requests)]
        if in_between:
            self.engine.step(abort_in_between=[request_id])
        else:
            self.engine.abort(request_id)

    @invariant()
    @precondition(lambda self: hasattr(self, "engine"))
    def rows_and_queue_are_within_their_limits(self):
        stats = self.engine.scheduler.stats()
        assert stats.num_running <= self.engine.device.max_num_seqs
        assert stats.num_running + stats.num_waiting <= 12
        assert self.engine.scheduler.has_work == (stats.num_running + stats.num_waiting > 0)

    def teardown(self):
        if hasattr(self, "engine"):
            self.engine.run()
            self.engine.check_at_rest()

    def _try_to_add(self, template, group):
        self.num_added += 1
        try:
            self.engine.add(
                request(
                    f"request-{self.num_added}",
                    template.prompt_token_ids,
                    max_tokens=template.max_tokens,
                    min_tokens=template.params.min_tokens,
                    stop_token_ids=template.stop_token_ids,
                    prompt_logprobs=template.params.prompt_logprobs,
                    priority=template.priority,
                    arrival=template.arrival,
                    group=group,
                )
            )
        except RequestError:
            assert f"request-{self.num_added}" not in self.engine.requests


TestEngineUnderPressure = EngineUnderPressure.TestCase
TestEngineUnderPressure.settings = settings(
    max_examples=120, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@given(
    templates=st.lists(requests(), min_size=1, max_size=5),
    chunk=st.integers(1, 9),
    seqs=st.integers(1, 5),
    overlap=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_a_pool_that_holds_one_sequence_serves_all_of_them(templates, chunk, seqs, overlap):
    """The smallest pool that a request may be added to: no preemption leads into a livelock."""
    engine = SimulatedEngine(
        block_size=2,
        num_blocks=1 + MAX_MODEL_LEN // 2,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=seqs,
        max_num_batched_tokens=chunk,
        overlap=overlap,
    )
    for name, template in zip(string.ascii_letters, templates, strict=False):
        engine.add(
            request(name, template.prompt_token_ids, max_tokens=20, prompt_logprobs=template.params.prompt_logprobs)
        )
    engine.run(max_steps=2_000)
    engine.check_at_rest()
