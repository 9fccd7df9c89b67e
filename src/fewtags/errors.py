"""The few exceptions that the command line turns into exit codes."""


class UserError(Exception):
    """A mistake in what the user gave: names the file, the line and the remedy. Exit code 2."""


class Fault(Exception):
    """Training had to stop by itself (a loss that is not a number, a full disk). Exit code 3."""


class Interrupted(Exception):
    """The user or the system asked to stop; what is needed to go on has been saved. Exit code 130."""


class BadImage(Exception):
    """One image file that cannot be used; the message is the reason."""


def nearest(word: str, known: "list[str] | tuple[str, ...]") -> str:
    """A hint such as `; did you mean 'd2l'?`, or nothing when no known word is close."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
