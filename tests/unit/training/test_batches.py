"""Batches hold each text once an epoch, and learn where an engine drafts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from legato.training.batches import Text, epoch_batches, make_batch, padded_length
from legato.training.draft_vocabulary import choose_draft_vocabulary

TEXTS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(2, 60)).map(
        lambda sizes: Text(token_ids=tuple(range(1, sum(sizes) + 1)), num_prompt_tokens=sizes[0])
    ),
    min_size=1,
    max_size=40,
)


def test_rows_go_from_the_last_token_of_the_prompt_to_the_last_one_that_can_be_drafted():
    batch = make_batch([Text(token_ids=(5, 6, 7, 8, 9, 10), num_prompt_tokens=2)])
    # Position 1 reads the token at 2 and drafts the one at 3; position 3 drafts the one at 5, the last.
    assert batch.positions_np.tolist() == [1, 2, 3]
    assert batch.left_np.tolist() == [2, 1, 0]
    assert batch.token_ids_np.shape == (1, 16)
    assert batch.token_ids_np[0].tolist() == [5, 6, 7, 8, 9, 10] + [0] * 10


@given(TEXTS)
def test_what_a_row_learns_is_a_token_of_its_own_answer(texts):
    batch = make_batch(texts)
    length = batch.token_ids_np.shape[1]
    for step in range(4):
        rows = np.flatnonzero(batch.left_np >= step)
        drafted = batch.positions_np[rows] + 2 + step
        later = rows + step  # the row that learns the same token at the first step
        assert np.array_equal(batch.positions_np[later] + 2, drafted)
        text = drafted // length
        ends = np.array([len(texts[index].token_ids) for index in text.tolist()])
        prompts = np.array([texts[index].num_prompt_tokens for index in text.tolist()])
        assert np.all(drafted % length < ends)
        assert np.all(drafted % length > prompts)
    assert len(batch.positions_np) == sum(text.num_learned for text in texts)


@given(TEXTS, st.integers(16, 400), st.integers(0, 5))
def test_an_epoch_has_each_text_once_and_batches_fit(texts, batch_tokens, epoch):
    batches = epoch_batches(texts, batch_tokens, seed=3, epoch=epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(texts)))
    for batch in batches:
        longest = max(len(texts[index].token_ids) for index in batch)
        assert len(batch) == 1 or len(batch) * padded_length(longest) <= batch_tokens
    assert batches == epoch_batches(texts, batch_tokens, seed=3, epoch=epoch)


def test_epochs_differ_in_their_order():
    texts = [Text(token_ids=tuple(range(10)), num_prompt_tokens=2)] * 50
    first, second = (epoch_batches(texts, 64, seed=0, epoch=epoch) for epoch in (0, 1))
    assert first != second


def test_the_draft_vocabulary_has_the_tokens_that_answers_use_most():
    vocabulary = choose_draft_vocabulary([(7, 7, 3), (7, 9, 9), (50,)], 3, vocab_size=60)
    assert vocabulary.target_ids == (3, 7, 9)
    assert vocabulary.coverage == 6 / 7


def test_a_vocabulary_of_more_tokens_than_were_seen_has_low_ids_besides():
    vocabulary = choose_draft_vocabulary([(7, 7)], 3, vocab_size=60)
    assert vocabulary.target_ids == (0, 1, 7)
    assert vocabulary.coverage == 1.0
