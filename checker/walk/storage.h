// Which values share storage, and whether one was overtaken by a write (ir/README.md). Internal to
// the checker.
#pragma once

#include "checker/walk/regions.h"

#include "llvm/ADT/SmallVector.h"

#include <vector>

namespace spmd::checker {

class Storage {
public:
  struct Write {
    ir::ValueId target;
    ir::InstId by;
  };
  Storage(ir::Program &program, const std::vector<ir::ShapeId> &shapes, rules::Rules &rules)
      : program_(program), regions_(program, shapes, rules), names_(program.values.size()) {}

  void define(ir::ValueId value) { define(value, program_.values[value].alias_of); }
  void define(ir::ValueId value, ir::ValueId base) { // after its base is defined
    Name &own = names_[value.index];
    if (base.valid() || own.root.valid())
      define_name(value, base);
    else
      own.root = value; // the first name of a new storage
  }
  // The type of a name whose storage was written with another one.
  void keep_type(ir::ValueId value, ir::TypeId type) { before_.try_emplace(value.index, type); }
  std::optional<ir::TypeId> type_before_write(ir::ValueId value) const {
    auto found = before_.find(value.index);
    return found == before_.end() ? std::nullopt : std::optional(found->second);
  }
  void write(ir::ValueId target, ir::InstId by); // before the results of the write are defined
  bool any_written() const { return !histories_.empty(); }
  // The last instruction that wrote what `value` shows after it was made; none if it is current.
  ir::InstId stale_since(ir::ValueId value) {
    const ir::ValueId root = names_[value.index].root; // most storage is never written
    return root.valid() && names_[root.index].history ? last_write(value) : ir::InstId();
  }
  // Those of its storage before a name was made.
  llvm::ArrayRef<Write> writes_before(ir::ValueId value) const;
  // Those between that and an instruction which reach what the name shows, in their order.
  llvm::SmallVector<Write, 4> writes_after(ir::ValueId value, ir::InstId until);
  ir::ValueId root(ir::ValueId value) const { return names_[value.index].root; }
  // True if another name of the same elements, made before `id`, is used after it.
  bool has_other_names_after(ir::ValueId value, ir::InstId id) {
    return !other_names_after(value, id).empty();
  }
  // Those names.
  llvm::SmallVector<ir::ValueId, 2> other_names_after(ir::ValueId value, ir::InstId id);
  Regions &regions() { return regions_; }

private:
  struct Name {
    ir::ValueId root, next;      // the first name, and another one, from the first on
    uint32_t made = 0, seen = 0; // writes until then; those that were seen to leave it as it is
    uint32_t history = 0;        // of a root: its history plus one, if any
  };
  llvm::ArrayRef<Write> writes(ir::ValueId value) const;
  ir::InstId last_write(ir::ValueId value);
  void define_name(ir::ValueId value, ir::ValueId base);
  void join(ir::ValueId value, ir::ValueId root);
  struct Places;
  Places &places(ir::ValueId root);
  llvm::SmallVector<ir::ValueId, 2> names_near(ir::ValueId value);
  llvm::SmallVector<llvm::ArrayRef<uint32_t>, 8> writes_near(ir::ValueId value);
  const Region *region(ir::ValueId value) {
    const std::optional<Region> &found = regions_.of(value);
    return found ? &*found : nullptr;
  }
  void find_last_uses();

  const ir::Program &program_;
  Regions regions_;
  std::vector<Name> names_; // per value
  std::vector<llvm::SmallVector<Write, 2>> histories_;
  // Of storages with many names, by root: names and writes by where they lie.
  struct Places {
    RegionIndex names, writes;
    ir::ValueId newest;   // of the names in it
    uint32_t written = 0; // writes in it
  };
  llvm::DenseMap<uint32_t, Places> places_;
  llvm::DenseMap<uint32_t, ir::TypeId> before_;
  std::vector<ir::InstId> last_use_; // per value, none: never; empty until it is asked for
};

} // namespace spmd::checker
