// What renderers print: findings folded, with notes and verified fixes, and the counts of the run.
#pragma once

#include "checker/check.h"
#include "checker/check_coverage.h"
#include "checker/fix/fix.h"
#include "checker/report/message.h"
#include "checker/report/provenance.h"
#include "checker/report/savings.h"

#include "ir/dialect/dialect.h"
#include "ir/input/input.h"
#include "ir/input/lines.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringRef.h"

#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace spmd::checker {

// Findings with equal name, source location, op, operand types and scope (digits as `*`) are one
// diagnostic.
struct Diagnostic {
  const Finding *first = nullptr;
  std::vector<Place> places;     // all of them, the first included
  std::string folded_scope = {}; // `layers.*.mlp.act`; empty if there is none
  std::vector<std::string> parameters =
      {};                    // the declared values that they name, by the framework's names
  std::string fold_key = {}; // equal for findings that are one; 16 hex digits, stable between runs
  std::string fingerprint = {}; // likewise, although lines move and values are renamed
  llvm::SmallVector<Note, 2> notes = {};
  llvm::SmallVector<Fix, 3> fixes = {};
  bool fixes_sought = false; // false: they were not asked for, or the finding has none by nature
  size_t known = 0;          // of the places, those in the baseline or the earlier output
  bool fix_budget_exhausted =
      false; // the search ended at its budget: there may be others, or cheaper ones
};

// Places of a finding that need no attention, and why: they are in the baseline or in an earlier
// output, or a comment in the source says so. The suppressions of the program itself are applied by
// check().
struct Accepted {
  std::string reason;
  size_t places = 0;  // at most as many as the finding has; all: it is suppressed
  bool known = false; // it is in the baseline or the earlier output
};
struct Report;
using AcceptRule = std::function<std::optional<Accepted>(const Report &, const Diagnostic &)>;

struct ReportOptions {
  bool fold = true;
  bool fixes = true;
  std::optional<ir::Dialect> dialect; // types in its words too; none: that of the program
  unsigned max_findings = 200;        // diagnostics; more are counted, not explained
  std::vector<std::string> select,
      ignore;                          // finding names or groups; empty select: the group `default`
  std::vector<AcceptRule> accept = {}; // the first that accepts a finding is the one that counts
  bool compared = false;               // one of them knows what was there before
  // What a source is called where people read it; none: as the program states it.
  std::function<std::string(const ir::Program &, ir::FileId)> shown_path = {};
};

struct Report {
  std::string input;              // as named on the command line
  llvm::StringRef bytes;          // of the input: what the program was read from, unpacked
  ir::Program *program = nullptr; // null: the input could not be read
  const CheckResult *result = nullptr;
  CheckOptions check_options; // with which it was checked
  std::vector<ir::InputError> input_errors, input_warnings;
  std::vector<Diagnostic> diagnostics;   // program order; suppressed ones included
  ir::Dialect words = ir::Dialect::Spmd; // types are printed in these too
  unsigned cut = 0;                      // diagnostics beyond max_findings
  unsigned errors = 0, warnings = 0, infos = 0, suppressed = 0; // unfolded, suppressed ones apart
  unsigned known = 0;             // of the suppressed ones: they were there before
  std::vector<AcceptRule> accept; // ReportOptions::accept
  bool compared = false;          // with what was there before
  unsigned not_selected = 0;      // not suppressed either; in none of the counts above
  CheckCoverage judged;
  ir::InputLines lines;                           // of `bytes`
  llvm::DenseMap<uint32_t, ir::LocId> first_uses; // declared values: where each is read first
  std::deque<Finding> added;            // findings that the report adds to those of the check
  std::vector<Saving> savings;          // where findings about costs are asked for
  std::vector<std::string> shown_paths; // per file: ReportOptions::shown_path; else empty
};

Report make_report(std::string input, llvm::StringRef bytes, ir::Program &program,
                   const CheckResult &result, const CheckOptions &check_options,
                   const ReportOptions &options);
// Of an input that could not be read.
Report make_unread_report(std::string input, llvm::StringRef bytes,
                          std::vector<ir::InputError> errors);
// Adds a finding that only showing the report brings to light, and counts it.
void add_finding(Report &report, Finding finding);

// Names that stand for several findings in `--select` and `--ignore`.
struct FindingGroup {
  std::string_view name, help;
  bool (*contains)(const rules::DiagnosticInfo &finding);
};
llvm::ArrayRef<FindingGroup> finding_groups();
// Whether `--select` and `--ignore` leave this finding in.
bool selected(const ReportOptions &options, const rules::DiagnosticInfo &finding);

// Where a place is in the user's source, or in the input itself where the program says no source.
struct SourcePlace {
  std::string path;
  uint32_t line = 0, col = 0, end_line = 0, end_col = 0; // 0: not known
  bool in_input = false;                                 // the place is in the program's own text
  std::string scope;                                     // empty if not stated
  ir::FileId file;                                       // none if in_input
};
// The part of the model that a place belongs to, and its line in the user's source; empty, none if
// the program does not say.
std::string scope_of(const Report &report, const Place &place);
ir::FrameId frame_of(const Report &report, const Place &place);
// The byte in the input where a place stands.
uint64_t byte_of(const ir::Program &program, const Place &place);
SourcePlace locate(const Report &report, const Place &place);
// The same with the path that the program states, wherever the source lies here.
SourcePlace locate_as_stated(const Report &report, const Place &place);
// The calls by which a program came to a place, the nearest first; none where it states none.
std::vector<SourcePlace> callers(const Report &report, const Place &place);
// `model.py:41:13`, as far as it is known.
std::string print(const SourcePlace &place);

} // namespace spmd::checker
