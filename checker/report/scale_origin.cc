// Where the factor of a scale comes from: walks definitions back, through gradients to their loss,
// to the op that averaged, counted or multiplied.
#include "checker/program_queries.h"
#include "checker/report/provenance.h"

#include "checker/report/report.h"

#include "rules/ops/registry.h"

#include "ir/dialect/print_type.h"
#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::InstId;
using ir::ValueId;

namespace {

class ScaleOrigin {
public:
  ScaleOrigin(const ir::Program &program, const CheckResult &result, AxisId axis)
      : program_(program), result_(result), axis_(axis) {}

  std::optional<Note> find(ValueId value) {
    if (exponent(value) == 0)
      return std::nullopt;
    for (;;) {
      InstId inst = defining_inst(program_, value);
      if (!inst.valid())
        return declared(value);
      ValueId source = passes(inst, value);
      if (!source.valid())
        return made(inst, value);
      value = source;
    }
  }

private:
  int32_t exponent(ValueId value) const {
    ir::TypeId id = result_.types[value.index];
    if (!id.valid())
      return 0;
    const ir::Type &type = program_.types[id];
    return ir::exponent_of(program_, type.scale, type.mesh(), axis_);
  }
  rules::Boundary op(InstId id) const {
    return rules::resolve_op(program_, program_.insts[id].op).boundary;
  }

  // The loss of which an instruction takes a gradient.
  ValueId root_of(InstId grad) const {
    for (InstId id = grad; id.index-- > 0;)
      if (op(id) == rules::Boundary::Backward)
        return tensors_of(program_, id).front();
    return {};
  }

  // The value whose factor the result has; none if it arises here.
  ValueId passes(InstId id, ValueId result) const {
    int32_t wanted = exponent(result);
    if (op(id) == rules::Boundary::Grad) {
      ValueId root = root_of(id);
      return root.valid() && exponent(root) == wanted ? root : ValueId();
    }
    for (ValueId operand : tensors_of(program_, id))
      if (exponent(operand) == wanted)
        return operand;
    return {};
  }

  std::string axis_name(ValueId value) const {
    ir::MeshId mesh = program_.types[result_.types[value.index]].mesh();
    return ir::print_axes(program_, mesh, axis_);
  }

  Note declared(ValueId value) const {
    Note note = note_at_declaration(program_, value);
    const ir::Type &type = program_.types[result_.types[value.index]];
    note.text = fmt::format("{} is declared of scale {}", ir::print_value(program_, value),
                            ir::print_scale(program_, type.scale, type.mesh()));
    return note;
  }

  Note made(InstId id, ValueId value) const {
    const ir::Inst &inst = program_.insts[id];
    llvm::StringRef name = program_.op_name(inst.op);
    Note note;
    note.place = Place::inst(id);
    std::string_view written(name.data(), name.size());
    std::string axis = axis_name(value);
    rules::ResolvedOp resolved = rules::resolve_op(program_, inst.op);
    if (resolved.boundary == rules::Boundary::Scale)
      note.text = fmt::format("`{}` {} by the size of {}", written,
                              exponent(value) > 0 ? "multiplies" : "divides", axis);
    else if (resolved.transition == rules::TransitionOp::Reinterpret)
      note.text =
          fmt::format("`{}` has each rank of {} take the whole as its addend", written, axis);
    else if (resolved.form == rules::OpForm::Transition)
      note.text = fmt::format("`{}` averages over {}", written, axis);
    else if (resolved.form == rules::OpForm::Equation && program_.find(inst.attrs, "partial"))
      note.text =
          fmt::format("`{}` averages over the block of each rank of {}: their sum is the mean "
                      "times the number of ranks",
                      written, axis);
    else
      note.text = fmt::format("`{}` brings in the size of {}", written, axis);
    return note;
  }

  const ir::Program &program_;
  const CheckResult &result_;
  AxisId axis_;
};

} // namespace

std::optional<Note> explain_scale(const ir::Program &program, const CheckResult &result,
                                  ir::AxisSet axes, ValueId value) {
  if (!value.valid())
    return std::nullopt;
  for (AxisId axis : axes)
    if (std::optional<Note> note = ScaleOrigin(program, result, axis).find(value))
      return note;
  return std::nullopt;
}

} // namespace spmd::checker
