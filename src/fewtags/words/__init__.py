"""What a tag's name says: from a name to the classes that frozen networks can tell apart."""

from fewtags.words.match import Match, match, tag_weights, weight_matrix
from fewtags.words.own import OFF, own_names, parse_words, words_text

__all__ = ["OFF", "Match", "match", "own_names", "parse_words", "tag_weights", "weight_matrix", "words_text"]
