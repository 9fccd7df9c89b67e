"""One battery of checks for every method that `fewtags methods` lists; a new file is checked without being named."""

import pytest

from fewtags.methods import make_method, method_names
from fewtags.testing import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", method_names())
def test_every_method_passes(name, check):
    check(lambda: make_method(name, {}))
