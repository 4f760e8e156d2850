// The rows of the table of formats, and the words and numbers that several formats print.
#include "checker/render/render.h"

#include "checker/annotate.h"

#include <fmt/format.h>

#include <cmath>

namespace spmd::checker {
namespace {

constexpr Renderer kRenderers[] = {
    {"full", "message, source line, types, notes, priced fixes", render_full},
    {"concise", "one line per finding", render_concise},
    {"json", "everything, for programs (checker/output.schema.json)", render_json},
};

constexpr std::string_view kStyles[] = {"\033[1;31m", "\033[1;33m", "\033[1;36m",
                                        "\033[1m",    "\033[34m",   "\033[32m"};

void append_count(std::string &text, uint64_t count, std::string_view one) {
  if (count)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", count, one, count == 1 ? "" : "s");
}

} // namespace

llvm::ArrayRef<Renderer> renderers() { return kRenderers; }

const Renderer *find_renderer(std::string_view name) {
  for (const Renderer &row : kRenderers)
    if (row.name == name)
      return &row;
  return nullptr;
}

Totals totals_of(llvm::ArrayRef<Report> reports) {
  Totals totals;
  for (const Report &report : reports) {
    ++totals.inputs;
    totals.unread += !report.program;
    if (!report.program)
      continue;
    totals.ops += report.result->stats.ops;
    totals.unknown_ops += report.result->stats.unknown_ops;
    totals.errors += report.errors, totals.warnings += report.warnings,
        totals.infos += report.infos;
    totals.suppressed += report.suppressed, totals.cut += report.cut;
    totals.undecided += undecided_words(*report.result);
  }
  return totals;
}

std::string counts_line(const Totals &totals) {
  if (totals.unread && totals.unread == totals.inputs)
    return fmt::format("{} input{} not read", totals.unread, totals.unread == 1 ? "" : "s");
  std::string text;
  append_count(text, totals.errors, "error");
  append_count(text, totals.warnings, "warning");
  append_count(text, totals.infos, "info");
  if (text.empty())
    text = "no findings";
  text += fmt::format(" in {} op{}", totals.ops, totals.ops == 1 ? "" : "s");
  if (totals.inputs > 1)
    text += fmt::format(" of {} inputs", totals.inputs);
  if (totals.suppressed)
    text += fmt::format(" ({} suppressed)", totals.suppressed);
  // Rounded down, so that 100 means all.
  if (totals.unknown_ops)
    text += fmt::format(", {:.1f} % of the ops typed", std::floor(totals.coverage() * 10) / 10);
  if (totals.undecided)
    text += fmt::format(", {} collective{} without a deciding use taken as R", totals.undecided,
                        totals.undecided == 1 ? "" : "s");
  if (totals.unread)
    text += fmt::format(", {} input{} not read", totals.unread, totals.unread == 1 ? "" : "s");
  return text;
}

std::string print_bytes(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024)
    return fmt::format("{} B", bytes);
  double amount = static_cast<double>(bytes) / 1024;
  unsigned unit = 0;
  for (; amount >= 1023.95 && unit + 1 < std::size(kUnits); ++unit)
    amount /= 1024;
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char &byte : out)
    if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F)
      byte = '?';
  return out;
}

std::string painted(const RenderOptions &options, Style style, std::string_view text) {
  if (!options.colour)
    return std::string(text);
  return fmt::format("{}{}\033[0m", kStyles[static_cast<unsigned>(style)], text);
}

} // namespace spmd::checker
