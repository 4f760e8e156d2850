// `spmdlint cost`: what a program communicates, added up by axis, part of the model or op. With a
// topology, the time that the links take for it.
#include "checker/cli/commands/table.h"
#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/output.h"
#include "checker/cli/topology.h"
#include "checker/report/communication.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace spmd::checker {
namespace {

using rules::redistribute::Topology;

constexpr double kFemtoseconds = 1e15;

// Of one call over its slowest axis, in seconds: a ring has a hop less than ranks, an all-reduce
// is two rings.
double seconds_of(const ir::Program &program, const Message &message, const Topology &topology) {
  Topology::Link link = topology.otherwise;
  for (ir::AxisId axis : message.axes) {
    auto at = topology.axes.find(program.strings[program.meshes[message.mesh][axis].name]);
    if (at == topology.axes.end())
      continue;
    link.latency = std::max(link.latency, at->second.latency);
    link.per_byte = std::max(link.per_byte, at->second.per_byte);
  }
  double hops =
      double(message.ranks - 1) * (message.collective == rules::Collective::AllReduce ? 2 : 1);
  double bytes = double(message.bytes.value_or(0));
  return (double(topology.launch) + hops * double(link.latency) + bytes * double(link.per_byte)) /
         kFemtoseconds;
}

Table table_of(const ir::Program &program, llvm::ArrayRef<Message> messages, const Options &options,
               const Topology &topology) {
  auto by = static_cast<TrafficBy>(options.by);
  std::map<TrafficKey, double> seconds;
  for (const Message &message : messages)
    seconds[traffic_key(program, message, by)] += seconds_of(program, message, topology);
  Table table;
  for (std::string_view column : traffic_columns(by))
    table.columns.push_back({std::string(column)});
  bool json = options.table == TableFormat::Json;
  table.columns.push_back({"calls", true});
  table.columns.push_back({json ? "bytes" : "sent by a rank", true});
  if (topology.in_time)
    table.columns.push_back({json ? "seconds" : "time", true});
  bool unknown = json || llvm::any_of(messages, [](const Message &m) { return !m.bytes; });
  if (unknown)
    table.columns.push_back({json ? "unknown_sizes" : "of unknown size", true});
  for (const auto &[key, traffic] : add_up(program, messages, by)) {
    std::vector<std::string> row(key.begin(), key.end());
    row.push_back(std::to_string(traffic.calls));
    row.push_back(json ? std::to_string(traffic.bytes) : print_bytes(traffic.bytes));
    if (topology.in_time)
      row.push_back(json ? fmt::format("{}", seconds[key])
                         : fmt::format("{:.1f} us", seconds[key] * 1e6));
    if (unknown)
      row.push_back(std::to_string(traffic.unknown));
    table.rows.push_back(std::move(row));
  }
  return table;
}

} // namespace

ExitCode run_cost(const Options &options) {
  if (options.arguments.size() != 1) {
    say("`cost` takes one file");
    return ExitCode::Call;
  }
  Topology topology;
  if (!options.topology.empty())
    if (std::string problem = read_topology(options.topology, topology); !problem.empty()) {
      say(problem);
      return ExitCode::Call;
    }
  std::unique_ptr<CheckedInput> checked = load_checked(options.arguments.front(), options);
  if (!checked)
    return ExitCode::Input;
  std::vector<Message> messages = communication_of(checked->program(), checked->result);
  Table table = table_of(checked->program(), messages, options, topology);
  if (options.table == TableFormat::Json)
    return print_text(print_table_json(table));
  if (messages.empty())
    return print_text("no collective\n");
  int64_t bytes = 0;
  for (const Message &message : messages)
    bytes += message.bytes.value_or(0);
  std::string total =
      fmt::format("{} call{}, {} sent by a rank: ring algorithms, bodies counted once\n",
                  messages.size(), messages.size() == 1 ? "" : "s", print_bytes(bytes));
  bool markdown = options.table == TableFormat::Markdown;
  return print_text(print_table(table, options.table) + (markdown ? "\n" : "") + total);
}

} // namespace spmd::checker
