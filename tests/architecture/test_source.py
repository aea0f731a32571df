"""Rules of the source that no linter holds: sizes, docstrings, and the doors to the device and to the environment."""

import ast

from source_tree import SOURCES, TREES, files_that_name

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_a_file_is_short_enough_to_hold_one_concept() -> None:
    lines = {name: len(text.splitlines()) for name, text in SOURCES.items()}
    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}


def test_a_function_fits_on_one_screen() -> None:
    lines = {
        f"{name}:{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for name, tree in TREES.items()
        for function in functions(tree)
        if not name.startswith("kernels/")  # a kernel is one function
    }
    assert {name: count for name, count in lines.items() if count > MAX_FUNCTION_LINES} == {}


def test_every_module_says_what_it_owns() -> None:
    assert [name for name, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_only_the_device_package_names_the_gpu() -> None:
    assert {name for name in files_that_name("torch.cuda") if not name.startswith("device/")} == set()


def test_only_one_file_reads_the_environment() -> None:
    assert files_that_name("os.environ", "os.getenv", "os.environb") <= {"config/environment.py"}
