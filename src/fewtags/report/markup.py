"""HTML and SVG elements. Text is escaped unless it is markup already, so no name can become markup."""

from html import escape


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | float | None
VOID = {"img", "input", "meta"}  # elements without an end tag


def element(name: str, /, *content: Content, **attributes: Content) -> Html:
    """`<name …>content</name>`; None is left out. `class_` is class, other underscores are hyphens."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{escape(str(value))}"')
    return Html(f"<{' '.join(words)}>" + ("" if name in VOID else f"{join(*content)}</{name}>"))


def join(*content: Content) -> Html:
    """Concatenate markup and texts (escaped)."""
    return Html("".join(one if isinstance(one, Html) else escape(str(one)) for one in content if one is not None))
