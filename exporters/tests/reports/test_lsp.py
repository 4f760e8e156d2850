"""`spmdlint lsp` as an editor sees it: the client is pygls, which checks every message against the
types of the protocol."""

import asyncio
import hashlib
import json
import pathlib
import subprocess

import pytest

pytest.importorskip("pygls")
from lsprotocol import types as lsp
from pygls.lsp.client import BaseLanguageClient

from conftest import LINT

PROGRAM = """\
trace { mode = local }
mesh m { tp = 4 }
%x = input f32[8, 16] V "\U0001f600"
%w = param f32[16, 8] V
%h = matmul %x, %w { partial = tp } in "mlp.\U0001f600"; %y = gelu %h // here
%z = mul %y, %y
"""
MODEL = """\
import torch


def step(x, w):
    h = x @ w
    y = torch.nn.functional.gelu(h)
    return y
"""


def trace_of(source):
    """A row-parallel layer without its reduction, as a recording of that source."""
    return {
        "format": "spmd-trace",
        "version": "1.1",
        "mode": "local",
        "meshes": [{"id": "m", "axes": [{"name": "tp", "size": 4, "stride": 1}]}],
        "files": [
            {"path": "model.py", "sha256": hashlib.sha256(source.encode()).hexdigest()},
        ],
        "locs": [
            {"file": 0, "line": 5, "col": 9, "end_line": 5, "end_col": 14},
            {"file": 0, "line": 6, "col": 9, "end_line": 6, "end_col": 36},
        ],
        "contexts": [{"mesh": "m"}],
        "params": [
            {"id": "%x", "dtype": "f32", "shape": [8, 16], "type": {"tp": "V"}, "role": "input"},
            {"id": "%w", "dtype": "f32", "shape": [16, 8], "type": {"tp": "V"}, "role": "param"},
        ],
        "outputs": [],
        "ops": [
            {
                "op": "matmul",
                "in": ["%x", "%w"],
                "attrs": {"partial": "tp"},
                "out": [{"id": "%h", "dtype": "f32", "shape": [8, 8]}],
                "loc": 0,
            },
            {
                "op": "gelu",
                "in": ["%h"],
                "out": [{"id": "%y", "dtype": "f32", "shape": [8, 8]}],
                "loc": 1,
            },
        ],
    }


class Editor(BaseLanguageClient):
    """Keeps what the server publishes, and tells when it does."""

    def __init__(self):
        super().__init__("test", "1")
        self.published, self.said = {}, []
        self.news = asyncio.Condition()

        @self.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        async def _(params):
            async with self.news:
                self.published.setdefault(params.uri, []).append(list(params.diagnostics))
                self.news.notify_all()

        @self.feature(lsp.WINDOW_LOG_MESSAGE)
        def _(params):
            self.said.append(params.message)

        @self.feature(lsp.CLIENT_REGISTER_CAPABILITY)
        def _(params):
            return None

    async def diagnostics(self, uri, nth):
        """Those that are published as the nth of a file, from 1."""
        async with self.news:
            await asyncio.wait_for(
                self.news.wait_for(lambda: len(self.published.get(uri, ())) >= nth), 30
            )
        return self.published[uri][nth - 1]

    async def nothing_left(self, uri):
        """Until nothing is published of a file: a busy server answers several messages at once."""
        async with self.news:
            await asyncio.wait_for(self.news.wait_for(lambda: self.published[uri][-1] == []), 30)

    async def begin(self, folder, *words):
        await self.start_io(LINT, "lsp", *map(str, words), cwd=folder)
        watched = lsp.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
        answer = await self.initialize_async(
            lsp.InitializeParams(
                capabilities=lsp.ClientCapabilities(
                    workspace=lsp.WorkspaceClientCapabilities(did_change_watched_files=watched)
                ),
                root_uri=folder.as_uri(),
            )
        )
        self.initialized(lsp.InitializedParams())
        return answer.capabilities

    def open(self, uri, text, language):
        item = lsp.TextDocumentItem(uri=uri, language_id=language, version=1, text=text)
        self.text_document_did_open(lsp.DidOpenTextDocumentParams(text_document=item))

    def change(self, uri, text):
        self.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                text_document=lsp.VersionedTextDocumentIdentifier(uri=uri, version=2),
                content_changes=[lsp.TextDocumentContentChangeWholeDocument(text=text)],
            )
        )

    def at(self, uri, line, character, kind=lsp.HoverParams):
        return kind(
            text_document=lsp.TextDocumentIdentifier(uri=uri),
            position=lsp.Position(line=line, character=character),
        )

    async def actions_at(self, uri, place):
        return await self.text_document_code_action_async(
            lsp.CodeActionParams(
                text_document=lsp.TextDocumentIdentifier(uri=uri),
                range=place,
                context=lsp.CodeActionContext(diagnostics=[]),
            )
        )

    async def hints_of(self, uri):
        return await self.text_document_inlay_hint_async(
            lsp.InlayHintParams(
                text_document=lsp.TextDocumentIdentifier(uri=uri),
                range=lsp.Range(
                    start=lsp.Position(line=0, character=0),
                    end=lsp.Position(line=2**31 - 1, character=0),
                ),
            )
        )

    async def end(self):
        await self.shutdown_async(None)
        self.exit(None)
        await self.stop()


def with_editor(work, folder, *words):
    async def run():
        editor = Editor()
        try:
            await editor.begin(folder, *words)
            await work(editor)
        finally:
            await editor.end()

    asyncio.run(run())


def piece(text, place):
    """The text of a range within a line, whose positions count UTF-16 units."""
    line = text.splitlines()[place.start.line].encode("utf-16-le")
    return line[2 * place.start.character : 2 * place.end.character].decode("utf-16-le")


def applied(text, edits):
    lines = text.splitlines(keepends=True)

    def offset(position):
        before = "".join(lines[: position.line])
        line = "".join(lines[position.line : position.line + 1]).encode("utf-16-le")
        return len(before) + len(line[: 2 * position.character].decode("utf-16-le"))

    for edit in sorted(edits, key=lambda one: offset(one.range.start), reverse=True):
        begin, end = offset(edit.range.start), offset(edit.range.end)
        text = text[:begin] + edit.new_text + text[end:]
    return text


def test_a_program(tmp_path):
    uri = (tmp_path / "a program.spmd").as_uri()

    async def work(editor):
        editor.open(uri, PROGRAM, "spmd")
        (found,) = await editor.diagnostics(uri, 1)
        assert found.code == "partial-into-nonlinear" and found.source == "spmdlint"
        assert found.severity == lsp.DiagnosticSeverity.Error
        assert found.range.start.line == 4 and piece(PROGRAM, found.range) == "%h"
        assert "fix: insert all_reduce(%h, tp, src=P, dst=R), 384 B per rank" in found.message
        (note,) = found.related_information
        assert note.location.uri == uri and note.message.startswith("since: `matmul` summed")

        place = found.range.start
        shown = await editor.text_document_hover_async(
            editor.at(uri, place.line, place.character + 1)
        )
        assert piece(PROGRAM, shown.range) == "%h"
        assert "%h: f32[8, 8] P@tp" in shown.contents.value
        assert "since " in shown.contents.value and "`matmul` summed" in shown.contents.value
        shown = await editor.text_document_hover_async(editor.at(uri, 5, 6))
        assert "mul %y, %y" in shown.contents.value
        assert await editor.text_document_hover_async(editor.at(uri, 100, 100)) is None

        made = await editor.text_document_definition_async(
            editor.at(uri, place.line, place.character, lsp.DefinitionParams)
        )
        assert (made.uri, made.range.start.line, made.range.start.character) == (uri, 4, 0)
        made = await editor.text_document_definition_async(
            editor.at(uri, 4, 13, lsp.DefinitionParams)
        )
        assert made.range.start.line == 2  # %x

        hints = await editor.hints_of(uri)
        assert [hint.label for hint in hints] == [
            ": f32[8, 8] P@tp",
            ": f32[8, 8] ?@tp",
            ": f32[8, 8] ?@tp",
        ]

        actions = await editor.actions_at(uri, found.range)
        assert actions[0].kind == "quickfix" and actions[0].is_preferred
        assert actions[-1].kind == "source.fixAll"
        assert await editor.actions_at(uri, lsp.Range(lsp.Position(0, 0), lsp.Position(0, 1)))
        nth = 1
        for action in actions:  # each does away with the finding that it is offered for
            editor.change(uri, applied(PROGRAM, action.edit.changes[uri]))
            nth += 1
            assert await editor.diagnostics(uri, nth) == [], action.title

        editor.change(uri, "mesh m { tp = 4 }\n%x = input f32[8] Q\n")
        (found,) = await editor.diagnostics(uri, nth + 1)
        assert found.code.startswith("trace-") and found.range.start.line == 1
        assert not await editor.hints_of(uri)
        editor.text_document_did_close(
            lsp.DidCloseTextDocumentParams(text_document=lsp.TextDocumentIdentifier(uri=uri))
        )
        assert await editor.diagnostics(uri, nth + 2) == []

    with_editor(work, tmp_path)


def test_a_recorded_source(tmp_path):
    source, recording = tmp_path / "model.py", tmp_path / "step.spmd.json"
    source.write_text(MODEL)
    recording.write_text(json.dumps(trace_of(MODEL)))
    uri = source.as_uri()

    async def work(editor):
        (found,) = await editor.diagnostics(uri, 1)  # although nobody has opened it
        assert found.code == "partial-into-nonlinear" and not found.tags
        assert piece(MODEL, found.range) == "torch.nn.functional.gelu(h)"
        assert found.related_information[0].location.range.start == lsp.Position(4, 8)

        editor.open(uri, MODEL, "python")
        assert await editor.diagnostics(uri, 2) == [found]
        shown = await editor.text_document_hover_async(editor.at(uri, 5, 10))
        assert "f32[8, 8] P@tp" in shown.contents.value
        assert await editor.text_document_hover_async(editor.at(uri, 0, 0)) is None
        (made,) = await editor.text_document_definition_async(
            editor.at(uri, 5, 10, lsp.DefinitionParams)
        )
        assert (made.uri, made.range.start) == (uri, lsp.Position(4, 8))
        hints = await editor.hints_of(uri)
        assert [(hint.position.line, hint.label) for hint in hints] == [
            (4, "f32[8, 8] P@tp"),
            (5, "f32[8, 8] ?@tp"),
        ]

        editor.change(uri, "# a line more\n" + MODEL)  # lines move, and are followed
        (moved,) = await editor.diagnostics(uri, 3)
        assert moved.range.start.line == 6 and not moved.tags
        editor.change(uri, MODEL.replace("gelu(h)", "relu(h)"))
        (stale,) = await editor.diagnostics(uri, 4)
        assert stale.tags and stale.message.startswith("(recorded before this line was changed)")
        assert not await editor.actions_at(uri, stale.range)

        editor.change(uri, MODEL)
        await editor.diagnostics(uri, 5)
        (action,) = await editor.actions_at(uri, found.range)
        accepted = applied(MODEL, action.edit.changes[uri])
        assert accepted.splitlines()[5].startswith("    # spmd: ignore[partial-into-nonlinear] ")

        source.write_text(accepted)  # recorded again: the comment counts
        trace = trace_of(accepted)
        trace["locs"][1]["line"] = trace["locs"][1]["end_line"] = 7
        recording.write_text(json.dumps(trace))
        editor.change(uri, accepted)
        editor.text_document_did_save(
            lsp.DidSaveTextDocumentParams(text_document=lsp.TextDocumentIdentifier(uri=uri))
        )
        await editor.diagnostics(uri, 6)
        await editor.nothing_left(uri)

    with_editor(work, tmp_path)


def test_a_source_that_changed_before(tmp_path):
    source = tmp_path / "model.py"
    source.write_text(MODEL.replace("step", "train_step"))
    (tmp_path / "step.spmd.json").write_text(json.dumps(trace_of(MODEL)))

    async def work(editor):
        found = await editor.diagnostics(source.as_uri(), 1)
        assert found and all(one.tags for one in found)

    with_editor(work, tmp_path)


def test_an_unreadable_recording_is_said(tmp_path):
    (tmp_path / "step.spmd.json").write_text('{"format": "spmd-trace"')
    uri = (tmp_path / "p.spmd").as_uri()

    async def work(editor):
        editor.open(uri, PROGRAM, "spmd")
        await editor.diagnostics(uri, 1)
        assert any("step.spmd.json" in line for line in editor.said)

    with_editor(work, tmp_path)


def framed(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def answers(*messages, code):
    """Of a process that is given all of it at once."""
    done = subprocess.run(
        [LINT, "lsp"],
        input=b"".join(map(framed, messages)),
        capture_output=True,
        check=False,
        timeout=60,
        cwd=pathlib.Path(__file__).parent,
    )
    assert done.returncode == code, done.stderr
    out, found = done.stdout, []
    while out:
        head, _, rest = out.partition(b"\r\n\r\n")
        length = int(head.removeprefix(b"Content-Length: "))
        found.append(json.loads(rest[:length]))
        out = rest[length:]
    return {one["id"]: one.get("error", {}).get("code", "result") for one in found if "id" in one}


def request(name, params=None, number=None):
    message = {"jsonrpc": "2.0", "method": name, "params": params}
    return message if number is None else message | {"id": number}


INITIALIZE = request("initialize", {"capabilities": {}}, 1)
END = request("shutdown", None, 99), request("exit")


def test_before_and_after():
    hover = request("textDocument/hover", {}, 2)
    assert answers(hover, INITIALIZE, *END, code=0)[2] == -32002
    assert answers(INITIALIZE, request("initialize", {}, 3), *END, code=0)[3] == -32600
    assert answers(INITIALIZE, END[0], hover, END[1], code=0)[2] == -32600
    assert answers(INITIALIZE, request("exit"), code=1) == {1: "result"}
    assert answers(INITIALIZE, code=1) == {1: "result"}  # the editor is gone


def test_requests_that_are_wrong():
    wrong = [
        ({"id": 2}, 2, -32600),
        (request("textDocument/nothing", {}, "a"), "a", -32601),
        (request("textDocument/hover", {}, 4), 4, -32602),
        (request("textDocument/hover", [], 5), 5, -32602),
        (request("textDocument/hover", {"textDocument": {"uri": 7}}, 6), 6, -32602),
        (request("textDocument/hover", {"textDocument": {"uri": "file:///no"}}, 7), 7, -32602),
        (request("exit", None, 8), 8, -32600),
        (b"{", None, -32700),
        (b'{"id": "\xff"}', None, -32700),
        (b"[" * 100000, None, -32700),
        (b"[" * 100000 + b"]" * 100000, None, -32600),
        (b'{"id": {}, "method": "x"}', None, -32600),
        (b"1", None, -32600),
    ]
    found = answers(INITIALIZE, *(message for message, _, _ in wrong[:7]), *END, code=0)
    for _, number, error in wrong[:7]:
        assert found[number] == error
    for message, number, error in wrong[7:]:
        assert answers(INITIALIZE, message, *END, code=0)[number] == error, message[:40]


def test_what_is_cancelled_is_not_worked_out():
    hint = request("textDocument/inlayHint", {}, 2)
    cancel = request("$/cancelRequest", {"id": 2})
    assert answers(INITIALIZE, hint, cancel, *END, code=0)[2] == -32800
    assert answers(INITIALIZE, cancel, *END, code=0) == {1: "result", 99: "result"}
