// Which dimensions of the tensors of a program belong together: if ranks hold blocks of one of
// them, they hold blocks of all. A position is a place in a dimension where a block may begin: in
// front of the whole of it, or inside, as in the rows of a fused qkv weight [3 * heads * 64, ...],
// of which each rank has some heads. Positions are united by the factors of the rows, through views
// too, over the whole program.
#pragma once

#include "checker/check.h"
#include "checker/gradual/blocks/all_to_all_views.h"

#include "rules/factors/factors.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace spmd::checker {

// Whether a row repeats elements of its operand along dimensions of its result.
bool stretches(const rules::OpDef *row);

class CutPositions {
public:
  struct Position {
    ir::ValueId value;
    unsigned dim = 0;
    int64_t outer =
        // elements of the dimension, in units of the block, that lie in front: 3 for the heads of
        // qkv
        1;
  };
  using Class = uint32_t;

  // `checked`: of the program, for the shapes.
  CutPositions(ir::Program &program, const CheckResult &checked);

  // The positions of a value and their classes, the first dimension first.
  struct Found {
    Position at;
    Class cls;
  };
  llvm::SmallVector<Found, 4> of(ir::ValueId value) const;
  // Whether a dimension of a value, or a part of one, is of a class.
  bool has(ir::ValueId value, Class cls) const;
  // In front of the whole dimension; none where its extent is not known.
  std::optional<Class> in_front(ir::ValueId value, unsigned dim) const;
  // What a body takes from outside as it is, by its parameter; none: it is not that.
  ir::ValueId taken_from(ir::ValueId param) const { return taken_from_.lookup(param.index); }
  size_t classes() const { return nodes_.size(); } // a bound of their numbers
  const AllToAllViews &stacks() const { return stacks_; }
  // Those of dimensions that a row needs whole on each rank, as attention does the elements of a
  // head.
  llvm::DenseSet<Class> whole() const { return classes_of(whole_); }

private:
  struct Node {
    Position at;
    mutable uint32_t parent;
  };
  // One factor of one instruction: the dimensions that have it.
  struct End {
    ir::ValueId value;
    unsigned dim;
    int64_t outer; // of the factor in the dimension
  };
  struct Link {
    int64_t extent;
    llvm::SmallVector<End, 3> ends;
  };
  // A view of [.., 8] as [.., 1, 8], or back. Ranks that have one head each hold blocks of the
  // dimension of one element, and blocks of the other one where that is what stands beside it by
  // chance.
  struct UnitView {
    End merged, split; // the dimension that both have
    int64_t extent;
    End unit() const { return {split.value, split.dim - 1, 1}; }
  };

  llvm::DenseMap<uint32_t, ir::ValueId> taken_from_; // by parameter of a body

  void instruction(ir::InstId id, rules::Rules &rules);
  void row(const rules::RowUse &use, const rules::Application &app,
           llvm::ArrayRef<ir::ValueId> operands, llvm::ArrayRef<ir::ValueId> results);
  void parts(ir::ValueId whole, llvm::ArrayRef<ir::ValueId> parts);
  void equate(ir::ValueId a, ir::ValueId b);
  void body(ir::InstId id, const rules::ResolvedOp &op);
  void entries(ir::ValueId stacked, ir::ValueId entry);
  bool is_unit_view(const Link &link, UnitView &view) const;
  llvm::DenseSet<Class> classes_of(llvm::ArrayRef<End> ends) const;
  std::vector<End> of_parameters(bool are_whole) const;
  llvm::DenseSet<Class> only_inside(llvm::ArrayRef<End> of_cut) const;
  llvm::DenseSet<Class> never_cut(llvm::ArrayRef<End> of_uncut) const;
  void settle_unit_views();
  void add_link(Link link);
  void spread_all();
  void spread(uint32_t node);
  uint32_t node_at(Position at);
  uint32_t find(uint32_t node) const;
  void unite(uint32_t a, uint32_t b);
  std::optional<int64_t> extent(ir::ValueId value, unsigned dim) const;
  AllToAllViews::Extents extents(ir::ValueId value) const;

  ir::Program &program_;
  const CheckResult &checked_;
  AllToAllViews stacks_;
  std::vector<std::pair<ir::ValueId, ir::ValueId>> exchanges_; // operands and results
  std::vector<Node> nodes_;
  std::vector<uint32_t> open_; // nodes that were not yet taken along their links
  std::vector<llvm::SmallVector<uint32_t, 2>> nodes_of_; // per value
  std::vector<Link> links_;
  std::vector<llvm::SmallVector<uint32_t, 4>> links_of_; // per value
  std::vector<UnitView> unit_views_;
  std::vector<End> whole_;     // dimensions that a row needs whole on each rank
  std::vector<End> stretched_; // dimensions of results that an operand of one element fills
};

} // namespace spmd::checker
