// How the dimensions of one application's tensors are made of factors, and the functions that say
// so where a row's dimensions depend on attributes: the columns `factors` and `extents` of the op
// table.
#pragma once

#include "rules/bind.h"

#include "ir/shape.h"

#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace spmd::rules {

// One dimension of a tensor: its factors, outermost first; none: extent 1.
using DimFactors = llvm::SmallVector<uint8_t, 2>;
using TensorFactors = llvm::SmallVector<DimFactors, 5>;

struct FactorInfo {
  std::optional<ir::Extent> extent; // none: not known
  bool whole = false;               // must be whole on every rank
  bool divides = false;             // an average divides by its local extent
  bool strict = false;              // a dimension of one element is not stretched over it
};

// The equation of one application, dimension by dimension. Tensors whose dimensions cannot be
// determined have none.
struct FactorMap {
  llvm::SmallVector<FactorInfo, 8> factors;
  llvm::SmallVector<std::optional<TensorFactors>, 4> args; // per tensor of the application
  llvm::SmallVector<std::optional<TensorFactors>, 2> results;
  llvm::SmallBitVector multiplied; // per tensor of the application: strict factors bind it
  llvm::SmallBitVector gradients;  // likewise: it is the gradient of a result, and as large
  // Factors over which a tensor is summed by itself: an element that was stretched would count
  // often.
  llvm::SmallVector<std::pair<uint8_t, uint32_t>, 2> summed_alone;
  // Per factor of the row, those here: several where it is placed or spans. Empty where the column
  // `factors` gave the map.
  llvm::SmallVector<llvm::SmallVector<uint8_t, 4>, 8> of_row;
  bool mismatched = false; // shapes do not fit, so there may be no factors

  uint8_t add(std::optional<ir::Extent> extent = std::nullopt, bool whole = false);
  // True if one element of the tensor is not stretched over the factor.
  bool binds(uint8_t factor, size_t arg) const {
    for (auto [summed, tensor] : summed_alone)
      if (summed == factor && tensor == arg)
        return true;
    return (arg < gradients.size() && gradients[arg]) ||
           (factors[factor].strict && arg < multiplied.size() && multiplied[arg]);
  }
};

// The axes that shard a dimension of a tensor, as far as specs are judged.
ir::AxisSet axes_cutting(const Application &app, size_t arg, unsigned dim);

// Where a column `factors` writes its map.
class FactorSink {
public:
  FactorSink(const Application &app, const Equation &equation, const Binding &binding,
             FactorMap &map, Outcome &out)
      : app_(app), equation_(equation), binding_(binding), map_(map), out_(out) {}

  // Place of an operand in the row, to be asked for only where the row has it.
  unsigned operand(std::string_view name) const { return equation_.find_operand(name); }
  // The place of a tensor in its list, which may have gaps; 0 if it is no list.
  unsigned position(unsigned operand, unsigned member) const;

  // Number of tensors that stand for an operand of the row.
  unsigned count(unsigned operand) const;
  // Null if there is no such tensor, or its shape is not known.
  const ir::Shape *shape(unsigned operand, unsigned member = 0) const;
  // True if an axis whose specs are judged shards the dimension.
  bool cut(unsigned operand, unsigned member, unsigned dim) const;
  // Gives every dimension of a tensor a factor of its own. The shape must be known.
  TensorFactors fresh(unsigned operand, unsigned member = 0);
  // The same, none of them to be cut.
  TensorFactors fresh_whole(unsigned operand);
  // That of all operands from this one on, lists apart.
  void fresh_whole_from(unsigned first);
  void set(unsigned operand, TensorFactors factors) { set(operand, 0, std::move(factors)); }
  void set(unsigned operand, unsigned member, TensorFactors factors);
  void result(TensorFactors factors) { map_.results.push_back(std::move(factors)); }
  unsigned result_count() const { return static_cast<unsigned>(app_.results.size()); }

  uint8_t factor(std::optional<ir::Extent> extent, bool whole = false) {
    return map_.add(extent, whole);
  }
  void whole(uint8_t factor) { map_.factors[factor].whole = true; }
  // A mean divides by their extents, where the row is one.
  void divide(const TensorFactors &dims) {
    for (const DimFactors &dim : dims)
      for (uint8_t factor : dim)
        map_.factors[factor].divides = equation_.terms[0].divisors != 0;
  }
  void whole(const DimFactors &dim) {
    for (uint8_t factor : dim)
      whole(factor);
  }
  std::optional<ir::Extent> extent(uint8_t factor) const { return map_.factors[factor].extent; }
  // Another dimension of the same factor: extents unify, 1 broadcasts. False, and reported, if they
  // differ.
  bool unify(uint8_t factor, ir::Extent extent, unsigned operand, unsigned member, unsigned dim);
  // The same for dimensions of which none is stretched.
  bool equal(uint8_t factor, ir::Extent extent, unsigned operand, unsigned member, unsigned dim);
  // Two things that should be equal are not. Always false. `axes`: in question; none: all that
  // shard an operand.
  bool mismatch(std::string what, std::string expected, std::string found, ir::AxisSet axes = {});
  // False where the extents differ, or where n does not divide, whatever symbols are; what is open
  // is reported.
  bool may_be_equal(ir::Extent a, ir::Extent b, std::string what);
  bool may_divide(ir::Extent extent, ir::Extent n, std::string what);

private:
  std::string place(unsigned operand, unsigned member, unsigned dim) const;
  // Two numbers that should be one. Always false.
  bool clash(ir::Extent known, ir::Extent found, unsigned operand, unsigned member, unsigned dim);
  uint32_t arg(unsigned operand, unsigned member) const {
    return static_cast<uint32_t>(binding_[operand]->first + member);
  }
  const Application &app_;
  const Equation &equation_;
  const Binding &binding_;
  FactorMap &map_;
  Outcome &out_;
};

// Gives an operand the trailing ones of `dims`, which stand for one factor each: extents unify, 1
// broadcasts; where they differ, both sides are whole. Nothing happens if its shape is not known.
void follow(FactorSink &sink, unsigned operand, const TensorFactors &dims);

// Where a column `extents` writes the extents of factors that no operand has.
class ExtentSink {
public:
  ExtentSink(const Equation &equation, FactorMap &map,
             llvm::ArrayRef<llvm::SmallVector<uint8_t, 4>> of_row)
      : equation_(equation), map_(map), of_row_(of_row) {}

  // The extent of a factor of the row, if it is one number.
  std::optional<int64_t> number(std::string_view name) const;
  // Nothing happens if the extent is known already.
  void set(std::string_view name, int64_t number);

private:
  const uint8_t *find(std::string_view name) const;
  const Equation &equation_;
  FactorMap &map_;
  llvm::ArrayRef<llvm::SmallVector<uint8_t, 4>> of_row_; // factors of the map per factor of the row
};

// Column `factors`. False: the attributes do not say. True without a result: the equation stands as
// written.
bool unknown_factors(const Application &app, FactorSink &sink); // shapes are left to the program
bool reshape_factors(const Application &app, FactorSink &sink);
bool view_as_factors(const Application &app, FactorSink &sink);
bool flatten_factors(const Application &app, FactorSink &sink);
bool unflatten_factors(const Application &app, FactorSink &sink);
bool squeeze_factors(const Application &app, FactorSink &sink);
bool unsqueeze_factors(const Application &app, FactorSink &sink);
bool permute_factors(const Application &app, FactorSink &sink);   // `dims`
bool transpose_factors(const Application &app, FactorSink &sink); // `dim0`, `dim1`
bool reverse_factors(const Application &app, FactorSink &sink);
bool swap_last_factors(const Application &app, FactorSink &sink);
bool movedim_factors(const Application &app, FactorSink &sink); // `source`, `destination`
bool expand_factors(const Application &app, FactorSink &sink);
bool expand_as_factors(const Application &app, FactorSink &sink);
bool repeat_factors(const Application &app, FactorSink &sink);
bool cat_factors(const Application &app, FactorSink &sink);
bool stack_factors(const Application &app, FactorSink &sink);
bool split_factors(const Application &app, FactorSink &sink);
bool chunk_factors(const Application &app, FactorSink &sink);
bool unbind_factors(const Application &app, FactorSink &sink);
bool slice_factors(const Application &app, FactorSink &sink);
bool select_factors(const Application &app, FactorSink &sink);
bool slice_backward_factors(const Application &app, FactorSink &sink);
bool select_backward_factors(const Application &app, FactorSink &sink);
bool slice_scatter_factors(const Application &app, FactorSink &sink);
bool select_scatter_factors(const Application &app, FactorSink &sink);
bool pad_factors(const Application &app, FactorSink &sink);
bool pad_backward_factors(const Application &app, FactorSink &sink);
bool index_factors(const Application &app, FactorSink &sink);
bool index_put_factors(const Application &app, FactorSink &sink);
bool index_put_add_factors(const Application &app, FactorSink &sink); // indices may be sharded
bool bag_factors(const Application &app, FactorSink &sink);           // `include_last_offset`
bool take_factors(const Application &app, FactorSink &sink);
bool matmul_factors(const Application &app, FactorSink &sink); // 1-d operands lack m or n
bool symmetric_product_factors(const Application &app, FactorSink &sink);
bool ormqr_factors(const Application &app, FactorSink &sink); // `left`
bool inner_factors(const Application &app, FactorSink &sink);
bool einsum_factors(const Application &app, FactorSink &sink);
bool tensordot_factors(const Application &app, FactorSink &sink);
bool convolution_factors(const Application &app, FactorSink &sink); // any number of dimensions
bool convolution_backward_factors(const Application &app, FactorSink &sink);
bool pool_factors(const Application &app, FactorSink &sink);
bool pool_backward_factors(const Application &app, FactorSink &sink);
bool resize_backward_factors(const Application &app, FactorSink &sink); // `input_size`
bool grid_factors(const Application &app, FactorSink &sink);            // any number of dimensions
bool grid_backward_factors(const Application &app, FactorSink &sink);
bool affine_grid_factors(const Application &app, FactorSink &sink); // `size`
bool recurrent_factors(const Application &app, FactorSink &sink);
bool recurrent_backward_factors(const Application &app, FactorSink &sink);
bool sized_factors(const Application &app, FactorSink &sink); // the result as `size` says
bool keyed_factors(const Application &app, FactorSink &sink); // so large for each key of operand 0
bool sized_whole_factors(const Application &app, FactorSink &sink); // of all of the operands
bool number_factors(const Application &app, FactorSink &sink);      // a result without dimensions
bool arange_factors(const Application &app, FactorSink &sink);
bool like_first_factors(const Application &app, FactorSink &sink); // as operand 0, all whole
bool gradient_factors(const Application &app, FactorSink &sink);   // a result per dimension
bool weight_norm_factors(const Application &app, FactorSink &sink);
bool weight_norm_backward_factors(const Application &app, FactorSink &sink);
// Gradients of losses: that of the result may be one number.
bool loss_backward_factors(const Application &app, FactorSink &sink);
bool class_loss_backward_factors(const Application &app, FactorSink &sink);
bool nll_loss_backward_factors(const Application &app, FactorSink &sink);
bool nll_loss_factors(const Application &app, FactorSink &sink); // classes stand second
bool multilabel_loss_backward_factors(const Application &app, FactorSink &sink);
bool ctc_factors(const Application &app, FactorSink &sink);
bool ctc_backward_factors(const Application &app, FactorSink &sink);
bool value_selecting_backward_factors(const Application &app, FactorSink &sink);
bool unfold_backward_factors(const Application &app, FactorSink &sink);
// By the parameters of jaxprs.
bool broadcast_in_dim_factors(const Application &app, FactorSink &sink);
bool expand_dims_factors(const Application &app, FactorSink &sink);
bool dot_general_factors(const Application &app, FactorSink &sink);
bool lax_slice_factors(const Application &app, FactorSink &sink);
bool dynamic_slice_factors(const Application &app, FactorSink &sink);
bool dynamic_update_slice_factors(const Application &app, FactorSink &sink);
bool lax_pad_factors(const Application &app, FactorSink &sink);
bool lax_gather_factors(const Application &app, FactorSink &sink);
bool lax_scatter_factors(const Application &app, FactorSink &sink);
bool lax_scatter_add_factors(const Application &app, FactorSink &sink);
bool reduce_window_factors(const Application &app, FactorSink &sink);
bool conv_general_dilated_factors(const Application &app, FactorSink &sink);
bool lax_fft_factors(const Application &app, FactorSink &sink);
bool lax_reduce_factors(const Application &app, FactorSink &sink);
bool sort_together_factors(const Application &app, FactorSink &sink);
bool triangular_solve_factors(const Application &app, FactorSink &sink);

// Column `extents`.
void histogram_extents(const Application &app, ExtentSink &sink);
void half_extents(const Application &app, ExtentSink &sink);
void difference_extents(const Application &app, ExtentSink &sink);
void repeat_interleave_extents(const Application &app, ExtentSink &sink);
void unfold_extents(const Application &app, ExtentSink &sink);
void pixel_extents(const Application &app, ExtentSink &sink);
void group_extents(const Application &app, ExtentSink &sink);
void pair_extents(const Application &app, ExtentSink &sink);
void weight_count_extents(const Application &app, ExtentSink &sink);
void class_count_extents(const Application &app, ExtentSink &sink);
void topk_extents(const Application &app, ExtentSink &sink);
void permutation_extents(const Application &app, ExtentSink &sink);
void sample_count_extents(const Application &app, ExtentSink &sink);

} // namespace spmd::rules
