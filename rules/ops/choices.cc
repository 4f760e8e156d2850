// Which row a spelling means for these operands and attributes. Only kinds of argument and flags
// are looked at, and of losses what is cut.
#include "rules/ops/choices.h"

#include "rules/shapes/attrs.h"
#include "rules/shards/remesh.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

using ir::AttrForm;
using ir::DTypeClass;

namespace {

// The positional operand at a place, as the program has it; null if there is none.
const Slot *slot_at(const Application &app, unsigned place) {
  for (const Slot &slot : app.slots)
    if (!slot.name.valid() && place-- == 0)
      return slot.form == Slot::Form::Missing ? nullptr : &slot;
  return nullptr;
}

DTypeClass class_at(const Application &app, unsigned place) {
  const Slot *slot = slot_at(app, place);
  if (!slot || slot->form == Slot::Form::Literal || slot->count == 0)
    return DTypeClass::Unknown;
  const ir::Shape *shape = app.shape(app.args[slot->first]);
  return shape ? ir::info(shape->dtype).form : DTypeClass::Unknown;
}

bool is_matrix(const Application &app, unsigned place) {
  const Slot *slot = slot_at(app, place);
  const ir::Shape *shape =
      slot && slot->form == Slot::Form::Tensor ? app.shape(app.args[slot->first]) : nullptr;
  return shape && shape->ranked && shape->dims.size() == 2;
}

bool is_number(const ir::AttrValue &value, int64_t number) {
  return (value.form == AttrForm::Integer && value.as_integer() == number) ||
         (value.form == AttrForm::Float && value.as_number() == static_cast<double>(number));
}

bool is_off(const Application &app, llvm::StringRef name) {
  const ir::AttrValue *value = app.attr(name);
  return value && value->form == AttrForm::Bool && !value->as_bool();
}

bool is_rounded(ir::DType dtype) {
  DTypeClass form = ir::info(dtype).form;
  return form == DTypeClass::Integer || form == DTypeClass::Boolean;
}

std::string_view choose_extremum(const Application &app, std::string_view of_two,
                                 std::string_view of_dim) {
  if (slot_at(app, 1) || app.named("other"))
    return of_two;
  return any_attr(app, {"dim"}) ? of_dim : std::string_view();
}

bool is_causal(const Application &app) {
  return flag_attr(app, "is_causal") || flag_attr(app, "causal") ||
         word_attr(app, {"mask_type"}).contains_insensitive("causal");
}

// Fewer heads of keys than of queries, in tensors of [batch, heads, sequence, width].
bool groups_heads(const Application &app, unsigned q, unsigned k) {
  const Variant variant = app.op.variant();
  if (variant != Variant::Plain && variant != Variant::BiasFifth && variant != Variant::BiasSeventh)
    return false;
  const ir::Shape *shapes[2];
  for (auto [place, shape] : {std::pair(q, &shapes[0]), std::pair(k, &shapes[1])}) {
    const Slot *slot = slot_at(app, place);
    bool one = slot && slot->form == Slot::Form::Tensor;
    *shape = one ? app.shape(app.args[slot->first]) : nullptr;
    if (!*shape || !(*shape)->ranked || (*shape)->dims.size() != 4)
      return false;
  }
  return shapes[0]->dims[1] != shapes[1]->dims[1];
}

// Whether a recorder saw that all ranks which have targets of their own divide by the same number.
bool seen_to_count_alike(const Application &app) {
  const ir::AttrValue *seen = app.attr("counts_equal");
  if (app.program.mode != ir::Mode::Gradual || !seen)
    return false;
  ir::AxisSet equal;
  auto add = [&](const ir::AttrValue &name) {
    if (name.form == AttrForm::String)
      equal |= axes_named(app.program, app.op_context().mesh, {{}, name.as<ir::StringId>()})
                   .value_or(ir::AxisSet());
  };
  if (seen->form == AttrForm::List)
    llvm::for_each(app.program.lists[seen->as<ir::AttrListId>()].items, add);
  else
    add(*seen);
  return llvm::all_of(app.args, [&](const TensorInfo &arg) {
    const ir::Shape *shape = app.shape(arg);
    return !shape || ir::differentiable(shape->dtype) ||
           (app.type(arg).sharded() - equal).empty();
  });
}

// The divisor of a mean depends on the targets. Frameworks always pass -100, mostly without a use.
bool counts_targets(const Application &app) {
  if (reduction_of(app) != LossReduction::Mean)
    return false;
  if (slot_at(app, 2) || app.named("weight"))
    return true;
  return number_attr(app, {"ignore_index"}).value_or(-100) != -100 && !seen_to_count_alike(app);
}

} // namespace

std::string_view choose_division(const Application &app) {
  return any_attr(app, {"rounding_mode"}) ? "floor_divide" : "";
}

std::string_view choose_power(const Application &app) {
  const Slot *slot = app.op.order.empty() ? slot_at(app, 1) : nullptr;
  const ir::AttrValue *exponent =
      slot && slot->form == Slot::Form::Literal ? &slot->literal : any_attr(app, {"exponent", "y"});
  if (!exponent)
    return "";
  return is_number(*exponent, 1) ? "identity" : is_number(*exponent, 2) ? "square" : "";
}

std::string_view choose_maximum(const Application &app) {
  return choose_extremum(app, "maximum", "max.dim");
}
std::string_view choose_minimum(const Application &app) {
  return choose_extremum(app, "minimum", "min.dim");
}

std::string_view choose_cast(const Application &app) {
  if (ir::DType asked = dtype_attr(app); asked != ir::DType::Unknown)
    return is_rounded(asked) ? "cast_round" : "";
  DTypeClass like = class_at(app, 1);
  return like == DTypeClass::Integer || like == DTypeClass::Boolean ? "cast_round" : "";
}

std::string_view choose_sum(const Application &app) {
  DTypeClass form = class_at(app, 0);
  bool inexact = form == DTypeClass::Float || form == DTypeClass::Complex;
  return inexact && is_rounded(dtype_attr(app)) ? "sum_rounded" : "";
}

std::string_view choose_select(const Application &app) {
  const Slot *cases = slot_at(app, 2);
  return cases && cases->form == Slot::Form::List && cases->count > 1 ? "select_cases" : "";
}

std::string_view choose_setitem(const Application &app) {
  const Slot *indices = slot_at(app, 1);
  return indices && indices->count ? "index_put" : "slice_scatter";
}

std::string_view choose_cross_entropy(const Application &app) {
  if (class_at(app, 1) == DTypeClass::Float)
    return "cross_entropy_soft";
  return counts_targets(app) ? "cross_entropy_counted" : "";
}

std::string_view choose_nll_loss(const Application &app) {
  return counts_targets(app) ? "nll_loss_counted" : "";
}

std::string_view choose_nll_loss_backward(const Application &app) {
  std::optional<LossReduction> reduction =
      any_attr(app, {"reduction"}) ? reduction_of(app) : LossReduction::Mean;
  if (reduction == LossReduction::Sum || reduction == LossReduction::None)
    return "nll_loss_backward_summed";
  if (app.program.mode != ir::Mode::Gradual)
    return "";
  // The number of targets is the last operand that is one number; where it is a sum over ranks that
  // is still pending, each of them has its own targets.
  ir::AxisSet pending, cut;
  for (const TensorInfo &arg : app.args) {
    const ir::Shape *shape = app.shape(arg);
    if (shape && shape->ranked && shape->dims.empty())
      pending = app.type(arg).of(ir::Kind::Partial) - app.type(arg).zero();
    else if (shape && !ir::differentiable(shape->dtype))
      cut = app.type(arg).sharded();
  }
  return pending && cut.contains(pending) ? "nll_loss_backward_mean" : "";
}

std::string_view choose_attention(const Application &app) {
  bool causal = is_causal(app);
  if (flag_attr(app, "enable_gqa"))
    return causal ? "attention_grouped_causal" : "attention_grouped";
  return causal ? "attention_causal" : "";
}
std::string_view choose_grouped_attention(const Application &app) {
  return is_causal(app) ? "attention_grouped_causal" : "";
}
std::string_view choose_fused_attention(const Application &app) {
  if (groups_heads(app, 0, 1))
    return is_causal(app) ? "attention_fused_grouped_causal" : "attention_fused_grouped";
  return is_causal(app) ? "attention_fused_causal" : "";
}
std::string_view choose_attention_backward(const Application &app) {
  if (app.op.alias ? groups_heads(app, 1, 2) : groups_heads(app, 2, 3))
    return is_causal(app) ? "attention_backward_grouped_causal" : "attention_backward_grouped";
  return is_causal(app) ? "attention_backward_causal" : "";
}

std::string_view choose_scatter_reduce(const Application &app) {
  return word_attr(app, {"reduce", "reduction"}) == "sum" ? "scatter_add" : "";
}

std::string_view choose_index(const Application &app) {
  const Slot *indices = slot_at(app, 1);
  bool one = indices && indices->count == 1;
  return one && class_at(app, 1) == DTypeClass::Boolean ? "masked_select" : "";
}

std::string_view choose_index_put(const Application &app) {
  return flag_attr(app, "accumulate") ? "index_put_add" : "";
}

std::string_view choose_batch_norm(const Application &app) {
  if (is_off(app, "training") || is_off(app, "train"))
    return "batch_norm_inference";
  return flag_attr(app, "training") ? "batch_norm" : "";
}

std::string_view choose_dropout(const Application &app) {
  const ir::AttrValue *p = app.attr("p");
  bool never = p && is_number(*p, 0);
  return never || is_off(app, "training") || is_off(app, "train") ? "dropout_off" : "";
}

std::string_view choose_repeat_interleave(const Application &app) {
  const Slot *counts = slot_at(app, 1);
  if (counts && counts->form == Slot::Form::Tensor)
    return "repeat_interleave_counts";
  bool stated = counts || app.named("repeats") || any_attr(app, {"repeats"});
  return stated ? "" : "repeat_interleave_positions";
}

std::string_view choose_recurrent_backward(const Application &app) {
  auto given = [&](unsigned place) {
    const Slot *slot = slot_at(app, place);
    return slot && slot->form == Slot::Form::Tensor;
  };
  bool output = given(10), state = given(11), cell = given(12);
  if (output && state && cell)
    return "recurrent_layer_backward_of_all";
  if (output && (state || cell))
    return "recurrent_layer_backward_of_output";
  return state && cell ? "recurrent_layer_backward_of_state" : "";
}

std::string_view choose_grouped_mm(const Application &app) {
  return is_matrix(app, 0) && is_matrix(app, 1) ? "grouped_mm_of_rows" : "";
}

std::string_view choose_convolution(const Application &app) {
  std::optional<int64_t> groups = number_attr(app, {"groups"});
  return groups && *groups > 1 ? "convolution_grouped" : "";
}

} // namespace spmd::rules
