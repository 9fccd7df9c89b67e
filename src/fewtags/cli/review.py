"""`fewtags review`: the page for one person, from the first look at the arguments to the last word."""

import contextlib
import os
import secrets
import shlex
import sys
from pathlib import Path

from fewtags.errors import UserError
from fewtags.utils.extras import install_command
from fewtags.utils.progress import say

SHORTEST_PASSWORD = 8  # letters; others on the network may try as often as they like


def run_review(run: Path, host: str, port: int, password_file: Path | None, browser: bool) -> None:
    """Serve the page until Ctrl-C."""
    try:
        from fewtags.review.server import AccessPolicy, is_loopback, listen, make_app, make_server
    except ImportError as error:
        raise UserError(f"the page needs {error.name}; run: {install_command('review')}") from error
    host = "127.0.0.1" if host == "localhost" else host
    password = None if password_file is None else _password(password_file)
    if not is_loopback(host) and password is None:
        raise UserError(f"--host {host}: others could reach the page there; add --password-file FILE, or leave it out")
    from fewtags.api import data_of
    from fewtags.review.session import open_session
    from fewtags.training.run_folder import RunFolder

    folder = RunFolder(run)
    session = open_session(folder, data_of(folder))
    try:
        place = listen(host, port)
    except OSError as error:
        what = f"--host {host}" if port == 0 else f"--host {host} --port {port}"
        raise UserError(f"{what}: cannot be used ({error.strerror or error}); leave it out, or name another") from error
    with place:
        policy = AccessPolicy(host, place.getsockname()[1], secrets.token_urlsafe(24), password)
        print(f"review: {policy.address()}", flush=True)
        say("Ctrl-C ends it; every decision is kept at once")
        if not is_loopback(host):
            say("the connection is not encrypted: for networks that you trust")
        if browser:
            _open(policy.address())
        with contextlib.suppress(KeyboardInterrupt):
            make_server(make_app(session, policy, str(run))).run(sockets=[place])
    _say_goodbye(run, session.progress()["decisions"])


def _password(file: Path) -> str:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--password-file {file}: cannot be read ({error}); write the password into it") from error
    password = lines[0].strip() if lines else ""
    if len(password) < SHORTEST_PASSWORD:
        raise UserError(f"--password-file {file}: its first line must be a password of {SHORTEST_PASSWORD} letters")
    return password


def _open(address: str) -> None:
    """Show the page, where there is a screen: a browser in the terminal would only stand in the way."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    import webbrowser

    webbrowser.open(address)


def _say_goodbye(run: Path, decisions: int) -> None:
    if not decisions:
        say("no decisions yet")
        return
    name = shlex.quote(str(run))
    print(f"{decisions:,} decision{'' if decisions == 1 else 's'} in {run / 'review.jsonl'}")
    print(f"learn again with them: fewtags train {name} --with-review --out {shlex.quote(f'{run}-2')}")
