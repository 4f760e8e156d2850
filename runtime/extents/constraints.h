// Which extents of a program follow from which, read off its ops; and the program with the extents
// that follow.
#pragma once

#include "runtime/extents/classes.h"
#include "runtime/extents/mesh_resize.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "rules/attributes/attributes.h"
#include "rules/factors/shape_rule.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <optional>
#include <string>
#include <vector>

namespace spmd::runtime {

class ExtentConstraints {
public:
  // The program has no calls, and no symbols but those that data give values to. Loops and branches
  // keep their extents.
  ExtentConstraints(ir::Program &program, const checker::CheckResult &checked,
                    const MeshResize &meshes);

  // Finds the extents. False: there are none that follow.
  bool resize(bool scale_down);
  // Writes them into declared shapes and attributes, before the meshes change. An error names an
  // attribute that cannot follow.
  llvm::Error apply();
  // What kept its extent since a number stands in the program whose role is not known.
  std::vector<std::string> notes() const;

private:
  using Var = ExtentClasses::Var;
  using Vars = llvm::SmallVector<Var, 5>;
  // Tensors of one instruction: operands in order, and results.
  struct Site {
    ir::InstId id;
    llvm::SmallVector<ir::ValueId, 6> args, results;
    const rules::ResolvedOp *op = nullptr;
  };

  void instruction(ir::InstId id);
  void equation(const Site &site, const checker::OperandList &operands);
  void row(const Site &site, const rules::RowUse &use, const rules::Application &app);
  void own_dim(const Site &site, const rules::OpDef &row, bool made, ir::ValueId result, size_t d);
  void transition(const Site &site);
  void counts(Var var, int64_t ranks); // it is the number of these ranks
  void tie_transition(const Site &site, ir::ValueId operand, ir::ValueId result);
  void equate(ir::ValueId a, ir::ValueId b);
  void proportional(Var a, Var b);
  void fix_all(const Site &site);
  void fix(ir::ValueId value);
  void fix_functions();
  void numbers(const Site &site);
  void number_of_unknown_role(const Site &site, llvm::StringRef key, int64_t number);
  void has_place(const Site &site, int64_t index); // the stated dimension, whatever its extent
  void note_counted(const Site &site, const rules::Application &app);
  void bound_indices(const Site &site, const rules::Application &app);
  void fix_counted(ir::ValueId value); // and what it is computed from
  void shards(ir::ValueId value);
  void tie_gradients();

  // The ranks that cut a dimension, by its type: as they are and as they will be.
  std::pair<int64_t, int64_t> cut_of(ir::ValueId value, unsigned dim) const;
  // The axes that a transition runs over: likewise.
  std::pair<int64_t, int64_t> ranks_of(const ir::Inst &inst) const;
  std::optional<Var> moved_dim(const Site &site) const;
  Var stated_dim(const Site &site) const;

  // Attributes that size something; none: left as it is.
  llvm::Expected<ir::AttrValue> followed(const Site &site, llvm::StringRef key,
                                         const ir::AttrValue &value);
  std::optional<ir::AttrValue> as_shape(const Site &site, llvm::ArrayRef<int64_t> numbers) const;
  std::optional<ir::AttrValue> as_strides(const Site &site, llvm::ArrayRef<int64_t> numbers) const;
  // Strides say how elements lie in storage; those of a window move the window, and are nothing
  // that is known here.
  rules::AttributeExtents extents_of(const Site &site, llvm::StringRef key) const;
  std::optional<ir::AttrValue> as_parts(const Site &site, llvm::ArrayRef<int64_t> numbers) const;
  std::optional<int64_t> as_piece(const Site &site, int64_t number) const;
  std::optional<int64_t> as_number(const Site &site, rules::AttributeExtents::Number form,
                                   int64_t number) const;
  std::optional<int64_t> as_bound(const Site &site, int64_t number) const;
  std::optional<int64_t> as_extent(const Site &site, int64_t number) const;
  ir::AttrValue permutation(const ir::Inst &inst, const ir::AttrValue &value) const;
  ir::AttrValue with_expressions(const ir::AttrValue &made, const ir::AttrValue &old) const;
  ir::AttrValue list_of(llvm::ArrayRef<int64_t> numbers) const;
  ir::ShapeId resized(ir::ShapeId shape, ir::ValueId value) const;
  ir::ShapeId resized_global(ir::ShapeId shape, ir::ValueId value) const;

  const Vars &vars(ir::ValueId value) const { return vars_[value.index]; }
  bool is_open(ir::ValueId value, size_t dim) const { return vars(value)[dim] == open_; }
  int64_t before(ir::ValueId value, size_t dim) const { return classes_.before(vars(value)[dim]); }
  int64_t now(ir::ValueId value, size_t dim) const { return classes_.now(vars(value)[dim]); }
  Site site_of(ir::InstId id);

  ir::Program &program_;
  const checker::CheckResult &checked_;
  const MeshResize &meshes_;
  rules::Rules rules_;
  ExtentClasses classes_;
  std::vector<Vars> vars_; // by value; empty: extents are not known
  bool uneven_ = false;    // an axis that changes its size cuts some dimension into uneven blocks
  Var open_ = 0;           // of extents that only data tell: tied to nothing
  struct Counted {
    ir::ValueId by;     // counts up from the first number
    bool plain = false; // these numbers themselves
    bool fixed = false; // extents are
  };
  llvm::DenseMap<uint32_t, Counted> counted_; // values that are made of numbers alone
  llvm::StringMap<ir::ValueId> sent_;
  std::vector<std::pair<std::string, Var>> kept_; // sentences
};

} // namespace spmd::runtime
