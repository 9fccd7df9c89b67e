"""The server of the review page, for one person on this machine. Every request is checked before it is routed."""

import base64
import ipaddress
import json
import secrets
import socket
from importlib.resources import files
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fewtags.errors import BadImage, Fault, UserError
from fewtags.review.log import ANSWERS
from fewtags.review.session import LARGE, SMALL, ReviewSession

MAX_BODY = 1 << 20  # bytes; the decisions of a page of the grid are a few thousand
MAX_ASKED = 200  # images per request for details
STATIC = {
    "index.html": "text/html; charset=utf-8",
    "review.js": "text/javascript; charset=utf-8",
    "review.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class AccessPolicy(NamedTuple):
    """Which requests are allowed: the address of the server, the token and the password."""

    host: str  # the address it is bound to
    port: int
    token: str  # the first part of every path
    password: str | None = None

    def address(self) -> str:
        """The URL of the page."""
        shown = socket.gethostname() if is_any(self.host) else self.host
        return f"http://{_bracketed(shown)}:{self.port}/{self.token}/"

    def allows_host(self, header: str) -> bool:
        """Whether a Host header names this server; protects against DNS rebinding."""
        name, port = _host_and_port(header)
        if port != self.port:
            return False
        if is_loopback(self.host):
            return name == "localhost" or is_loopback(name)
        names = {self.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
        return name in names or (is_any(self.host) and _is_address(name))


def make_app(session: ReviewSession, policy: AccessPolicy, run: str) -> ASGIApp:
    """The application: routes below the token, behind the access checks."""
    pages = _Pages(session, run)
    below = f"/{policy.token}"
    routes = [
        Route(f"{below}/", pages.index, methods=["GET"]),
        Route(f"{below}/static/{{name}}", pages.static, methods=["GET"]),
        Route(f"{below}/large/{{number:int}}.jpg", pages.large, methods=["GET"]),
        Route(f"{below}/small/{{number:int}}.jpg", pages.small, methods=["GET"]),
        Route(f"{below}/api/run", pages.run, methods=["GET"]),
        Route(f"{below}/api/queue", pages.queue, methods=["GET"]),
        Route(f"{below}/api/images", pages.images, methods=["GET"]),
        Route(f"{below}/api/decide", pages.decide, methods=["POST"]),
        Route(f"{below}/api/undo", pages.undo, methods=["POST"]),
    ]
    return _Guard(
        Starlette(routes=routes, exception_handlers={Refused: _refused, Fault: _fault, UserError: _fault}), policy
    )


class Refused(Exception):
    """An invalid request; the page itself never sends one."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class _Guard:
    """Checks host, token, password, origin and content type of a request; adds headers to every response."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self.app, self.policy = app, policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                extra = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in given)]
            await send(message)

        if scope["type"] != "http":
            return
        refusal = self._refusal(Request(scope))
        app = refusal or self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response that refuses the request, or None if it is allowed."""
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self.policy.allows_host(hosts[0]):
            return _text(403, "this server answers only to the address that fewtags review printed")
        token = request.scope["path"].partition("/")[2].partition("/")[0]
        if not secrets.compare_digest(token.encode(), self.policy.token.encode()):
            return _text(403, "open the whole address that fewtags review printed: it ends with a secret")
        if self.policy.password is not None and not _has_password(request, self.policy.password):
            return _text(401, "a password is needed", {"WWW-Authenticate": 'Basic realm="fewtags", charset="UTF-8"'})
        return _refuse_foreign_origin(request, hosts[0])


def _refuse_foreign_origin(request: Request, host: str) -> Response | None:
    origins = request.headers.getlist("origin")
    foreign = any(origin != f"http://{host}" for origin in origins)
    site, mode = (request.headers.get(f"sec-fetch-{what}", "") for what in ("site", "mode"))
    followed = request.method == "GET" and mode == "navigate"  # a link to the page, for example in a web terminal
    if foreign or (site not in ("", "same-origin", "none") and not followed):
        return _text(403, "another page may not ask this server")
    if request.method in ("GET", "HEAD"):
        return None
    if not origins:
        return _text(403, "changes are taken from the review page only")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return _text(415, "send application/json")
    return None


class _Pages:
    """The handlers of the routes."""

    def __init__(self, session: ReviewSession, run: str) -> None:
        self._session, self._run = session, run
        self._images, self._tags = len(session.data.names), len(session.data.tags)
        folder = files("fewtags.review") / "static"
        self._static = {name: (folder / name).read_bytes() for name in STATIC}

    def index(self, request: Request) -> Response:
        return Response(self._static["index.html"], media_type=STATIC["index.html"])

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            raise Refused(404, "no such file")
        return Response(self._static[name], media_type=STATIC[name])

    def large(self, request: Request) -> Response:
        return self._picture(request, LARGE)

    def small(self, request: Request) -> Response:
        return self._picture(request, SMALL)

    def _picture(self, request: Request, side: int) -> Response:
        try:
            content = self._session.jpeg(self._image(request.path_params["number"]), side)
        except BadImage as reason:
            raise Refused(404, f"cannot be shown: {reason}") from reason
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    def run(self, request: Request) -> Response:
        return JSONResponse({"run": self._run, "tags": self._session.tags(), "progress": self._session.progress()})

    def queue(self, request: Request) -> Response:
        """Numbers of images: all, those with a tag, or those with an open question about it."""
        asked = request.query_params
        by = _one_of(asked.get("order", "teach"), ("teach", "stored"), "order")
        show = _one_of(asked.get("show", "all"), ("all", "given", "missing"), "show")
        tag = self._tag(_number(asked["tag"], "tag")) if "tag" in asked else None
        if tag is None:
            numbers = self._session.queue(by)
        else:
            numbers = (
                self._session.with_tag(tag, by) if show == "all" else self._session.queue(by, tag, show == "given")
            )
        return JSONResponse({"numbers": numbers, "start": self._session.first_open(numbers)})

    def images(self, request: Request) -> Response:
        words = request.query_params.get("numbers", "").split(",")
        if len(words) > MAX_ASKED:
            raise Refused(400, f"at most {MAX_ASKED} images at once")
        return JSONResponse({"images": [self._session.image(self._image(_number(word, "image"))) for word in words]})

    async def decide(self, request: Request) -> Response:
        body = await _json_body(request)
        cells = body.get("cells")
        if not isinstance(cells, list) or not cells:
            raise Refused(400, "cells: a list of [image, tag, answer]")
        checked = [self._cell(cell) for cell in cells]
        action = await run_in_threadpool(self._session.decide, checked)
        return JSONResponse({"action": action, "progress": self._session.progress()})

    async def undo(self, request: Request) -> Response:
        action = (await _json_body(request)).get("action")
        if not isinstance(action, str) or not await run_in_threadpool(self._session.undo, action):
            raise Refused(404, "no such action, or it was undone before")
        return JSONResponse({"progress": self._session.progress()})

    def _cell(self, cell: Any) -> tuple[int, int, str]:
        if not isinstance(cell, list) or len(cell) != 3 or cell[2] not in ANSWERS:
            raise Refused(400, "a cell is [image, tag, yes or no or unsure]")
        return self._image(cell[0]), self._tag(cell[1]), cell[2]

    def _image(self, number: Any) -> int:
        return _within(number, self._images, "image")

    def _tag(self, number: Any) -> int:
        return _within(number, self._tags, "tag")


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections at this address; port 0 chooses a free one. Raises OSError.

    Connections wait from here on: the address is printed before the server runs, and whoever opens it at once must not
    be refused.
    """
    kind = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(kind, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen()
    except OSError:
        found.close()
        raise
    return found


def make_server(app: ASGIApp) -> uvicorn.Server:
    """A silent uvicorn server that ignores proxy headers."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def is_any(host: str) -> bool:
    """Whether an address means all addresses of the machine."""
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _host_and_port(header: str) -> tuple[str, int]:
    """Name and port of a Host header; port 80 by default, -1 if it is malformed."""
    name, colon, port = header.rpartition(":") if not header.endswith("]") else (header, "", "")
    if not colon:
        name, port = header, "80"
    if not (port.isascii() and port.isdigit() and len(port) < 6):
        return "", -1
    return name.removeprefix("[").removesuffix("]").lower(), int(port)


def _has_password(request: Request, password: str) -> bool:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return False
    try:
        _, _, theirs = base64.b64decode(given, validate=True).partition(b":")
    except ValueError:
        return False
    return secrets.compare_digest(theirs, password.encode())


async def _json_body(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request; reading stops after MAX_BODY bytes."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MAX_BODY:
            raise Refused(413, f"more than {MAX_BODY} bytes")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "not JSON") from error
    if not isinstance(body, dict):
        raise Refused(400, "not a JSON object")
    return body


def _within(number: Any, count: int, what: str) -> int:
    if type(number) is not int or not 0 <= number < count:
        raise Refused(404, f"no such {what}")
    return number


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refused(404, f"no such {what}")
    return int(text)


def _one_of(word: str, known: tuple[str, ...], what: str) -> str:
    if word not in known:
        raise Refused(400, f"{what}: one of {', '.join(known)}")
    return word


def _text(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(reason + "\n", status, headers)


def _refused(request: Request, error: Any) -> Response:
    return _text(error.status, error.reason)


def _fault(request: Request, error: Exception) -> Response:
    """A full disk, a damaged log: the page shows the error, and nothing reported as saved is lost."""
    return _text(500, str(error))
