// Functions of the JSON format. The context of ops that name none is that of the function.
#include "ir/json/read/bodies.h"

#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

namespace {

constexpr std::array<std::string_view, 5> kFunctionKeys = {"ctx", "params", "ops", "results",
                                                           "out"};
enum FunctionKey : unsigned { Ctx, Params, Ops, Results, Out };

} // namespace

void JsonBodyReader::functions() {
  json_.object([&](llvm::StringRef name) {
    Token token = json_.at();
    if (!ir::starts_with(name, "@") || name.size() == 1) {
      json_.error(token, "trace-key",
                  fmt::format("`{}` is no name of a function, which is `@` and a word",
                              name.take_front(60).str()));
      return json_.skip();
    }
    function(name);
  });
}

void JsonBodyReader::function(llvm::StringRef name) {
  auto members = object(kFunctionKeys);
  if (!members)
    return;
  FunctionId id = builder_.function(name);
  Function made;
  made.name = program_.functions[id].name;
  made.origin = json_.offset(members.token());
  made.opaque = members.has(Out) && !members.has(Ops) && !members.has(Results);
  require(members, Params, kFunctionKeys[Params]);
  if (!made.opaque) {
    require(members, Ops, kFunctionKeys[Ops]);
    require(members, Results, kFunctionKeys[Results]);
  }
  ContextId outer = in_.context;
  if (members.at(Ctx))
    if (std::optional<uint32_t> context = index(tables_.context_count(), "contexts"))
      made.context = in_.context = tables_.context(*context);
  builder_.open_body();
  if (members.at(Params))
    declarations_.function_params(made, mesh_of(in_.context));
  if (made.opaque && members.at(Out))
    json_.array([&](uint32_t) { made.outs.push_back(types_.claim(mesh_of(in_.context), {})); });
  if (members.at(Ops))
    ops();
  buffer_.clear();
  if (members.at(Results))
    operands_.operands(buffer_);
  if (!made.opaque)
    made.results = program_.operand_lists.add(buffer_);
  Body body = builder_.close_body();
  made.body = made.opaque ? Body() : body;
  in_.context = outer;
  program_.functions[id] = std::move(made);
  builder_.mark_defined(id);
}

} // namespace spmd::ir
