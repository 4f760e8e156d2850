// The table of output formats, and what they share: options of presentation, counts, prices,
// painted text. A format is one file and one row; it gets the reports of a run and writes bytes
// that depend on nothing else.
#pragma once

#include "checker/render/source/source.h"
#include "checker/report/report.h"

#include "ir/support/escape.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/raw_ostream.h"

namespace spmd::checker {

inline constexpr std::string_view kVersion = "0.1.0";

struct RenderOptions {
  bool colour = false;
  unsigned width = 100;                             // of quoted lines; 0: they are not cut
  bool quiet = false;                               // no line with counts
  rules::Severity fail_on = rules::Severity::Error; // what is as severe fails the run
  bool expect = false; // fails unless what the programs expect is found; fail_on is not read
};

using RenderFunction = void (*)(llvm::ArrayRef<Report> reports, SourceCache &sources,
                                const RenderOptions &options, llvm::raw_ostream &out);

struct Renderer {
  std::string_view name, help;
  RenderFunction fn;
  bool for_people = true; // else other programs read it
  bool counts = false;    // ends in a line of counts
};
llvm::ArrayRef<Renderer> renderers();
// Null if no format has that name.
const Renderer *find_renderer(std::string_view name);

void render_full(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &, llvm::raw_ostream &);
void render_concise(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &,
                    llvm::raw_ostream &);
void render_json(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &, llvm::raw_ostream &);
void render_sarif(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &,
                  llvm::raw_ostream &);
void render_github(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &,
                   llvm::raw_ostream &);
void render_gitlab(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &,
                   llvm::raw_ostream &);
void render_junit(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &,
                  llvm::raw_ostream &);
void render_md(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &, llvm::raw_ostream &);
void render_html(llvm::ArrayRef<Report>, SourceCache &, const RenderOptions &, llvm::raw_ostream &);
// One finding as `full` shows it.
void print_in_full(const Report &report, const Diagnostic &diagnostic, SourceCache &sources,
                   const RenderOptions &options, llvm::raw_ostream &out);

// Counts over all inputs of a run.
struct Totals {
  uint64_t inputs = 0, unread = 0, ops = 0, unknown_ops = 0;
  uint64_t errors = 0, warnings = 0, infos = 0, suppressed = 0, known = 0, cut = 0;
  uint64_t undecided = 0; // collectives without a word that no use decides
  uint64_t not_selected = 0;
  uint64_t values = 0, unknown_values = 0; // CheckCoverage
  uint64_t unchecked_ops = 0, uncalled_ops = 0;
  uint64_t unjudged = 0,
           one_rank = 0;  // inputs in which nothing was judged; without an axis of several ranks
  uint64_t confirmed = 0; // parameters whose gradients a recorder measured, and found right
  // Of programs judged without declarations: of how many, and on how many all is proved, by axis.
  struct Proved {
    std::string_view what;
    uint64_t all = 0;
    std::vector<CheckCoverage::Proof> axes = {};
  };
  // Gradients of the parameters that they train; results of those that train nothing.
  std::array<Proved, 2> proved{Proved{"gradients"}, Proved{"results"}};
  const Proved &gradients() const { return proved[0]; }
  std::string lost; // where the first proof ended; empty: nowhere
  // Of the axis on which the fewest are proved, in percent.
  double proof() const;
  // Typed ops among all, in percent.
  double coverage() const {
    return ops == 0 ? 100 : 100.0 * double(ops - unknown_ops) / double(ops);
  }
};
Totals totals_of(llvm::ArrayRef<Report> reports);
// `3 errors, 1 warning in 1496 ops (2 suppressed); 120 of 400 values have an unknown kind on some
// axis`
std::string counts_line(const Totals &totals);
// Why nothing was judged of an input that was read; empty where something was.
std::string nothing_judged(const Report &report);
// Line and column of what is wrong with the form of an input.
std::pair<uint32_t, uint32_t> line_of(const Report &report, const ir::InputError &error);

// `12.0 MiB`
std::string print_bytes(int64_t bytes);
using ir::printable;
// Text in a cell of a table: nothing in it is Markdown but the spans of code that messages have.
std::string markdown_cell(llvm::StringRef text);

enum class Style : uint8_t { Error, Warning, Info, Bold, Gutter, Good };
inline Style style_of(rules::Severity severity) { return static_cast<Style>(severity); }
std::string painted(const RenderOptions &options, Style style, std::string_view text);

} // namespace spmd::checker
