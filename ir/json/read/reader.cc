// The JSON document as a whole: what it says of itself, and the order in which its tables are read.
#include "ir/json/read/reader.h"

#include "ir/dialect/dialect.h"
#include "ir/mesh/symbols.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

namespace {

constexpr std::array<std::string_view, 24> kTopKeys = {
    "format", "version",  "producer", "dialect",   "mode",   "phase",  "requires", "missing",
    "world",  "rank",     "op_count", "symbols",   "meshes", "groups", "files",    "locs",
    "scopes", "contexts", "rules",    "functions", "params", "ops",    "outputs",  "suppress"};
enum TopKey : unsigned {
  FormatKey,
  Version,
  ProducerKey,
  DialectWord,
  ModeKey,
  PhaseKey,
  Requires,
  MissingKey,
  World,
  Rank,
  OpCount,
  Symbols,
  Meshes,
  Groups,
  Files,
  Locs,
  Scopes,
  Contexts,
  Rules,
  Functions,
  Params,
  Ops,
  Outputs,
  Suppress,
};

constexpr std::string_view kFormatName = "spmd-trace";
constexpr unsigned kMajorVersion = 1;

// A JSON text without the blanks between its tokens.
std::string compact(llvm::StringRef json) {
  std::string text;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    bool blank = json[i] == ' ' || json[i] == '\n' || json[i] == '\r' || json[i] == '\t';
    if (in_string || !blank)
      text += json[i];
    if (in_string && json[i] == '\\')
      text += json[++i];
    else if (json[i] == '"')
      in_string = !in_string;
  }
  return text;
}

} // namespace

ReadResult read_json(llvm::StringRef bytes, const ReadOptions &options) {
  JsonInput input(bytes, options);
  return JsonReader(input).read();
}

ReadResult JsonReader::read() {
  document();
  builder_.finish();
  if (!json_.failed())
    state_default_kinds(program_);
  in_.result.errors = json_.errors();
  auto earlier = [](const InputError &a, const InputError &b) { return a.offset < b.offset; };
  llvm::stable_sort(in_.result.errors, earlier);
  llvm::stable_sort(in_.result.warnings, earlier);
  return std::move(in_.result);
}

void JsonReader::document() {
  if (json_.failed())
    return;
  bool stream = false;
  {
    JsonObject<kTopKeys.size()> top(json_, kTopKeys, [this](llvm::StringRef key) {
      ir::starts_with(key, "x_") ? keep_extra(key) : unknown(key, kTopKeys);
    });
    if (!top || json_.failed())
      return;
    stream = !top.has(Ops) && (!json_.at_end() || json_.torn());
    if (!stream && json_.torn())
      return json_.fail(json_.torn()->offset, json_.torn()->name, json_.torn()->message);
    if (!stream && !json_.at_end())
      return report_rest();
    if (!recognise(top))
      return;
    facts(top);
    tables(top);
    if (program_.meshes.empty() || json_.failed())
      return;
    stream ? header(top) : body(top);
  }
  if (stream)
    records();
}

// Says what follows the document; brackets that do not match may be why something does.
void JsonReader::report_rest() {
  Token rest = json_.at();
  json_.seek(0);
  json_.skip();
  json_.seek(rest);
  std::string found = fmt::format("`{}` follows the document", json_.peek());
  if (json_.peek() == '{')
    found = "a second JSON value follows a document that has its `ops`; the header of a stream "
            "has none";
  json_.fail(json_.offset(rest), "trace-syntax", std::move(found));
}

// False where the rest would be read by rules that do not hold.
bool JsonReader::recognise(const JsonMembers &top) {
  require(top, FormatKey, kTopKeys[FormatKey]);
  if (top.at(FormatKey)) {
    Token token = json_.at();
    std::optional<llvm::StringRef> name = json_.string();
    if (name && *name != llvm::StringRef(kFormatName))
      json_.error(
          token, "trace-syntax",
          fmt::format("the format is `{}`, not `{}`", name->take_front(60).str(), kFormatName));
  }
  require(top, Version, kTopKeys[Version]);
  if (top.at(Version))
    version();
  if (top.at(Requires))
    features();
  return json_.errors().empty();
}

void JsonReader::version() {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return;
  auto [left, right] = text->split('.');
  unsigned major = 0, minor = 0;
  auto is_number = [](llvm::StringRef digits) {
    return llvm::all_of(digits, [](char c) { return llvm::isDigit(c); }) && digits.size() < 10;
  };
  if (!is_number(left) || !is_number(right) || left.getAsInteger(10, major) ||
      right.getAsInteger(10, minor))
    return json_.error(token, "trace-version",
                       fmt::format("`{}` is no version of the form {}.N",
                                   text->take_front(60).str(), kMajorVersion));
  if (major != kMajorVersion)
    return json_.error(
        token, "trace-version",
        fmt::format("version {} is not read, only {}.N is", text->str(), kMajorVersion));
  program_.minor_version = minor;
  if (minor > kMinorVersion)
    in_.result.warnings.push_back(
        {.name = "trace-newer",
         .message = fmt::format("version {} is newer than {}.{}: what it adds is ignored",
                                text->str(), kMajorVersion, kMinorVersion),
         .offset = json_.offset(token),
         .path = json_.path_of(token)});
}

void JsonReader::features() {
  json_.array([&](uint32_t) {
    Token token = json_.at();
    if (StringId feature = text(); feature.valid() && program_.strings[feature] != kCallsFeature)
      json_.error(token, "trace-feature",
                  fmt::format("the feature `{}` is not known",
                              program_.strings[feature].take_front(60).str()));
  });
}

void JsonReader::facts(const JsonMembers &top) {
  if (top.at(ProducerKey))
    producer();
  if (top.at(DialectWord))
    program_.dialect = text();
  if (top.at(ModeKey))
    enumeration(kModeWords, "mode", program_.mode);
  if (top.at(PhaseKey))
    enumeration(kProgramPhaseWords, "phase", program_.phase);
  if (top.at(MissingKey))
    missing();
  if (top.at(Symbols))
    types_.symbols();
  if (top.at(World))
    program_.world = types_.number_or_extent("trace-mesh");
  if (top.at(Rank))
    program_.rank = json_.integer(0, kMaxInteger, "trace-mesh");
  if (program_.world && program_.rank && *program_.rank >= *program_.world)
    json_.error(top.token(Rank), "trace-mesh",
                fmt::format("rank {} is outside a world of {}", *program_.rank, *program_.world));
  if (top.at(OpCount))
    program_.op_count = json_.integer(0);
  if (top.at(Rules))
    tables_.rules();
}

void JsonReader::producer() {
  static constexpr std::array<std::string_view, 4> kKeys = {"name", "version", "framework",
                                                            "frontend"};
  auto members = object(kKeys);
  require(members, 0, kKeys[0]);
  Producer &by = program_.producer;
  by.stated = true;
  StringId *const parts[] = {&by.name, &by.version, &by.framework, &by.frontend};
  for (unsigned i = 0; i < kKeys.size(); ++i)
    if (members.at(i))
      *parts[i] = text();
}

void JsonReader::missing() {
  json_.array([&](uint32_t) {
    Missing what{};
    size_t before = json_.errors().size();
    enumeration(kMissingWords, "kind of missing fact", what);
    if (json_.errors().size() == before)
      program_.missing |= 1u << static_cast<unsigned>(what);
  });
}

// Each table after those that it refers to; a program without its meshes says nothing more.
void JsonReader::tables(const JsonMembers &top) {
  require(top, Meshes, kTopKeys[Meshes]);
  size_t before = json_.errors().size();
  if (top.at(Meshes))
    meshes_.meshes();
  if (json_.errors().size() != before || program_.meshes.empty()) {
    program_.meshes = {};
    return;
  }
  for (const Mesh &mesh : program_.meshes)
    if (program_.world && mesh.rank_count() > *program_.world && !is_symbolic(program_, mesh))
      json_.error(top.token(World), "trace-mesh",
                  fmt::format("mesh `{}` has {} ranks, and `world` is {}",
                              program_.strings[mesh.name].str(), mesh.rank_count(),
                              *program_.world));
  if (top.at(Groups))
    meshes_.groups();
  if (top.at(Files))
    tables_.files();
  if (top.at(Locs))
    tables_.locs();
  if (top.at(Scopes))
    tables_.scopes();
  program_.contexts = {};
  program_.contexts.add({.mesh = MeshId{0}, .local = {}});
  if (top.at(Contexts))
    tables_.contexts();
  in_.context = ContextId{0};
  if (top.at(Suppress))
    tables_.suppressions();
}

// What a stream says before its records.
void JsonReader::header(const JsonMembers &top) {
  if (top.has(Outputs))
    json_.error(top.token(Outputs), "trace-key",
                "`outputs` stand in the `end` record of a stream, not in its header");
  if (top.at(Functions))
    bodies_.functions();
  if (top.at(Params))
    declarations_.params();
  attributes_.check_functions();
}

void JsonReader::body(const JsonMembers &top) {
  if (top.at(Functions))
    bodies_.functions();
  if (top.at(Params))
    declarations_.params();
  require(top, Ops, kTopKeys[Ops]);
  if (top.at(Ops))
    bodies_.ops();
  count_ops(top);
  declarations_.late_gradients();
  if (top.at(Outputs))
    declarations_.outputs();
  attributes_.check_functions();
}

// The count may include the bodies of functions.
void JsonReader::count_ops(const JsonMembers &top) {
  int64_t main = builder_.body_size(), all = main + static_cast<int64_t>(program_.insts.size());
  if (program_.op_count && json_.errors().empty() && *program_.op_count != main &&
      *program_.op_count != all)
    json_.error(top.token(OpCount), "trace-truncated",
                fmt::format("{} ops are announced, and {} stand here", *program_.op_count, main));
}

void JsonReader::keep_extra(llvm::StringRef key) {
  Token token = json_.at();
  json_.skip();
  Token end = json_.at();
  json_.seek(token);
  llvm::StringRef text = json_.raw();
  json_.seek(end);
  if (!json_.failed())
    program_.extras.push_back({builder_.string(key), builder_.string(compact(text))});
}

} // namespace spmd::ir
