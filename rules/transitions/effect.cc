// What the words of a call come to on one axis: stated ones as they stand, unstated ones from what
// the operand is there.
#include "rules/transitions/call.h"

#include "ir/claims.h"

namespace spmd::rules {

using ir::AxisId;
using ir::Combiner;
using ir::Kind;
using ir::WrittenKind;

namespace {

// Whether V is written at this end in a form that the row has.
bool has_form(const Transition &row, const WrittenKind &src, const WrittenKind &dst) {
  bool src_shard = src.form == WrittenKind::Form::Shard,
       dst_shard = dst.form == WrittenKind::Form::Shard;
  if (!src_shard && !dst_shard)
    return true;
  if (row.layouts == Layouts::Plain || row.composed)
    return false;
  // Both ends varying: a transposition of stacks or of shards, never one of each.
  return row.src != Kind::Varying || row.dst != Kind::Varying || src_shard == dst_shard;
}

const Transition *row_of(TransitionOp op, Kind src, Kind dst) {
  const Transition *row = find_transition(op, src, dst);
  return row || src != Kind::Reduced ? row : find_transition(op, Kind::Replicate, dst);
}

// The word of the operand, where the call states none: what the name expects, else what it is.
std::optional<WrittenKind> unstated_source(const TransitionOperand &operand,
                                           std::optional<AxisId> axis) {
  const TransitionCall &call = operand.call;
  std::optional<unsigned> dim = operand.dim(axis);
  bool shard = dim || (!axis && operand.is_global(axis));
  if (call.unstated->src == Kind::Varying && shard && !operand.result_has(+1)) {
    if (call.op == TransitionOp::AllGather)
      return shard_word(operand, "dim");
    if (call.op == TransitionOp::AllToAll)
      return shard_word(operand, "concat_dim");
  }
  if (call.unstated->src)
    return WrittenKind{.kind = *call.unstated->src};
  std::optional<WrittenKind> found = axis ? ir::kind_word(operand.type, *axis) : std::nullopt;
  if (!found || found->form == WrittenKind::Form::Unknown)
    return std::nullopt;
  if (dim &&
      (call.op == TransitionOp::Convert || call.op == TransitionOp::Redistribute || call.joint()))
    return WrittenKind{
        .form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(*dim)};
  return WrittenKind{.kind = found->kind};
}

WrittenKind unstated_result(const TransitionOperand &operand, bool global) {
  const TransitionCall &call = operand.call;
  if (call.unstated->dst == Kind::Replicate)
    return {.form = WrittenKind::Form::Either};
  if (global && call.op == TransitionOp::ReduceScatter && !operand.result_has(-1))
    return shard_word(operand, "dim");
  if (global && call.op == TransitionOp::AllToAll)
    return shard_word(operand, "split_dim");
  return {.kind = *call.unstated->dst};
}

} // namespace

WrittenKind shard_word(const TransitionOperand &operand, llvm::StringRef key) {
  const ir::AttrValue *attr = operand.app.attr(key);
  int64_t dim = attr && attr->form == ir::AttrForm::Integer ? attr->as_integer() : 0;
  bool fits = dim >= INT8_MIN && dim <= INT8_MAX; // what does not is no dimension either
  return {.form = WrittenKind::Form::Shard,
          .kind = Kind::Varying,
          .dim = static_cast<int8_t>(fits ? dim : INT8_MAX)};
}

// An exchange from a dimension to the same one, of a tensor that is cut there, is meant to keep it.
// (What stands in a list, or has stated lengths, changes places.)
static bool exchanges_nothing(const TransitionOperand &operand, const AxisEffect &effect) {
  auto from_front = [&](const WrittenKind &word) {
    bool ranked = operand.shape && operand.shape->ranked;
    return word.dim < 0 && ranked ? word.dim + static_cast<int64_t>(operand.shape->dims.size())
                                  : word.dim;
  };
  return operand.call.op == TransitionOp::AllToAll && effect.global && effect.src_stated &&
         effect.dst_stated && effect.src.form == WrittenKind::Form::Shard &&
         effect.dst.form == WrittenKind::Form::Shard &&
         from_front(effect.src) == from_front(effect.dst) && !operand.app.attr("in_splits") &&
         !operand.app.attr("out_splits");
}

AxisEffect effect_of(const TransitionOperand &operand, size_t written, std::optional<AxisId> axis) {
  const TransitionCall &call = operand.call;
  const StatedKinds &words = call.words[written];
  AxisEffect effect;
  effect.src_stated = words.src.has_value();
  effect.dst_stated = words.dst.has_value();
  effect.global = operand.is_global(axis);
  effect.dst = words.dst ? *words.dst : unstated_result(operand, effect.global);
  std::optional<WrittenKind> source = words.src ? words.src : unstated_source(operand, axis);
  if (!source)
    return effect;
  effect.src = *source;
  Kind src = source->kind, dst = effect.dst.kind;
  // A list of contributions to a maximum is read as pending.
  if (call.unstated->reduces && call.asked(*source) != Combiner::Sum && src == Kind::Varying)
    src = Kind::Partial;
  const Transition *row = row_of(call.op, src, dst);
  if (row && has_form(*row, effect.src, effect.dst))
    effect.row = row;
  // Of the names, only convert and reinterpret take any operand.
  bool forgets = src == Kind::Reduced && dst == Kind::Replicate;
  effect.identity = !call.joint() && !call.unstated->src && (effect.src == effect.dst || forgets);
  if (exchanges_nothing(operand, effect)) {
    effect.identity = true;
    effect.row = nullptr;
  }
  return effect;
}

} // namespace spmd::rules
