// The words that collectives with unstated words leave to their uses. Every value that is R or I,
// and carries a gradient, has a variable per axis; values that must be of one kind share it. What
// uses need of the variables is recorded while typing and solved once, over all bodies that are
// reached. Internal to the checker.
#pragma once

#include "checker/check.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <array>
#include <deque>

namespace spmd::checker {

// R or I, to be decided: not where there is no gradient, and a zero is of every kind.
inline ir::AxisSet undecided_axes(const ir::Type &type) {
  return type.gradient_free() ? ir::AxisSet() : type.either() - type.zero();
}

// One fact about variables, in the order in which a body was typed.
struct KindFact {
  enum class Form : uint8_t {
    Same,   // variables a and b are one
    Needs,  // variable a, by use b
    Word,   // variable a is the word that instruction b left out on the axis
    Source, // variable a is the `src` that instruction b left out on the axis
    Enter,  // body b is typed for a call: what follows binds its variables
    Bind,   // variable a of the caller, b of the body
  };
  Form form;
  ir::AxisId axis;
  uint32_t a = 0, b = 0;
};

// What an application says of its open operands; equal applications say the same.
struct KindLink {
  enum class Form : uint8_t { Needs, Same, Result, Word, Source };
  Form form;
  ir::AxisId axis;
  ir::Kind needs = ir::Kind::Replicate; // Needs
  uint32_t a = 0, b = 0;                // operands; Result: operand, result; Word: -, result
  uint32_t violation = 0;               // Needs: what stands there under the other kind
};
using KindLinks = llvm::SmallVector<KindLink, 4>;

class KindVariables {
public:
  // The variables of one value, one per open axis. 0: none.
  using Row = uint32_t;
  static constexpr uint32_t kMain = ~0u; // the main body, where a body is named

  // A finding of two uses that contradict, to be put before that entry of the findings of a body.
  struct Contradiction {
    uint32_t body = kMain;
    uint32_t entry = 0;
    Finding finding;
    UndecidedClash clash;
  };

  explicit KindVariables(size_t value_count) : value_count_(value_count) {}

  bool any() const { return rows_.size() > 1; }
  Row row(ir::ValueId value) const { return of_.empty() ? 0 : of_[value.index]; }
  void set(ir::ValueId value, Row row);
  ir::AxisSet axes(Row row) const { return rows_[row].axes; }
  uint32_t variable(Row row, ir::AxisId axis) const;

  uint32_t add_variable();
  Row fresh(ir::AxisSet axes);
  // `row` with new variables on those of the axes that it lacks.
  Row completed(Row row, ir::AxisSet axes);
  // The variables at the members of `axes`, of which `like` may be a row that has the same ones.
  Row make(ir::AxisSet axes, const std::array<uint32_t, ir::kMaxAxes> &variables, Row like);

  // A use, and what is reported there if the variable is of the other kind.
  uint32_t use(Place place, ir::Kind needs, ir::AxisId axis, uint32_t violation, uint32_t entry);
  uint32_t say(rules::Violation violation);

  // What an application says, remembered by its index.
  const KindLinks *known_links(uint32_t application) const;
  const KindLinks &remember_links(uint32_t application, KindLinks links);

  // Solves all facts, those of bodies at their first call.
  void solve(llvm::ArrayRef<KindFact> main,
             llvm::function_ref<llvm::ArrayRef<KindFact>(uint32_t body)> facts_of);
  // After solve(), in program order. `moved`: where an entry of the main body is now.
  std::vector<Contradiction>
  contradictions(llvm::function_ref<uint32_t(Place, uint32_t entry)> moved);
  // Gives values the kinds that were decided.
  void settle_types(ir::Program &program, CheckResult &result) const;
  // Fills in the words of collectives with unstated words, and says which use decided.
  void settle_src_dst(CheckResult &result) const;

private:
  static constexpr uint32_t kNone = ~0u;
  struct RowAxes {
    ir::AxisSet axes;
    uint32_t first = 0; // into members_
  };
  struct Use {
    Place place;
    ir::Kind needs;
    ir::AxisId axis;
    uint32_t violation, entry;
    uint32_t body = kMain, order = kNone; // when it was met while solving
  };
  struct Variable {
    uint32_t parent;                               // union-find, by size
    uint32_t size = 1;                             // of a root, as are the following
    uint32_t replicate = kNone, invariant = kNone; // its first uses as one and the other
    uint32_t word = kNone;  // a collective with unstated words among its makers
    uint32_t shown = kNone; // in a body: a variable of its first caller
  };
  struct Decision {
    ir::Kind kind = ir::Kind::Replicate;
    uint32_t use = kNone;  // none: no use decides
    bool unstated = false; // false: no word was unstated among the makers
  };

  uint32_t find(uint32_t variable);
  uint32_t root(uint32_t variable) const; // as find(), after solve()
  void unite(uint32_t a, uint32_t b);
  void need(uint32_t variable, uint32_t use);
  uint32_t earlier(uint32_t a, uint32_t b) const;
  void replay(llvm::ArrayRef<KindFact> facts, uint32_t body,
              llvm::function_ref<llvm::ArrayRef<KindFact>(uint32_t body)> facts_of);
  uint32_t word_variable(uint32_t inst, ir::AxisId axis);
  Decision decision(uint32_t variable) const;
  static uint64_t word_key(uint32_t inst, ir::AxisId axis) {
    return uint64_t(inst) << 8 | axis.index;
  }

  size_t value_count_;
  std::vector<Row> of_; // per value; empty until one is open
  std::vector<RowAxes> rows_{RowAxes{}};
  std::vector<uint32_t> members_;
  std::vector<Variable> variables_;
  std::vector<Use> uses_;
  std::deque<rules::Violation> reported_;
  std::vector<uint32_t> links_of_; // per application: index into links_ plus one
  std::deque<KindLinks> links_;
  llvm::DenseMap<uint64_t, uint32_t> words_, sources_; // by instruction and axis
  std::vector<bool> entered_;
  uint32_t order_ = 0;
};

} // namespace spmd::checker
