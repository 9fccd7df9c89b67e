"""Safe decoding and names that cannot leave their folder."""

import struct
import zlib
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fewtags.data.images import MAX_PIXELS, FolderImages, decode, list_images, path_within, time_taken
from fewtags.errors import BadImage


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width: int = 64, height: int = 48) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 9)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photograph_comes_out_upright(orientation: int) -> None:
    upright = Image.new("RGB", (32, 16), "black")
    upright.paste("red", (0, 0, 8, 8))  # only the top left corner: every turn and mirror moves it
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Pillow's operation that the camera applied
    held = upright if orientation == 1 else upright.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    result = decode(encoded(held, "PNG", exif=exif))
    assert np.array_equal(np.asarray(result), np.asarray(upright))
    assert "exif" not in result.info


def test_transparent_pixels_become_white_in_every_mode_that_has_them() -> None:
    clear = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    half = Image.new("RGBA", (4, 4), (0, 0, 0, 128))
    grey = Image.new("LA", (4, 4), (0, 0))
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([10, 20, 30] * 256)
    assert decode(encoded(clear, "PNG")).getpixel((0, 0)) == (255, 255, 255)
    assert decode(encoded(half, "PNG")).getpixel((0, 0)) == (127, 127, 127)
    assert decode(encoded(grey, "PNG")).getpixel((0, 0)) == (255, 255, 255)
    assert decode(encoded(palette, "PNG", transparency=0)).getpixel((0, 0)) == (255, 255, 255)
    assert decode(encoded(palette, "PNG")).getpixel((0, 0)) == (10, 20, 30)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_and_not_clipped(kind: str) -> None:
    deep = Image.fromarray(np.array([[0, 257 * 100, 65535]], dtype=np.uint16))
    assert [decode(encoded(deep, kind)).getpixel((x, 0)) for x in range(3)] == [
        (0,) * 3,
        (100,) * 3,
        (255,) * 3,
    ]


def test_float_pictures_are_scaled_by_their_usual_white() -> None:
    ramp = np.array([[0.0, 0.2, 1.0]], dtype=np.float32)
    for white in (1, 255):
        shown = decode(encoded(Image.fromarray(ramp * white), "TIFF"))
        assert np.asarray(shown)[0, :, 0].tolist() == [0, 51, 255]


def test_cmyk_and_bilevel_become_rgb() -> None:
    cyan = decode(encoded(Image.new("CMYK", (8, 8), (255, 0, 0, 0)), "JPEG", quality=100))
    assert cyan.mode == "RGB"
    assert np.allclose(cyan.getpixel((4, 4)), (0, 255, 255), atol=4)
    assert decode(encoded(Image.new("1", (8, 8), 1), "PNG")).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame_counts(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert np.allclose(decode(data).getpixel((4, 4)), (255, 0, 0), atol=2)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"])
def test_a_whole_file_is_read_and_a_cut_one_refused(kind: str) -> None:
    data = encoded(noise(), kind)
    assert decode(data).size == (64, 48)
    with pytest.raises(BadImage):
        decode(data[: len(data) * 2 // 3])


def test_a_cut_file_says_so() -> None:
    data = encoded(noise(), "JPEG")
    with pytest.raises(BadImage, match="cut off"):
        decode(data[: len(data) // 2])


@pytest.mark.parametrize(("data", "reason"), [(b"", "empty"), (b"hello, I am text", "not an image")])
def test_files_that_are_no_image_have_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage, match=reason):
        decode(data)


def test_formats_that_nobody_asked_for_stay_closed() -> None:
    with pytest.raises(BadImage, match="not an image of a known format"):
        decode(encoded(noise(), "PPM"))


@pytest.mark.parametrize("side", [60000, 10001, int(MAX_PIXELS**0.5) + 1])
def test_a_bomb_is_refused_from_its_header(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*_: object) -> None:
        raise AssertionError("the pixels were decoded")

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load_prepare", decoded)
    with pytest.raises(BadImage, match="100 million"):
        decode(png_that_claims(side, side))


def test_damaged_exif_does_not_lose_the_picture() -> None:
    assert decode(encoded(noise(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 20)).size == (
        64,
        48,
    )


@given(
    st.sampled_from([encoded(noise(16, 12), kind) for kind in ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=8),
)
def test_no_bytes_raise_anything_but_bad_image(data: bytes, edits: list[tuple[int, int]]) -> None:
    broken = bytearray(data)
    for place, value in edits:
        broken[place % len(broken)] = value
    try:
        image = decode(bytes(broken))
    except BadImage:
        return
    assert image.mode == "RGB"


def test_images_are_listed_sorted_with_sub_folders_and_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.JPG", "a.png", "sub/deep/c.webp", ".hidden.png", ".git/d.png", "notes.txt", "e.jpg.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list_images(tmp_path) == ["a.png", "b.JPG", "sub/deep/c.webp"]


def test_links_that_lead_out_are_not_listed(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    (tmp_path / "secret.png").touch()
    (root / "real.png").touch()
    (root / "alias.png").symlink_to("real.png")
    (root / "out.png").symlink_to(tmp_path / "secret.png")
    (root / "loop.png").symlink_to("loop.png")
    (root / "up").symlink_to(tmp_path)
    assert list_images(root) == ["alias.png", "real.png"]


@pytest.mark.parametrize("name", ["../x.png", "a/../../x.png", "/x.png", "C:\\x.png", "..\\x.png", "a\0.png", ""])
def test_a_name_cannot_leave_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "x.png").write_bytes(encoded(noise(), "PNG"))
    with pytest.raises(BadImage, match="outside"):
        FolderImages(tmp_path / "photos").image(name)


def test_a_link_cannot_leave_the_folder(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    (tmp_path / "x.png").write_bytes(encoded(noise(), "PNG"))
    (root / "x.png").symlink_to(tmp_path / "x.png")
    for read in (FolderImages(root).image, FolderImages(root).fingerprint):
        with pytest.raises(BadImage, match="outside the folder through a link"):
            read("x.png")
    assert path_within(tmp_path, "photos/x.png") == (tmp_path / "x.png").resolve()


def test_missing_files_and_folders_are_bad_images(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for name in ("none.png", "folder.png", "x" * 5000):
        with pytest.raises(BadImage):
            FolderImages(tmp_path).fingerprint(name)


def test_the_fingerprint_follows_the_content_and_not_the_name(tmp_path: Path) -> None:
    for name, data in (("a.png", b"1"), ("b.png", b"1"), ("c.png", b"2")):
        (tmp_path / name).write_bytes(data)
    a, b, c = (FolderImages(tmp_path).fingerprint(f"{name}.png") for name in "abc")
    assert len(a) == 16
    assert a == b != c


# --- when a photo was taken --------------------------------------------------------------------------------------


def photo(path: Path, taken: object = None, fraction: object = None, kind: str = "JPEG") -> Path:
    """A picture whose EXIF data says when it was taken, if it says so."""
    exif = Image.Exif()
    exif[0x0112] = 1  # upright
    details = {name: value for name, value in ((0x9003, taken), (0x9291, fraction)) if value is not None}
    if details:
        exif.get_ifd(0x8769).update(details)
    path.write_bytes(encoded(noise(16, 12), kind, exif=exif))
    return path


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_photo_says_when_it_was_taken_to_the_second(kind: str, tmp_path: Path) -> None:
    first = time_taken(photo(tmp_path / "a", "2024:02:28 23:59:58", kind=kind))
    later = time_taken(photo(tmp_path / "b", "2024:02:29 00:00:03", kind=kind))
    assert first is not None
    assert later is not None
    assert later - first == 5.0


@pytest.mark.parametrize(
    ("fraction", "seconds"), [("5", 0.5), ("25", 0.25), ("250 ", 0.25), ("007", 0.007), ("", 0.0), ("x", 0.0)]
)
def test_fractions_of_a_second_count_where_they_are_numbers(fraction: str, seconds: float, tmp_path: Path) -> None:
    whole = time_taken(photo(tmp_path / "a.jpg", "2024:02:28 12:00:00"))
    parted = time_taken(photo(tmp_path / "b.jpg", "2024:02:28 12:00:00", fraction))
    assert whole is not None
    assert parted == pytest.approx(whole + seconds, abs=1e-6)


def test_a_time_may_end_in_zero_bytes_or_spaces(tmp_path: Path) -> None:
    times = {time_taken(photo(tmp_path / "a.jpg", f"2024:02:28 12:00:00{end}")) for end in ("", " ", "\0")}
    assert len(times) == 1
    assert None not in times


@pytest.mark.parametrize(
    "taken", [None, "", "    :  :     :  :  ", "0000:00:00 00:00:00", "2024-02-28 12:00:00", "2024:02:30 12:00:00", "x"]
)
def test_a_photo_that_does_not_say_when_has_no_time(taken: str | None, tmp_path: Path) -> None:
    assert time_taken(photo(tmp_path / "a.jpg", taken)) is None


def test_a_time_of_changes_is_not_the_time_of_a_photo(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0132] = "2024:02:28 12:00:00"  # when the file was edited
    (tmp_path / "a.jpg").write_bytes(encoded(noise(16, 12), "JPEG", exif=exif))
    assert time_taken(tmp_path / "a.jpg") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello, I am text",
        encoded(noise(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 20),
        encoded(noise(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x87\x69\0\x04\0\0\0\x01\xff\xff\xff\xff"),
        encoded(noise(), "PPM"),
    ],
    ids=["empty", "text", "damaged", "details outside of the file", "a format that stays closed"],
)
def test_damaged_data_has_no_time_and_raises_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(data)
    assert time_taken(tmp_path / "a.jpg") is None


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=8))
def test_no_bytes_of_metadata_raise_anything(edits: list[tuple[int, int]]) -> None:
    with TemporaryDirectory() as folder:
        path = photo(Path(folder) / "a.jpg", "2024:02:28 12:00:00", "25")
        broken = bytearray(path.read_bytes())
        for place, value in edits:
            broken[place % len(broken)] = value
        path.write_bytes(broken)
        assert isinstance(time_taken(path), float | None)


def test_the_photo_is_not_decoded_for_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = photo(tmp_path / "a.jpg", "2024:02:28 12:00:00")
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", None)
    assert time_taken(path) is not None


def test_photos_of_a_folder_say_when_they_were_taken(tmp_path: Path) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    photo(root / "a.jpg", "2024:02:28 12:00:00", "5")
    photo(root / "b.jpg")
    photo(tmp_path / "outside.jpg", "2024:02:28 12:00:00")
    (root / "link.jpg").symlink_to(tmp_path / "outside.jpg")
    images = FolderImages(root)
    assert images.taken("a.jpg") == time_taken(root / "a.jpg")
    assert images.taken("a.jpg") is not None
    for name in ("b.jpg", "none.jpg", "../outside.jpg", "link.jpg"):
        assert images.taken(name) is None
