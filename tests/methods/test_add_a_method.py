"""docs/add-a-method.md, executed: the method it builds, its commands, its check."""

import re
import shlex
from pathlib import Path

import pytest

from fewtags.cli import run
from fewtags.scenes.draw import draw

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-method.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "agreement.py").write_text(blocks("python")[0], encoding="utf-8")
    draw(1, 0)[0].save(tmp_path / "photo.jpg")
    return tmp_path


def test_the_commands_of_the_page_run(package, capsys):
    shown, train = blocks("sh")[0].strip().splitlines()
    assert run(shown.split()[1:]) == 0
    assert "memory = 0.7" in capsys.readouterr().out
    quick = ["--size", "64", "--warmup", "2", "--epochs", "2"]
    assert run([*train.split()[1:], *quick]) == 0
    assert (package / "agreement-run" / "tags.csv").exists()
    config = (package / "agreement-run" / "config.yaml").read_text()
    assert "memory: 0.5" in config
    capsys.readouterr()
    for line in blocks("sh")[1].splitlines():
        assert run(shlex.split(line)[1:]) == 0, line
    exec(blocks("python")[1], {})
    assert "photo.jpg" in capsys.readouterr().out.splitlines()[-1]


def test_the_method_of_the_page_passes_the_checks(package):
    exec(blocks("python")[2], {})


def test_the_checks_catch_a_method_that_leaks_or_forgets(package):
    broken = blocks("python")[0].replace('self.state["mean"] = teacher', 'self.__dict__["mean"] = teacher')
    broken = broken.replace('self.state["mean"]', 'self.__dict__["mean"]')
    (package / "my_package" / "forgetful.py").write_text(broken, encoding="utf-8")
    from fewtags.testing import check_method

    with pytest.raises((AssertionError, KeyError)):
        check_method("my_package.forgetful")
