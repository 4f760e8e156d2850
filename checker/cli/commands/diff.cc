// `spmdlint diff OLD NEW`: what differs between two programs: meshes, types of parameters,
// communication and its order, new pending sums, findings. For a pull request, `--format=md`.
#include "checker/cli/commands/table.h"
#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/output.h"
#include "checker/program_queries.h"
#include "checker/report/communication.h"

#include "ir/dialect/print_type.h"
#include "ir/mesh/symbols.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace spmd::checker {
namespace {

using Pair = std::pair<std::string, std::string>; // in the old one, in the new one; empty: absent

// Rows that differ, in the order of their names.
Table changes(std::string_view what, const std::map<std::string, Pair> &pairs) {
  Table table{{{std::string(what)}, {"old"}, {"new"}}, {}};
  for (const auto &[name, pair] : pairs)
    if (pair.first != pair.second)
      table.rows.push_back(
          {name, pair.first.empty() ? "-" : pair.first, pair.second.empty() ? "-" : pair.second});
  return table;
}

std::string type_text(CheckedInput &checked, ir::ValueId value) {
  const ir::Program &program = checked.program();
  ir::TypeId type = checked.result.types[value.index];
  return type.valid()
             ? ir::print_type(program, program.types[type], checked.result.shapes[value.index],
                              program.values[value].global_shape)
             : "?";
}

const ReportOptions kAll = {.fixes = false, .select = {}, .ignore = {}};

class Comparison {
public:
  Comparison(CheckedInput &before, CheckedInput &after)
      : sides_{&before, &after}, reports_{before.report(kAll), after.report(kAll)} {}

  // Title and table of each part that differs.
  std::vector<std::pair<std::string, Table>> run();

private:
  void add(std::string title, Table table) {
    if (!table.rows.empty())
      parts_.push_back({std::move(title), std::move(table)});
  }
  static std::string &of(std::map<std::string, Pair> &pairs, const std::string &name, int side) {
    Pair &pair = pairs[name];
    return side ? pair.second : pair.first;
  }
  void meshes();
  void declared();
  void communication();
  void order();
  void pending();
  void findings();

  CheckedInput *sides_[2];
  Report reports_[2];
  std::vector<std::pair<std::string, Table>> parts_;
};

void Comparison::meshes() {
  std::map<std::string, Pair> sizes;
  for (int side = 0; side < 2; ++side) {
    const ir::Program &program = sides_[side]->program();
    for (const ir::Mesh &mesh : program.meshes)
      for (const ir::Axis &axis : mesh.axes)
        of(sizes,
           fmt::format("{}.{}", program.strings[mesh.name].str(), program.strings[axis.name].str()),
           side) = ir::print_ranks(program, axis.size());
  }
  add("Meshes", changes("axis", sizes));
}

// By the name of the framework, else by that of the value. Layers of equal types are one row.
void Comparison::declared() {
  std::map<std::string, Pair> types;
  for (int side = 0; side < 2; ++side) {
    const ir::Program &program = sides_[side]->program();
    for (const ir::Param &param : program.params)
      of(types,
         param.name.valid() ? program.strings[param.name].str()
                            : ir::print_value(program, param.value),
         side) = type_text(*sides_[side], param.value);
  }
  std::map<std::array<std::string, 3>, size_t> counts;
  for (const auto &[name, pair] : types)
    if (pair.first != pair.second)
      ++counts[{without_numbers(name), pair.first.empty() ? "-" : pair.first,
                pair.second.empty() ? "-" : pair.second}];
  Table table{{{"value"}, {"number", true}, {"old"}, {"new"}}, {}};
  for (const auto &[row, count] : counts)
    table.rows.push_back({row[0], std::to_string(count), row[1], row[2]});
  add("Declared types", std::move(table));
}

void Comparison::communication() {
  std::map<TrafficKey, std::array<Traffic, 2>> rows;
  for (int side = 0; side < 2; ++side) {
    ir::Program &program = sides_[side]->program();
    std::vector<CommCall> messages = comm_calls(program, sides_[side]->result);
    for (const auto &[key, traffic] : add_up(program, messages, TrafficBy::Scope))
      rows[key][static_cast<size_t>(side)] = traffic;
  }
  Table table;
  for (std::string_view column : traffic_columns(TrafficBy::Scope))
    table.columns.push_back({std::string(column)});
  for (const char *column : {"calls", "new calls", "bytes", "new bytes", "difference"})
    table.columns.push_back({column, true});
  for (const auto &[key, sides] : rows) {
    const auto &[before, after] = sides;
    if (before.calls == after.calls && before.bytes == after.bytes)
      continue;
    std::vector<std::string> row(key.begin(), key.end());
    int64_t more = after.bytes - before.bytes;
    for (const std::string &cell :
         {std::to_string(before.calls), std::to_string(after.calls), print_bytes(before.bytes),
          print_bytes(after.bytes),
          more == 0 ? "0 B" : (more < 0 ? "-" : "+") + print_bytes(more < 0 ? -more : more)})
      row.push_back(cell);
    table.rows.push_back(std::move(row));
  }
  add("Communication, sent by a rank", std::move(table));
}

// Ranks that call the same collectives in another order wait for each other, or mix their data up.
void Comparison::order() {
  struct Call {
    std::string text, at;
  };
  std::map<std::string, std::array<std::vector<Call>, 2>> calls; // by axes
  for (size_t side = 0; side < 2; ++side) {
    ir::Program &program = sides_[side]->program();
    const CheckResult &result = sides_[side]->result;
    for (const CommCall &call : comm_calls(program, result)) {
      const llvm::SmallVector<ir::ValueId, 4> tensors = tensors_of(program, call.inst);
      const ir::ShapeId shape = tensors.empty() ? ir::ShapeId() : result.shapes[tensors[0].index];
      calls[ir::print_axes(program, call.mesh, call.axes)][side].push_back(
          {fmt::format("{}{}", program.op_name(program.insts[call.inst].op).str(),
                       shape.valid() ? " " + ir::print_shape(program, shape) : ""),
           print(locate(reports_[side], Place::inst(call.inst)))});
    }
  }
  Table table{{{"axis"}, {"call", true}, {"old"}, {"new"}}, {}};
  for (const auto &[axes, sides] : calls) {
    const auto &[before, after] = sides;
    auto same = [](const Call &a, const Call &b) { return a.text == b.text; };
    if (before.size() != after.size() ||
        !std::is_permutation(before.begin(), before.end(), after.begin(), same))
      continue;
    const auto [was, is] = std::mismatch(before.begin(), before.end(), after.begin(), same);
    if (was != before.end())
      table.rows.push_back({axes, std::to_string(was - before.begin() + 1),
                            fmt::format("{} at {}", was->text, was->at),
                            fmt::format("{} at {}", is->text, is->at)});
  }
  add("Order of the same collectives, where it first differs", std::move(table));
}

// Operations by op and part of the model whose result awaits a sum, as far as their numbers differ.
void Comparison::pending() {
  std::map<std::string, Pair> counts;
  for (int side = 0; side < 2; ++side) {
    const ir::Program &program = sides_[side]->program();
    std::map<std::string, size_t> found;
    for (uint32_t i = 0; i < program.insts.size(); ++i) {
      const ir::Inst &inst = program.insts[ir::InstId{i}];
      for (uint32_t r = 0; r < inst.result_count; ++r) {
        ir::TypeId type = sides_[side]->result.types[inst.result(r).index];
        ir::AxisSet axes = type.valid() ? program.types[type].of(ir::Kind::Partial) : ir::AxisSet();
        if (!axes.empty())
          ++found[fmt::format("{} on {}", program.op_name(inst.op).str(),
                              ir::print_axes(program, program.contexts[inst.context].mesh, axes))];
      }
    }
    for (const auto &[name, count] : found)
      of(counts, name, side) = std::to_string(count);
  }
  add("Results that await a sum", changes("op", counts));
}

void Comparison::findings() {
  std::map<std::string, std::array<const Diagnostic *, 2>> found;
  for (size_t side = 0; side < 2; ++side)
    for (const Diagnostic &diagnostic : reports_[side].diagnostics)
      if (!diagnostic.first->suppressed)
        found[diagnostic.fingerprint][side] = &diagnostic;
  Table table{{{""}, {"finding"}, {"place"}, {"message"}}, {}};
  for (const auto &[fingerprint, sides] : found) {
    if (sides[0] && sides[1])
      continue;
    size_t side = sides[1] ? 1 : 0;
    const Finding &finding = *sides[side]->first;
    table.rows.push_back({side ? "new" : "gone", std::string(finding.info().name),
                          print(locate(reports_[side], finding.place)),
                          message_of(*reports_[side].program, finding)});
  }
  add("Findings", std::move(table));
}

std::vector<std::pair<std::string, Table>> Comparison::run() {
  findings();
  meshes();
  communication();
  order();
  declared();
  pending();
  return std::move(parts_);
}

} // namespace

ExitCode run_diff(const Options &options) {
  if (options.arguments.size() != 2 || options.table == TableFormat::Json) {
    say(options.arguments.size() != 2 ? "`diff` takes two files, the old one first"
                                      : "`diff` prints text or md");
    return ExitCode::Call;
  }
  std::unique_ptr<CheckedInput> before = load_checked(options.arguments[0], options);
  std::unique_ptr<CheckedInput> after = load_checked(options.arguments[1], options);
  if (!before || !after)
    return ExitCode::Input;
  std::vector<std::pair<std::string, Table>> parts = Comparison(*before, *after).run();
  bool markdown = options.table == TableFormat::Markdown;
  std::string text;
  for (const auto &[title, table] : parts)
    text += fmt::format("{}{}{}\n{}{}", text.empty() ? "" : "\n", markdown ? "### " : "", title,
                        markdown ? "\n" : "", print_table(table, options.table));
  ExitCode written = print_text(text.empty() ? "no difference in types and communication\n" : text);
  return written != ExitCode::Clean || parts.empty() ? written : ExitCode::Findings;
}

} // namespace spmd::checker
