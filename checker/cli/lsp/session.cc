// Dispatches messages by one table of methods. A message that is wrong gets an error and changes
// nothing.
#include "checker/cli/lsp/session.h"

#include "checker/cli/output.h"
#include "checker/render/json_text.h"

#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>

namespace spmd::checker::lsp {

// TextDocumentSyncKind.Full: each change brings the whole text.
static constexpr int kFullText = 1;

const Session::Method Session::kMethods[] = {
    {"initialize", &Session::initialize},
    {"initialized", &Session::initialized, true},
    {"shutdown", &Session::shut_down},
    {"exit", &Session::leave, true},
    {"textDocument/didOpen", &Session::opened, true},
    {"textDocument/didChange", &Session::changed, true},
    {"textDocument/didSave", &Session::saved, true},
    {"textDocument/didClose", &Session::closed, true},
    {"workspace/didChangeWatchedFiles", &Session::saved, true},
    {"textDocument/hover", &Session::hover},
    {"textDocument/definition", &Session::definition},
    {"textDocument/codeAction", &Session::actions},
    {"textDocument/inlayHint", &Session::hints},
};

Session::Session(const Options &options, Send send) : options_(options), send_(std::move(send)) {}

// --- messages

void Session::answer(const Json &id, Answer answer) {
  Json message = {{"jsonrpc", "2.0"}, {"id", id}};
  if (const auto *failure = std::get_if<Failure>(&answer))
    message["error"] = {{"code", static_cast<int>(failure->code)}, {"message", failure->message}};
  else
    message["result"] = std::move(std::get<Json>(answer));
  send_(print_json(message));
}

void Session::notify(std::string_view method, Json params) {
  send_(print_json(
      Json{{"jsonrpc", "2.0"}, {"method", std::string(method)}, {"params", std::move(params)}}));
}

void Session::take(llvm::StringRef bytes) {
  Json message = Json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  if (message.is_discarded())
    return answer(nullptr, Failure{ErrorCode::Parse, "the message is not JSON in UTF-8"});
  const Json *id = member(&message, {"id"});
  bool usable = id && (id->is_string() || id->is_number_integer());
  std::optional<std::string> method = text_at(&message, {"method"});
  if (!message.is_object() || (id && !usable && !id->is_null()))
    return answer(nullptr, Failure{ErrorCode::InvalidRequest, "the message is not a request"});
  if (!method) {
    bool response = member(&message, {"result"}) || member(&message, {"error"});
    if (!response)
      answer(usable ? *id : Json(),
             Failure{ErrorCode::InvalidRequest, "the message names no method"});
    return;
  }
  if (*method == "$/cancelRequest") {
    if (const Json *which = member(&message, {"params", "id"}))
      cancel(*which);
    return;
  }
  queue_.push_back(std::move(message));
}

void Session::cancel(const Json &id) {
  auto at = llvm::find_if(queue_, [&](const Json &message) {
    const Json *own = member(&message, {"id"});
    return own && *own == id;
  });
  if (at == queue_.end())
    return;
  Json own = at->at("id");
  queue_.erase(at);
  answer(own, Failure{ErrorCode::Cancelled, "the request was cancelled"});
}

void Session::work() {
  if (queue_.empty()) {
    if (!to_publish_.empty())
      publish(to_publish_.extract(to_publish_.begin()).value());
    return;
  }
  Json message = std::move(queue_.front());
  queue_.pop_front();
  std::string name = *text_at(&message, {"method"});
  const Json *id = member(&message, {"id"});
  const Method *method =
      llvm::find_if(kMethods, [&](const Method &row) { return row.name == name; });
  const Json *given = member(&message, {"params"});
  const Json none = Json::object();
  Answer made = Failure{ErrorCode::MethodNotFound, fmt::format("no method `{}`", name)};
  if (!initialized_ && name != "initialize" && name != "exit")
    made = Failure{ErrorCode::NotInitialized, "`initialize` has to come first"};
  else if (shut_down_ && name != "exit")
    made = Failure{ErrorCode::InvalidRequest, "`shutdown` was asked for"};
  else if (method != std::end(kMethods) && method->notification == !id)
    made = (this->*method->fn)(given ? *given : none);
  else if (method != std::end(kMethods))
    made = Failure{ErrorCode::InvalidRequest,
                   id ? "a notification has no id" : "a request needs an id"};
  if (id)
    return answer(*id, std::move(made));
  // Nobody waits for an answer; the protocol lets a server ignore notifications it does not know.
  const auto *failure = std::get_if<Failure>(&made);
  if (failure && initialized_ && failure->code != ErrorCode::MethodNotFound)
    notify("window/logMessage", {{"type", 2}, {"message", name + ": " + failure->message}});
}

// --- the life of a session

Answer Session::initialize(const Json &params) {
  if (initialized_)
    return Failure{ErrorCode::InvalidRequest, "`initialize` came before"};
  initialized_ = true;
  const Json *folders = member(&params, {"workspaceFolders"});
  std::string root;
  if (folders && folders->is_array() && !folders->empty())
    root = path_of_uri(text_at(&folders->front(), {"uri"}).value_or(""));
  if (root.empty())
    root = path_of_uri(text_at(&params, {"rootUri"}).value_or(""));
  if (!root.empty())
    root_ = root;
  if (!llvm::is_contained(options_.given, "--source-root"))
    options_.sources.root = root_;
  watches_ = truth_at(&params,
                      {"capabilities", "workspace", "didChangeWatchedFiles", "dynamicRegistration"})
                 .value_or(false);
  return Json{{"capabilities",
               {{"textDocumentSync",
                 {{"openClose", true}, {"change", kFullText}, {"save", Json::object()}}},
                {"hoverProvider", true},
                {"definitionProvider", true},
                {"codeActionProvider", {{"codeActionKinds", {"quickfix", "source.fixAll"}}}},
                {"inlayHintProvider", true}}},
              {"serverInfo", {{"name", "spmdlint"}, {"version", std::string(kVersion)}}}};
}

Answer Session::initialized(const Json &) {
  if (watches_) {
    Json watchers = Json::array({{{"globPattern", "**/*.spmd.json*"}}});
    Json registration = {{"id", "recordings"},
                         {"method", "workspace/didChangeWatchedFiles"},
                         {"registerOptions", {{"watchers", std::move(watchers)}}}};
    send_(print_json(Json{{"jsonrpc", "2.0"},
                          {"id", "recordings"},
                          {"method", "client/registerCapability"},
                          {"params", {{"registrations", Json::array({registration})}}}}));
  }
  refresh_recording();
  return Json();
}

Answer Session::shut_down(const Json &) {
  shut_down_ = true;
  to_publish_.clear();
  return Json();
}

Answer Session::leave(const Json &) {
  ended_ = true;
  queue_.clear();
  to_publish_.clear();
  return Json();
}

void Session::refresh_recording() {
  if (!recording_.refresh(options_, root_))
    return;
  for (const std::string &problem : recording_.take_problems())
    notify("window/logMessage", {{"type", 1}, {"message", problem}});
  forget_sources();
  for (const std::string &path : recording_.paths()) {
    auto open = llvm::find_if(documents_, [&](const auto &row) { return row.second.path == path; });
    to_publish_.insert(open == documents_.end() ? uri_of_path(path) : open->first);
  }
  to_publish_.insert(published_.begin(), published_.end());
}

void Session::forget_sources() {
  for (auto &[uri, document] : documents_) {
    document.source.reset();
    document.recorded.reset();
    if (document.python)
      to_publish_.insert(uri);
  }
}

// --- documents

Answer Session::opened(const Json &params) {
  const Json *given = member(&params, {"textDocument"});
  std::optional<std::string> uri = text_at(given, {"uri"}), text = text_at(given, {"text"});
  if (!uri || !text)
    return Failure{ErrorCode::InvalidParams, "`params.textDocument` has no `uri` and `text`"};
  Document document;
  document.uri = *uri;
  document.path = path_of_uri(*uri);
  document.text = std::move(*text);
  document.python = text_at(given, {"languageId"}) == "python" || ir::ends_with(*uri, ".py");
  documents_.insert_or_assign(*uri, std::move(document));
  to_publish_.insert(*uri);
  return Json();
}

Answer Session::changed(const Json &params) {
  Failure failure{};
  Document *document = document_of(params, failure);
  if (!document)
    return failure;
  const Json *changes = member(&params, {"contentChanges"});
  std::optional<std::string> text;
  if (changes && changes->is_array() && !changes->empty() && !member(&changes->back(), {"range"}))
    text = text_at(&changes->back(), {"text"});
  if (!text)
    return Failure{ErrorCode::InvalidParams,
                   "the last of `params.contentChanges` has no whole `text`"};
  document->text = std::move(*text);
  document->program.reset();
  document->source.reset();
  to_publish_.insert(document->uri);
  return Json();
}

Answer Session::saved(const Json &) {
  refresh_recording();
  return Json();
}

Answer Session::closed(const Json &params) {
  Failure failure{};
  Document *document = document_of(params, failure);
  if (!document)
    return failure;
  std::string uri = document->uri;
  documents_.erase(uri);
  to_publish_.insert(uri);
  return Json();
}

Session::Document *Session::document_of(const Json &params, Failure &failure) {
  std::optional<std::string> uri = text_at(&params, {"textDocument", "uri"});
  if (!uri) {
    failure = {ErrorCode::InvalidParams, "`params.textDocument.uri` is not a string"};
    return nullptr;
  }
  auto at = documents_.find(*uri);
  if (at == documents_.end())
    failure = {ErrorCode::InvalidParams, fmt::format("`{}` is not open", printable(*uri))};
  return at == documents_.end() ? nullptr : &at->second;
}

ProgramFile &Session::program_of(Document &document) {
  if (!document.program)
    document.program = std::make_unique<ProgramFile>(
        document.uri, document.path.empty() ? document.uri : document.path, document.text,
        options_);
  return *document.program;
}

const Source &Session::source_of(Document &document) {
  if (!document.recorded)
    document.recorded = recording_.recorded_text(document.path, document.text);
  if (!document.source)
    document.source = std::make_unique<Source>(document.recorded, document.text);
  return *document.source;
}

bool Session::is_recorded(const Document &document) const {
  return document.python && !document.path.empty() && recording_.knows(document.path);
}

FindSource Session::find_source() const {
  return [this](const ir::Program &program, ir::FileId file) {
    std::optional<std::string> path = SourceCache(options_.sources).path_of(program, file);
    return path ? std::optional(uri_of_path(*path)) : std::nullopt;
  };
}

// A file that is not open has what is on disk; one that is neither has no diagnostics any more.
void Session::publish(const std::string &uri) {
  Json diagnostics = Json::array();
  auto open = documents_.find(uri);
  if (open != documents_.end() && !open->second.python) {
    diagnostics = program_of(open->second).diagnostics(find_source());
  } else if (open != documents_.end()) {
    if (is_recorded(open->second))
      diagnostics = recording_.diagnostics(open->second.path, source_of(open->second));
  } else if (std::string path = path_of_uri(uri), problem; recording_.knows(path)) {
    auto bytes = ir::read_file(path, problem);
    if (bytes)
      diagnostics =
          recording_.diagnostics(path, Source(recording_.recorded_text(path, bytes->getBuffer()),
                                              bytes->getBuffer().str()));
  }
  if (!diagnostics.empty())
    published_.insert(uri);
  else
    published_.erase(uri);
  notify("textDocument/publishDiagnostics",
         {{"uri", uri}, {"diagnostics", std::move(diagnostics)}});
}

// --- questions

// What the four questions have in common: a document that is open, and a place in it, which `read`
// takes from the member of that name.
template <class Read, class Work>
Answer Session::ask(const Json &params, const char *place, Read read, Work work) {
  Failure failure{};
  Document *document = document_of(params, failure);
  if (!document)
    return failure;
  auto at = read(&params, {place});
  if (!at)
    return Failure{ErrorCode::InvalidParams, fmt::format("`params.{0}` is not a {0}", place)};
  return work(*document, *at);
}

Answer Session::hover(const Json &params) {
  return ask(params, "position", position_at, [&](Document &document, Position at) -> Answer {
    std::optional<Json> found;
    if (!document.python)
      found = program_of(document).hover(at);
    else if (is_recorded(document))
      found = recording_.hover(document.path, source_of(document), at);
    return found ? std::move(*found) : Json();
  });
}

Answer Session::definition(const Json &params) {
  return ask(params, "position", position_at, [&](Document &document, Position at) -> Answer {
    std::optional<Json> found;
    if (!document.python)
      found = program_of(document).definition(at, find_source());
    else if (is_recorded(document))
      found = recording_.definition(document.path, source_of(document), at);
    return found ? std::move(*found) : Json();
  });
}

Answer Session::actions(const Json &params) {
  return ask(params, "range", range_at, [&](Document &document, Range range) -> Answer {
    if (!document.python)
      return program_of(document).actions(range);
    if (is_recorded(document))
      return recording_.actions(document.uri, document.path, source_of(document), range);
    return Json::array();
  });
}

Answer Session::hints(const Json &params) {
  return ask(params, "range", range_at, [&](Document &document, Range range) -> Answer {
    if (!document.python)
      return program_of(document).hints(range);
    if (is_recorded(document))
      return recording_.hints(document.path, source_of(document), range);
    return Json::array();
  });
}

} // namespace spmd::checker::lsp
