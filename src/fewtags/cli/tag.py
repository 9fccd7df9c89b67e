"""`fewtags tag`: any number of images to a CSV file, in constant memory, going on where it was interrupted."""

import csv
import glob
import hashlib
import io
import sys
from pathlib import Path
from typing import TextIO

from fewtags.data.catalogue import ImageSource
from fewtags.data.images import IMAGE_SUFFIXES, list_images
from fewtags.errors import UserError
from fewtags.model.base import BaseTagger
from fewtags.utils.files import csv_line, write_text
from fewtags.utils.progress import Progress, say
from fewtags.utils.stopping import StopRequest

FLUSH_EVERY = 64  # images; what a kill can cost


def run_tag(run: Path, images: list[str], out: str, with_scores: bool, method: str | None) -> None:
    """Tag and write; bad files are listed beside the result."""
    paths, source = find_rows(images)
    if out != "-" and Path(out).is_dir():
        raise UserError(f"--out {out} is a folder; name a file, such as {Path(out) / 'tags.csv'}")
    tagger = _tagger(run, method)
    header = ["image", "tags", *(tagger.tags if with_scores else [])]
    if out == "-":
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="surrogateescape")  # names that are no UTF-8 leave as they came
        sys.stdout.write(csv_line(header))
        for name, reason in _tag(tagger, paths, source, sys.stdout, with_scores, kept="stopped"):
            say(f"cannot be used: {name}: {reason}")
        return
    target = Path(out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: {target.parent} cannot be made ({error.strerror}); name another file") from error
    model = hashlib.sha256(f"{tagger.identity} {header}".encode()).hexdigest()[:12]
    part = target.with_name(f".{target.name}.{model}.part")
    done = _rows_done(part, header, paths)
    if done:
        say(f"{_images(len(done))} tagged before an interruption; going on from there")
    with part.open("a", encoding="utf-8", errors="surrogateescape", newline="") as file:
        left = [path for path in paths if path not in done]
        bad = _tag(tagger, left, source, file, with_scores, kept="stopped; the same command goes on from here")
    part.replace(target)
    _list_bad(bad, target)
    print(f"{_images(len(paths) - len(bad))} tagged: {target}")


def _tagger(run: Path, method: str | None) -> BaseTagger:
    """The model of a run, or of an exported file; the latter without torch."""
    if run.suffix.lower() == ".onnx" and not run.is_dir():
        from fewtags.model.onnx_tagger import OnnxTagger

        return OnnxTagger(run)
    from fewtags.api import load

    return load(run, methods=[method] if method else [])


def find_rows(words: list[str]) -> tuple[list[str], ImageSource | None]:
    """Image files, or the ids in one file of vectors and where they are looked up."""
    if not any(word.startswith("vectors:") for word in words):
        return find_images(words), None
    if len(words) > 1:
        raise UserError("vectors:FILE stands alone; tag one file of vectors at a time")
    from fewtags.data.readers.vectors import read_vectors

    ids, source = read_vectors(words[0].removeprefix("vectors:"))
    return ids, source


def find_images(words: list[str]) -> list[str]:
    """The image files that folders, files and patterns name, each once, in order."""
    found: dict[str, None] = {}
    for word in words:
        path = Path(word)
        if path.is_dir():
            inside = [str(path / name) for name in list_images(path)]
            if not inside:
                raise UserError(f"{word}: no images in this folder ({', '.join(IMAGE_SUFFIXES)})")
            found |= dict.fromkeys(inside)
        elif path.is_file():
            found[str(path)] = None
        else:
            matches = sorted(glob.glob(word, recursive=True)) if glob.has_magic(word) else []
            if not matches:
                raise UserError(f"{word}: no such file or folder, and no file matches it as a pattern")
            found |= dict.fromkeys(str(Path(match)) for match in matches if match.lower().endswith(IMAGE_SUFFIXES))
    if not found:
        raise UserError("no image files among these names")
    return list(found)


def _tag(
    tagger: BaseTagger, names: list[str], images: ImageSource | None, file: TextIO, with_scores: bool, kept: str
) -> list[tuple[str, str]]:
    """Write one line per image; return the files that cannot be used, with the reasons."""
    bad: list[tuple[str, str]] = []
    with StopRequest().listening() as stop, Progress("tagging", len(names), show=not file.isatty()) as progress:
        for number, one in enumerate(tagger.stream(names, images), start=1):
            if one.value is None:
                bad.append((one.name, one.problem))
            else:
                scores = [f"{score:.4f}" for score in one.value.scores.values()] if with_scores else []
                file.write(csv_line([one.name, "|".join(one.value.tags), *scores]))
            progress.advance()
            if number % FLUSH_EVERY == 0:
                file.flush()
            stop.check(kept)
    return bad


def _rows_done(part: Path, header: list[str], paths: list[str]) -> set[str]:
    """The images among `paths` that an interrupted call has written; a half-written line is taken back."""
    text = part.read_bytes().decode("utf-8", "surrogateescape") if part.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    wanted = set(paths)
    rows = [row for row in csv.reader(io.StringIO(whole, newline="")) if len(row) == len(header) and row[0] in wanted]
    write_text(part, "".join(map(csv_line, [header, *rows])))
    return {row[0] for row in rows}


def _list_bad(bad: list[tuple[str, str]], target: Path) -> None:
    """List the files that could not be used beside the result; take back the list of an earlier call."""
    file = target.with_name(f"{target.stem}.bad.csv")
    if not bad:
        file.unlink(missing_ok=True)
        return
    write_text(file, "".join(map(csv_line, [("image", "reason"), *bad])))
    say(f"{len(bad):,} file{'' if len(bad) == 1 else 's'} cannot be used: {file} lists the reasons")


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"
