// A program as a list of statements that can be taken out, changed and printed: what the generator
// grows, the shrinker cuts down and mutations alter. The reader of .spmd text reads what is
// printed.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/SmallVector.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spmd::soundness {

struct Operand {
  enum class Form : uint8_t { Value, List, Text };
  Form form = Form::Text;
  llvm::SmallVector<unsigned, 2> values; // Value: one
  std::string text;

  static Operand value(unsigned id) { return {Form::Value, {id}, {}}; }
  static Operand list(llvm::ArrayRef<unsigned> ids) {
    return {Form::List, {ids.begin(), ids.end()}, {}};
  }
  static Operand literal(std::string text) { return {Form::Text, {}, std::move(text)}; }
};

struct Statement {
  llvm::SmallVector<unsigned, 2> results; // `%0`
  std::string role, type, contract;       // of a declaration: `param`, `f32[4] R`, ` { .. }`
  std::string op;                         // else
  std::vector<Operand> operands;
  std::vector<std::pair<std::string, std::string>> attrs;
  std::string region;                    // `local (tp)`, or empty
  std::vector<std::string> claims;       // types of the results; empty: none stated
  llvm::SmallVector<int, 2> gradient_of; // per result: of which value it is the gradient, or -1
  bool unchecked = false;                // results are as claimed
  // Of a `local_map`: its axes, what is stated of each operand, ` S(0)@tp`, and the lines between
  // its braces, to which operands are `%p0`, `%p1`.
  std::string over;
  std::vector<std::string> enters;
  std::string block;

  bool declares() const { return !role.empty(); }
  const std::string *attr(std::string_view key) const;
  void set(std::string_view key, std::string value); // empty: taken out
  std::string print() const;
  std::string print_region() const;
  std::string context() const; // what it stands in: `local (tp)`, `with { .. }`, or empty
};

struct Draft {
  std::string head; // mode, meshes
  std::vector<std::string> functions;
  std::vector<Statement> statements;
  unsigned values = 0;

  std::string print() const;
  unsigned fresh() { return values++; }
};

// A program in text, regions one deep and values numbered, as a draft; none if it is in no such
// form.
std::optional<Draft> read_draft(std::string_view text);

// A draft that reads and checks. On the heap: what is checked points into the program.
struct Checked {
  ir::Program program;
  checker::CheckResult result;
  std::vector<ir::ValueId> ids; // by number
  bool read = false;            // the text is a program at all

  // Without findings, lists of parts that differ in shape included: they are warned of, so that
  // nothing is claimed of them.
  bool clean() const;
};
// `mode`: as the program says unless stated.
std::unique_ptr<Checked> check(const Draft &draft, std::optional<ir::Mode> mode = std::nullopt);

// What a statement owes by the findings about it: axes of pending sums, the mark of an expert,
// scales.
struct Owed {
  llvm::SmallVector<std::string, 3> partial;
  std::vector<std::pair<size_t, std::string>> scales; // of results whose claim leaves it out
  bool expert = false;

  void state(Statement &statement) const;
};
Owed owed(const Checked &checked, const Statement &statement);
// The axes by name: `tp`, `(dp, tp)`.
std::string axes_text(llvm::ArrayRef<std::string> names);

// Numbers that depend on nothing but the seed.
class Random {
public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) { next(); }
  uint64_t next();
  unsigned below(size_t count) { return static_cast<unsigned>(next() % count); }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class C> auto &of(C &&from) { return from[below(std::size(from))]; }

private:
  uint64_t state_;
};

} // namespace spmd::soundness
