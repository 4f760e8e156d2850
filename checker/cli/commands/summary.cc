// `spmdlint summary`: a model on one page: the mesh, parameters by how they are cut, what is
// communicated, what was found and proved.
#include "checker/cli/commands/table.h"
#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/output.h"
#include "checker/render/render.h"
#include "checker/report/communication.h"

#include "ir/dialect/print_type.h"
#include "ir/mesh/symbols.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace spmd::checker {
namespace {

std::string mesh_line(const ir::Program &program, const ir::Mesh &mesh) {
  std::string text;
  for (const ir::Axis &axis : mesh.axes)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", program.strings[axis.name].str(),
                        ir::print_ranks(program, axis.size()));
  return fmt::format("mesh {}: {}", program.strings[mesh.name].str(), text);
}

// Per declared value what a step makes of it.
std::map<uint32_t, ir::ValueId> updated(const ir::Program &program) {
  std::map<uint32_t, ir::ValueId> found;
  for (const ir::Output &output : program.outputs)
    if (output.of.valid() &&
        (output.role == ir::OutputRole::State || output.role == ir::OutputRole::Grad))
      found[output.of.index] = output.value;
  return found;
}

// `dp, tp`: the axes on which the gradient is proved.
std::string proved_text(const CheckedInput &checked, ir::ValueId after) {
  const ir::Program &program = checked.input.read.program;
  ir::TypeId type = checked.result.types[after.index];
  if (!type.valid())
    return "none";
  ir::MeshId mesh = program.types[type].mesh();
  std::string text = ir::print_axes(
      program, mesh, proved_axes(checked.result, after) & program.meshes[mesh].typed_axes());
  return text.empty() ? "none" : text;
}

// Parameters of one name but for its numbers, and of one type, are a row.
Table parameters_of(CheckedInput &checked, ir::Role role) {
  const ir::Program &program = checked.program();
  Table table{
      {{std::string(ir::kRoleWords[static_cast<unsigned>(role)])}, {"number", true}, {"type"}}, {}};
  const bool proofs = checked.result.gradual && role == ir::Role::Param;
  if (proofs)
    table.columns.push_back({"gradient proved on"});
  const std::map<uint32_t, ir::ValueId> after = updated(program);
  std::map<std::vector<std::string>, size_t> known;
  for (const ir::Param &param : program.params) {
    if (param.role != role)
      continue;
    uint32_t value = param.value.index;
    ir::TypeId type = checked.result.types[value];
    std::string name = param.name.valid() ? without_numbers(program.strings[param.name])
                                          : ir::print_value(program, param.value);
    std::string text =
        type.valid() ? ir::print_type(program, program.types[type], checked.result.shapes[value],
                                      program.values[param.value].global_shape)
                     : "?";
    std::vector<std::string> row = {name, "0", text};
    if (proofs) {
      auto made = after.find(value);
      row.push_back(made == after.end() ? "not trained" : proved_text(checked, made->second));
    }
    auto [at, fresh] = known.try_emplace(row, table.rows.size());
    if (fresh)
      table.rows.push_back(std::move(row));
    std::string &number = table.rows[at->second][1];
    number = std::to_string(std::stoul(number) + 1);
  }
  return table;
}

Table communication_table(CheckedInput &checked) {
  std::vector<CommCall> messages = comm_calls(checked.program(), checked.result);
  Table table;
  for (std::string_view column : traffic_columns(TrafficBy::Axis))
    table.columns.push_back({std::string(column)});
  table.columns.push_back({"calls", true});
  table.columns.push_back({"sent by a rank", true});
  for (const auto &[key, traffic] : add_up(checked.program(), messages, TrafficBy::Axis)) {
    std::vector<std::string> row(key.begin(), key.end());
    row.push_back(std::to_string(traffic.calls));
    row.push_back(print_bytes(traffic.bytes) + (traffic.unknown ? " and more" : ""));
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Where the proof of what follows ends: lines of the program, the op that is not followed or the
// value of which too little is known, and on which axes.
Table unproved_since(CheckedInput &checked, const Report &report) {
  const ir::Program &program = checked.program();
  std::map<std::pair<std::string, std::string>, size_t> known;
  std::vector<std::set<std::string>> axes; // by row
  Table table{{{"unproved since"}, {"op or value"}, {"axes"}}, {}};
  for (const auto &[axis, where] : checked.result.lost) {
    const ir::Mesh &mesh = program.meshes[mesh_of(program, where)];
    const std::string place = print(locate(report, where)), op = declared_or_op(program, where);
    const auto [at, fresh] = known.try_emplace({place, op}, table.rows.size());
    if (fresh) {
      table.rows.push_back({place, op, ""});
      axes.emplace_back();
    }
    axes[at->second].insert(program.strings[mesh[axis].name].str());
  }
  for (size_t row = 0; row < axes.size(); ++row)
    table.rows[row][2] = fmt::format("{}", fmt::join(axes[row], ", "));
  return table;
}

} // namespace

ExitCode run_summary(const Options &options) {
  if (options.arguments.size() != 1 || options.table == TableFormat::Json) {
    say(options.arguments.size() != 1 ? "`summary` takes one file"
                                      : "`summary` is for people: `check --format=json` and `cost "
                                        "--format=json` have its numbers");
    return ExitCode::Call;
  }
  std::unique_ptr<CheckedInput> checked = load_checked(options.arguments.front(), options);
  if (!checked)
    return ExitCode::Input;
  const ir::Program &program = checked->program();
  bool markdown = options.table == TableFormat::Markdown;
  std::string text;
  auto section = [&](std::string_view title, const Table &table) {
    if (!table.rows.empty())
      text += (markdown ? fmt::format("\n### {}\n\n", title) : "\n") +
              print_table(table, options.table);
  };
  for (const ir::Mesh &mesh : program.meshes)
    text += printable(mesh_line(program, mesh)) + "\n";
  Report report = checked->report({.fixes = false, .select = {}, .ignore = {}});
  text += counts_line(totals_of(report)) + "\n";
  for (ir::Role role : {ir::Role::Param, ir::Role::Buffer, ir::Role::Input})
    section(ir::kRoleWords[static_cast<unsigned>(role)], parameters_of(*checked, role));
  section("communication", communication_table(*checked));
  if (totals_of(report).proof() < 100)
    section("unproved since", unproved_since(*checked, report));
  return print_text(text);
}

} // namespace spmd::checker
