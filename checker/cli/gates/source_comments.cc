// Reads comments by a scanner that knows strings and nothing else of Python.
#include "checker/cli/gates/source_comments.h"

#include "rules/violation.h"
#include "rules/violations/coverage.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

constexpr llvm::StringRef kWord = "spmd:", kVerb = "ignore";

struct RawComment {
  size_t at;            // of its `#`
  uint32_t line;        // from 1
  llvm::StringRef text; // behind the `#`
};

// The comments of a Python source; `code`: the lines that have something else.
std::vector<RawComment> scan(llvm::StringRef source, std::vector<bool> &code) {
  std::vector<RawComment> found;
  uint32_t line = 1;
  llvm::StringRef open; // what ends the string that is open; empty: none is
  auto mark = [&] {
    code.resize(std::max<size_t>(code.size(), line + 1));
    code[line] = true;
  };
  for (size_t at = 0; at < source.size(); ++at) {
    char c = source[at];
    if (c == '\n') {
      ++line;
      if (open.size() == 1) // such a string ends with its line
        open = {};
    } else if (!open.empty()) {
      mark();
      if (c == '\\' && at + 1 < source.size() && source[at + 1] != '\n')
        ++at;
      else if (source.substr(at, open.size()) == open)
        at += open.size() - 1, open = {};
    } else if (c == '#') {
      llvm::StringRef text = source.drop_front(at + 1).take_until([](char x) { return x == '\n'; });
      found.push_back({at, line, text.rtrim('\r')});
      at += text.size();
    } else if (c == '"' || c == '\'') {
      mark();
      llvm::StringRef three = source.substr(at, 3);
      open = three.size() == 3 && three[1] == c && three[2] == c ? three : source.substr(at, 1);
      at += open.size() - 1;
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\f') {
      mark();
    }
  }
  return found;
}

// Fills names and reason, or says what is wrong with them.
void parse(llvm::StringRef rest, SourceComment &comment) {
  rest = rest.ltrim();
  if (!rest.consume_front("[")) {
    comment.problem = "it names no finding, as in `# spmd: ignore[NAME] reason`";
    return;
  }
  if (!rest.contains(']')) {
    comment.problem = "`]` is missing";
    return;
  }
  auto [names, reason] = rest.split(']');
  llvm::SmallVector<llvm::StringRef, 2> list;
  names.split(list, ',', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef each : list) {
    std::string name = each.trim().str();
    if (!rules::find_violation(name)) {
      comment.problem = fmt::format("no finding is named `{}`", name);
      return;
    }
    comment.findings.push_back(std::move(name));
  }
  comment.reason = reason.trim().str();
  if (comment.findings.empty())
    comment.problem = "it names no finding, as in `# spmd: ignore[NAME] reason`";
  else if (comment.reason.empty())
    comment.problem = "it says no reason";
}

} // namespace

std::vector<SourceComment> read_comments(llvm::StringRef source) {
  std::vector<SourceComment> found;
  if (!source.contains(kWord))
    return found;
  std::vector<bool> code;
  auto has_code = [&](uint32_t line) { return line < code.size() && code[line]; };
  for (const RawComment &raw : scan(source, code)) {
    llvm::StringRef rest = raw.text.ltrim();
    if (!rest.consume_front(kWord) || !(rest = rest.ltrim()).consume_front(kVerb))
      continue;
    SourceComment &comment = found.emplace_back();
    comment.line = raw.line;
    comment.col = static_cast<uint32_t>(raw.at - (source.take_front(raw.at).rfind('\n') + 1)) + 1;
    parse(rest, comment);
  }
  for (SourceComment &comment : found) {
    comment.about = comment.line;
    while (!has_code(comment.about) && comment.about < code.size())
      ++comment.about;
  }
  return found;
}

void SourceComments::read(const ir::Program &program) {
  for (uint32_t i = 0; i < program.files.size(); ++i) {
    std::string path = program.strings[program.files[ir::FileId{i}].path].str();
    if (files_.count(path))
      continue;
    std::vector<Known> known;
    if (std::optional<llvm::StringRef> source = sources_.contents(program, ir::FileId{i}))
      for (SourceComment &comment : read_comments(*source))
        known.push_back({std::move(comment)});
    files_.try_emplace(path, std::move(known));
  }
  for (uint32_t i = 0; i < program.frames.size(); ++i) {
    const ir::Frame &frame = program.frames[ir::FrameId{i}];
    if (auto file = files_.find(program.strings[program.files[frame.file].path].str());
        file != files_.end() && !file->second.empty())
      for (uint32_t line = frame.line; line <= std::max(frame.line, frame.end_line); ++line)
        lines_.insert({file->first, line});
  }
}

// Or it cannot be determined here.
bool SourceComments::of_use(const std::string &path, const Known &known,
                            const ReportOptions &options) const {
  const SourceComment &comment = known.comment;
  const rules::DiagnosticInfo &finding =
      comment.problem.empty() ? rules::UnusedSuppression::info : rules::MalformedSuppression::info;
  if (known.used || !selected(options, finding))
    return true;
  if (!comment.problem.empty())
    return false;
  return !lines_.count({path, comment.about}) ||
         llvm::any_of(comment.findings, [&](const std::string &name) {
           const rules::DiagnosticInfo &named = *rules::find_violation(name);
           return named.drawn_by == rules::ReportedBy::Run ||
                  named.drawn_by == rules::ReportedBy::Elaborate || !selected(options, named);
         });
}

std::optional<Accepted> SourceComments::accept(const Report &report, const Diagnostic &diagnostic) {
  SourcePlace place = locate_as_stated(report, diagnostic.first->place);
  auto file = place.file.valid() ? files_.find(place.path) : files_.end();
  if (file == files_.end() || place.line == 0)
    return std::nullopt;
  std::string_view name = diagnostic.first->info().name;
  for (Known &known : file->second) {
    const SourceComment &comment = known.comment;
    bool here =
        comment.about >= place.line && comment.about <= std::max(place.line, place.end_line);
    if (!here || !comment.problem.empty() || !llvm::is_contained(comment.findings, name))
      continue;
    known.used = true;
    return Accepted{comment.reason, diagnostic.places.size()};
  }
  return std::nullopt;
}

void SourceComments::add_findings(llvm::MutableArrayRef<Report> reports,
                                  const ReportOptions &options) {
  for (Report &report : reports) {
    if (!report.program)
      continue;
    for (uint32_t i = 0; i < report.program->files.size(); ++i) {
      ir::StringId path = report.program->files[ir::FileId{i}].path;
      auto file = files_.find(report.program->strings[path].str());
      if (file == files_.end())
        continue;
      for (const Known &known : file->second) {
        const SourceComment &comment = known.comment;
        if (of_use(file->first, known, options))
          continue;
        ir::FrameId frame = report.program->frames.add(
            {.file = ir::FileId{i}, .line = comment.line, .col = comment.col, .caller = {}});
        rules::Violation violation =
            comment.problem.empty()
                ? rules::Violation(rules::UnusedSuppression{
                      fmt::format("{}", fmt::join(comment.findings, ", "))})
                : rules::Violation(rules::MalformedSuppression{comment.problem});
        add_finding(report, {.violation = std::move(violation),
                             .place = {Place::Form::Frame, frame.index},
                             .reason = {}});
      }
      files_.erase(file);
    }
  }
}

} // namespace spmd::checker
