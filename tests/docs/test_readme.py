"""The documents keep their word: what they tell to type works, what they name exists."""

import re
import shlex
from pathlib import Path

import pytest
import torch

import fewtags
from fewtags.cli import run
from fewtags.scenes.draw import draw

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SMALL = {"size": 64, "warmup": 2, "epochs": 2}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def labels_of_the_readme() -> str:
    """The indented example of labels.csv."""
    (example,) = re.findall(r"^    image,tags\n(?:    .+\n)+", README, re.MULTILINE)
    return re.sub(r"^    ", "", example, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """The folder that the README speaks of, with photos/ and more-photos/."""
    home = tmp_path_factory.mktemp("readme")
    labels = labels_of_the_readme()
    named = [row.split(",")[0] for row in labels.splitlines()[1:]]
    others = [f"{number}.jpg" for number in range(20)]
    for index, name in enumerate([f"photos/{name}" for name in named + others] + ["more-photos/new.jpg"]):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        draw(1, index)[0].save(home / name)
    (home / "photos" / "labels.csv").write_text(labels, encoding="utf-8")
    return home


@pytest.fixture
def _small_training(monkeypatch):
    """The commands as they stand, with smaller defaults behind them."""
    monkeypatch.setattr("fewtags.training.config.default_settings", lambda *given: dict(SMALL))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("_small_training")
def test_the_commands_and_the_python_of_the_readme_work_as_they_stand(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    commands = [shlex.split(line, comments=True) for block in blocks(README, "sh") for line in block.splitlines()]
    assert [words[1] for words in commands] == ["train", "check", "train", "tag"]
    for words in commands:
        assert words[0] == "fewtags"
        assert run(words[1:]) == 0, words
    for name in ("by-name/tags.csv", "run/tags.csv", "run/tags.png", "run/model/model.json", "more.csv"):
        assert Path(name).exists(), name
    capsys.readouterr()
    code = blocks(README, "python")
    assert len(code) == 2
    for block in code:
        exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("photos/beach.jpg [")
    assert printed[-1] == "[0.4 0.2]"


def test_the_table_of_the_readme_names_the_verbs_there_are(capsys):
    named = re.findall(r"^\| `fewtags (\w+)", README, re.MULTILINE)
    assert run(["--help"]) == 0
    commands = capsys.readouterr().out.split("Commands:")[1]
    assert sorted(named) == sorted(re.findall(r"^  (\w+) ", commands, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.usefixtures("_small_training")
def test_the_method_of_contributing_works_from_a_package_of_ones_own(tmp_path, monkeypatch):
    (block,) = blocks(CONTRIBUTING, "python")
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "my_method.py").write_text(block, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    told = re.search(r"`(--method [\w.]+)`", CONTRIBUTING)[1].split()
    assert run(["train", "scenes:32", *told, "--set", "threshold=0.3", "--out", "run"]) == 0
    assert fewtags.load("run", methods=[told[1]]).info.method == "my_package.my_method"
    records = fewtags.Run(Path("run"), {}).records
    assert {record["stage"] for record in records} == {"warmup", "main"}


def modules_of_the_source() -> dict[str, set[str]]:
    """Top folder ("" for the package itself) -> its files and those of its sub-folders."""
    source = Path(fewtags.__file__).parent
    found: dict[str, set[str]] = {}
    for path in source.rglob("*.py"):
        if not path.name.startswith("__"):
            top = path.relative_to(source).parts[0]
            found.setdefault("" if top == path.name else top, set()).add(path.name)
    return found


def modules_of_the_architecture() -> dict[str, set[str]]:
    tree = ARCHITECTURE[ARCHITECTURE.index("src/fewtags/") :].split("\n## ")[0]
    folder, found = "", {}
    for line in tree.splitlines()[1:]:
        top = re.match(r"      (\w+)(/?)", line)
        if top:
            folder = top[1] if top[2] else ""
        found.setdefault(folder, set()).update(re.findall(r"\w+\.py", line))
    return found


def test_the_architecture_names_every_module_and_no_other():
    assert modules_of_the_architecture() == modules_of_the_source()


@pytest.mark.parametrize(
    "document", ["README.md", "CONTRIBUTING.md", *[f"docs/{p.name}" for p in ROOT.glob("docs/*.md")]]
)
def test_what_a_document_links_to_exists(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    missing = [link for link in links if not (ROOT / document).parent.joinpath(link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_the_files_that_a_document_names_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:src|tests|docs|results|benchmarks)/[\w/.-]*)`", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
