"""Helpers of the review tests: a session with a few pictures, and its page served as users get it."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from fewtags.data.catalogue import Names
from fewtags.data.images import FolderImages
from fewtags.review.corrections import LOG
from fewtags.review.log import ReviewLog
from fewtags.review.server import AccessPolicy, listen, make_app, make_server
from fewtags.review.session import ReviewData, ReviewSession

TOKEN = "token-of-the-tests"  # noqa: S105
TAGS = ("boat", "<b>sea</b>", "dog")
SCORES = [[0.9, 0.2, 0.1], [0.55, 0.6, 0.1], [0.1, 0.45, 0.2], [0.4, 0.9, 0.3], [0.2, 0.1, 0.9]]


def make_session(folder: Path, images: int = 5) -> ReviewSession:
    """Five pictures (or more like them); the last is labelled: dog, no boat, sea unknown."""
    photos = folder / "photos"
    photos.mkdir(parents=True)
    names = [f"{number:03d}.png" for number in range(images)]
    for number, name in enumerate(names):
        Image.new("RGB", (1600, 800), (40 * (number % 5), 90, 120)).save(photos / name)
    labels = np.full((images, 3), -1, np.int8)
    labels[-1] = [0, -1, 1]
    scores = np.array([SCORES[number % 5] for number in range(images)], np.float32)
    data = ReviewData(TAGS, np.array([0.5, 0.5, np.inf]), Names(names), scores, labels, FolderImages(photos))
    return ReviewSession(data, ReviewLog(folder / LOG))


@contextmanager
def served(session: ReviewSession, password: str | None = None) -> Iterator["Client"]:
    """The page of a session on a free port."""
    place = listen("127.0.0.1", 0)
    policy = AccessPolicy("127.0.0.1", place.getsockname()[1], TOKEN, password)
    server = make_server(make_app(session, policy, "run"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield Client(policy)
    finally:
        server.should_exit = True
        thread.join()
        place.close()


class Answer:
    """The response to a request."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """Requests as raw bytes on a socket: no client library normalises paths or headers."""

    def __init__(self, policy: AccessPolicy) -> None:
        self.policy = policy
        self.host = f"127.0.0.1:{policy.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str | None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.policy.port, timeout=20)
        sent = {"Host": self.host} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if body is not None:
            sent.setdefault("Content-Length", str(len(body)))
        for name, value in sent.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", f"/{TOKEN}/{path}", **headers)

    def post(self, path: str, content: object, **headers: str | None) -> Answer:
        given = {"Origin": f"http://{self.host}", "Content_Type": "application/json"} | headers
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", f"/{TOKEN}/{path}", body, **given)
