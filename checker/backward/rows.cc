// Ordinary ops: one derived instruction per operand that a gradient is asked for.
#include "checker/backward/rows.h"

#include "rules/bind.h"
#include "rules/derivative.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {

bool RowBackward::through_op(const Inst &inst, const rules::ResolvedOp &op,
                             llvm::ArrayRef<ValueId> results, Gradients &gradients) {
  OperandList operands;
  operands.read(program_, inst.operands);
  llvm::SmallVector<rules::TensorInfo, 8> args;
  for (ValueId value : operands.values)
    args.push_back(arg(value));
  llvm::SmallVector<rules::ResultClaim, 2> claims;
  for (uint32_t i = 0; i < inst.result_count; ++i)
    claims.push_back({shapes_[inst.result(i).index], program_.values[inst.result(i)].declared,
                      program_.values[inst.result(i)].global_shape});
  rules::Application app{program_, op, inst.attrs, inst.context, operands.slots, args, claims};
  llvm::SmallVector<rules::RowUse, 1> uses = rules::row_uses(app);
  for (unsigned i = 0; i < uses.size(); ++i)
    if (!through_row(inst, app, uses[i], uses.size() > 1 ? i : ~0u, operands.values, results,
                     gradients))
      return false;
  return true;
}

// `at`: which member of zipped lists it is; none: ~0.
bool RowBackward::through_row(const Inst &inst, const rules::Application &app,
                              const rules::RowUse &use, unsigned at, llvm::ArrayRef<ValueId> values,
                              llvm::ArrayRef<ValueId> results, Gradients &gradients) {
  if (llvm::none_of(use.results, [&](unsigned r) { return results[r].valid(); }))
    return true;
  const rules::Equation &equation = use.row->equation.equation;
  rules::Application bound = app.bound_to(use);
  rules::OperandMismatch ignored;
  std::optional<rules::Binding> binding = rules::bind_operands(bound, equation, ignored);
  if (!binding)
    return fail(inst, "has operands that its row does not take");
  // In a local region `partial` reads V as P; the gradient is read back.
  AxisSet addends;
  for (unsigned r : use.results)
    addends |= type(inst.result(r)).of(Kind::Partial) & local_in(inst.context);
  for (unsigned i = 0; i < equation.operand_count; ++i) {
    const rules::Slot *slot = (*binding)[i];
    for (unsigned m = 0; slot && m < slot->count; ++m) {
      ValueId value = values[slot->first + m];
      if (!active_.count(value.index))
        continue;
      const rules::OpDef *row = rules::derivative(*use.row, i);
      if (!row) {
        if (!use.row->gradient || equation.operands[i].name.empty())
          continue;
        bool position = true;
        for (unsigned r = 0; r < equation.ref_count; ++r)
          if (equation.refs[r].operand == i)
            position &= equation.refs[r].role != rules::RefRole::Value ||
                        equation.refs[r].index != rules::kNoFactor;
        if (position)
          continue;
        return fail(inst, fmt::format("has no derivative by {}", equation.operands[i].name));
      }
      AxisSet read_back = addends & type(value).of(Kind::Varying);
      std::optional<int64_t> member;
      if (at != ~0u)
        member = at;
      else if (equation.operands[i].list != rules::ListForm::Single)
        member = m;
      llvm::SmallVector<ValueId, 4> seen(results.begin(), results.end());
      InsertionPoint around{inst.context, inst.loc, inst.first_result};
      for (ValueId &result : seen)
        if (result.valid() && (read_back & type(result).of(Kind::Replicate)))
          result = reinterpret(result, read_back & type(result).of(Kind::Replicate),
                               Kind::Replicate, Kind::Varying, around);
      if (!through_operand(inst, *use.row, equation.operands[i].name, member, seen, value,
                           gradients))
        return false;
    }
  }
  return true;
}

// All gradients of the results at once; where they do not go together (one is of addends, one of
// whole parts) one after the other.
bool RowBackward::through_operand(const Inst &inst, const rules::OpDef &row,
                                  std::string_view operand, std::optional<int64_t> member,
                                  llvm::ArrayRef<ValueId> results, ValueId value,
                                  Gradients &gradients) {
  InsertionPoint around{inst.context, inst.loc, inst.first_result};
  auto go = [&](llvm::ArrayRef<ValueId> some) {
    std::optional<Operand> given = gradient_operand(inst, row, some);
    ValueId made = given ? derived(inst, operand, member, *given, value) : ValueId();
    if (made.valid())
      give(gradients, value, made, around);
    return made.valid();
  };
  if (go(results))
    return true;
  bool several = llvm::count_if(results, [](ValueId each) { return each.valid(); }) > 1;
  for (size_t r = 0; several && r < results.size(); ++r) {
    llvm::SmallVector<ValueId, 4> one(results.size());
    one[r] = results[r];
    several = !results[r].valid() || go(one);
  }
  return several || fail(inst, fmt::format("has a gradient by {} that cannot be typed ({})",
                                           operand, refused_));
}

// The gradients of the results as the first operand of a derived instruction.
std::optional<Operand> RowBackward::gradient_operand(const Inst &inst, const rules::OpDef &row,
                                                     llvm::ArrayRef<ValueId> results) {
  if (inst.result_count == 1)
    return Operand::value(results[0]);
  bool list = row.equation.equation.result_count == 1 && row.equation.equation.results[0].list;
  llvm::SmallVector<Operand, 4> members;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ValueId gradient = results[i];
    // All parts of what was taken apart are needed to put it together.
    if (!gradient.valid() && list) {
      gradient = put("zeros_like", Operand::value(inst.result(i)), {},
                     {inst.context, inst.loc, inst.first_result}, stem(inst.result(i)));
      if (!gradient.valid()) {
        fail(inst, "has a result without a gradient that cannot be typed");
        return std::nullopt;
      }
    }
    if (gradient.valid()) {
      members.push_back(Operand::value(gradient));
      continue;
    }
    program_.literals.push_back(AttrValue::null());
    members.push_back(Operand::literal(static_cast<uint32_t>(program_.literals.size() - 1)));
  }
  return Operand::list(program_.operand_lists.add(members));
}

// `vjp.OP.OPERAND`, with the axes over which its sum goes stated.
ValueId RowBackward::derived(const Inst &inst, std::string_view operand,
                             std::optional<int64_t> member, Operand given, ValueId of) {
  llvm::SmallVector<Operand, 8> operands = {given};
  for (Operand each : program_.operand_lists[inst.operands]) {
    each.mut = false;
    operands.push_back(each);
  }
  ir::OpNameId name{
      program_.strings
          .add(rules::derivative_name(program_.op_name(inst.op), {operand.data(), operand.size()}))
          .index};
  llvm::SmallVector<std::pair<llvm::StringRef, AttrValue>, 2> list;
  if (member)
    list.push_back({"member", AttrValue::integer(*member)});
  InsertionPoint around{inst.context, inst.loc, inst.first_result};
  auto stated = [&] { return attrs(list, inst.attrs, {"partial", "grad", "vjp"}); };
  AxisSet summed;
  ValueId result = put(name, operands, stated(), around, stem(of), &summed);
  if (result.valid())
    return result;
  if (!summed) // where several axes may cut either of two dimensions, the type says which
    return put(name, operands, stated(), around, stem(of), nullptr, wanted(of));
  list.push_back({"partial", axes_attr(refs_of(program_.contexts[inst.context].mesh, summed))});
  return put(name, operands, stated(), around, stem(of));
}

} // namespace spmd::checker
