"""What `--words` takes, and what it says when it cannot."""

import os

import pytest

from fewtags.errors import UserError
from fewtags.words import parse_words, words_text

TAGS = ["sofa", "tv", "crane", "Größe, x"]


def test_text_names_tags_and_words():
    assert parse_words(" sofa = couch|settee ; tv=television;", TAGS) == {
        "sofa": ["couch", "settee"],
        "tv": ["television"],
    }


def test_a_minus_is_kept_and_its_class_is_checked():
    given = "crane=- Crane (wading bird)|lifter; tv=-"
    assert parse_words(given, TAGS) == {"crane": ["-Crane (wading bird)", "lifter"], "tv": ["-"]}
    assert parse_words("crane=-crane", TAGS) == {"crane": ["-crane"]}


def test_off_gives_no_tag_any_words():
    assert parse_words("off", TAGS) == {tag: ["-"] for tag in TAGS}


@pytest.mark.parametrize(
    "content",
    [
        b'tag,words\nsofa,couch|settee\n"Gr\xc3\xb6\xc3\x9fe, x",size\n',
        b'\xef\xbb\xbftag,words\r\nsofa,couch|settee\r\n\r\n"Gr\xc3\xb6\xc3\x9fe, x", size \r\n',
        b'words,Tag\n"couch|settee",sofa\nsize,"Gro\xcc\x88\xc3\x9fe, x"\n',
    ],
    ids=["plain", "byte-order mark and CRLF", "other order and another form of ö"],
)
def test_a_file_says_the_same(tmp_path, content):
    file = tmp_path / "words.csv"
    file.write_bytes(content)
    assert parse_words(str(file), TAGS) == {"sofa": ["couch", "settee"], "Größe, x": ["size"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--words is empty"),
        (" ; ", "--words is empty"),
        ("sofas=couch", "no tag 'sofas'; did you mean 'sofa'"),
        ("sofa", "'sofa': there is no such file, and it has no ="),
        ("missing.csv", "no such file"),
        ("sofa=couch; tv", "'tv': it has no ="),
        ("sofa=", "'sofa' has no words; write some, or -"),
        ("sofa=|", "'sofa' has no words"),
        ("sofa=couch; sofa=settee", "'sofa' comes twice"),
        ("sofa=-|couch", "- alone switches everything off"),
        ("crane=-crain", "no class is called 'crain'; did you mean 'crane"),
        ("=couch", "there is no tag ''"),
        ("x\0=couch", "there is no tag"),
        ("y" * 5000, "no ="),
    ],
)
def test_bad_text_is_told_with_a_remedy(text, message):
    with pytest.raises(UserError) as told:
        parse_words(text, TAGS)
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "words.csv: the file is empty; its first line must be `tag,words`"),
        (b"\n \n", "words.csv: the file is empty"),
        (b"tag,words\n", "words.csv: no rows"),
        (b"tag,word\nsofa,couch\n", "words.csv, line 1: no column `words`; did you mean 'word'"),
        (b"name,words\nsofa,couch\n", "words.csv, line 1: no column `tag`"),
        (b"tag;words\nsofa;couch\n", "separate the columns with commas"),
        (b"tag,words\nsofa,couch\ntvv,x\n", "words.csv, line 3: there is no tag 'tvv'; did you mean 'tv'"),
        (b"tag,words\n\nsofa,couch,settee\n", "words.csv, line 3: 3 cells, the header has 2; separate words with |"),
        (b"tag,words\nsofa\n", "words.csv, line 2: 1 cells"),
        (b"tag,words\nsofa,\n", "words.csv, line 2: 'sofa' has no words"),
        (b"tag,words\nsofa,a\nsofa,b\n", "words.csv, line 3: 'sofa' comes twice"),
        (b'tag,words\nsofa,"a\n', "words.csv, line 2: not CSV"),
        (b"tag,words\nsofa,\xff\n", "not UTF-8; save the file as `CSV UTF-8`"),
        (
            b"tag,words\ntv,-televisoin\n",
            "words.csv, line 2: no class is called 'televisoin'; did you mean 'television'",
        ),
        (b"x" * 1_000_001, "larger than 1 MB"),
    ],
)
def test_a_bad_file_is_told_with_its_line_and_a_remedy(tmp_path, content, message):
    file = tmp_path / "words.csv"
    file.write_bytes(content)
    with pytest.raises(UserError) as told:
        parse_words(str(file), TAGS)
    assert message in str(told.value)


def test_only_a_regular_file_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("", "pipe"):
        with pytest.raises(UserError, match="not a file"):
            parse_words(str(tmp_path / name), TAGS)


@pytest.mark.parametrize(
    "own",
    [
        {"sofa": ["couch", "settee"], "tv": ["-"]},
        {"a=b": ["couch"]},
        {"a;b": ["couch"], "sofa": ["-studio couch", "settee"]},
        {"sofa": ["couch; or so"], "tv": ["a=b"]},
        {'"quoted", x': ["couch"], "a=b": ["two\nlines"]},
        {"tag": ["words"]},
    ],
    ids=str,
)
def test_words_come_back_from_their_text(own):
    """config.yaml keeps the text, and a run is repeated with it."""
    assert parse_words(words_text(own), [*own, "other"]) == own


def test_words_of_plain_names_are_kept_as_a_person_would_write_them():
    assert words_text({"sofa": ["couch", "settee"], "tv": ["-"]}) == "sofa=couch|settee; tv=-"
