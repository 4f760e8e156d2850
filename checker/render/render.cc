// The rows of the table of formats, and the words and numbers that several formats print.
#include "checker/render/render.h"

#include "checker/rewrite/annotate.h"

#include <fmt/format.h>

#include <cmath>

namespace spmd::checker {
namespace {

constexpr Renderer kRenderers[] = {
    {"full", "message, source line, types, notes, priced fixes", render_full, true, true},
    {"concise", "one line per finding", render_concise},
    {"json", "everything, for programs (`spmdlint schema output`)", render_json, false},
    {"sarif", "SARIF 2.1.0: code scanning of GitHub, editors", render_sarif, false},
    {"github", "annotations of a GitHub workflow", render_github, false, true},
    {"gitlab", "code quality report of GitLab", render_gitlab, false},
    {"junit", "JUnit XML: a suite per input", render_junit, false},
    {"md", "Markdown for a pull request, at most 60 000 characters", render_md, false},
    {"html", "one page with findings, program and communication", render_html, false},
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

static void add_proofs(Totals &totals, const Report &report) {
  totals.confirmed += report.judged.confirmed;
  Totals::Proved &of = totals.proved[report.judged.results ? 1 : 0];
  const uint64_t all = report.judged.trained + report.judged.results;
  of.all += all;
  for (const CheckCoverage::Proof &proof : report.judged.proofs) {
    auto same = [&](const CheckCoverage::Proof &each) { return each.axis == proof.axis; };
    if (auto at = llvm::find_if(of.axes, same); at != of.axes.end())
      at->proved += proof.proved;
    else
      of.axes.push_back(proof);
    if (totals.lost.empty() && proof.lost && proof.proved < all)
      totals.lost = fmt::format("{} (`{}`)", print(locate(report, *proof.lost)),
                                declared_or_op(*report.program, *proof.lost));
  }
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
    totals.known += report.known;
    totals.not_selected += report.not_selected;
    totals.values += report.judged.values, totals.unknown_values += report.judged.unknown_values;
    totals.unchecked_ops += report.judged.unchecked_ops;
    totals.uncalled_ops += report.judged.uncalled_ops;
    totals.unjudged += !report.judged.anything(), totals.one_rank += report.judged.one_rank;
    totals.undecided += undecided_dst_count(*report.result);
    add_proofs(totals, report);
  }
  return totals;
}

double Totals::proof() const {
  double least = 100;
  for (const Proved &of : proved)
    for (const CheckCoverage::Proof &each : of.axes)
      least = std::min(least, 100.0 * double(each.proved) / double(of.all));
  return least;
}

// `; gradients of 12 of 12 parameters proved on dp, 8 on tp; unproved since model.py:31 (`sort`)`
static std::string proof_text(const Totals &totals) {
  std::string text;
  for (const Totals::Proved &of : totals.proved) {
    const bool gradients = &of == &totals.gradients();
    for (const CheckCoverage::Proof &each : of.axes)
      text += &each != of.axes.data()
                  ? fmt::format(", {} on {}", each.proved, each.axis)
                  : fmt::format("; {}{} of {} {}{} proved on {}", gradients ? "gradients of " : "",
                                each.proved, of.all, gradients ? "parameter" : "result",
                                of.all == 1 ? "" : "s", each.axis);
  }
  if (totals.confirmed)
    text += fmt::format(", {} confirmed by a run", totals.confirmed);
  if (!totals.lost.empty() && totals.proof() < 100)
    text += "; unproved since " + totals.lost;
  return text;
}

// What stands behind the counts of findings: how much of the programs they are about.
static std::string unjudged_text(const Totals &totals) {
  std::string text;
  auto add = [&](uint64_t count, std::string_view one, std::string_view many) {
    if (count)
      text += "; " + fmt::format(fmt::runtime(count == 1 ? one : many), count);
  };
  if (totals.unknown_values)
    text += fmt::format("; {} of {} value{} {} an unknown kind on some axis", totals.unknown_values,
                        totals.values, totals.values == 1 ? "" : "s",
                        totals.unknown_values == 1 ? "has" : "have");
  add(totals.unchecked_ops, "checking is off for {} op", "checking is off for {} ops");
  add(totals.uncalled_ops, "{} op is in a function that nothing calls and was not checked",
      "{} ops are in functions that nothing calls and were not checked");
  if (uint64_t read = totals.inputs - totals.unread; read && totals.one_rank == read)
    text += "; no mesh axis has more than one rank, so kinds were not judged";
  else
    add(totals.one_rank, "{} input has no mesh axis of more than one rank",
        "{} inputs have no mesh axis of more than one rank");
  if (totals.unjudged && totals.unjudged + totals.unread < totals.inputs)
    add(totals.unjudged, "nothing was judged in {} input", "nothing was judged in {} inputs");
  return text;
}

std::string counts_line(const Totals &totals) {
  if (totals.unread && totals.unread == totals.inputs)
    return fmt::format("{} input{} not read", totals.unread, totals.unread == 1 ? "" : "s");
  std::string text;
  append_count(text, totals.errors, "error");
  append_count(text, totals.warnings, "warning");
  append_count(text, totals.infos, "info");
  if (text.empty())
    text = totals.unjudged && totals.unjudged + totals.unread == totals.inputs
               ? "nothing was judged"
               : "no findings";
  text += fmt::format(" in {} op{}", totals.ops, totals.ops == 1 ? "" : "s");
  if (totals.inputs > 1)
    text += fmt::format(" of {} inputs", totals.inputs);
  std::string left_out;
  auto leave_out = [&](uint64_t count, std::string_view how) {
    if (count)
      left_out += fmt::format("{}{} {}", left_out.empty() ? "" : ", ", count, how);
  };
  leave_out(totals.known, "known");
  leave_out(totals.suppressed - totals.known, "suppressed");
  leave_out(totals.not_selected, "not selected");
  if (!left_out.empty())
    text += fmt::format(" ({})", left_out);
  // Rounded down, so that 100 means all.
  if (totals.unknown_ops)
    text += fmt::format(", {:.1f} % of the ops typed", std::floor(totals.coverage() * 10) / 10);
  if (totals.undecided)
    text += fmt::format(", {} collective{} taken as R, since no use decides between R and I",
                        totals.undecided, totals.undecided == 1 ? "" : "s");
  if (totals.unread)
    text += fmt::format(", {} input{} not read", totals.unread, totals.unread == 1 ? "" : "s");
  return text + proof_text(totals) + unjudged_text(totals);
}

std::string nothing_judged(const Report &report) {
  return !report.program || report.judged.anything()
             ? ""
             : "nothing was judged: " + why_nothing(report.judged, report.result->stats);
}

std::pair<uint32_t, uint32_t> line_of(const Report &report, const ir::InputError &error) {
  if (error.line)
    return {error.line, error.col};
  return ir::line_and_column(report.bytes, error.offset);
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

std::string painted(const RenderOptions &options, Style style, std::string_view text) {
  if (!options.colour)
    return std::string(text);
  return fmt::format("{}{}\033[0m", kStyles[static_cast<unsigned>(style)], text);
}

} // namespace spmd::checker
