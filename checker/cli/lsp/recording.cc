// Finds operations by the lines that they were recorded at, in an index that is made once.
#include "checker/cli/lsp/recording.h"

#include "checker/cli/inputs/described.h"
#include "checker/cli/inputs/inputs_below.h"
#include "checker/cli/lsp/program_file.h"
#include "checker/cli/report_output.h"
#include "checker/program_queries.h"
#include "checker/render/facts.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"

#include <fmt/format.h>

namespace spmd::checker::lsp {
namespace {

constexpr size_t kMostShown = 4; // operations of a line
constexpr std::string_view kStale = "recorded before this line was changed";

} // namespace

uint32_t Source::recorded_line(uint32_t shown) const {
  uint32_t line = map_.from(shown);
  return line == LineMap::kNone ? 0 : line + 1;
}

// Columns hold only where the line is the recorded one.
Source::Shown Source::shown(const SourcePlace &place) const {
  uint32_t recorded = place.line ? place.line - 1 : 0, line = map_.to(recorded);
  bool stale = !known_ || line == LineMap::kNone;
  if (line == LineMap::kNone)
    line = std::min(recorded, lines_.count() - 1);
  Range range = lines_.whole(line);
  if (!stale && place.col) {
    range.start = lines_.position(line + 1, place.col);
    if (place.end_col > place.col && place.end_line <= place.line)
      range.end = lines_.position(line + 1, place.end_col);
  }
  return {range, stale};
}

// Those that are named; else the newest recording below the folder.
std::vector<Recording::Stamp> Recording::find(const Options &options,
                                              const std::string &root) const {
  std::vector<std::string> paths = options.arguments;
  if (paths.empty())
    for (const std::string &path : inputs_below(root).files)
      if (llvm::StringRef(path).contains(".spmd.json"))
        paths.push_back(path);
  std::vector<Stamp> found;
  for (const std::string &path : paths) {
    llvm::sys::fs::file_status status;
    bool there = !llvm::sys::fs::status(path, status);
    found.push_back({path, there ? status.getLastModificationTime() : llvm::sys::TimePoint<>()});
  }
  if (options.arguments.empty() && found.size() > 1) {
    Stamp newest =
        *std::max_element(found.begin(), found.end(),
                          [](const Stamp &a, const Stamp &b) { return a.second < b.second; });
    found = {newest};
  }
  return found;
}

bool Recording::refresh(const Options &options, const std::string &root) {
  std::vector<Stamp> stamps = find(options, root);
  if (stamps == stamps_ && sources_)
    return false;
  stamps_ = std::move(stamps);
  traces_.clear();
  comments_.reset();
  sources_.emplace(options.sources);
  comments_.emplace(*sources_);
  for (const Stamp &stamp : stamps_)
    read(stamp.first, options);
  return true;
}

void Recording::read(const std::string &path, const Options &options) {
  Trace trace;
  trace.checked = check_loaded(load(path, options), options);
  if (!trace.checked->input.checkable()) {
    problems_.push_back(llvm::StringRef(print_input_errors(trace.checked->input)).rtrim().str());
    return;
  }
  const ir::Program &program = trace.checked->program();
  comments_->read(program);
  ReportOptions wanted = report_options(options);
  wanted.accept.push_back([this](const Report &made, const Diagnostic &diagnostic) {
    return comments_->accept(made, diagnostic);
  });
  trace.report.emplace(trace.checked->report(wanted));
  comments_->add_findings(*trace.report, wanted);
  for (uint32_t i = 0; i < program.files.size(); ++i)
    if (std::optional<std::string> here = sources_->path_of(program, ir::FileId{i}))
      trace.files[*here].push_back(ir::FileId{i});
  index(trace);
  traces_.push_back(std::move(trace));
}

void Recording::index(Trace &trace) {
  const ir::Program &program = trace.checked->program();
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    ir::InstId id{i};
    SourcePlace place = locate(*trace.report, Place::inst(id));
    if (place.file.valid())
      for (uint32_t line = place.line; line <= std::max(place.line, place.end_line); ++line)
        trace.at[{place.file.index, line}].push_back(id);
    for (const SourcePlace &caller : callers(*trace.report, Place::inst(id)))
      if (caller.file.valid()) {
        std::vector<ir::InstId> &list = trace.below[{caller.file.index, caller.line}];
        if (list.empty() || list.back() != id)
          list.push_back(id);
      }
  }
}

std::set<std::string> Recording::paths() const {
  std::set<std::string> found;
  for (const Trace &trace : traces_)
    for (const Diagnostic &diagnostic : trace.report->diagnostics) {
      SourcePlace place = locate(*trace.report, diagnostic.first->place);
      if (!place.file.valid() || diagnostic.first->suppressed)
        continue;
      if (std::optional<std::string> path = path_of(trace.checked->program(), place.file))
        found.insert(*path);
    }
  return found;
}

bool Recording::knows(const std::string &path) const {
  return llvm::any_of(traces_, [&](const Trace &trace) { return trace.files.count(path); });
}

std::optional<std::string> Recording::path_of(const ir::Program &program, ir::FileId file) const {
  return sources_ ? sources_->path_of(program, file) : std::nullopt;
}

std::optional<std::string> Recording::recorded_text(const std::string &path,
                                                    llvm::StringRef given) const {
  for (const Trace &trace : traces_) {
    auto files = trace.files.find(path);
    if (files == trace.files.end())
      continue;
    const ir::Program &program = trace.checked->program();
    ir::FileId file = files->second.front();
    if (is_traced(program, file, given))
      return given.str();
    std::string problem;
    auto bytes = ir::read_file(path, problem);
    if (bytes && is_traced(program, file, bytes->getBuffer()))
      return bytes->getBuffer().str();
  }
  return std::nullopt;
}

Json Recording::related(const Trace &trace, const Diagnostic &diagnostic) const {
  Json out = Json::array();
  for (const Note &note : diagnostic.notes) {
    if (!note.has_place)
      continue;
    SourcePlace place = locate(*trace.report, note.place);
    std::optional<std::string> path =
        place.file.valid() ? path_of(trace.checked->program(), place.file) : std::nullopt;
    std::string text =
        fmt::format("{}: {}", kNoteWords[static_cast<unsigned>(note.form)], printable(note.text));
    if (!path || !place.line)
      continue;
    Position at{place.line - 1, place.col ? place.col - 1 : 0};
    out.push_back({{"location", location(uri_of_path(*path), {at, at})}, {"message", text}});
  }
  return out;
}

Json Recording::diagnostics(const std::string &path, const Source &source) const {
  Json out = Json::array();
  for (const Trace &trace : traces_) {
    auto files = trace.files.find(path);
    if (files == trace.files.end())
      continue;
    for (const Diagnostic &diagnostic : trace.report->diagnostics) {
      SourcePlace place = locate(*trace.report, diagnostic.first->place);
      if (diagnostic.first->suppressed || !llvm::is_contained(files->second, place.file))
        continue;
      auto [range, stale] = source.shown(place);
      Json made = diagnostic_json(*trace.report, diagnostic, range);
      if (stale) {
        made["message"] = fmt::format("({}) {}", kStale, made["message"].get<std::string>());
        made["tags"] = {1}; // shown faded
      }
      if (Json notes = related(trace, diagnostic); !notes.empty())
        made["relatedInformation"] = std::move(notes);
      out.push_back(std::move(made));
    }
  }
  return out;
}

// Those that stand at the line; if there are none and `called`, those that it led to.
std::vector<std::pair<const Recording::Trace *, ir::InstId>>
Recording::operations(const std::string &path, uint32_t line, bool called) const {
  std::vector<std::pair<const Trace *, ir::InstId>> found;
  for (auto lists : {&Trace::at, &Trace::below}) {
    if (!found.empty() || (lists == &Trace::below && !called) || line == 0)
      break;
    for (const Trace &trace : traces_)
      if (auto files = trace.files.find(path); files != trace.files.end())
        for (ir::FileId file : files->second)
          if (auto here = (trace.*lists).find({file.index, line}); here != (trace.*lists).end())
            for (ir::InstId id : here->second)
              found.push_back({&trace, id});
  }
  return found;
}

std::optional<Json> Recording::hover(const std::string &path, const Source &source,
                                     Position position) const {
  std::vector<std::string> shown;
  size_t more = 0;
  for (auto [trace, id] : operations(path, source.recorded_line(position.line), true)) {
    Described described(*trace->report, ir::dialect_of(trace->checked->program()));
    std::string text = fenced(described.instruction(id), "spmd");
    const ir::Inst &inst = trace->checked->program().insts[id];
    if (inst.result_count)
      for (const Note &note :
           explain_value(trace->checked->program(), trace->checked->result, inst.result(0)))
        if (note.has_place && note.place != Place::inst(id))
          text += fmt::format(
              "- {} {}\n", kNoteWords[static_cast<unsigned>(note.form)],
              markdown_cell(print(locate(*trace->report, note.place)) + ": " + note.text));
    if (shown.size() < kMostShown)
      shown.push_back(std::move(text));
    else
      ++more;
  }
  if (shown.empty())
    return std::nullopt;
  std::string text = fmt::format("{}", fmt::join(shown, "\n"));
  if (more)
    text += fmt::format("\nand {} more operation{}", more, more == 1 ? "" : "s");
  return Json{{"contents", markdown(text)},
              {"range", to_json(source.lines().whole(position.line))}};
}

std::optional<Json> Recording::definition(const std::string &path, const Source &source,
                                          Position position) const {
  uint32_t line = source.recorded_line(position.line);
  std::vector<Json> found;
  for (auto [trace, id] : operations(path, line, true)) {
    const ir::Program &program = trace->checked->program();
    for (ir::ValueId value : tensors_of(program, id)) {
      ir::InstId made = defining_inst(program, value);
      if (!made.valid())
        continue;
      SourcePlace place = locate(*trace->report, Place::inst(made));
      std::optional<std::string> there =
          place.file.valid() ? path_of(program, place.file) : std::nullopt;
      if (!there || !place.line || (*there == path && place.line == line))
        continue;
      Position at{place.line - 1, place.col ? place.col - 1 : 0};
      if (*there == path)
        at = source.shown(place).range.start;
      Json made_at = location(uri_of_path(*there), {at, at});
      if (!llvm::is_contained(found, made_at))
        found.push_back(std::move(made_at));
    }
  }
  return found.empty() ? std::nullopt : std::optional<Json>(found);
}

// At the end of a line, the type of what its last operation makes; nothing where layers differ.
Json Recording::hints(const std::string &path, const Source &source, Range range) const {
  Json out = Json::array();
  uint32_t last = std::min(range.end.line, source.lines().count() - 1);
  for (uint32_t line = range.start.line; line <= last; ++line) {
    std::map<std::string, std::string> by_scope; // the type that is made last in each
    for (auto [trace, id] : operations(path, source.recorded_line(line), false)) {
      const ir::Inst &inst = trace->checked->program().insts[id];
      if (inst.result_count == 0 || inst.phase == ir::Phase::Backward)
        continue;
      Described described(*trace->report, ir::Dialect::Spmd);
      by_scope[locate(*trace->report, Place::inst(id)).scope] = described.type(inst.result(0));
    }
    bool same = llvm::all_of(
        by_scope, [&](const auto &row) { return row.second == by_scope.begin()->second; });
    if (by_scope.empty() || !same)
      continue;
    out.push_back({{"position", to_json(source.lines().whole(line).end)},
                   {"label", printable(by_scope.begin()->second)},
                   {"kind", 1},
                   {"paddingLeft", true}});
  }
  return out;
}

Json Recording::actions(const std::string &uri, const std::string &path, const Source &source,
                        Range range) const {
  Json out = Json::array();
  for (const Trace &trace : traces_) {
    auto files = trace.files.find(path);
    if (files == trace.files.end())
      continue;
    for (const Diagnostic &diagnostic : trace.report->diagnostics) {
      SourcePlace place = locate(*trace.report, diagnostic.first->place);
      if (diagnostic.first->suppressed || !llvm::is_contained(files->second, place.file))
        continue;
      auto [own, stale] = source.shown(place);
      if (stale || !overlap(own, range))
        continue;
      llvm::StringRef line = source.lines().line(own.start.line);
      std::string indent = line.take_front(line.size() - line.ltrim().size()).str();
      Position at{own.start.line, 0};
      Json edit = {{"range", to_json(Range{at, at})},
                   {"newText", fmt::format("{}# spmd: ignore[{}] accepted in the editor\n", indent,
                                           diagnostic.first->info().name)}};
      out.push_back(
          {{"title", fmt::format("accept {} here by a comment", diagnostic.first->info().name)},
           {"kind", "quickfix"},
           {"diagnostics", Json::array({diagnostic_json(*trace.report, diagnostic, own)})},
           {"edit", {{"changes", {{uri, Json::array({std::move(edit)})}}}}}});
    }
  }
  return out;
}

} // namespace spmd::checker::lsp
