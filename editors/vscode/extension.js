// Starts `spmdlint lsp` for programs and Python sources. All that is shown comes from there.
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate() {
  const settings = vscode.workspace.getConfiguration("spmdlint");
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const server = {
    command: settings.get("command"),
    args: ["lsp", ...settings.get("arguments")],
    options: folder ? { cwd: folder } : {},
  };
  const shown = {
    documentSelector: [{ language: "spmd" }, { scheme: "file", language: "python" }],
  };
  client = new LanguageClient("spmdlint", "spmdlint", server, shown);
  return client.start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
