"""Spelling by itself: plain names, British and American forms, plurals."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewtags.words import match, own, spelling
from fewtags.words.spelling import LONGEST_WORD, american, british, plain, readings, singulars, splits


@pytest.mark.parametrize("module", [spelling, own, match.__module__], ids=str)
def test_the_examples_of_the_docstrings_are_true(module):
    import importlib

    outcome = doctest.testmod(importlib.import_module(module) if isinstance(module, str) else module)
    assert outcome.failed == 0
    assert outcome.attempted > 0


@given(st.text())
def test_what_is_plain_stays_as_it_is(text):
    assert plain(plain(text)) == plain(text)


@given(
    st.text(alphabet="abcdefghilnorstuyzlee", max_size=12) | st.sampled_from(["colour", "tyre", "travelled", "analyse"])
)
def test_what_is_american_stays_as_it_is(word):
    assert american(american(word)) == american(word)


@pytest.mark.parametrize(
    "word", ["colour", "theatre", "grey", "catalogue", "traveller", "plough", "defence", "organise"]
)
def test_american_leads_back_to_british(word):
    assert american(word) != word
    assert word in british(american(word))


@pytest.mark.parametrize("word", ["our", "dog", "or", "tre", "", "four"])
def test_short_and_other_words_are_left_alone(word):
    assert american(word) in (word, "for")


def test_singulars_have_the_word_itself_first():
    assert singulars("glasses", {}) == ["glasses", "glass", "glasse"]
    assert singulars("geese", {"geese": "goose"}) == ["geese", "goose"]
    assert singulars("s", {}) == ["s"]


@given(st.text())
def test_readings_are_plain_words(text):
    for words in readings(text):
        assert words
        assert all(word == plain(word) for word in words)


def test_only_a_word_of_bearable_length_is_split():
    assert list(splits("teapot", 3)) == [["tea", "pot"]]
    assert list(splits("a" * (LONGEST_WORD + 1), 2)) == []
    assert list(splits("ab", 2)) == []
