"""The generated parts of README.md and docs/. Owns which they are; each is computed from the code it describes.

``python -m legato.cli.docs`` writes them, between markers ``<!-- generated: NAME -->`` and ``<!-- end -->``. It needs a
checkout, since the layering is read from pyproject.toml.
"""

import ast
import itertools
import re
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from legato.attention.graph_support import GraphSupport
from legato.cli.markdown import markdown_table
from legato.cli.performance_page import performance_page
from legato.cli.reliability_page import reliability_page
from legato.cli.speculation_sweeps import speculation_sweeps
from legato.graphs.modes import GraphPolicy
from legato.observability.reasons import Reason

_MARKED = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def support_levels(root: Path) -> str:
    """Return every attention backend with its level on some devices, and the reason it gives."""
    from legato.cli.support_table import DEVICES, support_rows

    return markdown_table(("attention backend", *DEVICES, "why"), support_rows())


def level_meanings(root: Path) -> str:
    """Return the support levels in order, with what each means."""
    meanings = attribute_docstrings(GraphSupport)
    return markdown_table(("level", "what a full graph may hold"), [(f"`{n}`", text) for n, text in meanings.items()])


def graph_policies(root: Path) -> str:
    """Return the policies with the mode each gives a mixed and a uniform batch."""
    rows = [(f"`{policy}`", str(policy.mixed_mode), str(policy.uniform_mode)) for policy in GraphPolicy]
    return markdown_table(("policy", "mixed batch", "uniform batch"), rows)


def reason_codes(root: Path) -> str:
    """Return every reason code with its meaning."""
    meanings = attribute_docstrings(Reason)
    return markdown_table(("reason", "meaning"), [(f"`{Reason[n].value}`", text) for n, text in meanings.items()])


def model_families(root: Path) -> str:
    """Return the architectures that can be loaded, and the file that holds each."""
    from legato.models.registry import MODELS

    rows = [(f"`{name}`", f"`{target.partition(':')[0].replace('.', '/')}.py`") for name, target in MODELS.items()]
    return markdown_table(("architecture", "file"), rows)


def packages(root: Path) -> str:
    """Return the packages from the top layer to the bottom one, with their docstrings' first sentence."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rows = [
        (str(len(layers) - height), f"`{name}`", _first_sentence(f"legato.{name}"))
        for height, layer in enumerate(layers)
        for name in (part.strip() for part in layer.split("|"))
    ]
    return markdown_table(("layer", "package", "what it owns"), rows)


def metrics(root: Path) -> str:
    """Return the server's metrics, as its registry describes them."""
    from legato.observability.metrics import Metrics

    families = Metrics().registry.collect()
    ending = {"counter": "_total"}
    rows = [(f"`{one.name}{ending.get(one.type, '')}`", one.type, one.documentation) for one in families]
    return markdown_table(("metric", "type", "meaning"), rows)


def commands(root: Path) -> str:
    """Return the reference of the command line."""
    from legato.cli.main import app
    from legato.cli.reference import command_reference

    return command_reference(app)


GENERATED: dict[str, Callable[[Path], str]] = {
    "support-levels": support_levels,
    "level-meanings": level_meanings,
    "graph-policies": graph_policies,
    "reason-codes": reason_codes,
    "model-families": model_families,
    "packages": packages,
    "metrics": metrics,
    "commands": commands,
    "performance": performance_page,
    "reliability": reliability_page,
    "speculation-sweeps": speculation_sweeps,
}


def regenerated(root: Path) -> dict[Path, str]:
    """Return what every Markdown page with generated parts should say. Raises KeyError for an unknown marker."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    texts = {page: page.read_text() for page in pages}
    return {
        page: _MARKED.sub(lambda found: f"{found[1]}{GENERATED[found[2]](root)}\n{found[3]}", text)
        for page, text in texts.items()
        if _MARKED.search(text)
    }


def attribute_docstrings(kind: type) -> dict[str, str]:
    """Return the string that stands below each attribute in the class's source, by the attribute's name."""
    origin = find_spec(kind.__module__)
    assert origin is not None and origin.origin is not None
    tree = ast.parse(Path(origin.origin).read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    pairs = itertools.pairwise(body)
    return {
        target.id: str(text.value.value)
        for assignment, text in pairs
        if isinstance(assignment, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        for target in assignment.targets
        if isinstance(target, ast.Name)
    }


def _first_sentence(module: str) -> str:
    """Return the first paragraph of a module's docstring, in Markdown."""
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text())) or ""
    paragraph = docstring.partition("\n\n")[0].replace("\n", " ")
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", paragraph)


def main() -> None:
    """Write the generated parts of the checkout that this file stands in."""
    for page, text in regenerated(Path(__file__).parents[3]).items():
        page.write_text(text)
        print(f"wrote {page}")


if __name__ == "__main__":
    main()
