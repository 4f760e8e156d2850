// Rules are pure: each type that an unknown operand may have is put in its place, and what is found
// then is compared.
#include "rules/kinds/unknown.h"

#include "ir/claims.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {

namespace {

using ir::AxisId;
using ir::AxisSet;
using ir::Combiner;
using ir::Kind;
using Found = llvm::SmallVector<Violation, 0>;

// Combinations that are tried on one axis: three operands of rank 3.
constexpr size_t kMostTried = 2048;

constexpr Combiner kOtherCombiners[] = {Combiner::Max, Combiner::Min, Combiner::Prod,
                                        Combiner::And, Combiner::Or,  Combiner::Xor};

AxisSet unknown_axes(const Application &app, const TensorInfo &arg) {
  const ir::Type &type = app.type(arg);
  return type.mesh() == app.op_context().mesh ? type.unknown & app.mesh().typed_axes() : AxisSet();
}

// The finding as it is on one axis.
Violation on_axis(Violation violation, AxisId axis) {
  if (AxisSet *axes = violation.axes())
    *axes = axis;
  return violation;
}

Found found_on(const Outcome &out, AxisId axis) {
  Found found;
  for (const Violation &violation : out.violations)
    if (axes_of(violation).contains(axis))
      found.push_back(on_axis(violation, axis));
  return found;
}

class Certain {
public:
  Certain(const Application &app, Judge judge, Outcome &out)
      : app_(app), judge_(judge), out_(out), args_(app.args.begin(), app.args.end()) {}

  void run(AxisSet axes) {
    // Whoever adopts what the others need mostly fits.
    for (size_t i = 0; i < args_.size(); ++i)
      if (AxisSet here = unknown_axes(app_, app_.args[i]) & axes) {
        ir::Type type = app_.type(app_.args[i]);
        type.unknown -= here;
        type.set_either(here);
        args_[i].type = app_.program.types.add(type);
      }
    Outcome fits = judged();
    args_.assign(app_.args.begin(), app_.args.end());
    for (AxisId axis : axes)
      if (found_on(out_, axis).empty() && !found_on(fits, axis).empty())
        judge_axis(axis);
  }

private:
  Outcome judged() {
    Outcome out;
    judge_({app_.program, app_.op, app_.attrs, app_.context, app_.slots, args_, app_.results,
            app_.infer_partial},
           out);
    return out;
  }

  void judge_axis(AxisId axis) {
    groups_.clear();
    kept_.reset();
    apart_.reset();
    tried_ = 0;
    group_operands(axis);
    if (!groups_.empty() && try_all(0, axis) && kept_)
      for (Violation &violation : kept_->empty() && apart_ ? *apart_ : *kept_)
        add_merged(out_.violations, 0, std::move(violation));
    args_.assign(app_.args.begin(), app_.args.end());
  }

  // Members of one list are taken to be of one type.
  void group_operands(AxisId axis) {
    for (const Slot &slot : app_.slots) {
      llvm::SmallVector<uint32_t, 2> members;
      for (unsigned i = 0; i < slot.count; ++i)
        if (unknown_axes(app_, app_.args[slot.first + i]).contains(axis))
          members.push_back(static_cast<uint32_t>(slot.first + i));
      if (!members.empty())
        groups_.push_back(std::move(members));
    }
  }

  // True if whatever stands for the groups from this one on, something is found.
  bool try_all(size_t group, AxisId axis) {
    if (group == groups_.size())
      return ++tried_ <= kMostTried && try_one(axis);
    llvm::SmallVector<ir::Type, 16> first = types_of(groups_[group].front(), axis);
    for (size_t t = 0; t < first.size(); ++t) {
      for (uint32_t arg : groups_[group]) {
        llvm::SmallVector<ir::Type, 16> types = types_of(arg, axis);
        if (t < types.size())
          args_[arg].type = app_.program.types.add(types[t]);
      }
      if (!try_all(group + 1, axis))
        return false;
    }
    return !first.empty();
  }

  bool try_one(AxisId axis) {
    Found found = found_on(judged(), axis);
    if (found.empty())
      return false;
    if (!apart_ || (names_unknown(*apart_, axis) && !names_unknown(found, axis)))
      apart_ = found;
    if (!kept_)
      kept_ = std::move(found);
    else
      llvm::erase_if(*kept_,
                     [&](const Violation &each) { return !llvm::is_contained(found, each); });
    return true;
  }

  bool names_unknown(const Found &found, AxisId axis) const {
    bool names = false;
    auto is_unknown = [&](OperandIndex operand) {
      return operand.index < app_.args.size() &&
             unknown_axes(app_, app_.args[operand.index]).contains(axis);
    };
    for (const Violation &violation : found)
      for_each_field(violation, [&](std::string_view, const Field &field) {
        if (const auto *operand = std::get_if<OperandIndex>(&field))
          names |= is_unknown(*operand);
        if (const auto *addend = std::get_if<Addend>(&field))
          names |= addend->form == Addend::Form::Operand && is_unknown(addend->operand);
      });
    return names;
  }

  // Every type that the operand may have on the axis, those that fit most often first; none if they
  // cannot be listed.
  llvm::SmallVector<ir::Type, 16> types_of(uint32_t arg, AxisId axis) const {
    ir::Type bare = app_.type(app_.args[arg]);
    bare.unknown -= axis;
    llvm::SmallVector<ir::Type, 16> types(1, bare);
    types.back().set_either(axis);
    if (app_.global_axes().contains(axis) && !add_shards(arg, bare, axis, types))
      return {};
    for (Kind kind :
         {Kind::Varying, Kind::Partial, Kind::Replicate, Kind::Invariant, Kind::Reduced}) {
      types.push_back(bare);
      types.back().set_kind(axis, kind);
    }
    types.push_back(bare);
    types.back().set_zero(axis);
    if (app_.op.form == OpForm::Transition)
      for (Combiner combiner : kOtherCombiners) {
        types.push_back(bare);
        types.back().set_kind(axis, Kind::Partial);
        types.back().set_combiner(axis, combiner);
      }
    return types;
  }
  // The axis cuts each dimension, at each place among those that cut it already.
  bool add_shards(uint32_t arg, const ir::Type &bare, AxisId axis,
                  llvm::SmallVectorImpl<ir::Type> &types) const {
    const ir::Shape *shape = app_.shape(app_.args[arg]);
    if (!shape || !shape->ranked)
      return false;
    for (unsigned dim = 0; dim < shape->dims.size(); ++dim) {
      llvm::SmallVector<AxisId, 2> others = ir::shards_of(bare, dim);
      for (size_t place = 0; place <= others.size(); ++place) {
        llvm::SmallVector<AxisId, 2> all = others;
        all.insert(all.begin() + static_cast<ptrdiff_t>(place), axis);
        ir::Type type = bare;
        type.set_kind(axis, Kind::Varying);
        for (unsigned order = 0; order < all.size(); ++order)
          type.set_shard(all[order], dim, order);
        types.push_back(type);
      }
    }
    return true;
  }

  const Application &app_;
  Judge judge_;
  Outcome &out_;
  llvm::SmallVector<TensorInfo, 4> args_;
  llvm::SmallVector<llvm::SmallVector<uint32_t, 2>, 4> groups_; // unknown on the axis at hand
  std::optional<Found> kept_;                                   // found whatever was tried
  std::optional<Found> apart_; // found with one of them, best without naming what is unknown
  size_t tried_ = 0;
};

} // namespace

void add_violations_for_all_types(const Application &app, Judge judge, Outcome &out) {
  AxisSet axes, known;
  for (const TensorInfo &arg : app.args) {
    axes |= unknown_axes(app, arg);
    known |= app.mesh().typed_axes() - unknown_axes(app, arg);
  }
  // Where nothing is known nothing is certain, but for what attributes ask.
  bool asks = app.op.form == OpForm::Transition || app.attr("partial");
  if (axes = asks ? axes : axes & known; axes)
    Certain(app, judge, out).run(axes);
}

} // namespace spmd::rules
