"""The documentation as a site: it builds without a warning, and every link within it leads to a
page or a file that is there."""

import html.parser
import os
import subprocess
import sys
import urllib.parse

import pytest

from conftest import ROOT

pytest.importorskip("material")


class Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.ids = [], set()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.links += [attrs[key] for key in ("href", "src") if attrs.get(key)]
        self.ids.add(attrs.get("id"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {}
    for path in folder.rglob("*.html"):
        pages[path.resolve()] = Links()
        pages[path.resolve()].feed(path.read_text(encoding="utf-8"))
    return folder, pages


def test_every_page_of_the_navigation_is_there(site):
    folder, pages = site
    assert len(pages) > 30
    for name in ("tutorial", "recipes", "gallery", "reference", "concepts", "editors"):
        assert (folder / "docs" / name / "index.html").is_file(), name


def test_links_lead_somewhere_within_the_site(site):
    folder, pages = site
    wrong = []
    for page, found in pages.items():
        if page.name == "404.html":
            continue
        for link in found.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path = urllib.parse.unquote(parts.path)
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            there = target.is_file() and target.is_relative_to(folder.resolve())
            anchor = urllib.parse.unquote(parts.fragment)
            if there and anchor and target in pages and not anchor.startswith("__"):
                there = anchor in pages[target].ids
            if not there:
                wrong.append(f"{page.relative_to(folder)}: {link}")
    assert not wrong, "\n".join(wrong)


def test_nothing_is_fetched_from_elsewhere(site):
    _, pages = site
    for page, found in pages.items():
        text = page.read_text(encoding="utf-8")
        for part in ('<script src="http', '<link rel="stylesheet" href="http', "fonts.google"):
            assert part not in text, page
