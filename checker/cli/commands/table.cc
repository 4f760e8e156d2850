// Prints rows in columns as wide as they need to be.
#include "checker/cli/commands/table.h"

#include "checker/cli/output.h"
#include "checker/render/json_text.h"

#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

std::string padded(const std::string &text, size_t width, bool number) {
  size_t blanks = width - std::min(width, text.size());
  return number ? std::string(blanks, ' ') + text : text + std::string(blanks, ' ');
}

std::string markdown(const Table &table) {
  std::string head = "|", rule = "|", text;
  for (const Column &column : table.columns) {
    head += " " + column.name + " |";
    rule += column.number ? " ---: |" : " --- |";
  }
  for (const std::vector<std::string> &row : table.rows) {
    text += "|";
    for (const std::string &cell : row)
      text += " " + markdown_cell(cell) + " |";
    text += "\n";
  }
  return head + "\n" + rule + "\n" + text;
}

} // namespace

std::string print_table(const Table &table, TableFormat format) {
  if (table.rows.empty())
    return "";
  if (format == TableFormat::Markdown)
    return markdown(table);
  std::vector<size_t> widths;
  for (const Column &column : table.columns)
    widths.push_back(column.name.size());
  for (const std::vector<std::string> &row : table.rows)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], printable(row[i]).size());
  std::string text;
  auto line = [&](auto cell) {
    std::string made;
    for (size_t i = 0; i < widths.size(); ++i)
      made += (i ? "  " : "") + padded(cell(i), widths[i], table.columns[i].number);
    text += llvm::StringRef(made).rtrim(' ').str() + "\n";
  };
  line([&](size_t i) { return table.columns[i].name; });
  for (const std::vector<std::string> &row : table.rows)
    line([&](size_t i) { return printable(row[i]); });
  return text;
}

std::string print_table_json(const Table &table) {
  auto list = nlohmann::ordered_json::array();
  for (const std::vector<std::string> &row : table.rows) {
    auto object = nlohmann::ordered_json::object();
    for (size_t i = 0; i < row.size(); ++i) {
      int64_t number = 0;
      if (!table.columns[i].number)
        object[table.columns[i].name] = row[i];
      else if (row[i].empty())
        object[table.columns[i].name] = nullptr;
      else if (!llvm::StringRef(row[i]).getAsInteger(10, number))
        object[table.columns[i].name] = number;
      else if (double real = 0; !llvm::StringRef(row[i]).getAsDouble(real))
        object[table.columns[i].name] = real;
    }
    list.push_back(std::move(object));
  }
  return print_json(list, 1) + "\n";
}

} // namespace spmd::checker
