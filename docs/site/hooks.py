"""The pages of the site are the Markdown files of the tree, where they lie, so that their links to
each other hold. What else they link to is copied; a folder is linked to by its README."""

import os
import pathlib
import posixpath
import re

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^ *(`{3,}).*?^ *\1$", re.MULTILINE | re.DOTALL)
LEFT_OUT = re.compile(r"^(\.|build|venv|node_modules|__pycache__)")


def markdown_files():
    for folder, below, names in os.walk(ROOT):
        below[:] = sorted(name for name in below if not LEFT_OUT.match(name))
        for name in sorted(names):
            if name.endswith(".md"):
                yield (pathlib.Path(folder) / name).relative_to(ROOT).as_posix()


def target_of(page, link):
    """The path in the tree; None if it is an address."""
    if re.match(r"[a-z]+:", link):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def on_files(files, config):
    pages = list(markdown_files())
    wanted = set(pages)
    for page in pages:
        for _, _, link, _ in LINK.findall(FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))):
            target = target_of(page, link)
            if target and (ROOT / target).is_file():
                wanted.add(target)
    made = [File.generated(config, path, abs_src_path=str(ROOT / path)) for path in sorted(wanted)]
    theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files(theme + made)


def on_page_markdown(markdown, page, config, files):
    """Links to folders: to their README; where they have none, their words alone."""

    def changed(match):
        target = target_of(page.file.src_uri, match[3])
        if target is None or not (ROOT / target).is_dir():
            return match[0]
        if not (ROOT / target / "README.md").is_file():
            return match[2]
        return f"[{match[2]}]({match[3].rstrip('/')}/README.md{match[4] or ''})"

    kept, at = [], 0
    for fence in FENCE.finditer(markdown):
        kept += [LINK.sub(changed, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join(kept) + LINK.sub(changed, markdown[at:])
