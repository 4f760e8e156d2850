// Layers repeat: each text is kept once, values are counted from the last one, so that a step of
// 40 000 ops is one or two megabytes.
#include "checker/render/page_data.h"

#include "checker/program_queries.h"
#include "checker/render/json_text.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <fmt/format.h>

#include <map>

namespace spmd::checker {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kHole = '\x01'; // where the name of a value stands in a template

class Texts {
public:
  uint32_t add(llvm::StringRef text) {
    auto [at, fresh] = known_.try_emplace(text, static_cast<uint32_t>(known_.size()));
    if (fresh)
      all.push_back(text.str());
    return at->second;
  }
  Json all = Json::array();

private:
  llvm::StringMap<uint32_t> known_;
};

bool in_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '.' || c == '/' || c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

class Writer {
public:
  explicit Writer(const Report &report) : report_(report), program_(*report.program) {}
  Json write(size_t input);

private:
  void op(ir::InstId id);
  std::string with_holes(ir::InstId id, std::vector<ir::ValueId> &values) const;
  uint32_t location(const Place &place, ir::Phase phase);
  // Texts of the types of all values, or of those that their gradients have.
  Json types(bool of_gradients);
  bool has_gradient(const ir::Type &type, ir::ShapeId shape) const;
  Json names() const;
  Json meshes() const;
  void layouts(Json &table, Json &of_values) const;
  Json declared();

  const Report &report_;
  const ir::Program &program_;
  Texts texts_;
  Json ops_ = Json::array(), locations_ = Json::array(), templates_ = Json::array();
  llvm::StringMap<uint32_t> template_ids_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> location_ids_;
  uint32_t next_ = 0; // the value that the next instruction makes, unless it says otherwise
};

// The line of an instruction, each value of it as a hole.
std::string Writer::with_holes(ir::InstId id, std::vector<ir::ValueId> &values) const {
  const ir::Inst &inst = program_.insts[id];
  llvm::SmallVector<ir::ValueId, 8> known;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    known.push_back(inst.result(i));
  known.append(tensors_of(program_, id));
  llvm::SmallVector<std::string, 8> names;
  for (ir::ValueId value : known)
    names.push_back(ir::print_value(program_, value));
  std::string line = ir::print_inst(program_, id), out;
  for (size_t at = 0; at < line.size();) {
    size_t found = names.size();
    if (line[at] == '%')
      for (size_t i = 0; i < names.size() && found == names.size(); ++i) {
        size_t end = at + names[i].size();
        if (line.compare(at, names[i].size(), names[i]) == 0 &&
            (end == line.size() || !in_name(line[end])))
          found = i;
      }
    if (found == names.size()) {
      out += line[at] == kHole ? ' ' : line[at];
      ++at;
      continue;
    }
    values.push_back(known[found]);
    out += kHole;
    at += names[found].size();
  }
  return out;
}

uint32_t Writer::location(const Place &place, ir::Phase phase) {
  SourcePlace found = locate(report_, place);
  std::string text = print(found);
  if (phase != ir::Phase::Unstated)
    text += fmt::format(" ({})", ir::kPhaseWords[static_cast<unsigned>(phase)]);
  std::pair key(texts_.add(text), texts_.add(found.scope));
  auto [at, fresh] = location_ids_.try_emplace(key, static_cast<uint32_t>(location_ids_.size()));
  if (fresh)
    locations_.push_back({key.first, key.second});
  return at->second;
}

void Writer::op(ir::InstId id) {
  const ir::Inst &inst = program_.insts[id];
  std::vector<ir::ValueId> values;
  std::string line = with_holes(id, values);
  auto [at, fresh] = template_ids_.try_emplace(line, static_cast<uint32_t>(template_ids_.size()));
  if (fresh)
    templates_.push_back(texts_.add(line));
  const uint32_t first = inst.result_count ? inst.first_result.index : next_;
  ops_.push_back(at->second);
  ops_.push_back(location(Place::inst(id), inst.phase));
  ops_.push_back(int64_t(first) - int64_t(next_));
  ops_.push_back(inst.result_count);
  ops_.push_back(values.size());
  for (ir::ValueId value : values)
    ops_.push_back(int64_t(value.index) - int64_t(first));
  next_ = first + inst.result_count;
}

Json Writer::types(bool of_gradients) {
  Json out = Json::array();
  for (uint32_t i = 0; i < program_.values.size(); ++i) {
    const ir::TypeId id = report_.result->types[i];
    const ir::ShapeId shape = report_.result->shapes[i];
    const bool shown = id.valid() && (!of_gradients || has_gradient(program_.types[id], shape));
    if (!shown) {
      out.push_back(texts_.add(""));
      continue;
    }
    const ir::Type &type = program_.types[id];
    out.push_back(texts_.add(ir::print_type(program_, of_gradients ? type.dual() : type, shape,
                                            program_.values[ir::ValueId{i}].global_shape)));
  }
  return out;
}

bool Writer::has_gradient(const ir::Type &type, ir::ShapeId shape) const {
  return !type.gradient_free() && shape.valid() && ir::differentiable(program_.shapes[shape].dtype);
}

// Of each mesh its first rank, and of each axis that types speak of the name and the layout.
Json Writer::meshes() const {
  Json out = Json::array();
  for (const ir::Mesh &mesh : program_.meshes) {
    Json axes = Json::array();
    for (ir::AxisId axis : mesh.typed_axes()) {
      Json atoms = Json::array();
      for (const ir::Atom &atom : mesh[axis].layout)
        atoms.push_back({atom.size, atom.stride});
      axes.push_back({program_.strings[mesh[axis].name].str(), std::move(atoms)});
    }
    out.push_back({mesh.offset, std::move(axes)});
  }
  return out;
}

// A row of the table: the mesh, of each dimension the axes that cut it, outermost first, and the
// other axes with their kinds. Per value the row that it has; -1: none.
void Writer::layouts(Json &table, Json &of_values) const {
  std::map<std::string, uint32_t> known;
  for (uint32_t i = 0; i < program_.values.size(); ++i) {
    const ir::TypeId id = report_.result->types[i];
    const ir::ShapeId shape = report_.result->shapes[i];
    if (!id.valid() || !program_.types[id].mesh().valid() || !shape.valid() ||
        !program_.shapes[shape].ranked) {
      of_values.push_back(-1);
      continue;
    }
    const ir::Type &type = program_.types[id];
    const ir::Mesh &mesh = program_.meshes[type.mesh()];
    auto name = [&](ir::AxisId axis) { return program_.strings[mesh[axis].name].str(); };
    Json dims = Json::array(), others = Json::array();
    for (unsigned d = 0; d < program_.shapes[shape].dims.size(); ++d) {
      Json axes = Json::array();
      for (ir::AxisId axis : ir::shards_of(type, d))
        axes.push_back(name(axis));
      dims.push_back(std::move(axes));
    }
    for (ir::AxisId axis : mesh.typed_axes() - type.sharded()) {
      const std::optional<ir::Kind> kind = type.kind(axis);
      const bool same = !kind && type.same_on_all_ranks().contains(axis);
      others.push_back({name(axis), kind ? std::string(ir::info(*kind).word) : same ? "R|I" : "?"});
    }
    Json row = {type.mesh().index, std::move(dims), std::move(others)};
    auto [at, fresh] = known.try_emplace(row.dump(), static_cast<uint32_t>(known.size()));
    if (fresh)
      table.push_back(std::move(row));
    of_values.push_back(at->second);
  }
}

// Only where a name is not the number after the one before it.
Json Writer::names() const {
  Json out = Json::array();
  uint32_t expected = 0;
  for (uint32_t i = 0; i < program_.values.size(); ++i) {
    ir::ValueName name = program_.values[ir::ValueId{i}].name;
    if (!name.is_number()) {
      out.push_back({i, ir::print_value(program_, ir::ValueId{i}).substr(1)});
      expected = ~0u;
      continue;
    }
    uint32_t number = name.bits & ~ir::ValueName::kNumber;
    if (number != expected)
      out.push_back({i, number});
    expected = number + 1;
  }
  return out;
}

Json Writer::declared() {
  Json out = Json::array();
  for (uint32_t i = 0; i < program_.params.size(); ++i) {
    const ir::Param &param = program_.params[i];
    SourcePlace place = locate(report_, {Place::Form::Param, i});
    std::string label = param.name.valid() ? program_.strings[param.name].str() : "";
    std::string_view role = ir::kRoleWords[static_cast<unsigned>(param.role)];
    out.push_back({param.value.index, texts_.add({role.data(), role.size()}), texts_.add(label),
                   texts_.add(print(place)), texts_.add(place.scope)});
  }
  return out;
}

Json Writer::write(size_t input) {
  for (uint32_t i = 0; i < program_.insts.size(); ++i)
    op(ir::InstId{i});
  Json findings = Json::array(), functions = Json::array();
  for (size_t number = 0; number < report_.diagnostics.size(); ++number) {
    const Diagnostic &diagnostic = report_.diagnostics[number];
    if (diagnostic.first->suppressed)
      continue;
    for (const Place &place : diagnostic.places)
      if (place.form == Place::Form::Inst)
        findings.push_back(
            {place.index,
             rules::kSeverityWords[static_cast<unsigned>(diagnostic.first->severity())],
             fmt::format("finding-{}-{}", input, number)});
  }
  for (const ir::Function &function : program_.functions)
    if (!function.opaque && function.body.size())
      functions.push_back(
          {function.body.first.index, texts_.add("func " + program_.strings[function.name].str())});
  functions.push_back({program_.main.first.index, texts_.add("main")});
  Json types_json = types(false), gradients = types(true), declared_json = declared();
  Json table = Json::array(), of_values = Json::array();
  layouts(table, of_values);
  return {{"ops", std::move(ops_)},
          {"templates", std::move(templates_)},
          {"locations", std::move(locations_)},
          {"types", std::move(types_json)},
          {"gradients", std::move(gradients)},
          {"meshes", meshes()},
          {"layouts", std::move(table)},
          {"layout", std::move(of_values)},
          {"names", names()},
          {"declared", std::move(declared_json)},
          {"functions", std::move(functions)},
          {"findings", std::move(findings)},
          {"strings", std::move(texts_.all)}};
}

} // namespace

std::string page_data(const Report &report, size_t input) {
  if (!report.program)
    return "null";
  std::string text = print_json(Writer(report).write(input)), out;
  for (char c : text)
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

} // namespace spmd::checker
