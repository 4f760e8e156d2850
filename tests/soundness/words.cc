// A word speaks of some axes; on all others any kind may hold. It is false if the data of the
// value, or its gradient, fit no type that has the word.
#include "tests/soundness/words.h"

#include "tests/soundness/call.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <fmt/format.h>

namespace spmd::soundness {

namespace {

using ir::AxisId;
using ir::AxisSet;
using ir::Kind;
using ir::ValueId;
using ir::WrittenKind;

class Words {
public:
  Words(ir::Program &program, Execution &execution) : program_(program), execution_(execution) {}

  std::string run(llvm::ArrayRef<Unstated> unstated) {
    for (const Unstated &each : unstated)
      if (std::string what =
              said(each.value, each.axes, "not partial", all_but_partial(each.value));
          !what.empty())
        return what;
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
      if (std::string what = statement(program_.insts[ir::InstId{i}]); !what.empty())
        return what;
    return {};
  }

private:
  static WrittenKind plain(Kind kind) { return {.kind = kind}; }
  static WrittenKind shard(unsigned dim) {
    return {
        .form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(dim)};
  }
  Typed typed(ValueId value) { return execution_.setting().typed(value, 0); }
  unsigned rank(ValueId value) {
    ir::ShapeId shape = typed(value).shape;
    return shape.valid() ? static_cast<unsigned>(program_.shapes[shape].dims.size()) : 0;
  }
  llvm::SmallVector<WrittenKind, 8> shards(ValueId value) {
    llvm::SmallVector<WrittenKind, 8> words;
    for (unsigned d = 0; d < rank(value); ++d)
      words.push_back(shard(d));
    return words;
  }
  llvm::SmallVector<WrittenKind, 8> all_but_partial(ValueId value) {
    llvm::SmallVector<WrittenKind, 8> words = shards(value);
    words.push_back(plain(Kind::Replicate));
    words.push_back(plain(Kind::Invariant));
    return words;
  }

  std::string statement(const ir::Inst &inst) {
    const rules::ResolvedOp &op = execution_.setting().rules.resolve(inst.op);
    checker::OperandList operands;
    operands.read(program_, inst.operands);
    if (op.form == rules::OpForm::Transition)
      return transition(inst, rules::name_of(op.transition), operands.values);
    if (op.boundary == rules::Boundary::AssertType && !operands.values.empty())
      return asserted(inst, operands.values[0]);
    if (op.boundary == rules::Boundary::FromLocal && !operands.values.empty())
      return leaves(operands.values[0], typed(inst.result(0)));
    if (op.boundary == rules::Boundary::Backward)
      return root(operands.values[0]);
    return op.form == rules::OpForm::Equation ? partial(inst, operands.values) : std::string();
  }
  // The dimensions of src and dst are those of the value before and after.
  std::string transition(const ir::Inst &inst, llvm::StringRef name,
                         llvm::ArrayRef<ValueId> operands) {
    std::string why;
    std::optional<Call> call =
        read_call(program_, name, inst.attrs, program_.contexts[inst.context].mesh, why);
    for (size_t k = 0; call && k < operands.size() && k < inst.result_count; ++k)
      for (const Step &step : call->steps) {
        if (std::string what = said(operands[k], step.axes, "src", step.src); !what.empty())
          return what;
        if (std::string what =
                said(inst.result(static_cast<uint32_t>(k)), step.axes, "dst", step.dst);
            !what.empty())
          return what;
      }
    return {};
  }
  AxisSet axes_of(const ir::Inst &inst, llvm::StringRef key) {
    AxisSet axes;
    const ir::Mesh &mesh = program_.meshes[program_.contexts[inst.context].mesh];
    const ir::AttrValue *value = program_.find(inst.attrs, key);
    if (value && value->form == ir::AttrForm::Axes)
      for (const ir::AxisRef &ref : program_.axis_refs[value->as<ir::AxisRefsId>()].refs)
        if (std::optional<AxisId> axis = mesh.find(ref.axis); axis && !ref.mesh.valid())
          axes |= mesh.pieces_of(*axis);
    return axes & mesh.typed_axes();
  }
  std::string asserted(const ir::Inst &inst, ValueId value) {
    const ir::AttrValue *dst = program_.find(inst.attrs, "dst");
    if (!dst || dst->form != ir::AttrForm::Kind)
      return {};
    return said(value, axes_of(inst, "axis"), "asserted", dst->as_kind());
  }
  // What is no list in the region leaves it as it came.
  std::string leaves(ValueId value, const Typed &as) {
    const ir::Type type = program_.types[as.type];
    for (AxisId axis : type.sharded())
      if (std::string what = said(value, axis, "type", shard(*type.dim(axis))); !what.empty())
        return what;
    return {};
  }
  // A loss is one, whatever the axis.
  std::string root(ValueId value) {
    for (AxisId axis : program_.meshes[program_.types[typed(value).type].mesh()].typed_axes())
      if (std::string what =
              said(value, axis, "loss", {plain(Kind::Invariant), plain(Kind::Partial)});
          !what.empty())
        return what;
    return {};
  }
  // Terms are blocks, and their sum is pending: of some operand, and of some result.
  std::string partial(const ir::Inst &inst, llvm::ArrayRef<ValueId> operands) {
    for (AxisId axis : axes_of(inst, "partial")) {
      std::string of_results, of_operands;
      bool sums = false, cut = false;
      for (uint32_t r = 0; r < inst.result_count && !sums; ++r) {
        of_results = said(inst.result(r), axis, "partial", plain(Kind::Partial));
        sums = of_results.empty();
      }
      for (size_t k = 0; k < operands.size() && !cut; ++k) {
        of_operands = said(operands[k], axis, "blocks of a sum", shards(operands[k]));
        cut = of_operands.empty();
      }
      if (!sums || !cut)
        return sums ? of_operands : of_results;
    }
    return {};
  }

  std::string said(ValueId value, AxisSet axes, std::string_view key,
                   llvm::ArrayRef<WrittenKind> words) {
    const ir::Type &type = program_.types[typed(value).type];
    bool listed = !((type.of(Kind::Varying) - type.sharded()) & axes).empty();
    if (!execution_.ran(value) || !typed(value).shape.valid() || axes.empty() || listed)
      return {};
    for (const WrittenKind &word : words) {
      bool is_list = word.form == WrittenKind::Form::Plain && word.kind == Kind::Varying;
      bool is_claim =
          word.form == WrittenKind::Form::Plain || word.form == WrittenKind::Form::Shard;
      if (is_list || !is_claim || could_be(value, axes, word))
        return {};
    }
    return fmt::format("{}: `{}` is false of it", ir::print_value(program_, value), key);
  }
  // Tries all kinds on all other axes, those that the value has first.
  bool could_be(ValueId value, AxisSet axes, const WrittenKind &word) {
    Typed known = typed(value);
    ir::Type type = program_.types[known.type];
    if (type.unknown || type.combining())
      return true;
    // Whether the sum of the gradient has an owner is shown by no data.
    AxisSet owned = axes & type.of(Kind::Reduced), replicated = axes & type.of(Kind::Replicate);
    bool is_plain = word.form == WrittenKind::Form::Plain && !type.gradient_free();
    if (is_plain &&
        ((word.kind == Kind::Replicate && owned) || (word.kind == Kind::Reduced && replicated)))
      return false;
    llvm::SmallVector<AxisId, 4> others;
    for (AxisId axis : program_.meshes[type.mesh()].typed_axes() - axes)
      others.push_back(axis);
    type.clear(axes);
    type.renumber_shard_orders();
    return any_kinds(value, type, others, [&](ir::Type full) {
      int dim = word.dim < 0 ? word.dim + static_cast<int>(rank(value)) : word.dim;
      for (AxisId axis : axes)
        if (word.form == WrittenKind::Form::Shard)
          put(full, axis, static_cast<unsigned>(dim));
        else
          full.set_kind(axis, word.kind);
      return fits(value, known, full);
    });
  }
  bool any_kinds(ValueId value, const ir::Type &type, llvm::ArrayRef<AxisId> axes,
                 llvm::function_ref<bool(ir::Type)> fits) {
    if (axes.empty())
      return fits(type);
    if (any_kinds(value, type, axes.drop_front(), fits))
      return true;
    ir::Type other = type;
    for (Kind kind : {Kind::Replicate, Kind::Invariant, Kind::Partial}) {
      other.set_kind(axes[0], kind);
      if (any_kinds(value, other, axes.drop_front(), fits))
        return true;
    }
    for (unsigned d = 0; d < rank(value); ++d) {
      other.clear(axes[0]);
      other.renumber_shard_orders();
      put(other, axes[0], d);
      if (any_kinds(value, other, axes.drop_front(), fits))
        return true;
    }
    return false;
  }
  static void put(ir::Type &type, AxisId axis, unsigned dim) {
    unsigned outer = 0;
    for (AxisId other : type.sharded())
      outer += type.dim(other) == dim;
    type.set_shard(axis, dim, outer);
  }
  bool fits(ValueId value, const Typed &known, const ir::Type &type) {
    bool same = program_.types[known.type].sharded() == type.sharded();
    Typed as{program_.types.add(type), known.shape, same ? known.sizes : ir::ShardSizesId()};
    return Placement(program_, execution_.setting().world, as).known() &&
           execution_.refute(value, as, type).empty() &&
           execution_.refute_gradient(value, as, type).empty();
  }

  ir::Program &program_;
  Execution &execution_;
};

} // namespace

std::string false_word(ir::Program &program, Execution &execution,
                       llvm::ArrayRef<Unstated> unstated) {
  return Words(program, execution).run(unstated);
}

} // namespace spmd::soundness
