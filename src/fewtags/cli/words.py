"""`fewtags words`: what is found for a tag's name, before anything is trained."""

import shlex

from fewtags.errors import UserError
from fewtags.words import Match, parse_words, tag_weights

SHOWN = 20  # classes per name
_READ = {
    "direct": "read as",
    "related": "no class is one, but some are related; read as",
    "in part": "no noun as a whole; read by its words:",
    "mentioned": "no class is one, but some are named or defined with it:",
}


def run_words(names: list[str], words: str | None) -> None:
    """Print a block for each name."""
    if not all(name.strip() for name in names):
        raise UserError("a name is empty; write what the tag is called, as in: fewtags words dog")
    own = parse_words(words, names) if words is not None else {}
    print("\n\n".join("\n".join(_block(one)) for one in tag_weights(names, own)))


def _block(found: Match) -> list[str]:
    if found.how == "off":
        return [found.line()]
    if not found:
        own = shlex.quote(f"{found.name}=word|word")
        return [found.line(), f"  say it in other words: --words {own}", "  or label some images that show it"]
    lines = [found.line(), f"  {_READ[found.how]} {', '.join(found.words)}"]
    lines += [f"  {weight:.2f}  {name}" for name, weight in found.classes[:SHOWN]]
    more = len(found.weights) - SHOWN
    return [*lines, f"        and {more} more"] if more > 0 else lines
