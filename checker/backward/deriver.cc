// Walks the instructions from the last to the first and puts out what each adds to the gradients of
// its operands.
#include "checker/backward/deriver.h"

#include "checker/report/report.h"
#include "checker/rewrite/annotate.h"
#include "checker/rewrite/casts.h"
#include "checker/rewrite/inlined_size.h"
#include "checker/rewrite/redistribute.h"

#include "rules/boundary/name.h"

#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {

static int64_t tag_of(const ir::Program &program, const Inst &inst) {
  const ir::AttrValue *tag = program.find(inst.attrs, "tag");
  return tag && tag->form == ir::AttrForm::Integer ? tag->as_integer() : 0;
}

// Values that depend on what gradients are asked for.
llvm::DenseSet<uint32_t> Deriver::active(llvm::ArrayRef<Inst> insts,
                                         llvm::ArrayRef<ValueId> wanted) {
  llvm::DenseSet<uint32_t> values;
  for (ValueId value : wanted)
    if (carries(value))
      values.insert(value.index);
  OperandList operands;
  llvm::DenseSet<int64_t> sent; // tags under which some of them went to another stage
  for (const Inst &inst : insts) {
    operands.read(program_, inst.operands);
    bool any = llvm::any_of(operands.values,
                            [&](ValueId value) { return values.count(value.index) != 0; });
    rules::Boundary op = rules_.resolve(inst.op).boundary;
    if (any && op == rules::Boundary::Send)
      sent.insert(tag_of(program_, inst));
    any |= op == rules::Boundary::Recv && sent.contains(tag_of(program_, inst));
    for (uint32_t i = 0; i < inst.result_count; ++i) {
      made_in_[inst.result(i).index] = inst.context;
      if (any && program_.contexts[inst.context].grad && carries(inst.result(i)))
        values.insert(inst.result(i).index);
    }
  }
  return values;
}

bool Deriver::differentiate(const Inst &inst, Gradients &gradients) {
  if (rules_.resolve(inst.op).boundary == rules::Boundary::Recv && inst.result_count == 1 &&
      active_.count(inst.first_result.index) && total(gradients, inst.first_result).valid())
    return fail(inst,
                "is of another stage, to which its gradient has to be sent: state the backward");
  OperandList operands;
  operands.read(program_, inst.operands);
  if (llvm::none_of(operands.values,
                    [&](ValueId value) { return active_.count(value.index) != 0; }))
    return true;
  llvm::SmallVector<ValueId, 4> results;
  bool any = false;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    results.push_back(active_.count(inst.result(i).index) ? total(gradients, inst.result(i))
                                                          : ValueId());
    any |= results.back().valid();
  }
  if (!any)
    return true;
  const rules::ResolvedOp op = rules_.resolve(inst.op);
  switch (op.form) {
  case rules::OpForm::Equation:
    return rows_.through_op(inst, op, results, gradients);
  case rules::OpForm::Transition:
    return transitions_.through_transition(inst, op, results, gradients);
  case rules::OpForm::Boundary:
    return transitions_.through_boundary(inst, op, results, gradients);
  case rules::OpForm::Call:
    if (op.boundary == rules::Boundary::Cond)
      return control_.through_cond(inst, results, gradients);
    if (op.boundary == rules::Boundary::Scan)
      return control_.through_scan(inst, results, gradients);
    return fail(inst, op.boundary == rules::Boundary::While
                          ? "runs a number of rounds that is not known: it has no derivative"
                          : "is opaque: it has no derivative");
  case rules::OpForm::Unknown:
    break;
  }
  return fail(inst, "is no op of ours");
}

bool Deriver::reverse(llvm::ArrayRef<Inst> insts, llvm::ArrayRef<ValueId> wanted,
                      Gradients &gradients) {
  active_ = active(insts, wanted);
  for (const Inst &inst : llvm::reverse(insts))
    if (!differentiate(inst, gradients))
      return false;
  return true;
}

// True if the program, or the caller, wants the gradient without a `grad` that says so.
bool Deriver::is_asked(const ir::Param &param) const {
  if (!wrt_.empty())
    return llvm::is_contained(wrt_, param.value);
  return param.role == ir::Role::Param ||
         program_.values[param.value].requires_grad == ir::Tristate::True;
}

// What gradients may be asked for.
std::vector<ValueId> Deriver::asked() const {
  std::vector<ValueId> values;
  for (const ir::Param &param : program_.params)
    if (is_asked(param))
      values.push_back(param.value);
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const Inst &inst = program_.insts[InstId{i}];
    if (rules::boundary_of(program_, inst.op) == rules::Boundary::Grad)
      for (const Operand &operand : program_.operand_lists[inst.operands])
        if (operand.is_value())
          values.push_back(operand.as_value());
  }
  return values;
}

bool Deriver::root(ValueId loss, const InsertionPoint &around) {
  gradients_.clear();
  root_scale_ = type(loss).scale;
  ValueId one = put("ones_like", Operand::value(loss), {}, around, stem(loss));
  if (!one.valid()) {
    problem_ = NoBackward{{}, fmt::format("the gradient of {} cannot be typed", name(loss))};
    return false;
  }
  give(gradients_, loss, one, around);
  std::vector<Inst> forward = forward_;
  return reverse(forward, asked(), gradients_);
}

// The gradient of the latest root; zeros where it does not depend on the value.
ValueId Deriver::gradient_of(ValueId value, const InsertionPoint &around) {
  ValueId found = total(gradients_, value);
  if (found.valid())
    return found;
  ValueId zeros = put("zeros_like", Operand::value(value), {}, around, stem(value));
  // The scale of a gradient is that of the root, whatever it is made of.
  ir::ScaleId by = ir::quotient(program_, root_scale_, type(value).scale);
  if (zeros.valid() && by.valid() && by != program_.one())
    zeros = put(rules::boundary_name(rules::Boundary::Scale), Operand::value(zeros),
                attrs({{"by", AttrValue::scale(by)}}), around, stem(value));
  zeros = fit(zeros, value, around);
  if (zeros.valid())
    state(zeros, value);
  return zeros;
}

// `%g = grad %x` names the gradient.
void Deriver::ask_gradient(const Inst &inst) {
  ValueId value = program_.operand_lists[inst.operands].front().as_value();
  InsertionPoint around{context_on(wanted(value).mesh(), inst.context), inst.loc, {}};
  ValueId gradient = gradient_of(value, around);
  if (!gradient.valid()) {
    fail(inst, "cannot be typed");
    return;
  }
  Inst named = inst;
  named.op = op("identity");
  named.attrs = program_.no_attrs();
  named.context = around.context;
  named.operands = program_.operand_lists.add({Operand::value(gradient)});
  out_.add(named, 0);
}

void Deriver::add_outputs() {
  for (const ir::Param &param : llvm::ArrayRef<ir::Param>(program_.params)) {
    if (!is_asked(param) || !carries(param.value))
      continue;
    ValueId gradient = gradient_of(param.value, {ir::ContextId{0}, {}, {}});
    if (!gradient.valid())
      continue;
    ir::Output output;
    output.value = gradient;
    std::string path =
        param.name.valid() ? program_.strings[param.name].str() : name(param.value).substr(1);
    output.name = program_.strings.add("grad." + path);
    program_.outputs.push_back(output);
  }
}

std::optional<NoBackward> Deriver::run() {
  std::vector<Inst> insts(program_.insts.begin() + program_.main.first.index,
                          program_.insts.begin() + program_.main.last.index);
  std::vector<uint64_t> origins(program_.origins.begin() + program_.main.first.index,
                                program_.origins.begin() + program_.main.last.index);
  bool rooted = false;
  for (size_t i = 0; i < insts.size() && !problem_; ++i) {
    const Inst &inst = insts[i];
    const rules::ResolvedOp &op = rules_.resolve(inst.op);
    if (op.boundary == rules::Boundary::Backward) {
      ValueId loss = program_.operand_lists[inst.operands].front().as_value();
      rooted = true;
      root(loss, {inst.context, inst.loc, {}});
    } else if (op.boundary == rules::Boundary::Grad) {
      ask_gradient(inst);
    } else {
      out_.add(inst, origins[i], InstId{program_.main.first.index + static_cast<uint32_t>(i)});
      forward_.push_back(inst);
    }
  }
  bool asks = llvm::any_of(insts, [&](const Inst &inst) {
    return rules_.resolve(inst.op).boundary == rules::Boundary::Grad;
  });
  for (const ir::Output &output : program_.outputs)
    if (!rooted && !problem_ && output.role == ir::OutputRole::Loss) {
      rooted = true;
      root(output.value, {context_on(type(output.value).mesh(), ir::ContextId{0}), {}, {}});
    }
  if (rooted && (!asks || !wrt_.empty()) && !problem_)
    add_outputs();
  replace_main(program_, std::move(out_));
  return problem_;
}

bool has_loss(const ir::Program &program) {
  for (const ir::Value &value : program.values)
    if (value.grad_of.valid())
      return false;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    if (rules::boundary_of(program, program.insts[InstId{i}].op) == rules::Boundary::Backward)
      return true;
  return llvm::any_of(program.outputs,
                      [](const ir::Output &output) { return output.role == ir::OutputRole::Loss; });
}

// Which instruction does not check, and why.
static std::string of_finding(const ir::Program &program, const Finding &finding) {
  std::string text = std::string(finding.info().name) + ": " + message_of(program, finding);
  if (finding.place.form == Place::Form::Inst)
    text += " at `" + ir::print_inst(program, finding.place.as_inst()) + "`";
  return text;
}

std::optional<NoBackward> derive_backward(ir::Program &program, const CheckOptions &options,
                                          llvm::ArrayRef<ValueId> wrt) {
  auto checked = [&](CheckResult &result) -> std::optional<NoBackward> {
    result = check(program, options);
    for (const Finding &finding : result.findings)
      if (finding.severity() == rules::Severity::Error)
        return NoBackward{finding.place.form == Place::Form::Inst ? finding.place.as_inst()
                                                                  : InstId(),
                          of_finding(program, finding)};
    return std::nullopt;
  };
  CheckResult result;
  if (std::optional<NoBackward> wrong = checked(result))
    return wrong;
  if (std::optional<TooManyInlined> many = too_many_inlined(program))
    return NoBackward{many->call, std::move(many->message)};
  inline_calls(program);
  write_casts(program, options);
  expand_redistributes(program, options, /*keep_stated=*/true);
  functionalize(program);
  if (std::optional<NoBackward> wrong = checked(result))
    return wrong;
  for (const Annotation &annotation : annotate(program, result))
    program.insts[annotation.inst].attrs = annotation.attrs;
  BackwardState state(program, result);
  if (std::optional<NoBackward> none = Deriver(state, wrt).run())
    return none;
  return checked(result);
}

} // namespace spmd::checker
