// The header of the text.
#include "ir/text/print/header.h"

#include "ir/mesh/symbols.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/DenseSet.h"

#include <fmt/core.h>

namespace spmd::ir {

void TextHeader::print(MeshId current) {
  trace();
  files();
  const bool sizes = !program_.symbol_primes.empty(); // then symbols stand before what they size
  if (sizes)
    symbols();
  for (const Mesh &row : program_.meshes)
    mesh(row);
  bool is_last = current.index + 1u == program_.meshes.size();
  if (!is_last && current.index < program_.meshes.size())
    lines_.add("mesh " + words_.name(program_.meshes[current].name));
  for (const Group &row : program_.groups)
    group(row);
  if (!sizes)
    symbols();
  for (const UserRule &row : program_.rules)
    rule(row);
  for (const Suppression &row : program_.suppressions)
    suppression(row);
}

void TextHeader::trace() {
  llvm::SmallVector<std::string, 8> words;
  if (program_.minor_version != 0)
    words.push_back(fmt::format("version = \"1.{}\"", program_.minor_version));
  if (program_.producer.stated)
    words.push_back("producer = " + producer());
  if (program_.dialect.valid())
    words.push_back("dialect = " + words_.name(program_.dialect));
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
    words.push_back(
        fmt::format("{} = {}", words_.key(program_.strings[extra]), words_.quoted(json)));
  if (!words.empty())
    lines_.add(fmt::format("trace {{ {} }}", joined(words)));
}

std::string TextHeader::producer() const {
  const Producer &row = program_.producer;
  const std::pair<std::string_view, StringId> fields[] = {{"name", row.name},
                                                          {"version", row.version},
                                                          {"framework", row.framework},
                                                          {"frontend", row.frontend}};
  llvm::SmallVector<std::string, 4> words;
  for (auto [word, text] : fields)
    if (text.valid())
      words.push_back(fmt::format("{} = {}", word, words_.quoted(text)));
  return words.empty() ? "{}" : fmt::format("{{ {} }}", joined(words));
}

std::string TextHeader::missing() const {
  llvm::SmallVector<std::string, 4> words;
  for (unsigned i = 0; i < kMissingWords.size(); ++i)
    if (program_.lacks(static_cast<Missing>(i)))
      words.emplace_back(kMissingWords[i]);
  return "[" + joined(words) + "]";
}

// Only those of which more is known than the path, which stands in locations.
void TextHeader::files() {
  llvm::DenseSet<uint32_t> seen;
  for (const SourceFile &file : program_.files)
    if (file.sha256.valid() && seen.insert(file.path.index).second)
      lines_.add(fmt::format("file {} {{ sha256 = {} }}", words_.quoted(file.path),
                             words_.quoted(file.sha256)));
}

void TextHeader::mesh(const Mesh &mesh) {
  std::string text = "mesh " + words_.name(mesh.name);
  if (mesh.within) {
    const Mesh &parent = program_.meshes[mesh.within->parent];
    llvm::SmallVector<std::string, 4> at;
    for (auto [axis, coordinate] : mesh.within->at)
      at.push_back(fmt::format("{} = {}", words_.name(parent[axis].name), coordinate));
    text += fmt::format(" within {} {}", words_.name(parent.name),
                        at.empty() ? "{}" : "{ " + joined(at) + " }");
  }
  llvm::SmallVector<std::string, 4> parts;
  for (const Axis &row : mesh.axes)
    parts.push_back(axis(mesh, row));
  text += fmt::format(" {{ {} }}", joined(parts));
  if (mesh.explicit_offset)
    text += fmt::format(" offset {}", mesh.offset);
  lines_.add(text);
}

std::string TextHeader::axis(const Mesh &mesh, const Axis &axis) const {
  std::string text = words_.name(axis.name);
  if (std::string size = axis_size(mesh, axis); !size.empty())
    text += " = " + size;
  if (axis.policy != Policy::Unstated)
    text += axis.policy == Policy::Local ? " local" : " global";
  if (axis.role.valid())
    text += " " + words_.quoted(axis.role);
  return text;
}

// Empty for an axis of the parent mesh, unchanged.
std::string TextHeader::axis_size(const Mesh &mesh, const Axis &axis) const {
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
      pieces.push_back(words_.name(mesh[piece].name));
    return "(" + joined(pieces) + ")";
  }
  Atom atom = axis.layout.empty() ? Atom() : axis.layout.front();
  return axis.explicit_stride ? this->atom(atom) : ranks(atom.size);
}

// Expressions in brackets.
std::string TextHeader::ranks(int64_t ranks) const {
  std::string text = print_ranks(program_, ranks);
  return text.find(' ') == std::string::npos ? text : "(" + text + ")";
}

std::string TextHeader::atom(Atom atom) const {
  return ranks(atom.size) + ":" + ranks(atom.stride);
}

std::string TextHeader::layout(llvm::ArrayRef<Atom> atoms) const {
  llvm::SmallVector<std::string, 4> parts;
  for (Atom atom : atoms)
    parts.push_back(this->atom(atom));
  return "[" + joined(parts) + "]";
}

void TextHeader::group(const Group &group) {
  std::string text = fmt::format("group {} = ", words_.quoted(group.key));
  if (group.form == Group::Form::Axes) {
    llvm::SmallVector<std::string, 4> parts;
    for (AxisId axis : group.axes)
      parts.push_back(words_.name(program_.meshes[group.mesh][axis].name));
    std::string axes = parts.size() == 1 ? parts[0] : "(" + joined(parts) + ")";
    text += fmt::format("{}.{}", words_.name(program_.meshes[group.mesh].name), axes);
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
  lines_.add(text);
}

void TextHeader::symbols() {
  for (const SymbolInfo &row : program_.symbols)
    symbol(row);
}

void TextHeader::symbol(const SymbolInfo &symbol) {
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
  lines_.add(fmt::format("symbol {}{}", words_.name(symbol.name), attrs));
}

void TextHeader::rule(const UserRule &rule) {
  std::string op = words_.op_name(program_.strings[rule.op]);
  if (rule.like.valid())
    lines_.add(fmt::format("rule {} like {}", op, words_.op_name(program_.strings[rule.like])));
  else
    lines_.add(fmt::format("rule {} = {}", op, words_.quoted(rule.equation)));
}

void TextHeader::suppression(const Suppression &row) {
  const std::pair<std::string_view, StringId> fields[] = {
      {"scope", row.scope}, {"reason", row.reason}, {"until", row.until}};
  llvm::SmallVector<std::string, 4> words;
  for (auto [word, text] : fields)
    if (text.valid())
      words.push_back(fmt::format("{} = {}", word, words_.quoted(text)));
  std::string at = row.loc.valid() ? " at " + words_.frames(row.loc) : "";
  lines_.add(fmt::format("suppress {} {{ {} }}{}", words_.finding(row.finding), joined(words), at));
}

} // namespace spmd::ir
