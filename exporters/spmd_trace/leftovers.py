"""What a script would have left behind (`torch.script.effects`), in one short paragraph."""

import contextlib
import json
import os
import pathlib

_SHOWN = 3  # of the paths of one function


def tidied(notes: list[pathlib.Path]) -> str:
    """Removes empty folders that runs of the script have made; what else they did not do."""
    rows = [json.loads(line) for file in notes for line in file.read_text().splitlines()]
    made = dict.fromkeys(row["made"] for row in rows if "made" in row)
    for folder in sorted(made, key=len, reverse=True):
        with contextlib.suppress(OSError):  # something lies in it
            os.rmdir(folder)
    paths: dict[tuple[str, str], list[str]] = {}  # by function and by place in the script
    for row in rows:
        if "what" in row:
            of = paths.setdefault((row["what"], row["where"]), [])
            if row["path"] is not None and (path := _short(row["path"])) not in of:
                of.append(path)
    if not paths:
        return ""
    texts = [_text(what, where, of) for (what, where), of in paths.items()]
    return f"kept from happening: {'; '.join(texts)}"


def _short(path: str) -> str:
    """As seen from where the command was given."""
    whole, here = os.path.abspath(path), os.getcwd() + os.sep
    return whole.removeprefix(here)


def _text(what: str, where: str, paths: list[str]) -> str:
    of = f" of {', '.join(paths[:_SHOWN])}" if paths else ""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{what}{of}{more}" + (f" ({where})" if where else "")
