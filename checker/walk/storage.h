// Which values share storage, and whether one was overtaken by a write (ir/README.md). Internal to
// the checker.
#pragma once

#include "ir/program.h"

#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace spmd::checker {

class Storage {
public:
  explicit Storage(const ir::Program &program) : program_(program), names_(program.values.size()) {}

  void define(ir::ValueId value) { // after the value's alias_of is defined
    const ir::ValueId base = program_.values[value].alias_of;
    ir::ValueId root = base.valid() ? names_[base.index].root : value;
    if (!root.valid())
      root = value;
    if (root != value)
      join(value, root);
    Name &own = names_[value.index];
    const uint32_t history = names_[root.index].history;
    own.root = root;
    own.made = history ? histories_[history - 1].writes : 0;
  }
  void write(ir::ValueId target, ir::InstId by); // before the results of the write are defined
  // The instruction that wrote the storage after `value` was made; none if it is current.
  ir::InstId overtaken_by(ir::ValueId value) const {
    return is_stale(value) ? histories_[history_of(value) - 1].last : ir::InstId();
  }
  bool is_stale(ir::ValueId value) const {
    const uint32_t history = history_of(value);
    return history && histories_[history - 1].writes != names_[value.index].made;
  }
  ir::ValueId root(ir::ValueId value) const { return names_[value.index].root; }
  // True if another name of the same storage, made before `id`, is used after it.
  bool shared_after(ir::ValueId value, ir::InstId id) { return !others_after(value, id).empty(); }
  // Those names.
  llvm::SmallVector<ir::ValueId, 2> others_after(ir::ValueId value, ir::InstId id);

private:
  struct Name {
    ir::ValueId root, next;         // the first name, and another one, from the first on
    uint32_t made = 0, history = 0; // writes until then; of a root: its history plus one, if any
  };
  struct History {
    uint32_t writes = 0;
    ir::InstId last;
  };
  void join(ir::ValueId value, ir::ValueId root);
  void find_last_uses();
  uint32_t history_of(ir::ValueId value) const {
    ir::ValueId root = names_[value.index].root;
    return root.valid() ? names_[root.index].history : 0;
  }

  const ir::Program &program_;
  std::vector<Name> names_; // per value
  std::vector<History> histories_;
  std::vector<ir::InstId> last_use_; // per value, none: never; empty until it is asked for
};

} // namespace spmd::checker
