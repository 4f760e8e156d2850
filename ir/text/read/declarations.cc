// A gradient may be named before it is defined: it is looked up when all has been read.
#include "ir/text/read/declarations.h"
#include "ir/support/format.h"

#include <fmt/core.h>

#include <tuple>

namespace spmd::ir {

bool TextDeclarationReader::read_output() {
  begin_body();
  Output output;
  output.origin = in_.last_end - std::string_view("output").size();
  for (size_t i = 0; i < kOutputRoleWords.size(); ++i)
    if (take_word(kOutputRoleWords[i])) {
      output.role = static_cast<OutputRole>(i);
      break;
    }
  std::optional<ValueId> value = values_.value_use();
  if (!value)
    return false;
  output.value = *value;
  if (take_word("of")) {
    std::optional<ValueId> of = values_.value_use();
    if (!of)
      return false;
    output.of = *of;
  }
  if (take_if(':')) {
    std::optional<WrittenType> written = types_.type(mesh_of(program_, *value, mesh()),
                                                     types_.rank_of(program_.values[*value].shape));
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

bool TextDeclarationReader::read_declaration(WrittenValue written, Role role, uint64_t origin) {
  std::optional<WrittenType> stated = types_.type(mesh());
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
  param.value = values_.define(written);
  if (written.late_grad_of)
    late_gradients_.push_back({param.value, *written.late_grad_of});
  if (peek().is('{') &&
      !dict([&](const Token &at, Key key) { return read_declaration_key(param, at, key); }))
    return false;
  if (!places_.read_where(param.loc))
    return false;
  program_.params.push_back(std::move(param));
  program_.param_origins.push_back(origin);
  return true;
}

bool TextDeclarationReader::read_declaration_key(Param &param, const Token &token, Key key) {
  static constexpr std::string_view kKeys[] = {
      "grad",      "sync",         "step",         "hints",          "requires_grad",
      "drifted",   "observed",     "separate",     "gradient_ratio", "taken",
      "taken_dim", "taken_blocks", "drifts_later", "drift_step"};
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
  const std::tuple<llvm::StringRef, int64_t *, int64_t> numbers[] = {
      {"taken_dim", &param.taken_dim, 0},
      {"taken_blocks", &param.taken_blocks, 1},
      {"drift_step", &param.drift_step, 1}};
  for (const auto &[name, place, least] : numbers)
    if (key == name) {
      std::optional<int64_t> stated = integer(name, least, "bad-number");
      *place = stated.value_or(least);
      return stated.has_value();
    }
  const std::pair<llvm::StringRef, AxisRefsId *> seen[] = {{"drifted", &param.drifted},
                                                           {"drifts_later", &param.drifts_later},
                                                           {"observed", &param.observed},
                                                           {"separate", &param.separate},
                                                           {"taken", &param.taken}};
  for (const auto &[name, axes] : seen)
    if (key == name) {
      std::optional<AxisRefsId> refs = declared_axes();
      *axes = refs.value_or(AxisRefsId());
      return refs.has_value();
    }
  bool contract = llvm::is_contained(llvm::ArrayRef(kKeys).take_front(4), std::string_view(key));
  if (!contract) {
    unknown_key(token, "a declaration", kKeys);
    return operands_.skip_attr();
  }
  param.grad.stated = true;
  if (key == "sync")
    return read_sync(param.grad);
  if (key == "hints")
    return read_hints(param.grad);
  const Value &value = program_.values[param.value];
  std::optional<ClaimId> stated =
      types_.claim(mesh_of(program_, param.value, mesh()), types_.rank_of(value.shape));
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
bool TextDeclarationReader::read_sync(GradContract &grad) {
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

bool TextDeclarationReader::read_sync_axes(GradContract &grad) {
  std::optional<AxisRefsId> refs = declared_axes();
  if (refs)
    grad.sync.push_back({*refs, Combiner::Sum});
  return refs.has_value();
}

// `{ tp = "the attribute sequence_parallel" }`.
bool TextDeclarationReader::read_hints(GradContract &grad) {
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

std::optional<AxisRefsId> TextDeclarationReader::declared_axes() {
  Token token = peek();
  std::optional<AxisRefs> refs = types_.axes();
  if (!refs)
    return std::nullopt;
  types_.check_axes(token, mesh(), *refs);
  return program_.axis_refs.add(std::move(*refs));
}

void TextDeclarationReader::check_late_gradients() {
  for (auto &[value, token] : late_gradients_) {
    in_.next.reset();
    in_.lexer.seek(token.offset);
    if (std::optional<ValueId> of = values_.value_use())
      program_.values[value].grad_of = *of;
  }
}

} // namespace spmd::ir
