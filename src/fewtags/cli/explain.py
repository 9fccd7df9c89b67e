"""`fewtags explain`: why an image got its tags, as a picture or a page."""

from pathlib import Path

from fewtags.errors import UserError

SUFFIXES = (".png", ".html")


def run_explain(run: Path, image: Path, tags: list[str], out: Path | None, method: str | None) -> None:
    """Draw, and print what decided about every tag."""
    target = out or Path(f"{image.stem}-explain.png")
    _check(run, image, target)
    from fewtags.explain import explain
    from fewtags.utils.files import atomic_write, write_text

    explained = explain(run, image, tags, [method] if method else [])
    if target.suffix.lower() == ".html":
        from fewtags.explain.page import draw_page

        write_text(target, draw_page(explained))
    else:
        from fewtags.explain.figure import draw_figure

        with atomic_write(target) as file:
            file.write(draw_figure(explained))
    width = max(len(tag.tag) for tag in explained.tags)
    for tag in explained.tags:
        print(f"{tag.tag:<{width}}  {'given' if tag.given else '–':<5}  {tag.decided}")
    if explained.left_out:
        print(f"given too: {', '.join(explained.left_out)} (choose with --tag)")
    print(target)


def _check(run: Path, image: Path, target: Path) -> None:
    """What can be said before anything is loaded."""
    if target.suffix.lower() not in SUFFIXES:
        raise UserError(f"--out {target}: name a .png file for a picture, or an .html file for a page")
    if target.is_dir() or not target.absolute().parent.is_dir():
        what = "is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise UserError(f"--out {target}: {what}; name a file in a folder that exists")
    if not image.is_file():
        what = "is a folder; name one image in it" if image.is_dir() else "there is no such file"
        raise UserError(f"{image}: {what}")
    if target.exists() and target.samefile(image):
        raise UserError(f"--out {target}: this is the image itself; name another file")
    if run.suffix.lower() == ".onnx" and not run.is_dir():
        raise UserError(f"{run}: an exported file holds scores only; give the run folder or an exported model folder")
