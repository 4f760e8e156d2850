// Counts verdicts. A claim on an axis of one rank says nothing, and is counted nowhere else.
#include "runtime/cli/summary.h"

#include "checker/render/render.h"

#include "ir/text.h"

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
  return llvm::all_of(report.claims, [](const ClaimVerdict &claim) {
    return claim.verdict == Verdict::Upheld || claim.verdict == Verdict::NotChecked;
  });
}

std::string print_summary(const Summary &summary) {
  const RunReport &report = summary.report;
  std::string text = fmt::format(
      "{}: {} ranks, {} steps, {} per rank; {}; tiers: {}\n", summary.program, summary.ranks,
      summary.steps, checker::print_bytes(summary.peak_bytes),
      summary.backward ? "forward and backward" : "forward", fmt::join(summary.tiers, ", "));
  if (report.claims.empty())
    return text + "  no claims were compared\n";
  text += print_table(rows_of(report));
  if (!report.count(Verdict::Undecided) && !report.count(Verdict::Blind))
    return text; // another tier has decided
  constexpr size_t kMost = 8;
  for (size_t i = 0; i < report.undecided.size() && i < kMost; ++i)
    text += fmt::format("  undecided: {}\n", report.undecided[i]);
  if (report.undecided.size() > kMost)
    text += fmt::format("  and {} more\n", report.undecided.size() - kMost);
  return text;
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
  return made.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
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
