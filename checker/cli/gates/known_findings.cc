// Reads and writes baselines. Relies on `fingerprint`, which the JSON output has since 1.5.
#include "checker/cli/gates/known_findings.h"

#include "checker/render/json_text.h"
#include "checker/render/render.h"

#include "ir/input/read_file.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "spmdlint-baseline";
constexpr std::string_view kVersion10 = "1.0";
constexpr std::string_view kReason = "known";
constexpr uint64_t kMostBytes = uint64_t(1) << 28;

std::string text_of(const Json &object, const char *key) {
  auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

// `1.5` as {1, 5}; {0, 0} if it is no version.
std::pair<unsigned, unsigned> version_of(const Json &object) {
  auto [major, minor] = llvm::StringRef(text_of(object, "version")).split('.');
  std::pair<unsigned, unsigned> version;
  if (major.getAsInteger(10, version.first) || minor.getAsInteger(10, version.second))
    return {0, 0};
  return version;
}

// Empty, or why it is not what was asked for.
std::string wrong_document(const Json &document, bool output) {
  std::string_view wanted = output ? "output of `--format=json`" : "baseline";
  auto tool = document.is_object() ? document.find("tool") : document.end();
  bool named = document.is_object() && (output ? tool != document.end() && tool->is_object() &&
                                                     text_of(*tool, "name") == "spmdlint"
                                               : text_of(document, "format") == kFormat);
  if (!named || !document.contains("findings") || !document["findings"].is_array())
    return fmt::format("is no {}", wanted);
  auto [major, minor] = version_of(document);
  if (major != 1)
    return fmt::format("is of version {}; this tool reads 1.x", text_of(document, "version"));
  if (output && minor < 5)
    return "was written by an older version, without fingerprints";
  return "";
}

// None if it is no entry.
std::optional<uint64_t> count_of(const Json &entry, bool output) {
  if (!entry.is_object() || text_of(entry, "fingerprint").empty())
    return std::nullopt;
  if (output)
    return entry.contains("places") && entry["places"].is_array()
               ? std::optional<uint64_t>(entry["places"].size())
               : std::nullopt;
  return entry.contains("count") && entry["count"].is_number_unsigned()
             ? std::optional(entry["count"].get<uint64_t>())
             : std::nullopt;
}

std::string place_of(const Json &entry, bool output) {
  if (!output)
    return text_of(entry, "place");
  if (entry["places"].empty() || !entry["places"][0].is_object())
    return "";
  const Json &place = entry["places"][0];
  SourcePlace found{.path = text_of(place, "path"), .scope = {}};
  if (place.contains("line") && place["line"].is_number_unsigned())
    found.line = place["line"].get<uint32_t>();
  if (place.contains("col") && place["col"].is_number_unsigned())
    found.col = place["col"].get<uint32_t>();
  return print(found);
}

} // namespace

std::string KnownFindings::read(const std::string &path, bool output) {
  std::string problem;
  std::unique_ptr<llvm::MemoryBuffer> bytes = ir::read_file(path, problem, kMostBytes);
  if (!bytes)
    return fmt::format("{}: {}", path, problem);
  llvm::StringRef text = bytes->getBuffer();
  Json document = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded())
    return fmt::format("{}: is no JSON", path);
  if (std::string wrong = wrong_document(document, output); !wrong.empty())
    return fmt::format("{}: {}", path, wrong);
  size_t number = 0;
  for (const Json &each : document["findings"]) {
    std::optional<uint64_t> count = count_of(each, output);
    if (!count)
      return fmt::format("{}: findings[{}] has no fingerprint and count", path, number);
    ++number;
    Entry &entry = entries_[text_of(each, "fingerprint")];
    entry.left += *count;
    if (entry.place.empty())
      entry.place = place_of(each, output);
  }
  return "";
}

std::optional<Accepted> KnownFindings::accept(const Report &report, const Diagnostic &diagnostic) {
  size_t places = diagnostic.places.size();
  auto at = entries_.find(diagnostic.fingerprint);
  size_t known = at == entries_.end() ? 0 : std::min<uint64_t>(at->second.left, places);
  counts_.known += known;
  counts_.fresh += places - known;
  if (known == 0)
    return std::nullopt;
  at->second.left -= known;
  if (!at->second.place.empty() &&
      at->second.place != print(locate_as_stated(report, diagnostic.places[0])))
    counts_.moved += known;
  return Accepted{std::string(kReason), known, /*known=*/true};
}

KnownFindings::Counts KnownFindings::counts() const {
  Counts counts = counts_;
  for (const auto &[fingerprint, entry] : entries_)
    counts.fixed += entry.left;
  return counts;
}

std::string KnownFindings::baseline_of(llvm::ArrayRef<Report> reports, bool only_known) {
  std::map<std::string, Json> entries; // sorted, so that changes of the file are small
  for (const Report &report : reports)
    for (const Diagnostic &diagnostic : report.diagnostics) {
      bool known = diagnostic.known == diagnostic.places.size();
      size_t count = only_known ? diagnostic.known : diagnostic.places.size();
      if (count == 0 || (diagnostic.first->suppressed && !known))
        continue;
      Json &entry = entries[diagnostic.fingerprint];
      if (entry.is_null())
        entry = {{"name", diagnostic.first->info().name},
                 {"place", print(locate_as_stated(report, diagnostic.places[0]))},
                 {"scope", diagnostic.folded_scope},
                 {"message", message_of(*report.program, *diagnostic.first)},
                 {"fingerprint", diagnostic.fingerprint},
                 {"count", 0}};
      entry["count"] = entry["count"].get<uint64_t>() + count;
    }
  Json list = Json::array();
  for (auto &[fingerprint, entry] : entries)
    list.push_back(std::move(entry));
  Json document = {{"format", kFormat}, {"version", kVersion10}, {"findings", std::move(list)}};
  return print_json(document, 1) + "\n";
}

} // namespace spmd::checker
