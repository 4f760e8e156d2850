// Counts verdicts. A claim on an axis of one rank says nothing, and is counted nowhere else.
#include "runtime/cli/summary.h"

#include "checker/render/json_text.h"
#include "checker/render/render.h"

#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/GlobPattern.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>

namespace spmd::runtime {
namespace {

constexpr size_t kVerdicts = std::size(kVerdictWords);

struct Row {
  std::string name;
  std::array<uint64_t, kVerdicts> counts{};
  uint64_t total() const {
    uint64_t sum = 0;
    for (uint64_t each : counts)
      sum += each;
    return sum;
  }
};

std::string row_name(const ClaimVerdict &claim) {
  std::string name = !claim.kind   ? "no claim"
                     : claim.shard ? "S(i)"
                                   : std::string(ir::info(*claim.kind).word);
  return claim.gradient ? "gradient " + name : name;
}

std::vector<Row> rows_of(const RunReport &report) {
  // The order of the kinds; gradients after values.
  std::vector<std::string> names;
  for (std::string prefix : {"", "gradient "}) {
    for (const ir::KindInfo &kind : ir::kKinds)
      names.push_back(prefix + std::string(kind.word));
    names.push_back(prefix + "S(i)");
    names.push_back(prefix + "no claim");
  }
  std::vector<Row> rows;
  for (const std::string &name : names)
    rows.push_back({name});
  for (const ClaimVerdict &claim : report.claims) {
    auto row = llvm::find_if(rows, [&](const Row &each) { return each.name == row_name(claim); });
    ++row->counts[static_cast<size_t>(claim.verdict)];
  }
  llvm::erase_if(rows, [](const Row &row) { return row.total() == 0; });
  return rows;
}

std::string print_table(std::vector<Row> rows) {
  Row all{"all"};
  for (const Row &row : rows)
    for (size_t i = 0; i < kVerdicts; ++i)
      all.counts[i] += row.counts[i];
  if (rows.size() > 1)
    rows.push_back(all);
  std::string text = fmt::format("  {:<18}", "claims");
  for (size_t i = 0; i < kVerdicts; ++i)
    if (all.counts[i])
      text += fmt::format("  {:>12}", kVerdictWords[i]);
  text += '\n';
  for (const Row &row : rows) {
    text += fmt::format("  {:<18}", row.name);
    for (size_t i = 0; i < kVerdicts; ++i)
      if (all.counts[i])
        text += fmt::format("  {:>12}", row.counts[i]);
    text += '\n';
  }
  return text;
}

// Scope of the instruction that makes a value; empty for what has none.
llvm::StringRef scope_of(const ir::Program &program, ir::InstId inst) {
  ir::LocId loc = program.insts[inst].loc;
  if (!loc.valid() || !program.locs[loc].scope.valid())
    return "";
  return program.strings[program.locs[loc].scope];
}

} // namespace

void Summary::note_tier(Tier tier, Domain domain) {
  std::string word(kTierWords[static_cast<size_t>(tier)]);
  if (tier == Tier::Real && domain == Domain::F64)
    word += " in f64";
  if (!llvm::is_contained(tiers, word))
    tiers.push_back(std::move(word));
}

bool Summary::all_upheld() const {
  const GradientReport &gradients = report.gradients;
  if (gradients.recorded && (!gradients.compared || !gradients.left.empty()))
    return false;
  bool compared = false;
  for (const ClaimVerdict &claim : report.claims) {
    if (claim.verdict != Verdict::Upheld && claim.verdict != Verdict::NotChecked)
      return false;
    compared |= claim.verdict == Verdict::Upheld;
  }
  return compared;
}

namespace {

constexpr size_t kMostShown = 8;

// `%a, %b and 3 more`
std::string print_names(const ir::Program &program, llvm::ArrayRef<ir::ValueId> values) {
  std::string text;
  for (size_t i = 0; i < values.size() && i < kMostShown; ++i)
    text += fmt::format("{}{}", i ? ", " : "", ir::print_value(program, values[i]));
  if (values.size() > kMostShown)
    text += fmt::format(" and {} more", values.size() - kMostShown);
  return text;
}

std::string print_gradients(const Summary &summary, const ir::Program &program) {
  const GradientReport &gradients = summary.report.gradients;
  if (!gradients.recorded)
    return "";
  std::string text = fmt::format("  recorded gradients: {} compared with the derivative of the "
                                 "forward on one device",
                                 gradients.compared);
  if (!gradients.zero.empty())
    text += fmt::format(", {} of them zero but for rounding ({})", gradients.zero.size(),
                        print_names(program, gradients.zero));
  text += '\n';
  for (const std::string &losses : summary.losses)
    text += fmt::format("    {}\n", losses);
  return text;
}

// Gradients that were not compared, those of one reason in one line.
std::string print_left(const GradientReport &gradients, const ir::Program &program) {
  if (!gradients.recorded)
    return "";
  if (!gradients.compared && gradients.left.empty())
    return "  recorded gradients: held against no derivative: that takes the real tier and "
           "`--check`, to the end\n";
  std::string text;
  std::vector<std::string> reasons;
  for (const GradientReport::NotCompared &left : gradients.left)
    if (!llvm::is_contained(reasons, left.why))
      reasons.push_back(left.why);
  for (const std::string &why : reasons) {
    std::vector<ir::ValueId> values;
    for (const GradientReport::NotCompared &left : gradients.left)
      if (left.why == why)
        values.push_back(left.value);
    text += fmt::format("  not compared: {} gradient{} ({}): {}\n", values.size(),
                        values.size() == 1 ? "" : "s", print_names(program, values), why);
  }
  return text;
}

// The values of the claims that nothing decided.
std::string print_undecided(const RunReport &report, const ir::Program &program) {
  std::string text;
  for (Verdict verdict : {Verdict::Undecided, Verdict::Blind}) {
    std::vector<ir::ValueId> values;
    for (const ClaimVerdict &claim : report.claims)
      if (claim.verdict == verdict && !llvm::is_contained(values, claim.value))
        values.push_back(claim.value);
    if (!values.empty())
      text += fmt::format("  {}: {}\n", kVerdictWords[static_cast<size_t>(verdict)],
                          print_names(program, values));
  }
  if (text.empty())
    return text; // another tier has decided
  for (size_t i = 0; i < report.undecided.size() && i < kMostShown; ++i)
    text += fmt::format("    {}\n", report.undecided[i]);
  if (report.undecided.size() > kMostShown)
    text += fmt::format("    and {} more\n", report.undecided.size() - kMostShown);
  return text;
}

} // namespace

std::string print_open(const Summary &summary, const ir::Program &program) {
  return print_undecided(summary.report, program) + print_left(summary.report.gradients, program);
}

std::string print_summary(const Summary &summary, const ir::Program &program) {
  const RunReport &report = summary.report;
  const char *what = summary.backward            ? "forward and backward"
                     : report.gradients.recorded ? "forward and recorded backward"
                                                 : "forward";
  std::string text =
      fmt::format("{}: {} ranks, {} steps, {} per rank; {}; tiers: {}\n", summary.program,
                  summary.ranks, summary.steps, checker::print_bytes(summary.peak_bytes), what,
                  fmt::join(summary.tiers, ", "));
  if (report.claims.empty())
    return text + "  no claims were compared\n";
  text += print_table(rows_of(report));
  if (llvm::all_of(report.claims,
                   [](const ClaimVerdict &claim) { return claim.verdict == Verdict::NotChecked; }))
    text += "  no claim was compared: it takes an axis of two ranks\n";
  return text + print_gradients(summary, program) + print_open(summary, program);
}

std::string print_verdicts(const Summary &summary, const ir::Program &program) {
  using Json = nlohmann::ordered_json;
  const RunReport &report = summary.report;
  Json counts = Json::object(), claims = Json::array();
  for (size_t i = 0; i < kVerdicts; ++i)
    counts[std::string(kVerdictWords[i])] = report.count(static_cast<Verdict>(i));
  for (const ClaimVerdict &claim : report.claims)
    claims.push_back({{"value", ir::print(program.values[claim.value].name, program.strings)},
                      {"axis", program.strings[program.meshes[claim.mesh][claim.axis].name]},
                      {"claim", claim.kind ? Json(row_name(claim)) : Json()},
                      {"verdict", kVerdictWords[static_cast<size_t>(claim.verdict)]}});
  Json made{{"program", summary.program},
            {"ranks", summary.ranks},
            {"steps", summary.steps},
            {"bytes_per_rank", summary.peak_bytes},
            {"backward", summary.backward},
            {"seed", summary.seed},
            {"seeds", summary.seeds},
            {"tiers", std::vector<std::string>(summary.tiers.begin(), summary.tiers.end())},
            {"digest", report.digest ? Json(fmt::format("{:016x}", report.digest)) : Json()},
            {"counts", std::move(counts)},
            {"claims", std::move(claims)},
            {"undecided", report.undecided}};
  if (report.gradients.recorded) {
    Json left = Json::array();
    for (const GradientReport::NotCompared &each : report.gradients.left)
      left.push_back({{"value", ir::print(program.values[each.value].name, program.strings)},
                      {"why", each.why}});
    made["recorded_gradients"] = {{"compared", report.gradients.compared},
                                  {"losses", summary.losses},
                                  {"left", std::move(left)}};
  }
  if (summary.times)
    made["seconds"] = {{"runs", summary.times->runs}, {"bare_calls", summary.times->bare}};
  return checker::print_json(made, 1) + "\n";
}

ir::ValueId find_value(const ir::Program &program, llvm::StringRef name) {
  for (uint32_t i = 0; i < program.values.size() && !name.empty(); ++i) {
    std::string known = ir::print(program.values[ir::ValueId{i}].name, program.strings);
    if (known == name || llvm::StringRef(known).drop_front(1) == name)
      return ir::ValueId{i};
  }
  return {};
}

std::string only_scope(const ir::Program &program, const std::string &glob, RunReport &report) {
  llvm::Expected<llvm::GlobPattern> pattern = llvm::GlobPattern::create(glob);
  if (!pattern)
    return fmt::format("`{}` is no pattern of scopes: {}", glob,
                       llvm::toString(pattern.takeError()));
  llvm::DenseMap<uint32_t, ir::InstId> makers;
  for (uint32_t i = 0; i < program.insts.size(); ++i)
    for (uint32_t r = 0; r < program.insts[ir::InstId{i}].result_count; ++r)
      makers[program.insts[ir::InstId{i}].result(r).index] = ir::InstId{i};
  llvm::erase_if(report.claims, [&](const ClaimVerdict &claim) {
    auto maker = makers.find(claim.value.index);
    return maker == makers.end() || !pattern->match(scope_of(program, maker->second));
  });
  llvm::erase_if(report.findings, [&](const checker::Finding &finding) {
    return finding.place.form != checker::Place::Form::Inst ||
           !pattern->match(scope_of(program, finding.place.as_inst()));
  });
  return "";
}

} // namespace spmd::runtime
