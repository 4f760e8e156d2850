// The search for repairs of one finding: what is known where it stands, and whether an edit removes
// it. Internal to the checker.
#pragma once

#include "checker/fix/redistribute.h"
#include "checker/gradual/inference.h"
#include "checker/program_queries.h"
#include "checker/walk/walk.h"
#include "ir/support/arrays.h"

#include "rules/violations/claims.h"
#include "rules/violations/gradients.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {

// Kept between findings.
struct FixState {
  ir::Program &program;
  CheckResult scratch;
  Walk walk;
  const CheckResult &original;
  RedistributionFinder moves; // from what is known in `scratch`
  bool tried = false, cut = false, gradients_read = false;
  llvm::DenseMap<uint32_t, llvm::SmallVector<ir::ValueId, 1>> gradients;

  FixState(ir::Program &program, const CheckResult &result, const CheckOptions &options)
      : program(program), scratch(result), walk(program, options, scratch, second_pass),
        original(result), moves(program, scratch, options) {
    walk.resume();
  }

  // Values that the program calls gradients of this one.
  llvm::ArrayRef<ir::ValueId> gradients_of(ir::ValueId value) {
    if (!std::exchange(gradients_read, true))
      for (uint32_t i = 0; i < program.values.size(); ++i)
        if (ir::ValueId of = program.values[ir::ValueId{i}].grad_of; of.valid())
          gradients[of.index].push_back(ir::ValueId{i});
    auto at = gradients.find(value.index);
    return at == gradients.end() ? llvm::ArrayRef<ir::ValueId>() : at->second;
  }

  rules::TensorInfo known(ir::ValueId value) const {
    return {scratch.types[value.index], scratch.shapes[value.index], scratch.sizes[value.index]};
  }
  // A body is looked at as one call types it.
  void look_at(const BodyInstance &typing) {
    for (uint32_t i = 0; i < typing.values.size(); ++i) {
      scratch.types[typing.first + i] = typing.values[i].type;
      scratch.shapes[typing.first + i] = typing.values[i].shape;
      scratch.sizes[typing.first + i] = typing.values[i].sizes;
    }
  }
  // The body_instances of the body that holds an instruction; the main body has none.
  llvm::SmallVector<const BodyInstance *, 4> typings_of(ir::InstId id);

  ir::OpNameId op(std::string_view name) {
    return ir::OpNameId{program.strings.add(llvm::StringRef(name.data(), name.size())).index};
  }
  ir::OpNameId op(rules::TransitionOp transition) { return op(rules::name_of(transition)); }
  ir::OpNameId op(rules::Boundary boundary) { return op(rules::boundary_name(boundary)); }
  ir::StringId string(llvm::StringRef text) { return program.strings.add(text); }

  ir::AttrValue axes_value(const ir::Mesh &mesh, ir::AxisSet axes) {
    ir::AxisRefs refs;
    for (ir::AxisId axis : axes)
      refs.refs.push_back({{}, mesh[axis].name});
    return ir::AttrValue::axes(program.axis_refs.add(std::move(refs)));
  }
  ir::AttrsId with(ir::AttrsId attrs, llvm::StringRef key, std::optional<ir::AttrValue> value) {
    ir::AttrDict dict = attrs.valid() ? program.attrs[attrs] : ir::AttrDict();
    ir::StringId id = string(key);
    llvm::erase_if(dict.attrs, [&](const ir::Attr &attr) { return attr.key == id; });
    if (value)
      dict.attrs.push_back({id, *value});
    ir::sort_canonically(dict, program.strings);
    return program.attrs.add(std::move(dict));
  }
};

// The search for one finding.
class FixSearch {
  ir::Program &program_;
  const CheckResult &original_;

public:
  FixSearch(ir::Program &program, const CheckResult &original, Walk &walk, const Finding &finding)
      : program_(program), original_(original), walk(walk), finding(finding),
        id(finding.place.as_inst()), inst(program.insts[id]),
        axes(rules::axes_of(finding.violation)) {}

  // True if the edit removes the finding and no new one appears at or after it.
  bool repairs(const Edit &edit) const {
    std::optional<std::vector<Finding>> after = walk.retype(edit);
    if (!after)
      return false;
    for (const Finding &found : *after) {
      bool target = found.place == finding.place &&
                    found.violation.same_finding(finding.violation) &&
                    (axes.empty() || (rules::axes_of(found.violation) & axes));
      if (target || !known(found))
        return false;
    }
    return true;
  }

  llvm::SmallVector<uint32_t, 4> operands() const {
    llvm::SmallVector<uint32_t, 4> named;
    rules::for_each_field(finding.violation, [&](std::string_view, const rules::Field &field) {
      if (const auto *operand = std::get_if<rules::OperandIndex>(&field))
        named.push_back(operand->index);
      else if (const auto *addend = std::get_if<rules::Addend>(&field);
               addend && addend->form == rules::Addend::Form::Operand)
        named.push_back(addend->operand.index);
    });
    if (named.empty() || finding.violation.is<rules::MutationChangesType>())
      for (uint32_t i = 0; i < tensors.size(); ++i)
        if (!llvm::is_contained(named, i))
          named.push_back(i);
    if (finding.violation.is<rules::PartialState>())
      ir::erase_value(named, 0); // what is written to: a copy of it would be updated instead
    return named;
  }

  Walk &walk;
  const Finding &finding;
  ir::InstId id;
  ir::Inst inst;
  ir::AxisSet axes;
  llvm::SmallVector<ir::ValueId, 4> tensors = tensors_of(program_, id);

private:
  // The next layer's copy of this finding was silent as long as this one stood: it would be
  // folded into it.
  bool same_mistake(const Finding &found) const {
    if (found.violation.is<rules::UnreducedGradient>())
      return found.violation == finding.violation; // reported once
    return found.place.form == Place::Form::Inst && found.violation == finding.violation &&
           program_.insts[found.place.as_inst()].op == inst.op;
  }
  bool known(const Finding &found) const {
    if (found.severity() == rules::Severity::Info || same_mistake(found))
      return true;
    return llvm::any_of(original_.findings, [&](const Finding &old) {
      return old.place == found.place && old.violation.same_finding(found.violation) &&
             rules::axes_of(old.violation).contains(rules::axes_of(found.violation));
    });
  }
};

} // namespace spmd::checker
