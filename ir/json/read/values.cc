// A value is looked up by its name in the body at hand.
#include "ir/json/read/values.h"

#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

std::optional<ValueName> JsonValueReader::value_name() {
  if (std::optional<uint32_t> number = json_.signed_digits('%')) // needs no look-up
    return ValueName::number(*number);
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return std::nullopt;
  llvm::StringRef name = *text;
  if (!name.consume_front("%") || !is_value_name(name)) {
    json_.error(token, "trace-key",
                fmt::format("`{}` is no value: `%`, then letters, digits, `_ . / -`", cut(*text)));
    return std::nullopt;
  }
  return make_name(name, program_.strings);
}

ValueId JsonValueReader::value_ref() {
  Token token = json_.at();
  std::optional<ValueName> name = value_name();
  if (!name)
    return {};
  if (std::optional<ValueId> found = builder_.lookup(*name))
    return *found;
  json_.error(token, "trace-reference",
              fmt::format("`{}` is not defined before this use", print(*name, program_.strings)));
  return {};
}

// All but `id`; `mesh` is that of the context. What a parameter is the gradient of may come later.
Value JsonValueReader::value(const JsonMembers &members, MeshId mesh, bool grads_known) {
  Value value;
  if (members.at(MeshKey))
    value.mesh = types_.mesh_ref();
  Claim claim = types_.claim_of(members, value.mesh.valid() ? value.mesh : mesh, {});
  value.shape = claim.shape;
  value.global_shape = claim.global_shape;
  value.declared = claim.type;
  if (members.at(RequiresGradKey))
    if (std::optional<bool> needed = json_.boolean())
      value.requires_grad = *needed ? Tristate::True : Tristate::False;
  if (grads_known && members.at(GradOfKey))
    value.grad_of = value_ref();
  if (members.at(AliasOfKey))
    value.alias_of = value_ref();
  return value;
}

ValueId JsonValueReader::define(const JsonMembers &members, MeshId mesh, bool grads_known) {
  Value made = value(members, mesh, grads_known);
  require(members, IdKey, kValueKeys[IdKey]);
  if (!members.at(IdKey))
    return {};
  std::optional<ValueName> name = value_name();
  if (!name)
    return {};
  made.name = *name;
  std::optional<ValueId> id = builder_.define(made);
  if (!id) {
    json_.error(members.token(IdKey), "trace-duplicate",
                fmt::format("`{}` is defined twice", print(*name, program_.strings)));
    return {};
  }
  value_meshes_.push_back(made.mesh.valid() ? made.mesh : mesh);
  return *id;
}

} // namespace spmd::ir
