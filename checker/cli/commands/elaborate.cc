// `spmdlint elaborate FILE`: the program with its redistributions written out on stdout, what they
// cost on stderr; in JSON both are one document.
#include "rules/violations/commands/implicit.h"

#include "checker/rewrite/elaborate.h"

#include "checker/cli/input.h"
#include "checker/cli/output.h"
#include "checker/cli/report_output.h"
#include "checker/cli/topology.h"
#include "checker/render/json_text.h"
#include "checker/walk/suppress.h"

#include "ir/dialect/dialect.h"
#include "ir/dialect/print_type.h"
#include "ir/text/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace spmd::checker {
namespace {

using Json = nlohmann::ordered_json;

std::string plural(uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

class ElaborationReport {
public:
  ElaborationReport(const ir::Program &program, const Elaboration &done, const Options &options)
      : program_(program), done_(done), options_(options),
        dialect_(options.dialect.value_or(ir::dialect_of(program))) {
    for (const Insertion &each : done.insertions) {
      forward_ += each.forward_bytes;
      backward_ += each.backward_bytes;
      collectives_ += each.collectives;
      findings_.push_back(finding_of(each));
      suppress(program, options.check, findings_.back());
    }
  }

  bool any_error() const {
    for (size_t i = 0; i < findings_.size(); ++i)
      if (severity(i) == Implicit::Error)
        return true;
    return false;
  }

  std::string text() const {
    std::string text;
    for (size_t i = 0; i < findings_.size(); ++i)
      text += text_of(i);
    for (const StatedSum &sum : done_.sums)
      text += fmt::format("{}: partial = {}\n", print_line(sum.inst), names(sum));
    for (ir::InstId torn : done_.torn)
      text += fmt::format("{}: calls with other types need it otherwise: one function for each\n",
                          print_line(torn));
    return text + fmt::format("{}, {} bytes forward, {} backward, {}\n",
                              plural(done_.insertions.size(), "redistribution"), forward_,
                              backward_, plural(collectives_, "collective"));
  }

  Json json() const {
    Json insertions = Json::array(), sums = Json::array(), torn = Json::array();
    for (size_t i = 0; i < findings_.size(); ++i) {
      const Insertion &each = done_.insertions[i];
      insertions.push_back({{"value", ir::print_value(program_, each.of)},
                            {"result", ir::print_value(program_, each.value)},
                            {"op", each.op},
                            {"operand", each.operand},
                            {"reason", each.reason},
                            {"uses", each.uses},
                            {"had", words(each.had)},
                            {"wanted", words(each.wanted)},
                            {"gradient", each.gradient ? Json(dual(each.had)) : Json()},
                            {"gradient_inside", each.gradient ? Json(dual(each.wanted)) : Json()},
                            {"forward_bytes", each.forward_bytes},
                            {"backward_bytes", each.backward_bytes},
                            {"collectives", each.collectives},
                            {"moved_again_inside", each.read_again},
                            {"severity", std::string(word(i, kImplicitWords))}});
    }
    for (const StatedSum &sum : done_.sums)
      sums.push_back({{"line", print_line(sum.inst)}, {"axes", names(sum)}});
    for (ir::InstId inst : done_.torn)
      torn.push_back(print_line(inst));
    return {{"program", ir::print_text(program_)},
            {"redistributions", std::move(insertions)},
            {"sums", std::move(sums)},
            {"torn", std::move(torn)},
            {"forward_bytes", forward_},
            {"backward_bytes", backward_},
            {"collectives", collectives_},
            {"cut", done_.cut}};
  }

private:
  std::string words(ir::TypeId type) const {
    return ir::print_kinds_in(program_, program_.types[type], dialect_);
  }
  std::string dual(ir::TypeId type) const {
    return ir::print_kinds_in(program_, program_.types[type].dual(), dialect_);
  }
  std::string print_line(ir::InstId inst) const { return ir::print_inst(program_, inst); }
  std::string names(const StatedSum &sum) const {
    return ir::print_axes(program_, program_.contexts[program_.insts[sum.inst].context].mesh,
                          sum.axes);
  }

  // What an insertion is to whoever asked for it; suppressed ones are accepted.
  Implicit severity(size_t i) const {
    const Insertion &each = done_.insertions[i];
    if (findings_[i].suppressed)
      return Implicit::AcceptRule;
    if (options_.redistribute_limit &&
        each.forward_bytes + each.backward_bytes > *options_.redistribute_limit)
      return Implicit::Error;
    return options_.redistribute;
  }
  // `words`: of Implicit.
  std::string_view word(size_t i, llvm::ArrayRef<std::string_view> words) const {
    return findings_[i].suppressed ? "suppressed" : words[static_cast<size_t>(severity(i))];
  }
  Finding finding_of(const Insertion &each) const {
    rules::ImplicitRedistribute found{.value = each.of,
                                      .operand = each.operand,
                                      .wanted = words(each.wanted),
                                      .found = words(each.had),
                                      .forward = static_cast<int64_t>(each.forward_bytes),
                                      .backward = static_cast<int64_t>(each.backward_bytes),
                                      .collectives = plural(each.collectives, "collective"),
                                      .reason = each.reason};
    if (each.uses > 1)
      found.shared = plural(each.uses, "operand");
    return {std::move(found), Place::inst(each.first_use), ~0u, false, {}};
  }
  std::string text_of(size_t i) const {
    static constexpr std::string_view kWords[] = {"error", "warning", "info"};
    const Finding &finding = findings_[i];
    std::string why = finding.suppressed ? fmt::format(" ({})", finding.reason) : std::string();
    return fmt::format("{}{}: [{}] {}\n", word(i, kWords), why, finding.info().name,
                       message_of(program_, finding)) +
           inside(done_.insertions[i]);
  }
  // What becomes of the same move where it happens inside of the op, behind the back of whoever
  // differentiates.
  std::string inside(const Insertion &each) const {
    std::string own = dual(each.had), theirs = dual(each.wanted), text;
    if (each.gradient && own != theirs)
      text += fmt::format("  inside of the op, the gradient of {} would be {}, not {}\n",
                          ir::print_value(program_, each.of), theirs, own);
    if (each.read_again && each.forward_bytes)
      text += fmt::format("  inside of the op, backward would move {} again: {} bytes\n",
                          ir::print_value(program_, each.of), each.forward_bytes);
    return text;
  }

  const ir::Program &program_;
  const Elaboration &done_;
  const Options &options_;
  ir::Dialect dialect_;
  std::vector<Finding> findings_; // per insertion
  uint64_t forward_ = 0, backward_ = 0, collectives_ = 0;
};

// What the program that was printed still triggers: one that reads it finds the same, on these
// lines.
bool print_findings(const std::string &text, const Options &options) {
  ir::ReadResult read = ir::read_text(text);
  SPMD_CHECK(read.errors.empty(), "what was written out does not read");
  CheckResult result = check(read.program, options.check);
  std::vector<Report> reports;
  reports.push_back(make_report("<elaborated>", text, read.program, result, options.check, {}));
  std::string out;
  llvm::raw_string_ostream stream(out);
  SourceCache sources(options.sources);
  find_renderer("concise")->fn(reports, sources, {.quiet = true}, stream);
  print_stderr(stream.str());
  return result.clean();
}

} // namespace

ExitCode run_elaborate(const Options &options) {
  if (options.arguments.size() != 1)
    return wrong_call("`elaborate` takes one file");
  rules::redistribute::Topology topology;
  if (!options.topology.empty())
    if (std::string problem = read_topology(options.topology, topology); !problem.empty())
      return wrong_call(problem);
  Input input = load(options.arguments.front(), options);
  print_stderr(print_input_errors(input));
  if (!input.readable())
    return ExitCode::Input;
  ir::Program &program = input.read.program;
  options.configuration.add_to(program);
  Elaboration done = elaborate(program, options.check, topology);
  ElaborationReport account(program, done, options);
  std::string text = ir::print_text(program);
  bool json = options.table == TableFormat::Json;
  std::string problem = write_stdout(json ? print_json(account.json(), 2) + "\n" : text);
  if (!problem.empty())
    return wrong_call(problem);
  if (!json)
    print_stderr(account.text());
  note_assumed_sizes(program, options);
  if (done.cut && !options.quiet)
    say(fmt::format("note: the search was cut short for {}: cheaper redistributions may exist",
                    plural(done.cut, "op")));
  bool clean = print_findings(text, options);
  return clean && !account.any_error() && done.torn.empty() ? ExitCode::Clean : ExitCode::Findings;
}

} // namespace spmd::checker
