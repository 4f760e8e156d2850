// How every JSON document is printed: valid whatever bytes names and paths hold, and nothing in it
// acts on a terminal.
#pragma once

#include "ir/support/escape.h"

#include <nlohmann/json.hpp>

#include <string>

namespace spmd::checker {

// `indent`: blanks per level; -1: one line. Bytes that are not UTF-8 become U+FFFD.
template <class Json> std::string print_json(const Json &value, int indent = -1) {
  return ir::printable_lines(value.dump(indent, ' ', false, Json::error_handler_t::replace));
}

} // namespace spmd::checker
