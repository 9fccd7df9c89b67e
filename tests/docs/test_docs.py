"""The site keeps its word: it builds, every command on it runs, every message it explains exists."""

import ast
import html
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import fewtags
from fewtags.bench.engines import Event
from fewtags.cli import run
from fewtags.encoders import runtime as engine
from fewtags.methods.neighbours import Neighbours
from fewtags.review.log import Decision, ReviewLog
from fewtags.scenes.draw import draw
from fewtags.training import resolve as job
from fewtags.training.run_folder import RunFolder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SMALL = {"size": 64, "warmup": 1, "epochs": 1}
RUN_HERE = {"sh", "python", "csv"}  # `console` is for what cannot be: it needs the network, a GPU or a person
SHOWN = {"console", "text"}
ELSEWHERE = {"add-a-method.md", "deploy.md"}  # test_add_a_method.py and test_export.py run them
FENCE = re.compile(r'^( *)```(\w*)(?: title="([^"]*)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)


FILES_OF_PAGES = {  # that a page says are there when its reader has followed it
    "index.md": "run/tags.csv run/report.html",
    "first-ten-minutes.md": "demo/all-seed1/tags.png first/tags.csv first/tags.png run/tags.csv run/report.html "
    "042-explain.png more.csv",
    "tag-your-photos.md": "tasks.json run/report.html street.html corrections.csv more.csv model.onnx again.csv",
    "python.md": "run/tags.csv second-run/tags.csv",
    "researchers.md": "table.tex",
    "vectors.md": "run/report.html new.csv again.csv python-run/vectors.npz digits-model/classifier.json",
}


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return [Block(found[2], found[3] or "", found[4]) for found in FENCE.finditer(text)]


PAGES = sorted(path.name for path in DOCS.glob("*.md"))
PAGES_THAT_RUN = [page for page in PAGES if page not in ELSEWHERE and {b.language for b in blocks(page)} & RUN_HERE]


def commands(block: Block) -> list[list[str]]:
    lines = block.text.replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_builds_without_a_warning_and_links_every_page(site):
    index = (site / "index.html").read_text(encoding="utf-8")
    assert [
        page for page in PAGES if f'href="{page.removesuffix(".md")}.html"' not in index and page != "index.md"
    ] == []


def test_the_site_fetches_nothing_from_elsewhere(site):
    fetched = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//|<link[^>]+stylesheet[^>]+//|@import""")
    assert [page.name for page in site.rglob("*.html") if fetched.search(page.read_text(encoding="utf-8"))] == []


def test_the_reference_holds_every_verb_and_every_function(site, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == 0
    verbs = re.findall(r"^  (\w+) ", capsys.readouterr().out.split("Commands:")[1], re.MULTILINE)
    page = (site / "commands.html").read_text(encoding="utf-8")
    words = html.unescape(re.sub(r"<[^>]*>", "", page)).split()
    for verb in [*([verb] for verb in verbs), ["bench", "run"]]:
        assert f'id="fewtags-{"-".join(verb)}"' in page
        assert run([*verb, "--help"]) == 0
        shown = capsys.readouterr().out.split()
        assert any(words[start : start + len(shown)] == shown for start in range(len(words))), verb
    python = (site / "python.html").read_text(encoding="utf-8")
    named = re.findall(r"^::: ([\w.]+)$", (DOCS / "python.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in named if f'id="{name}"' not in python] == []
    assert "softmax(values / alpha)" in python  # the docstring of merge_patches, not its name alone


def test_figures_are_part_of_the_page_and_the_results_part_of_the_site(site):
    page = (site / "method.html").read_text(encoding="utf-8")
    assert page.count('<svg class="plan"') == len(list((DOCS / "figures").glob("*.svg")))
    assert 'href="results/voc/recipe.html"' in page
    assert (site / "results" / "voc" / "default.csv").exists()


@pytest.fixture
def _small(monkeypatch):
    """The commands as they stand, with one small network, small pictures and few epochs behind them."""

    def choose(*given):
        plan = before(*given)
        return plan if plan.features == "vectors" else plan._replace(size=64, backbone="efficientnet_lite0")

    def run_here(task, cells, jobs):
        for cell in cells:
            yield Event("failed" if (reason := task(cell)) else "done", cell, reason)

    before = job.choose
    monkeypatch.setattr(job, "choose", choose)
    monkeypatch.setattr("fewtags.bench.runner.run_here", run_here)  # in this process, where all is small
    monkeypatch.setattr(engine, "OnnxEngine", lambda reader: engine.TorchEngine(reader, torch.device("cpu")))
    monkeypatch.setattr("fewtags.training.config.default_settings", lambda *given: dict(SMALL))
    few = {"warmup": 0, "epochs": 2, "labelled_batch": 2, "unlabelled_batch": 6}
    monkeypatch.setattr(Neighbours, "training", classmethod(lambda *given: dict(few)))
    monkeypatch.setattr("fewtags.cli.demo.DATA", "scenes:40")


def draw_photos(names: list[str]) -> None:
    for index, name in enumerate(names):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        draw(1, index)[0].save(name)


def write_csv(block: Block) -> None:
    """The file that a block shows; beside labels, the images they name and some that they do not."""
    target = Path(block.title)
    target.parent.mkdir(exist_ok=True)
    target.write_text(block.text, encoding="utf-8")
    if target.name == "labels.csv":
        named = [line.split(",")[0] for line in block.text.splitlines()[1:]]
        draw_photos([f"{target.parent}/{name}" for name in named + [f"{number}.jpg" for number in range(8)]])


def decide_as_a_person(folder: Path) -> None:
    """What an hour with the page leaves behind."""
    images = RunFolder(folder).split()["unlabelled"]
    tags = RunFolder(folder).config().tags
    ReviewLog(folder / "review.jsonl").append([Decision(image, tags[0], "yes") for image in images[:2]])


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("page", PAGES_THAT_RUN)
def test_what_a_page_tells_to_type_works_in_its_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw_photos(["more-photos/new.jpg"])
    names: dict = {}
    for block in blocks(page):
        if block.language == "csv":
            write_csv(block)
        elif block.language == "python":
            exec(compile(block.text, page, "exec"), names)
        elif block.language == "console" and ["fewtags", "review", "run"] in commands(block):
            decide_as_a_person(Path("run"))
        elif block.language == "sh":
            for words in commands(block):
                assert words[0] == "fewtags", f"{page} runs {words}; mark it as console and say what it needs"
                assert run(words[1:]) == 0, f"{page}: {shlex.join(words)}"
    for name in FILES_OF_PAGES[page].split():
        assert Path(name).is_file(), f"{page} speaks of {name}"


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_says_what_it_needs_and_has_no_invented_option(page, capsys):
    for block in blocks(page):
        assert block.language in RUN_HERE | SHOWN, f"{page}: a block of {block.language!r} is never run"
        if block.language != "console":
            continue
        assert block.title.startswith("needs "), f"{page}: {block.text}"
        for words in commands(block):
            if "fewtags" not in words:
                continue
            words = words[words.index("fewtags") + 1 :]
            verb = words[:2] if words[0] == "bench" else words[:1]
            assert run([*verb, "--help"]) == 0
            shown = capsys.readouterr().out
            assert [word for word in words if word.startswith("--") and word not in shown.split()] == []


def test_no_command_hides_outside_of_a_block():
    for page in PAGES:
        text = FENCE.sub("", (DOCS / page).read_text(encoding="utf-8"))
        assert re.findall(r"^(?: {4}|\t)\$? ?(?:fewtags|pip|make) .*$", text, re.MULTILINE) == [], page


def messages_of_the_source() -> list[re.Pattern]:
    """Every string of the source that could be a message, with anything in the place of its names and numbers."""
    found = []
    for path in Path(fewtags.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts = [node.value]
            elif isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
            else:
                continue
            if sum(len(part) for part in parts if part) >= 12:
                text = "".join("\0" if part is None else part for part in parts).rstrip()
                found.append(re.compile(re.escape(text).replace("\0", ".*"), re.DOTALL))
    return found


def test_every_message_that_is_explained_is_one_that_fewtags_says():
    said = messages_of_the_source()
    explained = [block.text.strip() for block in blocks("troubleshooting.md") if block.language == "text"]
    assert len(explained) >= 20
    for message in explained:
        # a problem of a file is said as `fewtags: FILE, line N: …`
        bare = re.sub(r"^fewtags: (?:\S+?\.csv(?:, line \d+)?: )?", "", message)
        starts = (bare, bare.partition(": ")[2])
        assert any(pattern.fullmatch(start) for pattern in said for start in starts), message
