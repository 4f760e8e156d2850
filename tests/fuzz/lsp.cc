// What an editor could send to `spmdlint lsp`: any bytes as its messages, or any program as a text
// that it has open, with questions about any position. Every request has one answer.
#include "tests/fuzz/fuzz.h"

#include "checker/cli/lsp/session.h"
#include "checker/cli/lsp/wire.h"

#include <map>

using namespace spmd;
using namespace spmd::checker;
using lsp::Json;

namespace {

constexpr const char *kUri = "file:///none/p.spmd";

class Editor {
public:
  Editor() : session_(Options{}, [this](const std::string &message) { keep(message); }) {}

  void feed(llvm::StringRef bytes) {
    lsp::MessageReader reader(1 << 20);
    reader.feed(bytes);
    while (std::optional<std::string> message = reader.next())
      session_.take(*message);
    work();
  }
  void send(const char *method, Json params, bool request = false) {
    Json message = {{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}};
    if (request)
      message["id"] = ++asked_;
    session_.take(message.dump(-1, ' ', false, Json::error_handler_t::replace));
    work();
    SPMD_CHECK(!request || answers_[asked_] == 1, "a request does not have one answer");
  }

private:
  void work() {
    while (!session_.idle())
      session_.work();
  }
  void keep(const std::string &message) {
    Json read = Json::parse(message, nullptr, /*allow_exceptions=*/false);
    SPMD_CHECK(read.is_object(), "a message is not JSON");
    const Json *id = lsp::member(&read, {"id"});
    if (id && id->is_number_integer() && !lsp::member(&read, {"method"}))
      ++answers_[id->get<int>()];
  }

  std::map<int, int> answers_;
  int asked_ = 0;
  lsp::Session session_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 3)
    return 0;
  llvm::StringRef bytes = fuzz::bytes_of(data + 3, size - 3);
  Editor editor;
  if (data[0] & 1) {
    editor.feed(bytes);
    return 0;
  }
  Json document = {{"uri", kUri}};
  Json at = {{"line", data[1]}, {"character", data[2]}};
  Json whole = {{"start", {{"line", 0}, {"character", 0}}}, {"end", at}};
  editor.send("initialize", Json::object(), true);
  editor.send("textDocument/didOpen", {{"textDocument", {{"uri", kUri}, {"text", bytes.str()}}}});
  for (const char *method : {"textDocument/hover", "textDocument/definition"})
    editor.send(method, {{"textDocument", document}, {"position", at}}, true);
  for (const char *method : {"textDocument/codeAction", "textDocument/inlayHint"})
    editor.send(method, {{"textDocument", document}, {"range", whole}}, true);
  editor.send("textDocument/didClose", {{"textDocument", document}});
  return 0;
}
