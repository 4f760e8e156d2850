// The keys of the header are those of JSON (ir/README.md).
#include "ir/text/read/header.h"

#include "ir/input/json_cursor.h"
#include "ir/mesh/symbols.h"
#include "ir/support/format.h"
#include "ir/support/strings.h"

#include "llvm/ADT/StringExtras.h"
#include <fmt/core.h>

namespace spmd::ir {

bool TextHeaderReader::read_trace() {
  return dict([&](const Token &token, Key key) { return read_trace_key(token, key); });
}

bool TextHeaderReader::read_trace_key(const Token &token, Key key) {
  static constexpr std::string_view kKeys[] = {"version", "producer", "dialect", "mode",
                                               "phase",   "requires", "missing", "world",
                                               "rank",    "op_count"};
  if (key == "version")
    return read_version();
  if (key == "producer")
    return read_producer();
  if (key == "dialect") {
    std::optional<std::string> word = word_or_string("a dialect");
    program_.dialect = word ? builder_.string(*word) : StringId{};
    return word.has_value();
  }
  if (key == "mode")
    return enumerator(kModeWords, "mode", program_.mode);
  if (key == "phase")
    return enumerator(kProgramPhaseWords, "phase", program_.phase);
  if (key == "requires")
    return read_requires();
  if (key == "missing")
    return read_missing();
  if (key == "world")
    return read_count(program_.world, "`world`", 1, "trace-mesh");
  if (key == "rank")
    return read_count(program_.rank, "`rank`", 0, "trace-mesh");
  if (key == "op_count")
    return read_count(program_.op_count, "`op_count`", 0, "trace-key");
  if (ir::starts_with(key, "x_"))
    return read_extra(key);
  unknown_key(token, "the trace", kKeys);
  return operands_.skip_attr();
}

bool TextHeaderReader::read_extra(Key key) {
  Token token = peek();
  StringId id = builder_.string(key);
  if (!extras_.insert(id.index).second)
    error(token, "trace-key", fmt::format("key `{}` is repeated", key));
  std::optional<std::string> json = string("a string of JSON");
  if (!json)
    return false;
  JsonCursor cursor(*json);
  cursor.skip();
  std::string inside = "[" + *json + "]"; // a document is around it, which counts as nesting
  JsonCursor nested(inside);
  nested.skip();
  if (cursor.failed() || !cursor.at_end() || nested.failed())
    error(token, "trace-key", fmt::format("the string of `{}` holds no JSON", key));
  program_.extras.push_back({id, builder_.string(*json)});
  return true;
}

bool TextHeaderReader::read_count(std::optional<int64_t> &out, std::string_view what, int64_t least,
                                  std::string_view error_name) {
  out = integer(what, least, error_name);
  return out.has_value();
}

bool TextHeaderReader::read_version() {
  Token token = peek();
  std::optional<std::string> version = string("a version in quotes");
  if (!version)
    return false;
  auto [major, minor] = llvm::StringRef(*version).split('.');
  uint32_t number = 0;
  if (minor.size() > 9 || minor.getAsInteger(10, number)) // as in JSON
    return error(token, "trace-key", fmt::format("`{}` is no version of the form 1.0", *version));
  if (major != "1")
    return error(token, "trace-version",
                 fmt::format("version {} is read by nothing here, only 1.x is", *version));
  program_.minor_version = number;
  if (number <= kMinorVersion)
    return true;
  auto [line, col] = line_and_column(in_.bytes, token.offset);
  in_.result.warnings.push_back(
      {"trace-newer", fmt::format("version {} is newer than 1.{}", *version, kMinorVersion),
       token.offset, line, col, ""});
  return true;
}

bool TextHeaderReader::read_producer() {
  Producer &producer = program_.producer;
  producer.stated = true;
  return dict([&](const Token &token, Key key) {
    static constexpr std::string_view kKeys[] = {"name", "version", "framework", "frontend"};
    StringId *fields[] = {&producer.name, &producer.version, &producer.framework,
                          &producer.frontend};
    const auto *row = llvm::find(kKeys, std::string_view(key));
    if (row == std::end(kKeys)) {
      unknown_key(token, "a producer", kKeys);
      return operands_.skip_attr();
    }
    std::optional<std::string> text = word_or_string("a string");
    if (text)
      *fields[row - kKeys] = builder_.string(*text);
    return text.has_value();
  });
}

bool TextHeaderReader::read_requires() {
  return list('[', ']', [&] {
    Token token = peek();
    std::optional<std::string> feature = word_or_string("a feature");
    if (feature)
      error(token, "trace-feature",
            fmt::format("feature `{}` is required and not known here", *feature));
    return feature.has_value();
  });
}

bool TextHeaderReader::read_missing() {
  return list('[', ']', [&] {
    auto what = Missing::Types;
    size_t before = in_.result.errors.size();
    if (!enumerator(kMissingWords, "part of a trace", what))
      return false;
    if (in_.result.errors.size() == before)
      program_.missing |= 1u << static_cast<unsigned>(what);
    return true;
  });
}

bool TextHeaderReader::read_file() {
  std::optional<std::string> path = string("a path in quotes");
  if (!path)
    return false;
  FileId file = places_.file_named(*path);
  if (!peek().is('{'))
    return true;
  return dict([&](const Token &token, Key key) {
    static constexpr std::string_view kKeys[] = {"sha256"};
    if (key != llvm::StringRef(kKeys[0])) {
      unknown_key(token, "a file", kKeys);
      return operands_.skip_attr();
    }
    Token at = peek();
    std::optional<std::string> digest = string("64 hexadecimal digits in quotes");
    if (!digest)
      return false;
    if (digest->size() != 64 || !llvm::all_of(*digest, llvm::isHexDigit))
      error(at, "trace-key", "`sha256` has other than 64 hexadecimal digits");
    program_.files[file].sha256 = builder_.string(*digest);
    return true;
  });
}

bool TextHeaderReader::read_symbol() {
  Token token = peek();
  std::optional<std::string> word = word_or_string("a symbol");
  if (!word)
    return false;
  std::optional<StringId> symbol = builder_.string(*word);
  if (types_.is_symbol(program_.strings[*symbol]))
    error(token, "trace-duplicate", fmt::format("symbol `{}` is declared twice", token.text));
  SymbolInfo info{.name = *symbol, .min = {}, .max = {}, .multiple_of = {}, .hint = {}};
  info.origin = token.offset;
  bool ok = !peek().is('{') || dict([&](const Token &at, Key key) {
    static constexpr std::string_view kKeys[] = {"min", "max", "multiple_of", "hint"};
    std::optional<int64_t> *fields[] = {&info.min, &info.max, &info.multiple_of, &info.hint};
    const auto *row = llvm::find(kKeys, std::string_view(key));
    if (row == std::end(kKeys)) {
      unknown_key(at, "a symbol", kKeys);
      return operands_.skip_attr();
    }
    int64_t least = key == "multiple_of" ? 1 : -kMaxInteger;
    return read_count(*fields[row - kKeys], *row, least, "trace-shape");
  });
  if (std::string wrong = contradiction(info); !wrong.empty())
    error(token, "trace-shape", fmt::format("symbol `{}` has {}", token.text, wrong));
  program_.symbols.push_back(info);
  return ok;
}

bool TextHeaderReader::read_rule() {
  Token token = peek();
  std::optional<StringId> op = op_name();
  if (!op)
    return false;
  if (!rules_.insert(op->index).second)
    error(token, "trace-key", fmt::format("a second rule stands for `{}`", program_.strings[*op]));
  UserRule rule{.op = *op, .equation = {}, .like = {}, .origin = token.offset};
  if (take_word("like")) {
    std::optional<StringId> like = op_name();
    if (!like)
      return false;
    rule.like = *like;
  } else {
    if (!expect('='))
      return false;
    Token at = peek();
    std::optional<std::string> equation = string("an equation in quotes");
    if (!equation)
      return false;
    if (!llvm::StringRef(*equation).contains("->"))
      error(at, "trace-rule", "the equation has no `->`");
    rule.equation = builder_.string(*equation);
  }
  program_.rules.push_back(rule);
  return true;
}

bool TextHeaderReader::read_suppress() {
  Token token = peek();
  std::optional<std::string> name = finding();
  if (!name)
    return false;
  Suppression row;
  row.finding = builder_.string(*name);
  row.origin = token.offset;
  if (peek().is('{') &&
      !dict([&](const Token &at, Key key) { return read_suppress_key(row, at, key); }))
    return false;
  if (take_word("at") && !places_.read_frames(row.loc))
    return false;
  if (!row.reason.valid())
    error(token, "trace-key", fmt::format("the suppression of `{}` states no `reason`", *name));
  program_.suppressions.push_back(row);
  return true;
}

bool TextHeaderReader::read_suppress_key(Suppression &row, const Token &token, Key key) {
  static constexpr std::string_view kKeys[] = {"scope", "reason", "until"};
  StringId *fields[] = {&row.scope, &row.reason, &row.until};
  const auto *at = llvm::find(kKeys, std::string_view(key));
  if (at == std::end(kKeys)) {
    unknown_key(token, "a suppression", kKeys);
    return operands_.skip_attr();
  }
  Token stated = peek();
  std::optional<std::string> text = string("a string");
  if (!text)
    return false;
  if (key == "reason" && text->empty())
    error(stated, "trace-key", "`reason` is empty");
  if (key == "until" && !is_date(*text))
    error(stated, "trace-key", fmt::format("`{}` is no date of the form 2030-01-31", *text));
  *fields[at - kKeys] = builder_.string(*text);
  return true;
}

// What the header announces about the whole program.
void TextHeaderReader::check_counts() {
  auto wrong = [&](std::string_view name, std::string message) {
    error(in_.bytes.size(), name, std::move(message));
  };
  for (const Mesh &mesh : program_.meshes)
    if (program_.world && mesh.rank_count() > *program_.world && !is_symbolic(program_, mesh))
      wrong("trace-mesh",
            fmt::format("mesh `{}` has {} ranks, and `world` is {}", program_.strings[mesh.name],
                        mesh.rank_count(), *program_.world));
  if (program_.world && program_.rank && *program_.rank >= *program_.world)
    wrong("trace-mesh",
          fmt::format("`rank` is {}, and `world` is {}", *program_.rank, *program_.world));
  std::optional<int64_t> announced = program_.op_count;
  int64_t own = program_.main.size(), all = static_cast<int64_t>(program_.insts.size());
  if (announced && *announced != own && *announced != all)
    wrong("trace-truncated",
          fmt::format("{} ops are announced, and {} stand here", *announced, own));
}

} // namespace spmd::ir
