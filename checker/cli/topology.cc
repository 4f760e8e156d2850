// Reads TOML; femtoseconds inside.
#include "checker/cli/topology.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cmath>

namespace spmd::checker {
namespace {

namespace rd = rules::redistribute;

constexpr double kFemto = 1e15;

} // namespace

std::string read_topology(const std::string &path, rd::Topology &topology) {
  toml::parse_result parsed = toml::parse_file(path);
  if (!parsed)
    return fmt::format("{}: {}", path, parsed.error().description());
  const toml::table &table = parsed.table();
  topology.in_time = true;
  double launch = table["launch"].value_or(0.0);
  if (!(launch >= 0))
    return fmt::format("{}: `launch` is negative", path);
  topology.launch = static_cast<uint64_t>(launch * kFemto);
  auto link = [](const toml::table &row, rd::Topology::Link &out) {
    std::optional<double> rate = row["bytes_per_second"].value<double>();
    double latency = row["latency"].value_or(0.0);
    if (!rate || !(*rate > 0) || !(latency >= 0))
      return false;
    out.per_byte = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(kFemto / *rate)));
    out.latency = static_cast<uint64_t>(std::llround(latency * kFemto));
    return true;
  };
  const toml::table *axes = table["axes"].as_table();
  if (!axes)
    return fmt::format("{}: no table `axes`", path);
  for (const auto &[name, node] : *axes) {
    const toml::table *row = node.as_table();
    if (!row || !link(*row, topology.axes[std::string(name.str())]))
      return fmt::format("{}: axis `{}` needs a positive `bytes_per_second`, and a `latency` that "
                         "is not negative",
                         path, std::string(name.str()));
  }
  return "";
}

} // namespace spmd::checker
