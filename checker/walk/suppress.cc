// Findings that the program accepts: per op, per scope, per location; and suppressions gone stale.
#include "checker/walk/suppress.h"

#include "rules/violations/coverage.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>

namespace spmd::checker {

namespace {

// `layers.*.mlp` against `layers.7.mlp`; `*` matches any run of characters.
bool glob_match(llvm::StringRef pattern, llvm::StringRef text) {
  size_t p = 0, t = 0, star = llvm::StringRef::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != llvm::StringRef::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.drop_front(p).find_first_not_of('*') == llvm::StringRef::npos;
}

// Suppressions by what a finding must have: the place they name, or the words of their scope before
// or behind all stars. So a finding is held against few of them, however many there are.
class SuppressionIndex {
public:
  explicit SuppressionIndex(const ir::Program &program) : program_(program) {
    for (uint32_t i = 0; i < program.suppressions.size(); ++i) {
      const ir::Suppression &row = program.suppressions[i];
      llvm::StringRef finding = program.strings[row.finding];
      if (row.loc.valid()) {
        by_frame_[row.loc.index].push_back(i);
      } else if (!row.scope.valid()) {
        by_finding_[finding].push_back(i);
      } else {
        llvm::StringRef scope = program.strings[row.scope];
        llvm::StringRef head = scope.take_front(scope.find('*'));
        llvm::StringRef tail = scope.drop_front(scope.rfind('*') + 1); // npos + 1 is 0
        bool front = head.size() >= tail.size();
        (front ? by_head_ : by_tail_)[front ? head : tail].push_back(i);
      }
    }
  }

  // Calls `take` with the index of each suppression that may cover the finding.
  template <class Take> void each(const Finding &finding, Take take) const {
    auto all = [&](const auto &table, const auto &key) {
      if (auto at = table.find(key); at != table.end())
        llvm::for_each(at->second, take);
    };
    all(by_finding_, llvm::StringRef(finding.info().name.data(), finding.info().name.size()));
    if (finding.place.form != Place::Form::Inst)
      return;
    ir::LocId loc = program_.insts[finding.place.as_inst()].loc;
    if (!loc.valid())
      return;
    const ir::Location &where = program_.locs[loc];
    if (where.frame.valid())
      all(by_frame_, where.frame.index);
    if (!where.scope.valid())
      return;
    llvm::StringRef scope = program_.strings[where.scope];
    for (size_t size = 0; size <= scope.size() && !by_head_.empty(); ++size)
      all(by_head_, scope.take_front(size));
    for (size_t size = 0; size <= scope.size() && !by_tail_.empty(); ++size)
      all(by_tail_, scope.take_back(size));
  }

private:
  using Rows = llvm::SmallVector<uint32_t, 1>;
  const ir::Program &program_;
  llvm::StringMap<Rows> by_finding_, by_head_, by_tail_;
  llvm::DenseMap<uint32_t, Rows> by_frame_;
};

class Suppressor {
public:
  Suppressor(const ir::Program &program, const CheckOptions &options)
      : program_(program), options_(options), index_(program), used_(program.suppressions.size()),
        ignore_used_(program.ignores.size()) {}

  // The findings, and what is wrong with the suppressions themselves. Which of them were used.
  std::vector<bool> run(std::vector<Finding> &findings) {
    for (Finding &finding : findings)
      visit(finding);
    for (uint32_t i = 0; i < program_.suppressions.size(); ++i)
      close(i, findings);
    for (uint32_t i = 0; i < program_.ignores.size(); ++i)
      if (!ignore_used_[i] && !drawn_elsewhere(program_.ignores[i].second))
        findings.push_back({rules::UnusedSuppression{text(program_.ignores[i].second)},
                            Place::inst(program_.ignores[i].first),
                            ~0u,
                            false,
                            {}});
    return std::move(used_);
  }

  void visit(Finding &finding) {
    llvm::StringRef name(finding.info().name.data(), finding.info().name.size());
    if (finding.place.form == Place::Form::Inst) {
      auto rows =
          std::equal_range(program_.ignores.begin(), program_.ignores.end(),
                           std::pair(finding.place.as_inst(), ir::StringId()), llvm::less_first());
      for (auto at = rows.first; at != rows.second; ++at)
        if (program_.strings[at->second] == name) {
          ignore_used_[static_cast<size_t>(at - program_.ignores.begin())] = true;
          finding.suppressed = true;
          finding.reason = "ignored at the op";
        }
    }
    std::optional<uint32_t> last; // whose reason is given
    index_.each(finding, [&](uint32_t i) {
      if (!covers(program_.suppressions[i], finding))
        return;
      used_[i] = finding.suppressed = true;
      last = std::max(last.value_or(i), i);
    });
    if (last)
      finding.reason = text(program_.suppressions[*last].reason);
  }

private:
  // Whether it is needed shows in a run, or in what is written out, not here.
  bool drawn_elsewhere(ir::StringId finding) const {
    llvm::StringRef name = program_.strings[finding];
    const rules::DiagnosticInfo *info = rules::find_violation({name.data(), name.size()});
    return info && (info->is_cost || info->drawn_by == rules::ReportedBy::Run ||
                    info->drawn_by == rules::ReportedBy::Elaborate);
  }
  std::string text(ir::StringId id) const { return program_.strings[id].str(); }
  bool lapsed(const ir::Suppression &row) const {
    return row.until.valid() && !options_.today.empty() &&
           program_.strings[row.until] <= options_.today;
  }

  bool covers(const ir::Suppression &row, const Finding &finding) const {
    if (lapsed(row) || program_.strings[row.finding] !=
                           llvm::StringRef(finding.info().name.data(), finding.info().name.size()))
      return false;
    if (!row.scope.valid() && !row.loc.valid())
      return true;
    if (finding.place.form != Place::Form::Inst)
      return false;
    ir::LocId loc = program_.insts[finding.place.as_inst()].loc;
    if (!loc.valid())
      return false;
    const ir::Location &where = program_.locs[loc];
    if (row.loc.valid() && !(row.loc == where.frame))
      return false;
    return !row.scope.valid() || (where.scope.valid() && glob_match(program_.strings[row.scope],
                                                                    program_.strings[where.scope]));
  }

  void close(uint32_t i, std::vector<Finding> &findings) {
    const ir::Suppression &row = program_.suppressions[i];
    if (row.configured) // it need not fit every program
      return;
    Place place{Place::Form::Suppression, i};
    if (lapsed(row))
      findings.push_back(
          {rules::ExpiredSuppression{text(row.finding), text(row.until)}, place, ~0u, false, {}});
    else if (!used_[i] && !drawn_elsewhere(row.finding))
      findings.push_back({rules::UnusedSuppression{text(row.finding)}, place, ~0u, false, {}});
  }

  const ir::Program &program_;
  const CheckOptions &options_;
  SuppressionIndex index_;
  std::vector<bool> used_, ignore_used_;
};

} // namespace

void apply_suppressions(const ir::Program &program, const CheckOptions &options,
                        CheckResult &result) {
  if (!program.suppressions.empty() || !program.ignores.empty())
    result.used_suppressions = Suppressor(program, options).run(result.findings);
}

void suppress(const ir::Program &program, const CheckOptions &options, Finding &finding) {
  if (!program.suppressions.empty() || !program.ignores.empty())
    Suppressor(program, options).visit(finding);
}

} // namespace spmd::checker
