"""The command line: verbs, exit codes and nothing else. torch is imported by the verbs that need it."""

import io
import shlex
import sys
import warnings

from fewtags.errors import Fault, Interrupted, UserError

DONE, WRONG_INPUT, FAULT, INTERRUPTED = 0, 2, 3, 130


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with its exit code: 0 done, 2 wrong input, 3 fault, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # ± and – where the terminal knows no such signs
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code; what the user must know goes to standard error."""
    from fewtags.cli.app import app
    from fewtags.utils.progress import shown_messages

    try:
        with shown_messages(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(torch|lightning_fabric)\b")  # meant for programmers
            app(spread_lists(arguments), prog_name="fewtags")
    except SystemExit as leaving:
        return _left_with(leaving.code)
    except UserError as error:
        _say(f"fewtags: {error}")
        return WRONG_INPUT
    except Fault as error:
        _say(f"fewtags: {error}")
        return FAULT
    except Interrupted as error:
        _say(f"\nfewtags: {error}")
        if arguments[:2] in (["bench", "run"], ["bench", "paper"]):
            _say(f"go on with: fewtags {shlex.join(arguments)}")
        if arguments[:1] == ["train"]:
            again = arguments if "--resume" in arguments else [*arguments, "--resume"]
            _say(f"go on with: fewtags {shlex.join(again)}")
        return INTERRUPTED
    except OSError as error:
        _say(f"fewtags: {error.filename or 'a file'}: {error.strerror or error}")
        return FAULT
    return DONE


def spread_lists(arguments: list[str]) -> list[str]:
    """Allow `--set a=1 b=2`, and for `bench` `--seeds 1 2`: repeat the option before every further word of a list."""
    lists = ("--set", "--methods", "--labelled", "--seeds") if arguments[:1] == ["bench"] else ("--set",)
    spread: list[str] = []
    option = ""
    for word in arguments:
        if word.startswith("-"):
            option = word if word in lists else ""
        elif option and spread[-1] != option and (option != "--set" or "=" in word):
            spread.append(option)
        elif option and spread[-1] != option:
            option = ""
        spread.append(word)
    return spread


def _left_with(code: object) -> int:
    """What typer means: it answers Ctrl-C with 130, and with 1 a reader of standard output that has seen enough."""
    if code == INTERRUPTED:
        _say("\nfewtags: stopped")
    return code if isinstance(code, int) and code != 1 else DONE


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
