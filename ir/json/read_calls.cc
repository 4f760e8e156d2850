// Calls in the JSON format, `args` and `kwargs`: a string is a value where it begins with `%`, else
// a word.
#include "ir/calls/bind.h"
#include "ir/json/read.h"
#include "ir/support/strings.h"

#include "llvm/Support/SaveAndRestore.h"

#include <fmt/format.h>

namespace spmd::ir {

Operand JsonReader::argument() {
  if (json_.peek() == '[') {
    llvm::SmallVector<Operand, 8> list;
    llvm::SaveAndRestore<unsigned> nested(values_, values_ + 1);
    if (!is_too_deep())
      json_.array([&](uint32_t) { list.push_back(argument()); });
    return Operand::list(program_.blocks.add(list));
  }
  if (json_.peek() != '"')
    return operand();
  Token token = json_.at();
  std::optional<llvm::StringRef> word = json_.string();
  if (word && ir::starts_with(*word, "%")) {
    json_.seek(token);
    return Operand::value(value_ref());
  }
  return Operand::literal(
      builder_.literal(word ? AttrValue::string(builder_.string(*word)) : AttrValue::null()));
}

// Binds the call to operands and attributes; the name gets the overload that was chosen.
llvm::SmallVector<Operand, 8> JsonReader::read_call(const JsonMembers &members, unsigned args,
                                                    unsigned kwargs, Inst &inst,
                                                    AttrDict &literals) {
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
