"""`fewtags words` and the page about it."""

import gzip
import json
import re
import shlex
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from fewtags.cli import run

PAGE = Path(__file__).parents[2] / "docs" / "words.md"
SHOWN = re.findall(r"^```text\n\$ (fewtags .*)\n((?:.*\n)*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_a_block_lists_at_most_twenty_classes(capsys):
    assert run(["words", "dog"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["dog: Chihuahua, Japanese spaniel and 116 more", "  read as dog", "  1.00  Chihuahua"]
    assert len(lines) == 23
    assert lines[-1].strip() == "and 98 more"


def test_what_to_do_is_said_where_nothing_was_found(capsys):
    assert run(["words", "our sunset", "zebra"]) == 0
    nothing, zebra = capsys.readouterr().out.split("\n\n")
    assert "say it in other words: --words 'our sunset=word|word'" in nothing
    assert "label some images" in nothing
    assert "1.00  zebra" in zebra


def test_own_words_are_shown(capsys, tmp_path):
    (tmp_path / "words.csv").write_text("tag,words\ntv,-\nsky,kite\n", encoding="utf-8")
    assert run(["words", "tv", "sky", "--words", str(tmp_path / "words.csv")]) == 0
    assert (
        capsys.readouterr().out
        == "tv: words switched off; learned from labels alone\n\nsky: kite\n  read as kite\n  1.00  kite\n"
    )


def test_wrong_words_end_with_code_two(capsys):
    assert run(["words", "tv", "--words", "tb=television"]) == 2
    assert "no tag 'tb'; did you mean 'tv'" in capsys.readouterr().err
    assert run(["words"]) == 2


def test_torch_is_not_imported():
    code = "import sys; from fewtags.cli import run; print(run(['words', 'dog']), *sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stderr.split()) & {"torch", "PIL", "matplotlib", "yaml"} == set()
    assert done.stderr.startswith("0 ")


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_page_shows_what_is_printed(command, output, capsys):
    assert run(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == output


def test_the_page_has_examples():
    assert len(SHOWN) == 2


def test_the_table_is_small_and_the_licence_lies_beside_it():
    package = files("fewtags.words")
    packed = (package / "wordnet.json.gz").read_bytes()
    assert len(packed) < 500_000
    assert packed[4:8] == bytes(4)  # no time: made again, it is the same file
    assert len(json.loads(gzip.decompress(packed))["classes"]) == 1000
    notice = (package / "WORDNET-LICENSE.txt").read_text(encoding="utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University.  All rights reserved." in notice


def test_an_empty_name_is_refused(capsys):
    assert run(["words", "dog", " "]) == 2
    assert "a name is empty" in capsys.readouterr().err
