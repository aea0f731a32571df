"""What README.md and docs/ take from the code is what the code says now."""

from pathlib import Path

from legato.cli.docs import GENERATED, regenerated

ROOT = Path(__file__).parents[2]


def test_every_generated_part_is_up_to_date() -> None:
    stale = [str(page.relative_to(ROOT)) for page, text in regenerated(ROOT).items() if page.read_text() != text]
    assert stale == [], "run `make docs`"


def test_every_generator_is_used_by_a_page() -> None:
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert [name for name in GENERATED if f"<!-- generated: {name} -->" not in pages] == []


def test_every_link_between_pages_leads_somewhere() -> None:
    import re

    broken = [
        f"{page.name}: {target}"
        for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
