"""Asymmetric loss on the labelled images alone (Ridnik et al., ICCV 2021): row "ASL" of Table 1 of D2L.

The anchor of every comparison: the same loss, views and budget, and nothing learned from unlabelled images.
With `patches=2` it sees the five views of D2L.
"""

from typing import ClassVar

from fewtags.methods.base import Method


class ASL(Method):
    """Positives count fully; easy negatives (score under 0.05) not at all, hard ones the more."""

    paper: ClassVar[str] = "Ridnik et al., ICCV"
    year: ClassVar[int] = 2021

    uses_unlabelled: ClassVar[bool] = False
