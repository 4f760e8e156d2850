// What stands outside of bodies, as text: the trace header, meshes, groups, symbols, rules,
// suppressions, declarations and outputs.
#include "ir/mesh/symbols.h"
#include "ir/text/print.h"

#include "ir/input/input.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/DenseSet.h"

#include <fmt/core.h>

namespace spmd::ir {

void TextPrinter::tables() {
  trace();
  files();
  // Symbols stand before what they size.
  auto symbols = [&] {
    for (const SymbolInfo &row : program_.symbols)
      symbol(row);
  };
  bool sizes = !program_.stand_ins.empty();
  if (sizes)
    symbols();
  for (const Mesh &row : program_.meshes)
    mesh(row);
  bool is_last = mesh_.index + 1u == program_.meshes.size();
  if (!is_last && mesh_.index < program_.meshes.size())
    line("mesh " + name(program_.meshes[mesh_].name));
  for (const Group &row : program_.groups)
    group(row);
  if (!sizes)
    symbols();
  for (const UserRule &row : program_.rules)
    rule(row);
  for (const Suppression &row : program_.suppressions)
    suppression(row);
}

void TextPrinter::trace() {
  llvm::SmallVector<std::string, 8> words;
  if (program_.minor_version != 0)
    words.push_back(fmt::format("version = \"1.{}\"", program_.minor_version));
  if (program_.producer.stated)
    words.push_back("producer = " + producer());
  if (program_.dialect.valid())
    words.push_back("dialect = " + name(program_.dialect));
  if (program_.mode != Mode::Global)
    words.push_back(fmt::format("mode = {}", kModeWords[static_cast<unsigned>(program_.mode)]));
  if (program_.phase != ProgramPhase::Forward)
    words.push_back(
        fmt::format("phase = {}", kProgramPhaseWords[static_cast<unsigned>(program_.phase)]));
  if (program_.missing)
    words.push_back("missing = " + missing());
  if (program_.world)
    words.push_back(fmt::format("world = {}", *program_.world));
  if (program_.rank)
    words.push_back(fmt::format("rank = {}", *program_.rank));
  if (program_.op_count)
    words.push_back(fmt::format("op_count = {}", *program_.op_count));
  for (auto [extra, json] : program_.extras)
    words.push_back(fmt::format("{} = {}", key(program_.strings[extra]), quoted(json)));
  if (!words.empty())
    line(fmt::format("trace {{ {} }}", joined(words)));
}

std::string TextPrinter::producer() const {
  const Producer &row = program_.producer;
  const std::pair<std::string_view, StringId> fields[] = {{"name", row.name},
                                                          {"version", row.version},
                                                          {"framework", row.framework},
                                                          {"frontend", row.frontend}};
  llvm::SmallVector<std::string, 4> words;
  for (auto [word, text] : fields)
    if (text.valid())
      words.push_back(fmt::format("{} = {}", word, quoted(text)));
  return words.empty() ? "{}" : fmt::format("{{ {} }}", joined(words));
}

std::string TextPrinter::missing() const {
  llvm::SmallVector<std::string, 4> words;
  for (unsigned i = 0; i < kMissingWords.size(); ++i)
    if (program_.lacks(static_cast<Missing>(i)))
      words.emplace_back(kMissingWords[i]);
  return "[" + joined(words) + "]";
}

// Only those of which more is known than the path, which stands in locations.
void TextPrinter::files() {
  llvm::DenseSet<uint32_t> seen;
  for (const SourceFile &file : program_.files)
    if (file.sha256.valid() && seen.insert(file.path.index).second)
      line(fmt::format("file {} {{ sha256 = {} }}", quoted(file.path), quoted(file.sha256)));
}

void TextPrinter::mesh(const Mesh &mesh) {
  std::string text = "mesh " + name(mesh.name);
  if (mesh.within) {
    const Mesh &parent = program_.meshes[mesh.within->parent];
    llvm::SmallVector<std::string, 4> at;
    for (auto [axis, coordinate] : mesh.within->at)
      at.push_back(fmt::format("{} = {}", name(parent[axis].name), coordinate));
    text += fmt::format(" within {} {}", name(parent.name),
                        at.empty() ? "{}" : "{ " + joined(at) + " }");
  }
  llvm::SmallVector<std::string, 4> parts;
  for (const Axis &row : mesh.axes)
    parts.push_back(axis(mesh, row));
  text += fmt::format(" {{ {} }}", joined(parts));
  if (mesh.explicit_offset)
    text += fmt::format(" offset {}", mesh.offset);
  line(text);
}

std::string TextPrinter::axis(const Mesh &mesh, const Axis &axis) const {
  std::string text = name(axis.name);
  if (std::string size = axis_size(mesh, axis); !size.empty())
    text += " = " + size;
  if (axis.policy != Policy::Unstated)
    text += axis.policy == Policy::Local ? " local" : " global";
  if (axis.role.valid())
    text += " " + quoted(axis.role);
  return text;
}

// Empty for an axis of the parent mesh, unchanged.
std::string TextPrinter::axis_size(const Mesh &mesh, const Axis &axis) const {
  if (mesh.within && (axis.explicit_stride || axis.explicit_layout)) {
    const Mesh &parent = program_.meshes[mesh.within->parent];
    std::optional<AxisId> same = parent.find(axis.name);
    if (same && parent[*same].layout == axis.layout)
      return "";
  }
  if (axis.explicit_layout)
    return layout(axis.layout);
  if (axis.flattened) {
    llvm::SmallVector<std::string, 4> pieces;
    for (AxisId piece : axis.pieces)
      pieces.push_back(name(mesh[piece].name));
    return "(" + joined(pieces) + ")";
  }
  Atom atom = axis.layout.empty() ? Atom() : axis.layout.front();
  return axis.explicit_stride ? this->atom(atom) : ranks(atom.size);
}

// Expressions in brackets.
std::string TextPrinter::ranks(int64_t ranks) const {
  std::string text = print_ranks(program_, ranks);
  return text.find(' ') == std::string::npos ? text : "(" + text + ")";
}

std::string TextPrinter::atom(Atom atom) const {
  return ranks(atom.size) + ":" + ranks(atom.stride);
}

std::string TextPrinter::layout(llvm::ArrayRef<Atom> atoms) const {
  llvm::SmallVector<std::string, 4> parts;
  for (Atom atom : atoms)
    parts.push_back(this->atom(atom));
  return "[" + joined(parts) + "]";
}

void TextPrinter::group(const Group &group) {
  std::string text = fmt::format("group {} = ", quoted(group.key));
  if (group.form == Group::Form::Axes) {
    llvm::SmallVector<std::string, 4> parts;
    for (AxisId axis : group.axes)
      parts.push_back(name(program_.meshes[group.mesh][axis].name));
    std::string axes = parts.size() == 1 ? parts[0] : "(" + joined(parts) + ")";
    text += fmt::format("{}.{}", name(program_.meshes[group.mesh].name), axes);
  } else if (group.form == Group::Form::Layout)
    text += layout(group.layout);
  else {
    llvm::SmallVector<std::string, 8> ranks;
    for (int64_t rank : group.ranks)
      ranks.push_back(std::to_string(rank));
    text += "[" + joined(ranks) + "]";
  }
  if (group.offset != 0)
    text += fmt::format(" offset {}", group.offset);
  line(text);
}

void TextPrinter::symbol(const SymbolInfo &symbol) {
  const std::pair<std::string_view, std::optional<int64_t>> facts[] = {
      {"min", symbol.min},
      {"max", symbol.max},
      {"multiple_of", symbol.multiple_of},
      {"hint", symbol.hint}};
  llvm::SmallVector<std::string, 4> words;
  for (auto [word, number] : facts)
    if (number)
      words.push_back(fmt::format("{} = {}", word, *number));
  std::string attrs = words.empty() ? "" : fmt::format(" {{ {} }}", joined(words));
  line(fmt::format("symbol {}{}", name(symbol.name), attrs));
}

void TextPrinter::rule(const UserRule &rule) {
  std::string op = op_name(program_.strings[rule.op]);
  if (rule.like.valid())
    line(fmt::format("rule {} like {}", op, op_name(program_.strings[rule.like])));
  else
    line(fmt::format("rule {} = {}", op, quoted(rule.equation)));
}

void TextPrinter::suppression(const Suppression &row) {
  const std::pair<std::string_view, StringId> fields[] = {
      {"scope", row.scope}, {"reason", row.reason}, {"until", row.until}};
  llvm::SmallVector<std::string, 4> words;
  for (auto [word, text] : fields)
    if (text.valid())
      words.push_back(fmt::format("{} = {}", word, quoted(text)));
  std::string at = row.loc.valid() ? " at " + frames(row.loc) : "";
  line(fmt::format("suppress {} {{ {} }}{}", finding(row.finding), joined(words), at));
}

void TextPrinter::param(const Param &param) {
  const Value &value = program_.values[param.value];
  std::string type = value_type(param.value);
  std::string text =
      fmt::format("{} = {} {}", result(param.value, "", false),
                  kRoleWords[static_cast<unsigned>(param.role)], type.empty() ? "?[...]" : type);
  if (param.name.valid())
    text += " " + quoted(param.name);
  llvm::SmallVector<std::string, 4> words;
  if (std::string stated = contract(param); !stated.empty())
    words.push_back(stated);
  if (value.requires_grad != Tristate::Unstated)
    words.push_back(fmt::format("requires_grad = {}", value.requires_grad == Tristate::True));
  if (param.drifted.valid())
    words.push_back("drifted = " + axes(program_.axis_refs[param.drifted]));
  if (param.drifts_later.valid())
    words.push_back(fmt::format("drifts_later = {}, drift_step = {}",
                                axes(program_.axis_refs[param.drifts_later]), param.drift_step));
  if (param.gradient_ratio)
    words.push_back("gradient_ratio = " + print_number(*param.gradient_ratio));
  if (param.observed.valid())
    words.push_back("observed = " + axes(program_.axis_refs[param.observed]));
  if (param.separate.valid())
    words.push_back("separate = " + axes(program_.axis_refs[param.separate]));
  if (param.taken.valid())
    words.push_back(fmt::format("taken = {}, taken_dim = {}, taken_blocks = {}",
                                axes(program_.axis_refs[param.taken]), param.taken_dim,
                                param.taken_blocks));
  if (!words.empty())
    text += fmt::format(" {{ {} }}", joined(words));
  line(text + where(param.loc) + in_words(param.value, 1));
}

std::string TextPrinter::contract(const Param &param) {
  const GradContract &grad = param.grad;
  MeshId mesh = mesh_of(program_, param.value, mesh_);
  llvm::SmallVector<std::string, 4> words;
  if (grad.grad.valid())
    words.push_back("grad = " + claim(grad.grad, mesh));
  if (!grad.sync.empty())
    words.push_back("sync = " + sync(grad.sync));
  if (grad.step.valid())
    words.push_back("step = " + claim(grad.step, mesh));
  if (!grad.hints.empty())
    words.push_back("hints = " + hints(grad.hints));
  if (grad.stated && words.empty())
    words.emplace_back("grad = null");
  return joined(words);
}

std::string TextPrinter::sync(llvm::ArrayRef<Sync> list) const {
  if (list.size() == 1 && list[0].op == Combiner::Sum)
    return axes(program_.axis_refs[list[0].axes]);
  llvm::SmallVector<std::string, 4> parts;
  for (const Sync &row : list)
    parts.push_back(fmt::format("{} = {}", axes(program_.axis_refs[row.axes]), ir::word(row.op)));
  return fmt::format("{{ {} }}", joined(parts));
}

std::string TextPrinter::hints(llvm::ArrayRef<SyncHint> list) const {
  llvm::SmallVector<std::string, 4> parts;
  for (const SyncHint &row : list)
    parts.push_back(fmt::format("{} = {}", axes(program_.axis_refs[row.axes]), quoted(row.text)));
  return fmt::format("{{ {} }}", joined(parts));
}

void TextPrinter::output(const Output &output) {
  std::string text = "output ";
  if (output.role != OutputRole::Output)
    text += fmt::format("{} ", kOutputRoleWords[static_cast<unsigned>(output.role)]);
  text += print_value(program_, output.value);
  if (output.of.valid())
    text += " of " + print_value(program_, output.of);
  std::string type =
      claim_type(output.declared, {}, {}, {}, mesh_of(program_, output.value, mesh_));
  if (!type.empty())
    text += ": " + type;
  if (output.name.valid())
    text += " " + quoted(output.name);
  line(text);
}

} // namespace spmd::ir
