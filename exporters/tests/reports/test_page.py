"""The HTML report in a browser: it shows what the JSON says, says nothing on the console, loads
quickly, and is searched."""

import html.parser
import re
import shutil
import subprocess
import time

import pytest

from conftest import LINT, RENDERED

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(not BROWSER, reason="no Chromium is installed")


def loaded(path, tmp_path, fragment=""):
    """The page after its scripts ran, as HTML; what the console said; seconds."""
    start = time.monotonic()
    done = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/profile",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
            "--window-size=1280,1000",
            "--dump-dom",
            path.as_uri() + fragment,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, said, time.monotonic() - start


class Outline(html.parser.HTMLParser):
    """Every tag is closed, every id is there once, every link leads somewhere, nothing is
    fetched."""

    VOID = ("meta", "link", "input", "br")

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.fetched = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        href = attrs.get("href", "")
        if href.startswith("#"):
            self.links.append(href[1:])
        elif href not in ("", "data:,"):
            self.fetched.append(href)
        self.fetched += [attrs["src"]] if "src" in attrs else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole(written):
    outline = Outline()
    outline.feed(written("html").read_text())
    assert not outline.open and not outline.fetched
    assert len(set(outline.ids)) == len(outline.ids)
    for link in outline.links:
        assert link in outline.ids or re.fullmatch(r"op-\d+-\d+", link)


def test_page_says_what_the_json_says(written, findings):
    text = html.unescape(re.sub("<[^>]*>", "", written("html").read_text()))
    for each in findings["findings"]:
        assert each["message"].replace("`", "") in text
        for fix in each["fixes"]:
            assert fix["text"] in text
        for note in each["notes"]:
            assert note["text"].replace("`", "").split("; ")[0] in text


@needs_browser
def test_page_runs(written, tmp_path):
    dom, said, _ = loaded(written("html"), tmp_path)
    assert not said
    assert 'class="row' in dom and "%h" in dom


@needs_browser
def test_link_to_an_op(written, tmp_path):
    dom, said, _ = loaded(written("html"), tmp_path, "#op-0-1")
    assert not said
    (row,) = re.findall(r'<div class="row[^"]*chosen"[^>]*>(.*?)</div>', dom)
    assert "gelu" in re.sub("<[^>]*>", "", row)


def layers(count):
    """A program of that many layers of ten ops, as a recorder writes it: values are numbers, every
    op has a source line."""
    lines = [
        "trace { mode = local }",
        "mesh m { dp = 2, tp = 4 }",
        "%0 = input f32[8, 64] R@tp V@dp",
        "%1 = param f32[64, 64] V@tp R@dp",
    ]
    for i in range(count):
        first = 2 + 10 * i
        scope = f'in "layers.{i}.mlp"'
        lines.append(
            f"%{first} = matmul %{first - 1 if i else 0}, %1 {{ partial = tp }} "
            f'at "model.py":7:3 {scope}'
        )
        lines += [
            f'%{first + j} = neg %{first + j - 1} at "model.py":{7 + j}:3 {scope}'
            for j in range(1, 9)
        ]
        lines.append(
            f"%{first + 9} = all_reduce %{first + 8} {{ axis = tp, src = P, dst = R }} "
            f'at "model.py":20:3 {scope}'
        )
    return "\n".join(lines) + f'\n%{2 + 10 * count} = gelu %2 at "model.py":30:3\n'


@needs_browser
def test_large_page_loads_quickly_and_is_searched(tmp_path):
    program, page = tmp_path / "large.spmd", tmp_path / "large.html"
    program.write_text(layers(4000))
    start = time.monotonic()
    done = subprocess.run(
        [LINT, "check", f"--format=html:{page}", "--quiet", program], cwd=RENDERED, check=False
    )
    assert done.returncode == 1 and time.monotonic() - start < 10
    assert page.stat().st_size < 2_000_000
    dom, said, seconds = loaded(page, tmp_path)
    assert not said and "40001 ops" in dom
    # Of an empty page the browser takes most of a second; under load two pages take the same
    # longer.
    blank = tmp_path / "blank.html"
    blank.write_text("<!doctype html><title>x</title>")
    assert seconds - loaded(blank, tmp_path)[2] < 2
    dom, said, _ = loaded(page, tmp_path, "#find=all_reduce%20layers.17.")
    assert not said and re.search(r'id="count">1 of \d+ lines', dom)
