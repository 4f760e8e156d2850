// Small tables as text, Markdown and JSON.
#pragma once

#include "checker/cli/options.h"

#include <string>
#include <vector>

namespace spmd::checker {

struct Column {
  std::string name;
  bool number = false; // set to the right
};
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};
// Text and Markdown. Nothing of a table without rows.
std::string print_table(const Table &table, TableFormat format);
// A list of objects; numbers as they stand in `rows`.
std::string print_table_json(const Table &table);

} // namespace spmd::checker
