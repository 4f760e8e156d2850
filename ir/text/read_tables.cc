// What stands outside of bodies: the trace header, files, symbols, rules, suppressions,
// declarations, outputs. Meshes and groups have a file of their own, read_meshes.cc.
#include "ir/json/read_cursor.h"
#include "ir/mesh/symbols.h"
#include "ir/support/strings.h"
#include "ir/text/read.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/core.h>

namespace spmd::ir {

static std::string_view view(llvm::StringRef text) { return text; }

bool TextReader::read_trace() {
  return dict([&](const Token &token, Key key) { return read_trace_key(token, key); });
}

bool TextReader::read_trace_key(const Token &token, Key key) {
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
  return skip_attr();
}

bool TextReader::read_extra(Key key) {
  Token token = peek();
  StringId id = builder_.string(key);
  if (!extras_.insert(id.index).second)
    error(token, "trace-key", fmt::format("key `{}` is repeated", view(key)));
  std::optional<std::string> json = string("a string of JSON");
  if (!json)
    return false;
  JsonCursor cursor(*json);
  cursor.skip();
  std::string inside = "[" + *json + "]"; // a document is around it, which counts as nesting
  JsonCursor nested(inside);
  nested.skip();
  if (cursor.failed() || !cursor.at_end() || nested.failed())
    error(token, "trace-key", fmt::format("the string of `{}` holds no JSON", view(key)));
  program_.extras.push_back({id, builder_.string(*json)});
  return true;
}

bool TextReader::read_count(std::optional<int64_t> &out, std::string_view what, int64_t least,
                            std::string_view error_name) {
  out = integer(what, least, error_name);
  return out.has_value();
}

bool TextReader::read_version() {
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
  auto [line, col] = line_and_column(bytes_, token.offset);
  result_.warnings.push_back({"trace-newer",
                              fmt::format("version {} is newer than 1.{}", *version, kMinorVersion),
                              token.offset, line, col, ""});
  return true;
}

bool TextReader::read_producer() {
  Producer &producer = program_.producer;
  producer.stated = true;
  return dict([&](const Token &token, Key key) {
    static constexpr std::string_view kKeys[] = {"name", "version", "framework", "frontend"};
    StringId *fields[] = {&producer.name, &producer.version, &producer.framework,
                          &producer.frontend};
    const auto *row = llvm::find(kKeys, view(key));
    if (row == std::end(kKeys)) {
      unknown_key(token, "a producer", kKeys);
      return skip_attr();
    }
    std::optional<std::string> text = word_or_string("a string");
    if (text)
      *fields[row - kKeys] = builder_.string(*text);
    return text.has_value();
  });
}

bool TextReader::read_requires() {
  return list('[', ']', [&] {
    Token token = peek();
    std::optional<std::string> feature = word_or_string("a feature");
    if (feature)
      error(token, "trace-feature",
            fmt::format("feature `{}` is required and not known here", *feature));
    return feature.has_value();
  });
}

bool TextReader::read_missing() {
  return list('[', ']', [&] {
    auto what = Missing::Types;
    size_t before = result_.errors.size();
    if (!enumerator(kMissingWords, "part of a trace", what))
      return false;
    if (result_.errors.size() == before)
      program_.missing |= 1u << static_cast<unsigned>(what);
    return true;
  });
}

FileId TextReader::file_named(llvm::StringRef path) {
  auto [at, inserted] = files_.try_emplace(builder_.string(path).index);
  if (inserted)
    at->second = program_.files.add({builder_.string(path), {}});
  return at->second;
}

bool TextReader::read_file() {
  std::optional<std::string> path = string("a path in quotes");
  if (!path)
    return false;
  FileId file = file_named(*path);
  if (!peek().is('{'))
    return true;
  return dict([&](const Token &token, Key key) {
    static constexpr std::string_view kKeys[] = {"sha256"};
    if (view(key) != kKeys[0]) {
      unknown_key(token, "a file", kKeys);
      return skip_attr();
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

bool TextReader::read_symbol() {
  Token token = peek();
  std::optional<std::string> word = word_or_string("a symbol");
  if (!word)
    return false;
  std::optional<StringId> symbol = builder_.string(*word);
  if (is_symbol(program_.strings[*symbol]))
    error(token, "trace-duplicate", fmt::format("symbol `{}` is declared twice", view(token.text)));
  SymbolInfo info{.name = *symbol, .min = {}, .max = {}, .multiple_of = {}, .hint = {}};
  info.origin = token.offset;
  bool ok = !peek().is('{') || dict([&](const Token &at, Key key) {
    static constexpr std::string_view kKeys[] = {"min", "max", "multiple_of", "hint"};
    std::optional<int64_t> *fields[] = {&info.min, &info.max, &info.multiple_of, &info.hint};
    const auto *row = llvm::find(kKeys, view(key));
    if (row == std::end(kKeys)) {
      unknown_key(at, "a symbol", kKeys);
      return skip_attr();
    }
    int64_t least = key == "multiple_of" ? 1 : -kMaxInteger;
    return read_count(*fields[row - kKeys], *row, least, "trace-shape");
  });
  if (std::string wrong = contradiction(info); !wrong.empty())
    error(token, "trace-shape", fmt::format("symbol `{}` has {}", view(token.text), wrong));
  program_.symbols.push_back(info);
  return ok;
}

bool TextReader::read_rule() {
  Token token = peek();
  std::optional<StringId> op = op_name();
  if (!op)
    return false;
  if (!rules_.insert(op->index).second)
    error(token, "trace-key",
          fmt::format("a second rule stands for `{}`", view(program_.strings[*op])));
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

// Names joined by `-`, or a string.
std::optional<std::string> TextReader::finding() {
  Token first = peek();
  std::optional<std::string> text;
  if (first.kind == TokenKind::String)
    text = string("a finding");
  else
    text = dashed_name("a finding");
  if (text && !is_finding(*text))
    error(first, "trace-key",
          fmt::format("`{}` is no name of a finding", view(llvm::StringRef(*text).take_front(60))));
  return text;
}

std::optional<std::string> TextReader::dashed_name(std::string_view what) {
  std::string text;
  for (std::optional<Token> part = any_name(what); part; part = any_name(what)) {
    text += part->text;
    if (!take_if('-'))
      return text;
    text += '-';
  }
  return std::nullopt;
}

bool TextReader::read_suppress() {
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
  if (take_word("at") && !read_frames(row.loc))
    return false;
  if (!row.reason.valid())
    error(token, "trace-key", fmt::format("the suppression of `{}` states no `reason`", *name));
  program_.suppressions.push_back(row);
  return true;
}

bool TextReader::read_suppress_key(Suppression &row, const Token &token, Key key) {
  static constexpr std::string_view kKeys[] = {"scope", "reason", "until"};
  StringId *fields[] = {&row.scope, &row.reason, &row.until};
  const auto *at = llvm::find(kKeys, view(key));
  if (at == std::end(kKeys)) {
    unknown_key(token, "a suppression", kKeys);
    return skip_attr();
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

bool TextReader::read_output() {
  begin_body();
  Output output;
  output.origin = last_end_ - std::string_view("output").size();
  for (size_t i = 0; i < kOutputRoleWords.size(); ++i)
    if (take_word(kOutputRoleWords[i])) {
      output.role = static_cast<OutputRole>(i);
      break;
    }
  std::optional<ValueId> value = value_use();
  if (!value)
    return false;
  output.value = *value;
  if (take_word("of")) {
    std::optional<ValueId> of = value_use();
    if (!of)
      return false;
    output.of = *of;
  }
  if (take_if(':')) {
    std::optional<WrittenType> written =
        type(mesh_of(program_, *value, mesh()), rank_of(program_.values[*value].shape));
    if (!written)
      return false;
    output.declared = written->type;
  }
  if (peek().kind == TokenKind::String) {
    std::optional<std::string> name = string("a name");
    if (!name)
      return false;
    output.name = builder_.string(*name);
  }
  program_.outputs.push_back(output);
  return true;
}

bool TextReader::read_declaration(WrittenValue written, Role role, uint64_t origin) {
  std::optional<WrittenType> stated = type(mesh());
  if (!stated)
    return false;
  written.type = *stated;
  Param param;
  param.role = role;
  if (peek().kind == TokenKind::String) {
    std::optional<std::string> name = string("a name");
    if (!name)
      return false;
    param.name = builder_.string(*name);
  }
  param.value = define(written);
  if (written.late_grad_of)
    late_gradients_.push_back({param.value, *written.late_grad_of});
  if (peek().is('{') &&
      !dict([&](const Token &at, Key key) { return read_declaration_key(param, at, key); }))
    return false;
  if (!read_where(param.loc))
    return false;
  program_.params.push_back(std::move(param));
  program_.param_origins.push_back(origin);
  return true;
}

bool TextReader::read_declaration_key(Param &param, const Token &token, Key key) {
  static constexpr std::string_view kKeys[] = {
      "grad",     "sync",     "step",           "hints", "requires_grad", "drifted",
      "observed", "separate", "gradient_ratio", "taken", "taken_dim",     "taken_blocks"};
  if (key == "requires_grad") {
    std::optional<bool> requires_grad = boolean();
    if (requires_grad)
      program_.values[param.value].requires_grad =
          *requires_grad ? Tristate::True : Tristate::False;
    return requires_grad.has_value();
  }
  if (key == "gradient_ratio") {
    std::optional<AttrValue> ratio = number();
    if (ratio)
      param.gradient_ratio = ratio->form == AttrForm::Integer
                                 ? static_cast<double>(ratio->as_integer())
                                 : ratio->as_number();
    return ratio.has_value();
  }
  const std::pair<llvm::StringRef, int64_t *> places[] = {{"taken_dim", &param.taken_dim},
                                                          {"taken_blocks", &param.taken_blocks}};
  for (const auto &[name, place] : places)
    if (key == name) {
      const int64_t least = place == &param.taken_blocks;
      std::optional<int64_t> stated = integer(name, least, "bad-number");
      *place = stated.value_or(least);
      return stated.has_value();
    }
  const std::pair<llvm::StringRef, AxisRefsId *> seen[] = {{"drifted", &param.drifted},
                                                           {"observed", &param.observed},
                                                           {"separate", &param.separate},
                                                           {"taken", &param.taken}};
  for (const auto &[name, axes] : seen)
    if (key == name) {
      std::optional<AxisRefsId> refs = declared_axes();
      *axes = refs.value_or(AxisRefsId());
      return refs.has_value();
    }
  bool contract = llvm::is_contained(llvm::ArrayRef(kKeys).take_front(4), view(key));
  if (!contract) {
    unknown_key(token, "a declaration", kKeys);
    return skip_attr();
  }
  param.grad.stated = true;
  if (key == "sync")
    return read_sync(param.grad);
  if (key == "hints")
    return read_hints(param.grad);
  const Value &value = program_.values[param.value];
  std::optional<ClaimId> stated =
      claim(mesh_of(program_, param.value, mesh()), rank_of(value.shape));
  if (!stated)
    return false;
  bool nothing = program_.claims[*stated] == Claim();
  if (key == "step")
    param.grad.step = *stated;
  else if (!nothing) // else it is the contract that says nothing of its type, as in JSON
    param.grad.grad = *stated;
  return true;
}

// `dp`, `(dp, cp)` or `{ dp = avg, (cp, tp) = sum }`.
bool TextReader::read_sync(GradContract &grad) {
  if (!peek().is('{'))
    return read_sync_axes(grad);
  return list('{', '}', [&] {
    if (!read_sync_axes(grad) || !expect('='))
      return false;
    Token token = peek();
    Combiner op = Combiner::Sum;
    if (!enumerator(kCombinerWords, "combiner", op))
      return false;
    if (op != Combiner::Sum && op != Combiner::Avg)
      error(
          token, "trace-key",
          fmt::format("a gradient is synchronised by {}, and only sum and avg do that", word(op)));
    grad.sync.back().op = op;
    return true;
  });
}

bool TextReader::read_sync_axes(GradContract &grad) {
  std::optional<AxisRefsId> refs = declared_axes();
  if (refs)
    grad.sync.push_back({*refs, Combiner::Sum});
  return refs.has_value();
}

// `{ tp = "the attribute sequence_parallel" }`.
bool TextReader::read_hints(GradContract &grad) {
  return list('{', '}', [&] {
    std::optional<AxisRefsId> refs = declared_axes();
    if (!refs || !expect('='))
      return false;
    std::optional<std::string> text = string("a text");
    if (text)
      grad.hints.push_back({*refs, builder_.string(*text)});
    return text.has_value();
  });
}

std::optional<AxisRefsId> TextReader::declared_axes() {
  Token token = peek();
  std::optional<AxisRefs> refs = axes();
  if (!refs)
    return std::nullopt;
  check_axes(token, mesh(), *refs);
  return program_.axis_refs.add(std::move(*refs));
}

// What the header announces about the whole program.
void TextReader::check_counts() {
  auto wrong = [&](std::string_view name, std::string message) {
    error(bytes_.size(), name, std::move(message));
  };
  for (const Mesh &mesh : program_.meshes)
    if (program_.world && mesh.rank_count() > *program_.world && !is_symbolic(program_, mesh))
      wrong("trace-mesh",
            fmt::format("mesh `{}` has {} ranks, and `world` is {}",
                        view(program_.strings[mesh.name]), mesh.rank_count(), *program_.world));
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
