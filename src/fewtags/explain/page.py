"""An explanation as a self-contained HTML page, for wide and narrow, light and dark screens."""

import base64
import io
from html import escape

import numpy as np
from PIL import Image

from fewtags.explain.figure import footnote
from fewtags.explain.picture import Pixels, colours, max_heat, overlay, scaled_down
from fewtags.explain.reasons import Explained, Part, TagExplained

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --faint: #636c76; --paper: #fff; --line: #d8dce2; --mark: #c9510c;
  --bar: #1f2328; --missed: #b9bec6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --faint: #9aa3ad; --paper: #16191d; --line: #343a42;
  --mark: #ff8a4c; --bar: #e6e8eb; --missed: #59616b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin: 0; overflow-wrap: anywhere; }
img { display: block; width: 100%; height: auto; }
figure { margin: 0; } figcaption { color: var(--faint); font-size: .9rem; padding: .25rem 0; }
header, section { display: grid; gap: 1.2rem; grid-template-columns: 16rem repeat(2, minmax(0, 1fr)); }
header { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); align-items: center; padding-bottom: 1.2rem; }
header img { width: auto; max-width: 100%; max-height: 20rem; }
section { border-top: 1px solid var(--line); padding: 1.2rem 0; break-inside: avoid; }
table { border-collapse: collapse; width: 100%; } td { padding: .2rem .4rem; overflow-wrap: anywhere; }
td:last-child { text-align: right; font-variant-numeric: tabular-nums; } td.bar { width: 55%; }
.score { position: relative; height: 1rem; background: linear-gradient(var(--line), var(--line)) bottom / 100% 1px
  no-repeat; }
.score i { position: absolute; inset: 0 auto 0 0; background: var(--missed); }
.score i.given { background: var(--bar); }
.score b { position: absolute; top: -.2rem; bottom: -.2rem; width: 3px; background: var(--mark); }
.patches { display: grid; gap: 4px; }
.patch { position: relative; } .patch.leads { outline: 3px solid var(--mark); }
.patch span { position: absolute; left: .3rem; bottom: .3rem; background: #000b; color: #fff; font-size: .8rem;
  padding: 0 .3rem; }
.scale { height: .7rem; } .scale + div { display: flex; justify-content: space-between; }
.scale + div, footer, .faint { color: var(--faint); font-size: .9rem; }
@media (max-width: 50rem) { header, section { grid-template-columns: minmax(0, 1fr); } }
@media print { body { max-width: none; } .score i, .scale, .patch span { print-color-adjust: exact; } }
"""
LEGEND = "Score of each tag; strong: given, pale: not given, vertical line: threshold."


def draw_page(explained: Explained) -> str:
    """The HTML of the page."""
    image = scaled_down(explained.image)
    name = escape(explained.name)
    rows = "".join(_score_row(tag) for tag in explained.tags)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name}: why these tags</title>\n<style>{STYLE}</style>\n<h1>{name}</h1>\n"
        f"<header>{_figure(np.asarray(image), '', name)}<div><table>{rows}</table>"
        f'<p class="faint">{LEGEND}</p></div></header>\n'
        + "".join(_section(image, tag) for tag in explained.tags)
        + f"<footer><p>{escape(footnote(explained))}</p></footer>\n</html>\n"
    )


def _score_row(tag: TagExplained) -> str:
    given = ' class="given"' if tag.given else ""
    mark = "" if tag.threshold is None else f'<b style="left:{100 * tag.threshold:.1f}%"></b>'
    bar = f'<div class="score"><i{given} style="width:{100 * tag.score:.1f}%"></i>{mark}</div>'
    return f'<tr><td>{escape(tag.tag)}<td class="bar">{bar}<td>{tag.score:.2f}</tr>'


def _section(image: Image.Image, tag: TagExplained) -> str:
    end = max_heat(tag)
    words = f"<h2>{escape(tag.tag)}</h2><p>{'Given' if tag.given else 'Not given'}: {escape(tag.decided)}.</p>"
    heated = overlay(image, tag.whole, end)
    if tag.patches:
        pictures = _figure(heated, f"whole image {tag.whole.score:.2f}") + _patches(image, tag, end)
    else:
        pictures = _figure(np.asarray(image), "the image") + _figure(heated, "where the score comes from")
    return f"<section><div>{words}{_scale(end)}</div>{pictures}</section>\n"


def _patches(image: Image.Image, tag: TagExplained, end: float) -> str:
    side = round(len(tag.patches) ** 0.5)
    leading = max(tag.patches, key=lambda part: part.score)
    cells = "".join(_patch(image, part, end, part is leading) for part in tag.patches)
    columns = f"grid-template-columns: repeat({side}, 1fr)"
    return (
        f'<figure><div class="patches" style="{columns}">{cells}</div>'
        f"<figcaption>patches, merged {tag.merged:.2f}</figcaption></figure>"
    )


def _patch(image: Image.Image, part: Part, end: float, leads: bool) -> str:
    alt = f"{part.name}: {part.score:.2f}, counts {part.share or 0:.0%} in the merge"
    kind = "patch leads" if leads else "patch"
    picture = _image(overlay(image, part, end), alt)
    return f'<div class="{kind}" title="{alt}">{picture}<span>{part.score:.2f}</span></div>'


def _scale(end: float) -> str:
    steps = colours(np.linspace(0, 1, 9, dtype=np.float32)).astype(int)
    stops = ", ".join(f"rgb({red} {green} {blue})" for red, green, blue in steps)
    ends = f"<div><span>0</span><span>+{end:.2g}</span></div>"
    return f'<div class="scale" style="background: linear-gradient(90deg, {stops})"></div>{ends}'


def _figure(pixels: Pixels, caption: str, alt: str = "") -> str:
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f"<figure>{_image(pixels, alt or caption)}{below}</figure>"


def _image(pixels: Pixels, alt: str) -> str:
    """An embedded JPEG; `alt` is escaped already."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=88)
    data = base64.b64encode(content.getvalue()).decode()
    return f'<img alt="{alt}" src="data:image/jpeg;base64,{data}">'
