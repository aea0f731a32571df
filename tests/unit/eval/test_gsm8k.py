"""The questions, the prompts and the judgement of GSM8K."""

import json
from pathlib import Path

import pytest

from legato.errors import ConfigError
from legato.eval.gsm8k import Match, Question, is_right, match, prompts, read_questions
from legato.eval.score import accuracy, judge

POOL = [Question(question=f"What is {n} and {n}?", answer=f"It is {2 * n}.\n#### {2 * n}") for n in range(8)]
DATA = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"


def test_a_prompt_is_worked_examples_and_a_question_that_is_left_open() -> None:
    [prompt] = prompts(POOL[:1], POOL[5:6], num_shots=1, among=False)
    assert prompt == "Question: What is 5 and 5?\nAnswer: It is 10.\n#### 10\n\nQuestion: What is 0 and 0?\nAnswer:"


def test_without_examples_a_prompt_is_the_question_alone() -> None:
    assert prompts(POOL[:1], [], num_shots=0, among=False) == ["Question: What is 0 and 0?\nAnswer:"]


def test_in_a_chat_the_same_examples_are_turns_before_the_question() -> None:
    [conversation] = prompts(POOL[:1], POOL[5:6], num_shots=1, among=False, chat=True)
    assert conversation == (
        {"role": "user", "content": "Question: What is 5 and 5?\nAnswer:"},
        {"role": "assistant", "content": "It is 10.\n#### 10"},
        {"role": "user", "content": "Question: What is 0 and 0?\nAnswer:"},
    )


def test_no_question_is_its_own_example() -> None:
    for question, prompt in zip(POOL, prompts(POOL, POOL, num_shots=7, among=True), strict=True):
        assert prompt.count("Question:") == 8
        assert prompt.count(question.question) == 1


def test_examples_are_drawn_anew_for_each_question_and_alike_for_each_seed() -> None:
    first = prompts(POOL[:4], POOL[4:], num_shots=2, among=False)
    assert first == prompts(POOL[:4], POOL[4:], num_shots=2, among=False)
    assert first != prompts(POOL[:4], POOL[4:], num_shots=2, among=False, seed=7)
    examples = {prompt.rpartition("Question:")[0] for prompt in first}
    assert len(examples) > 1


def test_fewer_questions_have_the_same_prompts() -> None:
    """The draws are one sequence over the questions, so that a limit changes none of those before it."""
    assert prompts(POOL[:2], POOL, num_shots=2, among=True) == prompts(POOL[:4], POOL, num_shots=2, among=True)[:2]


def test_too_small_a_pool_is_refused() -> None:
    with pytest.raises(ConfigError, match="too few examples"):
        prompts(POOL, POOL, num_shots=8, among=True)


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        (" 2 and 2 is 4.\n#### 4", "4", "4"),
        ("so #### 1,234.5 and then #### 7", "1,234.5", "7"),
        ("#### -12", "-12", "-12"),
        ("He pays $18.", None, "$18."),
        ("5 apples", None, "5"),
        ("####4", None, "4"),
        ("many", None, None),
        ("", None, None),
    ],
)
def test_an_answers_numbers_are_found(text: str, strict: str | None, flexible: str | None) -> None:
    assert match(text) == Match(strict=strict, flexible=flexible)


@pytest.mark.parametrize("number", ["1234", "1,234", "$1,234", "1234."])
def test_commas_dollars_and_a_full_stop_do_not_matter(number: str) -> None:
    assert is_right(number, Question(question="", answer="It costs 5.\n#### 1,234"))


@pytest.mark.parametrize("number", ["1235", "1234.0", "", None])
def test_another_number_is_wrong(number: str | None) -> None:
    assert not is_right(number, Question(question="", answer="#### 1234"))


def test_answers_are_counted_by_both_matches() -> None:
    score = judge(POOL[:4], ["#### 0", "it is 2", "nothing", "#### 5, no: 6"])
    assert (score.strict.num_right, score.flexible.num_right) == (1, 3)
    assert (score.num_without_mark, score.num_invalid) == (2, 1)


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [(0, 50, 0.0, 0.0713), (7, 40, 0.0875, 0.3195), (50, 50, 0.9287, 1.0), (0, 0, 0.0, 1.0)],
)
def test_the_interval_is_wilsons(right: int, of: int, low: float, high: float) -> None:
    found = accuracy(right, of)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)
    assert found.low <= found.share <= found.high


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    lines = [json.dumps({"question": one.question, "answer": one.answer}) for one in POOL]
    path.write_text("\n\n".join(lines) + "\n")
    assert read_questions(path) == POOL


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no question"),
        ("{", "line 1"),
        ('{"question": "a", "answer": "b"}\n{"question": "a"}', "line 2"),
        ("[1]", "line 1"),
        ('{"question": 1, "answer": "b"}', "are texts"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        read_questions(path)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_questions(tmp_path / "none.jsonl")


@pytest.mark.skipif(not DATA.exists(), reason="the folder 'shared' with the data set is not beside the checkout")
def test_every_worked_answer_of_the_data_set_is_right_by_both_matches() -> None:
    questions = read_questions(DATA / "test.jsonl")
    score = judge(questions, [question.answer for question in questions])
    assert score.strict.num_right == score.flexible.num_right == len(questions) == 1319
