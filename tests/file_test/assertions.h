// What a case asserts, read from its comments: `// error: [name] axes`, `// type: S(0)@dp P@tp`,
// ... A comment behind a statement is about it; one alone on its line is about the next statement.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace spmd::tests {

struct Assertion {
  enum class Form : uint8_t {
    Error,
    Warning,
    Info,
    Suppressed,
    Note,
    Fix,
    Type,
    Shape,
    InputError
  };
  Form form = Form::Error;
  unsigned line = 0; // with the statement, from 1; 0 if none follows
  std::string name;  // in brackets: of a finding or an input error
  std::string text;  // axes, a sentence, kinds, a shape, `line:col`
  unsigned comment_line = 0;
  size_t begin = 0, end = 0; // columns of the comment on its line, `//` included

  bool is_finding() const { return form <= Form::Suppressed; }
};

// How cases are checked unless they say otherwise. The day is fixed, so that no case depends on the
// clock.
inline checker::CheckOptions default_options() { return {.today = "2025-06-30"}; }

struct Comments {
  std::vector<Assertion> assertions;
  std::vector<std::string> goldens; // `// golden: full, json`
  checker::CheckOptions options =
      default_options();             // `// options: permissive, infer-partial, local`
  bool only_read = false;            // begins with `// not checked`
  std::vector<std::string> problems; // malformed assertions, `line: what`
};

Comments read_comments(llvm::StringRef text);

// `// error: [name] axes`, as a comment of the case says it.
std::string print(Assertion::Form form, llvm::StringRef name, llvm::StringRef text);

} // namespace spmd::tests
