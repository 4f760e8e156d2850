// What one rank alone has of a sum, as the owner of a parameter does that a ZeRO optimizer reduces
// gradients to, and what it makes of it, until it hands that out to all. Which rank that is, the
// root says; the program is that of one rank, so the updates of other owners are not in it.
#pragma once

#include "rules/apply.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <optional>

namespace spmd::checker {

class RootValues {
public:
  struct Seen {
    ir::AxisId axis;
    int64_t root = 0;    // the place along it
    ir::TypeId type;     // as that rank sees it: as if all had the same
    bool proved = false; // on that axis
    friend bool operator==(const Seen &a, const Seen &b) {
      return a.axis == b.axis && a.root == b.root;
    }
  };

  explicit RootValues(ir::Program &program) : program_(program) {}

  // Of a sum to one rank, what it has then.
  std::optional<Seen> reduced(const rules::Application &app) const;
  // Where the operands are what one rank has, or equal on all.
  std::optional<Seen> together(const rules::Application &app,
                               llvm::ArrayRef<ir::ValueId> operands) const;
  // The axis and the root of a call from or to one rank.
  std::optional<Seen> call(const rules::Application &app) const;
  const Seen *find(ir::ValueId value) const {
    const auto at = seen_.find(value.index);
    return at == seen_.end() ? nullptr : &at->second;
  }
  void learn(ir::ValueId value, const Seen &seen) { seen_[value.index] = seen; }

  // Gradients, in the order of the program.
  void follow_gradient(ir::ValueId value);
  // Of a parameter, the last one; none if it has none.
  ir::ValueId gradient(ir::ValueId param) const { return last_.lookup(param.index); }

private:
  ir::Program &program_;
  llvm::DenseMap<uint32_t, Seen> seen_;        // by value
  llvm::DenseMap<uint32_t, ir::ValueId> of_;   // by the storage of a gradient: the parameter
  llvm::DenseMap<uint32_t, ir::ValueId> last_; // by parameter
};

} // namespace spmd::checker
