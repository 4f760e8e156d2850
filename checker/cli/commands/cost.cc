// `spmdlint cost`: what a program communicates, added up by axis, part of the model or op. With a
// topology, the time that the links take for it.
#include "checker/cli/commands/table.h"
#include "checker/cli/inputs/checked_input.h"
#include "checker/cli/output.h"
#include "checker/cli/topology.h"
#include "checker/report/cheapest.h"

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
double seconds_of(const ir::Program &program, const CommCall &message, const Topology &topology) {
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

using Bytes = std::vector<std::optional<int64_t>>;

int64_t total(const Bytes &bytes) {
  int64_t sum = 0;
  for (const std::optional<int64_t> &each : bytes)
    sum += each.value_or(0);
  return sum;
}

Bytes bytes_of(llvm::ArrayRef<CommCall> messages) {
  Bytes bytes;
  for (const CommCall &message : messages)
    bytes.push_back(message.bytes);
  return bytes;
}

// `cheapest`: per message what the cheapest equivalent plans leave of it.
Table table_of(const ir::Program &program, llvm::ArrayRef<CommCall> messages, const Bytes &cheapest,
               const Options &options, const Topology &topology) {
  const TrafficBy by = options.by;
  std::map<TrafficKey, double> seconds;
  std::map<TrafficKey, int64_t> least;
  for (size_t i = 0; i < messages.size(); ++i) {
    TrafficKey key = traffic_key(program, messages[i], by);
    seconds[key] += seconds_of(program, messages[i], topology);
    least[key] += cheapest[i].value_or(0);
  }
  Table table;
  for (std::string_view column : traffic_columns(by))
    table.columns.push_back({std::string(column)});
  bool json = options.table == TableFormat::Json;
  table.columns.push_back({"calls", true});
  table.columns.push_back({json ? "bytes" : "sent by a rank", true});
  const bool cheaper = json || total(cheapest) < total(bytes_of(messages));
  if (cheaper)
    table.columns.push_back({json ? "cheapest" : "by the cheapest plans", true});
  if (topology.in_time)
    table.columns.push_back({json ? "seconds" : "time", true});
  bool unknown = json || llvm::any_of(messages, [](const CommCall &m) { return !m.bytes; });
  if (unknown)
    table.columns.push_back({json ? "unknown_sizes" : "of unknown size", true});
  for (const auto &[key, traffic] : add_up(program, messages, by)) {
    std::vector<std::string> row(key.begin(), key.end());
    row.push_back(std::to_string(traffic.calls));
    row.push_back(json ? std::to_string(traffic.bytes) : print_bytes(traffic.bytes));
    if (cheaper)
      row.push_back(json ? std::to_string(least[key]) : print_bytes(least[key]));
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
  std::vector<CommCall> messages = comm_calls(checked->program(), checked->result);
  Bytes cheapest = cheapest_bytes(checked->program(), checked->result, messages, topology);
  Table table = table_of(checked->program(), messages, cheapest, options, topology);
  if (options.table == TableFormat::Json)
    return print_text(print_table_json(table));
  if (messages.empty())
    return print_text("no collective\n");
  const int64_t bytes = total(bytes_of(messages));
  std::string sum =
      fmt::format("{} call{}, {} sent by a rank: ring algorithms, bodies counted once\n",
                  messages.size(), messages.size() == 1 ? "" : "s", print_bytes(bytes));
  if (total(cheapest) < bytes)
    sum += fmt::format("the cheapest plans between the same types send {}\n",
                       print_bytes(total(cheapest)));
  bool markdown = options.table == TableFormat::Markdown;
  return print_text(print_table(table, options.table) + (markdown ? "\n" : "") + sum);
}

} // namespace spmd::checker
