// The tables of a trace: what instructions refer to by index or by name, except functions.
#include "ir/json/read/tables.h"

#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

void JsonTableReader::files() {
  static constexpr std::array<std::string_view, 2> kKeys = {"path", "sha256"};
  json_.array([&](uint32_t) {
    SourceFile file;
    if (json_.peek() == '{') {
      auto members = object(kKeys);
      require(members, 0, kKeys[0]);
      if (members.at(0))
        file.path = text();
      if (members.at(1))
        file.sha256 = text();
      llvm::StringRef sum = file.sha256.valid() ? program_.strings[file.sha256] : llvm::StringRef();
      if (file.sha256.valid() && (sum.size() != 64 || !llvm::all_of(sum, llvm::isHexDigit)))
        json_.error(members.token(1), "trace-key", "`sha256` has other than 64 hexadecimal digits");
    } else {
      file.path = text();
    }
    program_.files.add(file);
  });
}

void JsonTableReader::locs() {
  json_.array([&](uint32_t) {
    Frame frame = loc();
    frames_.push_back(program_.frames.add(frame));
  });
}

Frame JsonTableReader::loc() {
  static constexpr std::array<std::string_view, 6> kKeys = {"file", "line", "col",
                                                            "end",  "func", "caller"};
  enum { File, Line, Col, End, Func, Caller };
  auto members = object(kKeys);
  require(members, File, kKeys[File]);
  require(members, Line, kKeys[Line]);
  Frame frame;
  if (members.at(File))
    if (std::optional<uint32_t> file = index(program_.files.size(), "files"))
      frame.file = FileId{*file};
  auto count = [&] { return static_cast<uint32_t>(json_.integer(1, INT32_MAX).value_or(0)); };
  if (members.at(Line))
    frame.line = count();
  if (members.at(Col))
    frame.col = count();
  if (members.at(End)) {
    unsigned length = 0;
    json_.array([&](uint32_t i) {
      (i == 0 ? frame.end_line : frame.end_col) = count();
      ++length;
    });
    if (length != 2)
      json_.error(members.token(End), "trace-key",
                  fmt::format("`end` has {} numbers where it needs a line and a column", length));
  }
  if (members.at(Func))
    frame.function = text();
  if (members.at(Caller))
    if (std::optional<uint32_t> caller = index(frames_.size(), "locs"))
      frame.caller = frames_[*caller];
  return frame;
}

void JsonTableReader::scopes() {
  json_.array([&](uint32_t) { scopes_.push_back(text()); });
}

void JsonTableReader::contexts() {
  Token token = json_.at();
  json_.array([&](uint32_t) {
    Context made = context();
    bool used = builder_.body_size() > 0 || program_.insts.size() > 0;
    if (contexts_.empty() && used) {
      json_.error(token, "trace-reference", "the first context stands after an op that has it");
    } else if (contexts_.empty()) { // the program's own default gives way
      program_.contexts = {};
    } else if (program_.contexts.size() >= ContextId::kNone - 1u) {
      json_.fail(json_.offset(token), "trace-limit", "more than 65534 contexts are in use",
                 "contexts");
      return;
    }
    contexts_.push_back(program_.contexts.add(made));
  });
  if (contexts_.empty() && !json_.failed())
    json_.error(token, "trace-key", "the list of contexts is empty");
}

Context JsonTableReader::context() {
  static constexpr std::array<std::string_view, 5> kKeys = {"mesh", "local", "check", "grad",
                                                            "implicit"};
  enum { MeshName, Local, Check, Grad, Implicit };
  auto members = object(kKeys);
  Context context;
  context.mesh = MeshId{0};
  if (members.at(MeshName))
    if (MeshId mesh = types_.mesh_ref(); mesh.valid())
      context.mesh = mesh;
  if (members.at(Local))
    for (AxisId axis : types_.axes_of(context.mesh))
      context.local |= program_.meshes[context.mesh].pieces_of(axis);
  bool *const flags[] = {&context.check, &context.grad, &context.implicit};
  for (unsigned i = 0; i < 3; ++i)
    if (members.at(Check + i))
      *flags[i] = json_.boolean().value_or(*flags[i]);
  return context;
}

void JsonTableReader::rules() {
  static constexpr std::array<std::string_view, 1> kKeys = {"like"};
  json_.object([&](llvm::StringRef op) {
    UserRule rule;
    rule.op = builder_.string(op);
    rule.origin = json_.offset(json_.at());
    if (json_.peek() == '{') {
      auto members = object(kKeys);
      require(members, 0, kKeys[0]);
      if (members.at(0))
        rule.like = text();
    } else {
      Token token = json_.at();
      rule.equation = text();
      if (rule.equation.valid() && !program_.strings[rule.equation].contains("->"))
        json_.error(token, "trace-rule", "the equation has no `->`");
    }
    program_.rules.push_back(rule);
  });
}

void JsonTableReader::suppressions() {
  json_.array([&](uint32_t) { suppression(); });
}

void JsonTableReader::suppression() {
  static constexpr std::array<std::string_view, 5> kKeys = {"ignore", "scope", "loc", "reason",
                                                            "until"};
  enum { Ignore, ScopeKey, Loc, Reason, Until };
  auto members = object(kKeys);
  require(members, Ignore, kKeys[Ignore]);
  require(members, Reason, kKeys[Reason]);
  Suppression made;
  made.origin = json_.offset(members.token());
  if (members.at(Ignore))
    made.finding = finding();
  if (members.at(ScopeKey))
    made.scope = text();
  if (members.at(Loc))
    if (std::optional<uint32_t> loc = index(frames_.size(), "locs"))
      made.loc = frames_[*loc];
  if (members.at(Reason))
    made.reason = text();
  if (made.reason.valid() && program_.strings[made.reason].empty())
    json_.error(members.token(Reason), "trace-key", "the reason is empty");
  if (members.at(Until))
    made.until = text();
  if (made.until.valid() && !is_date(program_.strings[made.until]))
    json_.error(members.token(Until), "trace-key", "`until` is no date of the form YYYY-MM-DD");
  program_.suppressions.push_back(made);
}

LocId JsonTableReader::location(const JsonMembers &members, unsigned loc, unsigned scope) {
  FrameId frame;
  StringId path;
  if (members.at(loc))
    if (std::optional<uint32_t> i = index(frames_.size(), "locs"))
      frame = frames_[*i];
  if (members.at(scope))
    if (std::optional<uint32_t> i = index(scopes_.size(), "scopes"))
      path = scopes_[*i];
  return builder_.location(frame, path);
}

} // namespace spmd::ir
