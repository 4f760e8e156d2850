// Operands of the JSON format: a string is a value, everything else a literal or a list.
#include "ir/json/read/operands.h"

#include "ir/calls/bind.h"
#include "ir/input/read_operands.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/SaveAndRestore.h"

#include <fmt/format.h>

namespace spmd::ir {

void JsonOperandReader::operands(llvm::SmallVectorImpl<Operand> &out) {
  json_.array([&](uint32_t) { out.push_back(operand()); });
}

Operand JsonOperandReader::operand() {
  if (json_.peek() == '"')
    return Operand::value(values_.value_ref());
  if (json_.peek() == '[') {
    llvm::SmallVector<Operand, 8> list;
    llvm::SaveAndRestore<unsigned> nested(in_.values, in_.values + 1);
    if (!is_too_deep())
      operands(list);
    return Operand::list(program_.operand_lists.add(list));
  }
  Token token = json_.at();
  RawCache::Key key{json_.raw()};
  if (std::optional<uint32_t> found = literal_cache_.find(key))
    return Operand::literal(*found);
  json_.seek(token);
  size_t before = json_.errors().size();
  Operand made = Operand::literal(builder_.literal(literal()));
  if (json_.errors().size() == before)
    literal_cache_.add(key, made.index);
  return made;
}

AttrValue JsonOperandReader::literal() {
  if (json_.peek() != '{')
    return attributes_.plain_value();
  size_t before = json_.errors().size();
  if (std::optional<AttrValue> value = attributes_.wrapped(true))
    return *value;
  if (json_.errors().size() != before)
    return json_.skip(), AttrValue::null();
  json_.mismatch("a value, a number, `{\"str\": ..}`, `{\"sym\": ..}` or `{\"num\": ..}`");
  return AttrValue::null();
}

// Pairs of a name and an operand. What holds no value is an attribute like any other, as it is in
// text.
void JsonOperandReader::named_operands(llvm::SmallVectorImpl<Operand> &out, AttrDict &literals) {
  json_.object([&](llvm::StringRef name) {
    StringId key = builder_.string(name);
    Token token = json_.at();
    Operand made = operand();
    if (holds_value(program_, made))
      out.append({Operand::name(key), made});
    else if (std::optional<unsigned> known = known_key(name);
             known && kKnownKeys[*known].form != KeyForm::Plain)
      json_.error(token, "trace-key",
                  fmt::format("`{}` is an attribute, and stands among the operands", name.str()));
    else
      literals.attrs.push_back({key, as_attr(program_, made)});
  });
}

// Positions count the operands by position, then those by name.
void JsonOperandReader::mark_mutated(llvm::MutableArrayRef<Operand> operands) {
  llvm::SmallVector<Operand *, 8> slots;
  for (Operand &operand : operands)
    if (operand.form != Operand::Form::Name)
      slots.push_back(&operand);
  json_.array([&](uint32_t) {
    Token token = json_.at();
    std::optional<int64_t> at = json_.integer(0);
    if (!at)
      return;
    if (static_cast<uint64_t>(*at) >= slots.size())
      json_.error(token, "trace-reference",
                  fmt::format("operand {} of {} does not exist", *at, slots.size()));
    else if (slots[*at]->mut)
      json_.error(token, "trace-key", fmt::format("operand {} is repeated", *at));
    else // recorders mark an optional operand where it is absent, too
      slots[*at]->mut = holds_value(program_, *slots[*at]);
  });
}

Operand JsonOperandReader::argument() {
  if (json_.peek() == '[') {
    llvm::SmallVector<Operand, 8> list;
    llvm::SaveAndRestore<unsigned> nested(in_.values, in_.values + 1);
    if (!is_too_deep())
      json_.array([&](uint32_t) { list.push_back(argument()); });
    return Operand::list(program_.operand_lists.add(list));
  }
  if (json_.peek() != '"')
    return operand();
  Token token = json_.at();
  std::optional<llvm::StringRef> word = json_.string();
  if (word && ir::starts_with(*word, "%")) {
    json_.seek(token);
    return Operand::value(values_.value_ref());
  }
  return Operand::literal(
      builder_.literal(word ? AttrValue::string(builder_.string(*word)) : AttrValue::null()));
}

// Binds the call to operands and attributes; the name gets the overload that was chosen.
llvm::SmallVector<Operand, 8> JsonOperandReader::read_call(const JsonMembers &members,
                                                           unsigned args, unsigned kwargs,
                                                           Inst &inst, AttrDict &literals) {
  Call call;
  std::string name = program_.strings[StringId{inst.op.index}].str();
  call.name = name;
  if (members.at(args))
    json_.array([&](uint32_t) { call.args.push_back(argument()); });
  if (members.at(kwargs))
    json_.object([&](llvm::StringRef key) {
      StringId word = builder_.string(key);
      call.kwargs.push_back({word, argument()});
    });
  if (json_.failed())
    return {};
  BoundCall bound = bind_call(builder_, call);
  if (!bound.problem.empty()) {
    json_.error(members.token(members.has(args) ? args : kwargs), "trace-key",
                fmt::format("`{}` cannot be called so: {}", name, bound.problem));
    return {};
  }
  inst.op = OpNameId{builder_.string(bound.name).index};
  literals = std::move(bound.attrs);
  return std::move(bound.operands);
}

} // namespace spmd::ir
