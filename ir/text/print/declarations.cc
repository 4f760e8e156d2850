// Declarations in the text.
#include "ir/text/print/declarations.h"

#include "ir/claims.h"
#include "ir/text/text.h"

#include <fmt/core.h>

namespace spmd::ir {

void TextDeclarations::param(const Param &param) {
  const Value &value = program_.values[param.value];
  std::string type = types_.value(param.value);
  std::string text =
      fmt::format("{} = {} {}", insts_.result(param.value, "", false),
                  kRoleWords[static_cast<unsigned>(param.role)], type.empty() ? "?[...]" : type);
  if (param.name.valid())
    text += " " + words_.quoted(param.name);
  llvm::SmallVector<std::string, 4> words;
  if (std::string stated = contract(param); !stated.empty())
    words.push_back(stated);
  if (value.requires_grad != Tristate::Unstated)
    words.push_back(fmt::format("requires_grad = {}", value.requires_grad == Tristate::True));
  if (param.drifted.valid())
    words.push_back("drifted = " + words_.axes(program_.axis_refs[param.drifted]));
  if (param.drifts_later.valid())
    words.push_back(fmt::format("drifts_later = {}, drift_step = {}",
                                words_.axes(program_.axis_refs[param.drifts_later]),
                                param.drift_step));
  if (param.gradient_ratio)
    words.push_back("gradient_ratio = " + print_number(*param.gradient_ratio));
  if (param.observed.valid())
    words.push_back("observed = " + words_.axes(program_.axis_refs[param.observed]));
  if (param.separate.valid())
    words.push_back("separate = " + words_.axes(program_.axis_refs[param.separate]));
  if (param.taken.valid())
    words.push_back(fmt::format("taken = {}, taken_dim = {}, taken_blocks = {}",
                                words_.axes(program_.axis_refs[param.taken]), param.taken_dim,
                                param.taken_blocks));
  if (!words.empty())
    text += fmt::format(" {{ {} }}", joined(words));
  lines_.add(text + words_.where(param.loc) + types_.comment(param.value, 1));
}

std::string TextDeclarations::contract(const Param &param) const {
  const GradContract &grad = param.grad;
  MeshId mesh = mesh_of(program_, param.value, types_.mesh());
  llvm::SmallVector<std::string, 4> words;
  if (grad.grad.valid())
    words.push_back("grad = " + types_.claim(grad.grad, mesh));
  if (!grad.sync.empty())
    words.push_back("sync = " + sync(grad.sync));
  if (grad.step.valid())
    words.push_back("step = " + types_.claim(grad.step, mesh));
  if (!grad.hints.empty())
    words.push_back("hints = " + hints(grad.hints));
  if (grad.stated && words.empty())
    words.emplace_back("grad = null");
  return joined(words);
}

std::string TextDeclarations::sync(llvm::ArrayRef<Sync> list) const {
  if (list.size() == 1 && list[0].op == Combiner::Sum)
    return words_.axes(program_.axis_refs[list[0].axes]);
  llvm::SmallVector<std::string, 4> parts;
  for (const Sync &row : list)
    parts.push_back(
        fmt::format("{} = {}", words_.axes(program_.axis_refs[row.axes]), ir::word(row.op)));
  return fmt::format("{{ {} }}", joined(parts));
}

std::string TextDeclarations::hints(llvm::ArrayRef<SyncHint> list) const {
  llvm::SmallVector<std::string, 4> parts;
  for (const SyncHint &row : list)
    parts.push_back(
        fmt::format("{} = {}", words_.axes(program_.axis_refs[row.axes]), words_.quoted(row.text)));
  return fmt::format("{{ {} }}", joined(parts));
}

void TextDeclarations::output(const Output &output) {
  std::string text = "output ";
  if (output.role != OutputRole::Output)
    text += fmt::format("{} ", kOutputRoleWords[static_cast<unsigned>(output.role)]);
  text += print_value(program_, output.value);
  if (output.of.valid())
    text += " of " + print_value(program_, output.of);
  std::string type =
      types_.claim(output.declared, {}, {}, {}, mesh_of(program_, output.value, types_.mesh()));
  if (!type.empty())
    text += ": " + type;
  if (output.name.valid())
    text += " " + words_.quoted(output.name);
  lines_.add(text);
}

} // namespace spmd::ir
