"""Write lm-evaluation-harness's scores beside those of ``legato eval gsm8k``, as rows of the same file.

python benchmarks/harness_scores.py --ours FILE results_….json …
"""

import argparse
import json
from pathlib import Path


def main() -> None:
    """Add a row to the file for each result of the harness."""
    options = argparse.ArgumentParser()
    options.add_argument("--ours", required=True, help="what legato eval gsm8k wrote with --save")
    options.add_argument("results", nargs="+", help="what lm-eval run wrote with --output_path")
    typed = options.parse_args()
    file = json.loads(Path(typed.ours).read_text())
    for path in typed.results:
        file["rows"].append(row(json.loads(Path(path).read_text())))
    Path(typed.ours).write_text(json.dumps(file, indent=2) + "\n")


def row(result: dict) -> dict:
    """Return one result with the names that our rows have."""
    [(task, scores)] = result["results"].items()
    chat = "chat" if result["config"]["model"] == "local-chat-completions" else None
    shots = f"gsm8k-{result['n-shot'][task]}-shot"
    return {
        "engine": f"lm-eval {result['lm_eval_version']}, {result['config']['model']}",
        "case": "-".join(filter(None, (shots, chat))),
        "model": result["config"]["model_args"]["model"],
        "num_questions": result["n-samples"][task]["effective"],
        "accuracy_strict": scores["exact_match,strict-match"],
        "accuracy_flexible": scores["exact_match,flexible-extract"],
    }


if __name__ == "__main__":
    main()
