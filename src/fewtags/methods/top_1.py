"""Top-1 (from Xie et al., NeurIPS 2023): only the best tag of every image is present. Table 1, row "Top-*"."""

from typing import ClassVar

from pydantic import Field

from fewtags.methods.top_k import TopK


class Top1(TopK):
    """Top-k with one tag an image: seldom wrong, and blind to the rest of the picture."""

    paper: ClassVar[str] = "Xie et al., NeurIPS"
    year: ClassVar[int] = 2023

    k: int | None = Field(1, ge=1)
    """Tags an image gets."""
