"""How questions are handed to the engine."""

from dataclasses import replace
from pathlib import Path

from legato.config.options import EngineOptions
from legato.engine.bootstrap import build_engine
from legato.training.answers import AnswerFile, Question, generate

SEATS = 8


def test_answers_that_end_one_by_one_are_followed_by_several_at_once(engine: EngineOptions, tmp_path: Path) -> None:
    core = build_engine(replace(engine, max_num_seqs=SEATS))
    questions = [
        Question(prompt_token_ids=(5, 6, 7 + number), temperature=0.0, max_tokens=4 + number % 7, seed=number)
        for number in range(6 * SEATS)
    ]
    file = AnswerFile(tmp_path / "answers.jsonl", questions, "tiny")
    generate(core, questions, file, lambda done, num_tokens: None)
    assert sorted(file.answers) == list(range(len(questions)))
    new_in_step = [record.num_tokens > record.num_reqs for record in core.step_log.recent]
    # One wave fills all seats; each later one takes a quarter of them at least.
    assert 0 < sum(new_in_step) <= 1 + (len(questions) - SEATS) / (SEATS / 4)
