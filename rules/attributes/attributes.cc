// Which attributes an op has, by the columns of its row.
#include "rules/attributes/attributes.h"

#include "rules/boundary/boundary.h"
#include "rules/factors/factors.h"
#include "rules/ops/choices.h"
#include "rules/ops/table.h"
#include "rules/transitions/transition.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace spmd::rules {

namespace {

using Form = AttributeForm;

// Lists of attributes as `names: form, ...`, where names are separated by `|`, ours first.
constexpr std::string_view kDim = "dim|dims|axes|dimension|dimensions|reduction_dimension: dims";
constexpr std::string_view kOneDim = "dim|dims|axes|dimension|dimensions|reduction_dimension: dim";
constexpr std::string_view kSize = "size|shape|sizes|input_size|input_sizes: extents";
constexpr std::string_view kWindow =
    "kernel_size|output_size: any, stride|strides: any, padding: any, dilation: any, "
    "output_padding: "
    "any, ceil_mode: flag, count_include_pad: flag, divisor_override: any, scale_factor|"
    "scale_factors|scales: any, align_corners: flag, mode: word, return_indices: flag";
constexpr std::string_view kConvolution =
    "stride: any, padding: any, dilation: any, groups: positive, transposed: flag, output_padding: "
    "any, bias_sizes: any, output_mask: any, benchmark: flag, deterministic: flag, cudnn_enabled: "
    "flag, allow_tf32: flag";
constexpr std::string_view kCausal =
    "is_causal|causal: flag, enable_gqa: flag, mask_type: any, dropout_p: number, scale|"
    "softmax_scale: number, return_debug_mask: flag, compute_log_sumexp: flag, window_size: any";
constexpr std::string_view kWindowed =
    "window_dimensions: any, window_strides: any, padding: any, base_dilation: any, "
    "window_dilation: any";
constexpr std::string_view kGathered =
    "dimension_numbers: any, slice_sizes: any, indices_are_sorted: flag, unique_indices: flag, "
    "mode: "
    "any, fill_value: any, update_jaxpr: any, update_consts: any";

constexpr std::string_view kSampling =
    "interpolation_mode|mode: any, padding_mode: any, align_corners: flag";
constexpr std::string_view kRecurrent =
    "reverse: flag, mode: any, hidden_size: any, num_layers: any, has_biases: flag, train: flag, "
    "bidirectional: flag, batch_first: flag, batch_sizes: any";
constexpr std::string_view kAlignment =
    "input_lengths: any, target_lengths: any, blank: whole, zero_infinity: flag";

// What a map of dimensions reads. One that is not here reads nothing.
struct MapAttributes {
  FactorsRule map;
  std::string_view attributes;
};
constexpr MapAttributes kOfMaps[] = {
    {unknown_factors, "steps: count, row: count, col: count"}, // of linspace, tril_indices
    {reshape_factors, "shape|size|sizes|new_sizes|newshape: extents, dimensions: any"},
    {flatten_factors, "start_dim: dim, end_dim: dim"},
    {unflatten_factors, "dim: dim, sizes|unflattened_size|shape: extents"},
    {squeeze_factors, kDim},
    {unsqueeze_factors, "dim: newdim"},
    {permute_factors, "dims|dim|permutation: order"},
    {transpose_factors, "dim0|axis0: dim, dim1|axis1: dim, permutation|dims: order"},
    {movedim_factors, "source: dims, destination: dims"},
    {expand_factors, "size|shape|sizes: extents"},
    {repeat_factors, "repeats|dims|reps|sizes: count"},
    {cat_factors, kOneDim},
    {stack_factors, "dim|dims|axes|dimension: newdim"},
    {split_factors, kOneDim},
    {split_factors, "sizes|split_sizes|split_size|split_size_or_sections: any, chunks: positive"},
    {chunk_factors, kOneDim},
    {chunk_factors, "chunks: positive"},
    {unbind_factors, kOneDim},
    {slice_factors, kOneDim},
    {slice_factors, "start: start, end: end, length: length, step: positive"},
    {select_factors, kOneDim},
    {select_factors, "index: place"},
    {slice_backward_factors, "input_sizes|size|shape: extents, dim: any, start: whole, end: whole"},
    {slice_backward_factors, "step: positive"},
    {select_backward_factors, "input_sizes|size|shape: extents, dim: any, index: whole"},
    {slice_scatter_factors, kOneDim},
    {slice_scatter_factors, "start: start, end: end, step: positive"},
    {select_scatter_factors, kOneDim},
    {select_scatter_factors, "index: place"},
    {pad_factors, "pad|padding: any, mode: word"},
    {pad_backward_factors, "pad|padding: any"},
    {bag_factors, "include_last_offset: flag, mode: any, max_norm: any, norm_type: number"},
    {bag_factors, "scale_grad_by_freq: flag, sparse: flag, padding_idx: any"},
    {index_put_factors, "accumulate: flag, unsafe: flag"},
    {index_put_add_factors, "accumulate: flag, unsafe: flag"},
    {symmetric_product_factors, "symmetrize_output: flag"},
    {ormqr_factors, "left: flag, transpose: flag"},
    {einsum_factors, "equation|subscripts|eq: word, path: any"},
    {tensordot_factors, "dims_self: any, dims_other: any, dims: any"},
    {convolution_factors, kConvolution},
    {convolution_backward_factors, kConvolution},
    {pool_factors, kWindow},
    {pool_backward_factors, kWindow},
    {pool_backward_factors, kSize},
    {resize_backward_factors, kWindow},
    {resize_backward_factors, "input_size|input_sizes: extents"},
    {grid_factors, kSampling},
    {grid_backward_factors, kSampling},
    {grid_backward_factors, "output_mask: any"},
    {affine_grid_factors, "size: extents, align_corners: flag"},
    {recurrent_factors, kRecurrent},
    {recurrent_backward_factors, kRecurrent},
    {ctc_factors, kAlignment},
    {ctc_backward_factors, kAlignment},
    {sized_factors, kSize},
    {sized_factors, "dimension: any, stride: any, storage_offset: any"},
    {keyed_factors, "shape: extents, bit_width: positive"},
    {sized_whole_factors, kSize},
    {sized_whole_factors, "stride: any, storage_offset: any, offset: any, dim1: any, dim2: any"},
    {arange_factors, "size|shape: extents, start: number, end: number, step: number"},
    {weight_norm_factors, "dim: dim"},
    {weight_norm_backward_factors, "dim: any"},
    {value_selecting_backward_factors, kSize},
    {unfold_backward_factors, "input_size|input_sizes|sizes: extents, dim: any, size: positive"},
    {unfold_backward_factors, "step: positive"},
    {broadcast_in_dim_factors, "shape: extents, broadcast_dimensions: any, sharding: any"},
    {expand_dims_factors, "dimensions|dim: any"},
    {dot_general_factors, "dimension_numbers: any, precision: any, preferred_element_type: any"},
    {dot_general_factors, "out_sharding: any"},
    {lax_slice_factors, "start_indices: count, limit_indices: any, strides: any"},
    {dynamic_slice_factors, "slice_sizes: any"},
    {lax_pad_factors, "padding_config: any"},
    {lax_gather_factors, kGathered},
    {lax_scatter_factors, kGathered},
    {lax_scatter_add_factors, kGathered},
    {reduce_window_factors, kWindowed},
    {conv_general_dilated_factors,
     "window_strides: any, padding: any, lhs_dilation: any, rhs_dilation: any, dimension_numbers: "
     "any, feature_group_count: positive, batch_group_count: positive, precision: any, "
     "preferred_element_type: any"},
    {lax_fft_factors, "fft_type: any, fft_lengths: any"},
    {lax_reduce_factors, kDim},
    {sort_together_factors, kOneDim},
    {sort_together_factors, "num_keys: positive, is_stable: flag"},
    {triangular_solve_factors, "left_side|left: flag, lower: flag, upper: flag, "
                               "transpose_a|transpose: flag, conjugate_a: flag, "
                               "unit_diagonal|unitriangular: flag"},
};

struct ExtentAttributes {
  ExtentsRule extents;
  std::string_view attributes;
};
constexpr ExtentAttributes kOfExtents[] = {
    {histogram_extents, "bins: any, min: number, max: number"},
    {difference_extents, "n: count, dx: number"},
    {repeat_interleave_extents, "repeats: count, output_size: any"},
    {unfold_extents, "size: part, step: positive"},
    {pixel_extents, "upscale_factor|downscale_factor: positive"},
    {group_extents, "num_groups|group|groups: positive, N: any, C: any, HxW: any"},
    {weight_count_extents, "num_weights|num_embeddings: positive"},
    {class_count_extents, "num_classes: whole"},
    {topk_extents, "k: part, largest: flag, sorted: flag, is_max_k: flag"},
    {permutation_extents, "permutation_size: positive"},
    {sample_count_extents, "num_samples: positive, replacement: flag"},
};

// What who chooses a row looks at.
struct ChoiceAttributes {
  ChooseRule choose;
  std::string_view attributes;
};
constexpr ChoiceAttributes kOfChoices[] = {
    {choose_division, "rounding_mode: any"},
    {choose_power, "exponent|y: number"},
    {choose_maximum, "dim|dims|axes: dims, keepdim|keepdims: flag"},
    {choose_minimum, "dim|dims|axes: dims, keepdim|keepdims: flag"},
    {choose_cross_entropy, "ignore_index: whole, label_smoothing: number"},
    {choose_nll_loss, "ignore_index: whole"},
    {choose_nll_loss_backward, "reduction: reduction, ignore_index: whole"},
    {choose_attention, kCausal},
    {choose_grouped_attention, kCausal},
    {choose_fused_attention, kCausal},
    {choose_attention_backward, kCausal},
    {choose_scatter_reduce, "reduce|reduction: word, include_self: flag"},
    {choose_index_put, "accumulate: flag, unsafe: flag"},
    {choose_batch_norm, "training|train: flag, momentum: number, cudnn_enabled: flag"},
    {choose_dropout, "p: number, training|train: flag, inplace: flag"},
    {choose_repeat_interleave, "repeats: count, output_size: any"},
    {choose_convolution, kConvolution},
};

using Number = AttributeExtents::Number;
using List = AttributeExtents::List;
constexpr AttributeExtents kExtents[] = {
    {"shape|output_size|normalized_shape|input_sizes|self_sizes|limit_indices", Number::None,
     List::Extents},
    {"size", Number::Extent, List::Extents},
    {"sizes", Number::None, List::PiecesOrExtents},
    {"split_sizes|in_splits|out_splits", Number::None, List::Pieces},
    {"split_size|split_size_or_sections", Number::Piece, List::Pieces},
    {"num_embeddings|num_classes|num_weights|minlength", Number::Extent, List::Kept},
    {"start|end|stop|length", Number::Bound, List::Kept},
    {"start_indices", Number::None, List::Kept},
    {"index", Number::Place, List::Unknown},
    {"stride", Number::Unknown, List::Strides},
    {"perm", Number::None, List::Permutation},
    {"peer", Number::Rank, List::Kept},
    {"root", Number::Root, List::Kept},
    {"axis|dim|dims|dim0|dim1|start_dim|end_dim|source|destination|group|partial", Number::None,
     List::None},
    {"k|keepdim|tag|p|eps|alpha|beta|step|ignore_index|padding_idx|value|seed|chunks|sections",
     Number::None, List::None},
};

bool has_name(std::string_view names, std::string_view name) {
  llvm::StringRef left(names.data(), names.size());
  while (!left.empty()) {
    auto [one, rest] = left.split('|');
    if (one == llvm::StringRef(name.data(), name.size()))
      return true;
    left = rest;
  }
  return false;
}

Form read_form(llvm::StringRef word) {
  return llvm::StringSwitch<Form>(word)
      .Case("flag", Form::Flag)
      .Case("word", Form::Word)
      .Case("number", Form::Number)
      .Case("whole", Form::Whole)
      .Case("count", Form::Count)
      .Case("positive", Form::Positive)
      .Case("dim", Form::Dim)
      .Case("dims", Form::Dims)
      .Case("newdim", Form::NewDim)
      .Case("order", Form::Order)
      .Case("extents", Form::Extents)
      .Case("trailing", Form::Trailing)
      .Case("place", Form::Place)
      .Case("start", Form::Start)
      .Case("end", Form::End)
      .Case("length", Form::Length)
      .Case("part", Form::Part)
      .Case("dtype", Form::DType)
      .Case("reduction", Form::Reduction)
      .Case("rank", Form::Rank)
      .Case("pairs", Form::Pairs)
      .Case("axes", Form::Axes)
      .Case("kinds", Form::Kinds)
      .Case("type", Form::Type)
      .Case("types", Form::Types)
      .Case("factor", Form::Factor)
      .Case("function", Form::Function)
      .Case("mesh", Form::Mesh)
      .Default(Form::Any);
}

void add(AttributeList &list, std::string_view text) {
  llvm::StringRef left(text.data(), text.size());
  while (!left.empty()) {
    auto [one, rest] = left.split(", ");
    auto [names, form] = one.split(": ");
    list.specs.push_back({{names.data(), names.size()}, read_form(form)});
    left = rest;
  }
}

void add_map(AttributeList &list, FactorsRule map) {
  list.open |= map == unknown_factors;
  for (const MapAttributes &each : kOfMaps)
    if (each.map == map)
      add(list, each.attributes);
}
void add_choice(AttributeList &list, ChooseRule choose) {
  for (const ChoiceAttributes &each : kOfChoices)
    if (choose && each.choose == choose)
      add(list, each.attributes);
}

} // namespace

std::string_view dim_names() { return kDim.substr(0, kDim.find(':')); }

AttributeList attributes_of(const OpDef &row, const Alias *alias) {
  AttributeList list;
  if (FactorsRule map = alias && alias->factors ? alias->factors : row.factors)
    add_map(list, map);
  for (const ExtentAttributes &each : kOfExtents)
    if (row.extents && each.extents == row.extents)
      add(list, each.attributes);
  add_choice(list, alias && alias->choose ? alias->choose : row.choose);
  if (row.placed.empty() && list.open)
    add(list, "dim|dims|axes|dimension|dimensions: any");
  if (!row.placed.empty()) {
    bool one = row.default_dim != DefaultDim::All && row.default_dim != DefaultDim::LastTwo;
    add(list, one && !list.open ? kOneDim : kDim);
    add(list, "keepdim|keepdims: flag");
  }
  if (!row.spans.empty())
    add(list, "normalized_shape: trailing");
  if (row.reduces)
    add(list, "reduction: reduction");
  if (!row.from_attr.empty())
    list.specs.push_back({row.from_attr.substr(row.from_attr.find(' ') + 1), Form::Number});
  return list;
}

AttributeList attributes_of_transition(TransitionOp op) {
  AttributeList list;
  auto any = [&](auto &&has) {
    llvm::ArrayRef<Transition> rows =
        op == TransitionOp::Reorder ? joint_transitions() : transitions();
    return llvm::any_of(rows, [&](const Transition &row) {
      return (row.op == op || op == TransitionOp::Redistribute) && has(row);
    });
  };
  add(list, "axis: axes, group: any, src: kinds, dst: kinds");
  list.shared = false;
  add(list, "op_dtype|out_dtype: any, async: flag, tag: any");
  if (unstated_words(op).reduces || op == TransitionOp::Redistribute)
    add(list, "op: any");
  // Harmless where no row of the name asks for it.
  add(list, "expert: flag");
  if (any([](const Transition &row) { return row.layouts == Layouts::StackOrShard; }))
    add(list, "dim: any, splits: any");
  if (any([](const Transition &row) { return row.collective == Collective::AllToAll; }))
    add(list, "split_dim: any, concat_dim: any, in_splits: any, out_splits: any");
  // No step of a plan has a root.
  if (op != TransitionOp::Redistribute && any([](const Transition &row) {
        return row.collective == Collective::Broadcast || row.local_step == LocalStep::KeepOnRoot;
      }))
    add(list, "root: rank");
  if (op == TransitionOp::CollectivePermute)
    add(list, "perm: pairs");
  if (op == TransitionOp::Redistribute)
    add(list, "type|to: type, grad: type");
  return list;
}

AttributeList attributes_of_boundary(Boundary op) {
  AttributeList list;
  list.shared = false;
  for (const BoundaryOp &row : boundary_ops())
    if (row.op == op)
      add(list, row.attributes);
  for (const CallOp &row : call_ops())
    if (row.op == op)
      add(list, row.attributes);
  return list;
}

AttributeExtents extents_of_attribute(std::string_view name) {
  for (const AttributeExtents &row : kExtents)
    if (has_name(row.names, name))
      return row;
  return {};
}

std::string_view describe(AttributeForm form) {
  switch (form) {
  case Form::Any:
    return "any value";
  case Form::Flag:
    return "true or false";
  case Form::Word:
    return "a word";
  case Form::Number:
    return "a number";
  case Form::Whole:
    return "a whole number";
  case Form::Count:
    return "whole numbers, not below 0";
  case Form::Positive:
    return "whole numbers above 0";
  case Form::Dim:
    return "a dimension of the operand";
  case Form::Dims:
    return "dimensions of the operand, each once";
  case Form::NewDim:
    return "the place of a new dimension";
  case Form::Order:
    return "all dimensions of the operand, each once";
  case Form::Extents:
    return "a list of extents";
  case Form::Trailing:
    return "the extents of the last dimensions";
  case Form::Place:
    return "an index into the dimension";
  case Form::Start:
  case Form::End:
  case Form::Length:
    return "a part of the dimension";
  case Form::Part:
    return "from 1 to the extent of the dimension";
  case Form::DType:
    return "an element type";
  case Form::Reduction:
    return "none, mean or sum";
  case Form::Rank:
    return "a rank of the group";
  case Form::Pairs:
    return "pairs of ranks of the group, each once on either side";
  case Form::Axes:
    return "an axis, or a tuple of axes";
  case Form::Kinds:
    return "a kind, or a list of kinds, one per axis";
  case Form::Type:
    return "a type";
  case Form::Types:
    return "a list of types";
  case Form::Factor:
    return "a product or quotient of sizes";
  case Form::Function:
    return "a function";
  case Form::NoVjp:
    return "none";
  case Form::Mesh:
    return "a mesh of the program";
  }
  return {};
}

} // namespace spmd::rules
