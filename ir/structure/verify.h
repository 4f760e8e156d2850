// The two halves of verify(), and the list of errors that they share.
#pragma once

#include "ir/input/input.h"

namespace spmd::ir {

class Findings {
public:
  // Says where in the document the entry stands that is being checked.
  void at(const char *table, size_t index = 0, uint64_t offset = 0, FunctionId function = {}) {
    table_ = table;
    index_ = index;
    offset_ = offset;
    function_ = function;
  }
  void fail(std::string message, std::string_view name = "trace-reference");
  bool empty() const { return errors_.empty(); }
  std::vector<InputError> take() { return std::move(errors_); }

private:
  std::vector<InputError> errors_;
  const char *table_ = "";
  size_t index_ = 0;
  uint64_t offset_ = 0;
  FunctionId function_; // none: the program itself
};

// Each id that stands anywhere names an entry of its table.
void verify_ids(const Program &program, Findings &findings);
// Bodies are apart, values are defined once and before their uses, no function calls itself.
// Relies on verify_ids().
void verify_order(const Program &program, Findings &findings);

// Each entry of a table, by its id.
template <class IdT, class Table, class Check> void for_each(const Table &table, Check check) {
  for (size_t i = 0; i < table.size(); ++i)
    check(IdT{static_cast<typename IdT::IndexType>(i)});
}

} // namespace spmd::ir
