"""The HTML report in a browser: it shows what the JSON says, says nothing on the console, loads
quickly, and is searched."""

import html.parser
import json
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


MODULES = """\
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 4] V
%w = param f32[4, 4] V
%a = matmul %x, %w { partial = tp } in "layers.0.up"
%b = all_reduce %a { axis = tp, src = P, dst = R } in "helper"
%c = gelu %b in "layers.0.act"
%d = neg %c in "layers.1.up"
%e = all_gather %d { axis = tp, src = R, dst = R } in "layers.1.up"
%f = gelu %d in "layers.1.act"
%g = neg %f { phase = bwd } in "layers.1.act"
"""


def test_modules_with_what_is_communicated_between_them(tmp_path):
    """The edges are those of the program: a collective stands where its value goes from one module
    to another, whoever called it; layers are one."""
    program, page = tmp_path / "m.spmd", tmp_path / "m.html"
    program.write_text(
        MODULES.replace("%e = all_gather %d { axis = tp, src = R, dst = R }", "%e = neg %d")
    )
    done = subprocess.run([LINT, "report", program, "-o", page], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    outline = Outline()
    outline.feed(text)
    assert not outline.open
    picture = text[text.index('<svg class="modules"') : text.index("</svg>")]
    titles = [html.unescape(one) for one in re.findall("<title>(.*?)</title>", picture)]
    assert titles == [
        "layers.*.up to layers.*.act: all_reduce over tp, 192 B",
        "layers.*.act to layers.*.up",
        "layers.*.up",
        "layers.*.act",
    ]
    ops = dict(zip(titles[2:], re.findall(r'class="ops">(\d+) ops?<', picture)))
    assert ops == {"layers.*.up": "3", "layers.*.act": "2"}  # none of the backward
    table = text[text.index("the same as a table") :].split("</details>")[0]
    assert re.findall("<td[^>]*>(.*?)</td>", table) == [
        "layers.*.up",
        "layers.*.act",
        "all_reduce over tp",
        "1",
        "192 B",
    ]


def test_communication_of_the_page_is_that_of_cost(tmp_path):
    """Of a recorded model: the bytes of the picture's table are those of `spmdlint cost`."""
    trace = RENDERED.parents[2] / "examples/megatron_gpt/sp.spmd.json"
    cost = json.loads(
        subprocess.run(
            [LINT, "cost", "--format=json", trace], capture_output=True, text=True, check=True
        ).stdout
    )
    page = subprocess.run(
        [LINT, "report", trace], capture_output=True, text=True, check=True
    ).stdout
    table = page[page.index("the same as a table") :].split("</details>")[0]
    cells = re.findall("<td[^>]*>(.*?)</td>", table)
    rows = [cells[i : i + 5] for i in range(0, len(cells), 5)]
    collectives = {row[2] for row in rows}
    assert {f"{one['collective']} over {one['axis']}" for one in cost} == collectives
    assert sum(int(row[3]) for row in rows) >= sum(one["calls"] for one in cost)


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


BLOCKS = """\
trace { mode = global }
mesh m { dp = 2, tp = 4 }
%x = param f32[8@dp, 16@tp]
%y = all_gather %x { axis = tp, src = S(1), dst = R }
"""


@needs_browser
def test_ranks_of_blocks(tmp_path):
    """Of a value that was chosen: which ranks have which block, and of what moves blocks, before
    and after."""
    program, page = tmp_path / "b.spmd", tmp_path / "b.html"
    program.write_text(BLOCKS)
    subprocess.run([LINT, "report", program, "-o", page], capture_output=True, check=False)
    dom, said, _ = loaded(page, tmp_path, "#op-0-0")
    assert not said
    before, after = re.findall(r'<figure class="grid">(.*?)</figure>', dom)
    assert re.findall("<td>(.*?)</td>", before) == [str(rank) for rank in range(8)]
    assert "rows: dimension 0 · columns: dimension 1" in before
    assert re.findall("<td>(.*?)</td>", after) == ["0 1 2 3", "4 5 6 7"]
    assert re.findall("<th>(.*?)</th>", after) == ["dp 0", "dp 1"]
    assert "along tp: the same (R)" in after


def test_types_of_gradients(tmp_path):
    """The page has the types that gradients have: the duals of those of the values."""
    program, page = tmp_path / "g.spmd", tmp_path / "g.html"
    program.write_text(
        "trace { mode = global }\nmesh m { tp = 4 }\n%x = param f32[8] I\n%i = input i64[8] R\n"
        "%y = convert %x { axis = tp, src = I, dst = R }\n"
    )
    subprocess.run([LINT, "report", program, "-o", page], capture_output=True, check=False)
    data = re.search(r'id="data">\[(.*?)\]</script>', page.read_text(), re.S)
    raw = json.loads(data[1])
    places = [
        raw["strings"][raw["locations"][raw["ops"][1]][0]],
        raw["strings"][raw["declared"][0][3]],
    ]
    assert places == [f"{program}:5:1", f"{program}:3:1"]  # nothing is found in it
    assert [raw["strings"][one] for one in raw["gradients"]] == ["f32[8] I@tp", "", "f32[8] P@tp"]


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
