"""What an exported file says of itself: one JSON text in its metadata. No torch here."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fewtags.views import ViewSpec

KEY = "fewtags"  # of the metadata


class About(BaseModel):
    """All that a program needs beside the graph."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may say more

    fewtags: str  # version that wrote it
    tags: list[str] = Field(min_length=1)
    thresholds: list[float | None]  # a tag is given where its score reaches this; None: never
    inputs: dict[str, str]  # name -> how it is made of an image, in words
    size: int = Field(ge=1)  # px of the side of the square inputs
    patches: int = Field(ge=1)  # per side
    patch_source: Literal["resized", "original"]
    patch_size: Literal["full", "native"]
    method: str
    backbone: str
    learned_from: int  # images

    @model_validator(mode="after")
    def _a_threshold_a_tag(self) -> "About":
        if len(self.thresholds) != len(self.tags):
            raise ValueError(f"{len(self.tags)} tags but {len(self.thresholds)} thresholds")
        return self

    def view_spec(self) -> ViewSpec:
        """How an image is cut for this model."""
        return ViewSpec(
            size=self.size, patches=self.patches, patch_source=self.patch_source, patch_size=self.patch_size
        )

    def threshold_values(self) -> list[float]:
        """The thresholds as numbers, infinite where a tag is never given."""
        return [float("inf") if value is None else value for value in self.thresholds]
