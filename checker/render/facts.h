// What reports print of a finding below its sentence: the source line, types, notes, fixes.
// Every format shows the same facts, each in its own way.
#pragma once

#include "checker/render/render.h"

#include <optional>
#include <string>
#include <vector>

namespace spmd::checker {

// A line of the source, or of the program where there is no source.
struct Quote {
  uint32_t number = 0; // 0: it is no line of a file
  std::string line;
  unsigned col = 0, end_col = 0; // of what is marked; 0: nothing is
};
// None if there is nothing to quote.
std::optional<Quote> quote_of(const Report &report, const Diagnostic &diagnostic,
                              SourceCache &sources);

struct Fact {
  enum class Form : uint8_t { Callers, Type, Note, Fix, Rest };
  Form form = Form::Rest;
  std::string label; // `since`, `fix`; empty: the text says it all
  std::string text;
  std::string price, backward; // of a fix: what a rank sends, and ` per rank, 4 B backward`
  const checker::Note *note = nullptr;
  const checker::Fix *fix = nullptr;

  // One line, without what only columns would need.
  std::string line() const;
};
// In the order in which they are read.
std::vector<Fact> facts_of(const Report &report, const Diagnostic &diagnostic);

// `error[partial-into-nonlinear]`
std::string heading_of(const Finding &finding);

} // namespace spmd::checker
