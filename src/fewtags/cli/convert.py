"""`fewtags convert`: labels from one form to another, and a word about what came over."""

from pathlib import Path

from fewtags.utils.progress import say


def run_convert(source: Path, target: Path, to: str | None) -> None:
    """Convert and say what is in the new file."""
    from fewtags.convert import convert

    outcome = convert(source, target, to)
    for note in outcome.notes:
        say(note)
    print(f"{outcome.images:,} images, {outcome.tags:,} tags ({outcome.read_as} to {outcome.written_as}): {target}")
