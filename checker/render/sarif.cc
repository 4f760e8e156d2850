// SARIF 2.1.0, which code scanning services and editors read: a rule per finding with its page of
// the manual, a result per folded finding, and as notifications what is no finding.
#include "checker/render/facts.h"

#include "checker/render/json_text.h"
#include "checker/report/verified_edits.h"

#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLevels[] = {"error", "warning", "note"}; // by severity
constexpr size_t kMostPlaces = 100; // of one result; the message counts the rest

// A relative path stays so, that the reader may hold it against a checkout.
std::string uri_of(llvm::StringRef path) {
  std::string out = ir::starts_with(path, "/") ? "file://" : "";
  for (char c : path) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 llvm::StringRef("-._~/").contains(c);
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Json physical(const SourcePlace &place) {
  Json out = {{"artifactLocation", {{"uri", uri_of(place.path)}}}};
  if (!place.line)
    return out;
  Json region = {{"startLine", place.line}};
  if (place.col)
    region["startColumn"] = place.col;
  if (place.end_line >= place.line)
    region["endLine"] = place.end_line;
  if (place.end_col && (place.end_line > place.line || place.end_col > place.col))
    region["endColumn"] = place.end_col;
  out["region"] = std::move(region);
  return out;
}

Json location(const SourcePlace &place, const std::string &message = "") {
  Json out = {{"physicalLocation", physical(place)}};
  if (!place.scope.empty())
    out["logicalLocations"] = {{{"fullyQualifiedName", place.scope}, {"kind", "module"}}};
  if (!message.empty())
    out["message"] = {{"text", message}};
  return out;
}

std::string trimmed(std::string_view text) {
  return llvm::StringRef(text.data(), text.size()).trim().str();
}

// A message has holes for what it is about: the manual begins with a sentence that has none.
Json rule_json(const rules::DiagnosticInfo &info) {
  std::string text = trimmed(info.explain), line = text.substr(0, text.find(". "));
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::string markdown = fmt::format("{}\n\nA program that has it:\n\n```\n{}\n```\n\nThe same "
                                     "without it:\n\n```\n{}\n```\n",
                                     text, trimmed(info.wrong), trimmed(info.right));
  return {{"id", info.name},
          {"shortDescription", {{"text", line}}},
          {"fullDescription", {{"text", text}}},
          {"help", {{"text", text}, {"markdown", info.wrong.empty() ? text : markdown}}},
          {"defaultConfiguration", {{"level", kLevels[static_cast<unsigned>(info.severity)]}}}};
}

// Other places of the same finding, then those that the notes name.
Json related(const Report &report, const Diagnostic &diagnostic, const std::vector<Fact> &facts) {
  Json out = Json::array();
  for (const Place &place : llvm::drop_begin(diagnostic.places)) {
    if (out.size() >= kMostPlaces)
      break;
    out.push_back(location(locate(report, place), "the same with the same types"));
  }
  for (const SourcePlace &caller : callers(report, diagnostic.first->place))
    out.push_back(location(caller, "called from here"));
  for (const Fact &fact : facts)
    if (fact.note && fact.note->has_place)
      out.push_back(location(locate(report, fact.note->place), fact.line()));
  for (size_t id = 0; id < out.size(); ++id)
    out[id]["id"] = id + 1;
  return out;
}

// From where the kind arose to where it does not fit.
Json flow(const Report &report, const Diagnostic &diagnostic, const std::string &message) {
  Json steps = Json::array();
  for (const Note &note : diagnostic.notes)
    if (note.has_place && (note.form == Note::Form::Since || note.form == Note::Form::Because ||
                           note.form == Note::Form::Boundary))
      steps.push_back({{"location", location(locate(report, note.place), printable(note.text))}});
  if (steps.empty())
    return Json();
  steps.push_back({{"location", location(locate(report, diagnostic.first->place), message)}});
  return {{{"threadFlows", {{{"locations", std::move(steps)}}}}}};
}

Json fixes_json(const Report &report, const Diagnostic &diagnostic) {
  Json out = Json::array();
  for (const Fix &fix : diagnostic.fixes) {
    Json replacements = Json::array();
    for (const TextEdit &edit : verified_edits(report, *diagnostic.first, fix)) {
      auto [line, col] = ir::line_and_column(report.bytes, edit.offset);
      auto [end_line, end_col] = ir::line_and_column(report.bytes, edit.offset + edit.length);
      replacements.push_back({{"deletedRegion",
                               {{"startLine", line},
                                {"startColumn", col},
                                {"endLine", end_line},
                                {"endColumn", end_col}}},
                              {"insertedContent", {{"text", edit.text}}}});
    }
    if (!replacements.empty())
      out.push_back({{"description", {{"text", printable(fix.text)}}},
                     {"artifactChanges",
                      {{{"artifactLocation", {{"uri", uri_of(report.input)}}},
                        {"replacements", std::move(replacements)}}}}});
  }
  return out;
}

Json result_json(const Report &report, const Diagnostic &diagnostic, size_t rule) {
  const Finding &finding = *diagnostic.first;
  std::string message = printable(message_of(*report.program, finding)), text = message;
  std::vector<Fact> facts = facts_of(report, diagnostic);
  for (const Fact &fact : facts)
    text += "\n" + fact.line();
  Json out = {{"ruleId", finding.info().name},
              {"ruleIndex", rule},
              {"level", kLevels[static_cast<unsigned>(finding.severity())]},
              {"message", {{"text", text}}},
              {"locations", {location(locate(report, finding.place))}},
              {"partialFingerprints", {{"spmdlint/v1", diagnostic.fingerprint}}},
              {"occurrenceCount", diagnostic.places.size()}};
  if (Json places = related(report, diagnostic, facts); !places.empty())
    out["relatedLocations"] = std::move(places);
  if (Json steps = flow(report, diagnostic, message); !steps.empty())
    out["codeFlows"] = std::move(steps);
  if (Json fixes = fixes_json(report, diagnostic); !fixes.empty())
    out["fixes"] = std::move(fixes);
  if (report.compared)
    out["baselineState"] = finding.suppressed && diagnostic.known ? "unchanged" : "new";
  if (finding.suppressed)
    out["suppressions"] = {{{"kind", "external"}, {"justification", finding.reason}}};
  if (!diagnostic.parameters.empty())
    out["properties"] = {{"parameters", diagnostic.parameters}};
  return out;
}

Json notification(std::string_view id, std::string_view level, const std::string &text,
                  const SourcePlace &place) {
  return {{"descriptor", {{"id", id}}},
          {"level", level},
          {"message", {{"text", text}}},
          {"locations", {location(place)}}};
}

// What is no finding: inputs that could not be read, and how much was judged.
Json notifications(llvm::ArrayRef<Report> reports) {
  Json out = Json::array();
  for (const Report &report : reports) {
    auto add = [&](const ir::InputError &error, std::string_view level) {
      auto [line, col] = line_of(report, error);
      out.push_back(notification(error.name, level, printable(error.message),
                                 {.path = report.input, .line = line, .col = col, .scope = {}}));
    };
    for (const ir::InputError &error : report.input_errors)
      add(error, "error");
    for (const ir::InputError &warning : report.input_warnings)
      add(warning, "warning");
    std::string why = nothing_judged(report);
    if (report.program)
      out.push_back(notification("judged", why.empty() ? "note" : "error",
                                 why.empty() ? counts_line(totals_of(report)) : why,
                                 {.path = report.input, .scope = {}}));
  }
  return out;
}

} // namespace

void render_sarif(llvm::ArrayRef<Report> reports, SourceCache &, const RenderOptions &,
                  llvm::raw_ostream &out) {
  Json rules = Json::array(), results = Json::array();
  llvm::StringMap<size_t> known;
  for (const Report &report : reports)
    for (const Diagnostic &diagnostic : report.diagnostics) {
      const rules::DiagnosticInfo &info = diagnostic.first->info();
      auto [at, fresh] =
          known.try_emplace(llvm::StringRef(info.name.data(), info.name.size()), rules.size());
      if (fresh)
        rules.push_back(rule_json(info));
      results.push_back(result_json(report, diagnostic, at->second));
    }
  Totals totals = totals_of(reports);
  Json document = {
      {"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
      {"version", "2.1.0"},
      {"runs",
       {{{"tool",
          {{"driver",
            {{"name", "spmdlint"},
             {"version", kVersion},
             {"semanticVersion", kVersion},
             {"rules", std::move(rules)}}}}},
         {"columnKind", "unicodeCodePoints"},
         {"invocations",
          {{{"executionSuccessful", totals.unread == 0},
            {"toolExecutionNotifications", notifications(reports)}}}},
         {"results", std::move(results)},
         {"properties", {{"summary", counts_line(totals)}, {"findingsNotShown", totals.cut}}}}}}};
  out << print_json(document, 1) << '\n';
}

} // namespace spmd::checker
