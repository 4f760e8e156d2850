// Reads and writes the shapes of the protocol that several methods share.
#include "checker/cli/lsp/protocol.h"

#include "ir/support/escape.h"

#include <limits>

namespace spmd::checker::lsp {
namespace {

std::optional<uint32_t> count_at(const Json *json, const char *key) {
  const Json *found = member(json, {key});
  if (!found || !found->is_number_integer() || *found < 0)
    return std::nullopt;
  auto number = found->get<uint64_t>(); // an editor may say "to the end" by a large number
  return static_cast<uint32_t>(
      std::min<uint64_t>(number, std::numeric_limits<uint32_t>::max() - 1));
}

} // namespace

const Json *member(const Json *json, std::initializer_list<const char *> path) {
  for (const char *key : path) {
    if (!json || !json->is_object())
      return nullptr;
    auto at = json->find(key);
    json = at == json->end() ? nullptr : &*at;
  }
  return json;
}

std::optional<std::string> text_at(const Json *json, std::initializer_list<const char *> path) {
  const Json *found = member(json, path);
  return found && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
}

std::optional<bool> truth_at(const Json *json, std::initializer_list<const char *> path) {
  const Json *found = member(json, path);
  return found && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
}

std::optional<Position> position_at(const Json *json, std::initializer_list<const char *> path) {
  const Json *found = member(json, path);
  std::optional<uint32_t> line = count_at(found, "line"), character = count_at(found, "character");
  if (!line || !character)
    return std::nullopt;
  return Position{*line, *character};
}

std::optional<Range> range_at(const Json *json, std::initializer_list<const char *> path) {
  const Json *found = member(json, path);
  std::optional<Position> start = position_at(found, {"start"}), end = position_at(found, {"end"});
  if (!start || !end)
    return std::nullopt;
  return Range{*start, *end};
}

Json to_json(Position position) {
  return {{"line", position.line}, {"character", position.character}};
}
Json to_json(Range range) { return {{"start", to_json(range.start)}, {"end", to_json(range.end)}}; }
Json location(const std::string &uri, Range range) {
  return {{"uri", uri}, {"range", to_json(range)}};
}
Json markdown(const std::string &text) { return {{"kind", "markdown"}, {"value", text}}; }

std::string fenced(llvm::StringRef text, llvm::StringRef language) {
  std::string fence = "```";
  while (text.contains(fence))
    fence += '`';
  return fence + language.str() + "\n" + ir::printable_lines(text.rtrim('\n')) + "\n" + fence +
         "\n";
}

bool overlap(Range a, Range b) {
  auto before = [](Position x, Position y) {
    return x.line < y.line || (x.line == y.line && x.character < y.character);
  };
  return !before(a.end, b.start) && !before(b.end, a.start);
}

int severity_number(rules::Severity severity) {
  switch (severity) {
  case rules::Severity::Error:
    return 1;
  case rules::Severity::Warning:
    return 2;
  case rules::Severity::Info:
    break;
  }
  return 3;
}

} // namespace spmd::checker::lsp
