// What is read from messages and written into them. Members of a message may be absent or of any
// type: nothing is taken for what it should be.
#pragma once

#include "checker/cli/lsp/text.h"
#include "checker/finding.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <variant>

namespace spmd::checker::lsp {

using Json = nlohmann::ordered_json;

enum class ErrorCode : int {
  Parse = -32700,
  InvalidRequest = -32600,
  MethodNotFound = -32601,
  InvalidParams = -32602,
  NotInitialized = -32002,
  Cancelled = -32800,
};
struct Failure {
  ErrorCode code;
  std::string message;
};
using Answer = std::variant<Json, Failure>;

// Null if it is not there.
const Json *member(const Json *json, std::initializer_list<const char *> path);
std::optional<std::string> text_at(const Json *json, std::initializer_list<const char *> path);
std::optional<bool> truth_at(const Json *json, std::initializer_list<const char *> path);
std::optional<Position> position_at(const Json *json, std::initializer_list<const char *> path);
std::optional<Range> range_at(const Json *json, std::initializer_list<const char *> path);

Json to_json(Position position);
Json to_json(Range range);
Json location(const std::string &uri, Range range);
Json markdown(const std::string &text);
// In a fence that no line of it closes.
std::string fenced(llvm::StringRef text, llvm::StringRef language);

bool overlap(Range a, Range b); // ends count
int severity_number(rules::Severity severity);

} // namespace spmd::checker::lsp
