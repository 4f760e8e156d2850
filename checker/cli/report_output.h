// What all commands that report findings share: formats and files, counts, the day of the run.
#pragma once

#include "checker/cli/options.h"

namespace spmd::checker {

// Empty, or why the formats that are asked for cannot all be written: two on stdout, two in one
// file, one over an input.
std::string formats_problem(const Options &options);
// Writes the reports in all formats that the command line names; those for stdout share it in its
// order. False, and said, if something could not be written.
bool render(const Options &options, llvm::ArrayRef<Report> reports, SourceCache &sources);
// True if a finding is at least as severe.
bool fails(const Report &report, rules::Severity lowest);
// True if what goes to stdout ends in a line of counts.
bool prints_counts(const Options &options);
// YYYY-MM-DD in UTC: dates of suppressions are compared with it.
std::string date_of_today();
// As given; what `--extend-select` adds comes on top of the standard group.
ReportOptions report_options(const Options &options);
// Empty, or that no finding which a check can have is left to report.
std::string selection_problem(const ReportOptions &options);

// That plans and prices take sizes for symbols; nothing where all are numbers.
void note_assumed_sizes(const ir::Program &program, const Options &options);

} // namespace spmd::checker
