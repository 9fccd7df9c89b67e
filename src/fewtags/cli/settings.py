"""`--set key=value`."""

from fewtags.errors import UserError


def parse_settings(words: list[str]) -> dict[str, str]:
    """`key=value` words as a dict."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UserError(f"--set {word}: write it as key=value")
        settings[key.strip()] = value.strip()
    return settings
