// Findings that the program accepts: per op, per scope, per location; and suppressions gone stale.
#include "checker/walk.h"

namespace spmd::checker {

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

namespace {

class Suppressor {
public:
  Suppressor(const ir::Program &program, const CheckOptions &options)
      : program_(program), options_(options), used_(program.suppressions.size()),
        ignore_used_(program.ignores.size()) {}

  // The findings, and what is wrong with the suppressions themselves.
  void run(std::vector<Finding> &findings) {
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
  }

  void visit(Finding &finding) {
    llvm::StringRef name(finding.info().name.data(), finding.info().name.size());
    for (size_t i = 0; i < program_.ignores.size(); ++i)
      if (finding.place == Place::inst(program_.ignores[i].first) &&
          program_.strings[program_.ignores[i].second] == name) {
        ignore_used_[i] = finding.suppressed = true;
        finding.reason = "ignored at the op";
      }
    for (size_t i = 0; i < program_.suppressions.size(); ++i)
      if (covers(program_.suppressions[i], finding)) {
        used_[i] = finding.suppressed = true;
        finding.reason = text(program_.suppressions[i].reason);
      }
  }

private:
  // Whether it is needed shows in a run, or in what is written out, not here.
  bool drawn_elsewhere(ir::StringId finding) const {
    llvm::StringRef name = program_.strings[finding];
    const rules::DiagnosticInfo *info = rules::find_violation({name.data(), name.size()});
    return info &&
           (info->drawn_by == rules::DrawnBy::Run || info->drawn_by == rules::DrawnBy::Elaborate);
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
  std::vector<bool> used_, ignore_used_;
};

} // namespace

void apply_suppressions(const ir::Program &program, const CheckOptions &options,
                        CheckResult &result) {
  if (!program.suppressions.empty() || !program.ignores.empty())
    Suppressor(program, options).run(result.findings);
}

void suppress(const ir::Program &program, const CheckOptions &options, Finding &finding) {
  Suppressor(program, options).visit(finding);
}

} // namespace spmd::checker
