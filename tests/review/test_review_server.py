"""The page is for one person: what keeps everybody else out, one test a line of the list."""

import base64
import json
import socket
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

import fewtags.review.server as server_module
from fewtags.cli import run
from fewtags.data.images import FolderImages
from fewtags.errors import BadImage
from fewtags.review.server import AccessPolicy, is_loopback, listen
from review_session import TOKEN, make_session, served

PAGES = ["", "static/review.js", "large/0.jpg", "small/0.jpg", "api/run", "api/queue", "api/images?numbers=0"]
YES = {"cells": [[0, 0, "yes"]]}


@pytest.fixture
def session(tmp_path):
    return make_session(tmp_path)


@pytest.fixture
def page(session):
    with served(session) as client:
        yield client


def decisions(session) -> int:
    return session.progress()["decisions"]


def test_it_listens_on_the_loopback_address_only():
    with listen("127.0.0.1", 0) as place:
        assert place.getsockname()[0] == "127.0.0.1"
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not any(is_loopback(host) for host in ("0.0.0.0", "192.168.1.2", "example.org", "::"))  # noqa: S104


@pytest.mark.parametrize("path", PAGES)
def test_everything_is_answered_to_who_knows_the_token(page, path):
    assert page.get(path).status == 200


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("token", ["", "wrong/", TOKEN[:-1] + "/", TOKEN.upper() + "/", "%00/", "%C3%A9/"])
def test_nothing_is_answered_without_the_token(page, path, token):
    answer = page.ask("GET", f"/{token}{path}")
    assert answer.status == 403
    assert TOKEN.encode() not in answer.body


def test_nothing_is_changed_without_the_token(page, session):
    body = json.dumps(YES).encode()
    answer = page.ask("POST", "/api/decide", body, Origin=f"http://{page.host}", Content_Type="application/json")
    assert answer.status == 403
    assert decisions(session) == 0


def test_every_start_has_another_token(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("fewtags.review.session.open_session", lambda *given: make_session(tmp_path / str(len(seen))))
    monkeypatch.setattr("fewtags.api.data_of", lambda folder: None)
    monkeypatch.setattr(server_module, "make_app", lambda session, policy, name: seen.append(policy))
    monkeypatch.setattr(
        server_module, "make_server", lambda app: type("None", (), {"run": lambda self, sockets: None})()
    )
    for _ in range(2):
        assert run(["review", "run", "--no-browser"]) == 0
    assert seen[0].token != seen[1].token
    assert len(seen[0].token) >= 32
    assert {policy.host for policy in seen} == {"127.0.0.1"}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:{port}",
        "",
        "localhost:{port}x",
    ],
)
@pytest.mark.parametrize("path", ["", "large/0.jpg", "api/run"])
def test_a_foreign_host_is_refused(page, host, path):
    assert page.get(path, Host=host.format(port=page.policy.port)).status == 403


def test_a_request_without_a_host_is_refused(page):
    assert page.get("", Host=None).status in (400, 403)


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_the_names_of_this_machine_are_known(page, host):
    assert page.get("", Host=host.format(port=page.policy.port)).status == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}", "http://localhost:{port}", ""],
)
def test_a_post_from_another_origin_is_refused(page, session, origin):
    assert page.post("api/decide", YES, Origin=origin.format(port=page.policy.port)).status == 403
    assert decisions(session) == 0


def test_a_post_that_does_not_say_where_it_comes_from_is_refused(page, session):
    assert page.post("api/decide", YES, Origin=None).status == 403
    assert decisions(session) == 0


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_that_the_browser_calls_foreign_is_refused(page, session, site):
    assert page.post("api/decide", YES, Sec_Fetch_Site=site).status == 403
    assert page.get("large/0.jpg", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors").status == 403
    assert page.get("", Sec_Fetch_Site=site, Sec_Fetch_Mode="navigate").status == 200
    assert decisions(session) == 0


def test_a_get_from_another_origin_is_refused_too(page):
    assert page.get("api/run", Origin="http://evil.example").status == 403


@pytest.mark.parametrize("path", [*PAGES, "nothing", "large/99.jpg"])
def test_no_answer_opens_the_page_to_others(page, path):
    for answer in (
        page.get(path),
        page.get(path, Origin=f"http://{page.host}"),
        page.ask("OPTIONS", f"/{TOKEN}/{path}"),
    ):
        assert [name for name in answer.headers if name.startswith("access-control")] == []


@pytest.mark.parametrize("path", [*PAGES, "nothing", "../"])
def test_every_answer_has_a_strict_policy(page, path):
    for answer in (page.get(path), page.ask("GET", f"/wrong/{path}")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_the_page_asks_for_nothing_from_elsewhere(page):
    for name in ("", "static/review.js", "static/review.css"):
        text = page.get(name).body.decode()
        assert "http://" not in text
        assert "https://" not in text
        assert "//cdn" not in text
        assert "innerHTML" not in text


SECRET = [
    "large/../../secret.png",
    "large/..%2f..%2fsecret.png",
    "large/%2e%2e/%2e%2e/secret.png",
    "large/%252e%252e%252fsecret.png",
    "large/..\\..\\secret.png",
    "large/..%5c..%5csecret.png",
    "large/{secret}",
    "large//{secret}",
    "large/000.png",
    "large/-1.jpg",
    "large/5.jpg",
    "large/0.jpg%00.png",
    "large/99999999999999999999999.jpg",
    "static/../../../log.py",
    "static/..%2flog.py",
    "static/{secret}",
    "static/%2e%2e%2f%2e%2e%2flog.py",
    "../{secret}",
    "api/images?numbers=../secret.png",
    "api/images?numbers=-1",
    "api/images?numbers=5",
    "api/images?numbers=%D9%A3",
    "api/queue?tag=-1",
]


@pytest.mark.parametrize("path", SECRET)
def test_no_path_leaves_the_images(page, tmp_path, path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "secret.png")
    words = path.format(secret=tmp_path / "secret.png")
    answer = page.get(words)
    assert answer.status in (400, 403, 404), answer.body
    assert not answer.body.startswith((b"\x89PNG", b"\xff\xd8", b'"""'))


def test_a_picture_that_has_become_a_link_out_of_the_folder_is_not_shown(page, tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "secret.png")
    assert page.get("large/0.jpg").status == 200
    (tmp_path / "photos" / "000.png").unlink()
    (tmp_path / "photos" / "000.png").symlink_to(tmp_path / "secret.png")
    answer = page.get("large/0.jpg")
    assert answer.status == 404
    assert b"through a link" in answer.body


@pytest.mark.parametrize(
    "name",
    ["../secret.png", "/etc/passwd", "sub/../../secret.png", "..\\secret.png", "C:\\secret.png", "linked/secret.png"],
)
def test_what_serves_the_pictures_takes_no_such_name(tmp_path, name):
    (tmp_path / "photos").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for folder in (tmp_path, tmp_path / "elsewhere"):
        Image.new("RGB", (8, 8), "red").save(folder / "secret.png")
    (tmp_path / "photos" / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadImage, match=r"outside the folder|no such file"):
        FolderImages(tmp_path / "photos").image(name)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["api/decide", "api/undo"])
def test_only_a_post_changes_anything(page, session, method, path):
    action = session.decide([(0, 0, "yes")])
    body = json.dumps(YES | {"action": action}).encode()
    headers = {"Origin": f"http://{page.host}", "Content_Type": "application/json"}
    assert page.ask(method, f"/{TOKEN}/{path}", body, **headers).status == 405
    assert decisions(session) == 1


def test_asking_for_every_page_writes_nothing(page, session, tmp_path):
    for path in [*PAGES, "api/queue?tag=0&show=given", "api/queue?order=stored", "nothing"]:
        page.get(path)
    assert not (tmp_path / "review.jsonl").exists()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", None])
def test_a_post_that_a_form_could_send_is_refused(page, session, kind):
    assert page.post("api/decide", YES, Content_Type=kind).status == 415
    assert decisions(session) == 0


def test_a_body_without_end_is_not_received(page, session):
    large = json.dumps({"cells": [[0, 0, "yes"]] * 100_000}).encode()
    assert len(large) > server_module.MAX_BODY
    assert page.post("api/decide", large).status == 413
    chunked = (
        b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (large[:700_000], large[700_000:])) + b"0\r\n\r\n"
    )
    assert page.post("api/decide", chunked, Content_Length=None, Transfer_Encoding="chunked").status == 413
    assert decisions(session) == 0


CELLS = [3, [0, 0], [0, 0, "maybe"], [0, 0, ["yes"]], ["0", 0, "yes"], [True, 0, "yes"], [0, 3, "yes"], [5, 0, "yes"]]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, {}, {"cells": []}, {"cells": "yes"}])
def test_what_is_no_list_of_cells_is_refused(page, session, body):
    assert page.post("api/decide", body).status == 400
    assert decisions(session) == 0


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_one_cell_of_nonsense_is_refused_with_all_others(page, session, cell):
    assert page.post("api/decide", {"cells": [[0, 0, "yes"], cell]}).status in (400, 404)
    assert decisions(session) == 0


@pytest.mark.parametrize("body", [{}, {"action": 3}, {"action": "never made"}])
def test_an_unknown_action_is_not_undone(page, body):
    assert page.post("api/undo", body).status == 404


def test_decisions_come_in_and_are_undone(page, session):
    kept = page.post("api/decide", {"cells": [[0, 0, "no"], [1, 2, "unsure"]]}).json
    assert kept["progress"] == {"images": 5, "touched": 2, "decisions": 2}
    assert page.get("api/images?numbers=1,0").json["images"][1]["answers"] == ["no", None, None]
    assert page.post("api/undo", {"action": kept["action"]}).json["progress"]["decisions"] == 0
    assert page.post("api/undo", {"action": kept["action"]}).status == 404


def test_pictures_are_sent_small(page):
    for path, side in (("large/0.jpg", 1024), ("small/0.jpg", 320)):
        answer = page.get(path)
        assert answer.headers["content-type"] == "image/jpeg"
        with Image.open(BytesIO(answer.body)) as picture:
            assert picture.size == (side, side // 2)


def test_a_picture_that_is_gone_is_said_in_words(page, tmp_path):
    (tmp_path / "photos" / "000.png").unlink()
    answer = page.get("small/0.jpg")
    assert (answer.status, answer.body) == (404, b"cannot be shown: no such file\n")


def test_a_full_disk_is_said_and_the_decision_not_counted(page, session, monkeypatch):
    session.log.file = session.log.file.parent / "gone" / "review.jsonl"
    answer = page.post("api/decide", YES)
    assert answer.status == 500
    assert b"the decision is not kept" in answer.body


def basic(password: str, name: str = "anyone") -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_a_password_is_asked_for_where_there_is_one(session):
    with served(session, "open sesame") as page:
        for path in PAGES:
            answer = page.get(path)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Basic")
        for given in ("open sesam", "", "open sesame "):
            assert page.get("", Authorization=basic(given)).status == 401
        for header in ("Basic", "Basic !!", "Bearer open sesame", basic("open sesame").replace("Basic", "Digest")):
            assert page.get("", Authorization=header).status == 401
        assert page.get("", Authorization=basic("open sesame")).status == 200
        assert page.ask("GET", "/", Authorization=basic("open sesame")).status == 403  # the token all the same
        assert page.post("api/decide", YES).status == 401
        assert page.post("api/decide", YES, Authorization=basic("open sesame")).status == 200


def test_token_and_password_are_compared_in_constant_time():
    source = Path(server_module.__file__).read_text()
    assert source.count("secrets.compare_digest(") == 2


def test_a_server_on_all_addresses_takes_numbers_and_its_own_name_only():
    policy = AccessPolicy("0.0.0.0", 8000, "t", "password")  # noqa: S104
    assert policy.allows_host("192.168.1.2:8000")
    assert policy.allows_host(f"{socket.gethostname()}:8000")
    assert not policy.allows_host("evil.example:8000")
    assert not policy.allows_host("192.168.1.2:8001")
    assert AccessPolicy("192.168.1.2", 80, "t", "p").allows_host("192.168.1.2")
    assert AccessPolicy("::1", 8000, "t").address() == "http://[::1]:8000/t/"


def refused(capsys, *words: str) -> str:
    capsys.readouterr()
    assert run(["review", *words, "--no-browser"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("fewtags: ") == 1
    return printed.err


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "::", "example.org", "127.0.0.1.example.org"])  # noqa: S104
def test_another_host_needs_a_password(capsys, host):
    assert "--password-file" in refused(capsys, "run", "--host", host)


@pytest.mark.parametrize(
    ("content", "word"),
    [(None, "cannot be read"), ("", "8 letters"), ("short\n", "8 letters"), (b"\xff\xfe", "cannot be read")],
)
def test_a_password_file_must_hold_a_password(tmp_path, capsys, content, word):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert word in refused(capsys, "run", "--host", "0.0.0.0", "--password-file", str(file))  # noqa: S104


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert "is not a run folder" in refused(capsys, str(tmp_path))


def test_without_the_extra_its_name_is_said(monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "fewtags.review.server", None)
    said = refused(capsys, "run")
    assert "pip install '" in said
    assert "'starlette>=" in said
    assert "'uvicorn>=" in said


def test_a_port_in_use_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fewtags.review.session.open_session", lambda *given: make_session(tmp_path))
    monkeypatch.setattr("fewtags.api.data_of", lambda folder: None)
    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"--port {port}" in refused(capsys, "run", "--port", port)
