// A plan as text: what is the same for two plans prints the same, and nothing else is in the
// fingerprint.
#include "runtime/plan/plan.h"

#include <fmt/format.h>

namespace spmd::runtime {
namespace {

constexpr std::string_view kLocalStepWords[] = {
    "copy",       "take-own", "keep-on-root", "place-own", "split",     "join", "scale",
    "coordinate", "take-row", "stack-rows",   "count",     "overwrite", "zero", "receive"};

class Printer {
public:
  Printer(const ir::Program &program, const Plan &plan) : program_(program), plan_(plan) {}
  std::string run();

private:
  void steps();
  void buffers();
  std::string body(const Step &step) const;
  std::string compute(const Compute &made) const;
  std::string local_step(const LocalStep &made) const;
  std::string communicate(const Communicate &made) const;
  std::string group(CommunicatorId id) const;
  std::string cut(CutId id) const;
  std::string list(Span span) const;
  std::string dims(const Buffer &buffer) const;
  std::string name(BufferId id) const { return fmt::format("b{}", id.index); }
  std::string slots(const Compute &made) const;
  std::string attr(const ir::AttrValue &value) const;
  std::string attrs(ir::AttrsId id) const;

  const ir::Program &program_;
  const Plan &plan_;
  std::string text_;
};

std::string print_dims(llvm::ArrayRef<int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims.begin(), dims.end(), ", "));
}

std::string Printer::dims(const Buffer &buffer) const {
  std::string text(ir::info(buffer.dtype).word);
  if (buffer.dims.size() == 1)
    return text + print_dims(buffer.dims[0]);
  // Ranks off the mesh hold nothing.
  for (size_t rank = 0; rank < buffer.dims.size(); ++rank)
    text += (rank ? "|" : "") + print_dims(buffer.dims[rank]);
  return text;
}

std::string Printer::list(Span span) const {
  std::string text;
  for (const Use &use : plan_.used(span))
    text += (text.empty() ? "" : ", ") + name(use.buffer);
  return text;
}

std::string Printer::group(CommunicatorId id) const {
  const Communicator &made = plan_.communicators[id];
  const ir::Mesh &mesh = program_.meshes[made.mesh];
  std::string text;
  for (ir::AxisId axis : made.axes)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", program_.strings[mesh[axis].name].str());
  return fmt::format("{}.({})", program_.strings[mesh.name].str(), text);
}

std::string Printer::cut(CutId id) const {
  std::string text;
  for (const auto &lengths : plan_.cuts[id].lengths)
    text += (text.empty() ? "" : "|") + print_dims(lengths);
  return text;
}

// Functions and types are not in what an op computes.
std::string Printer::attr(const ir::AttrValue &value) const {
  switch (value.form) {
  case ir::AttrForm::Bool:
    return value.as_bool() ? "true" : "false";
  case ir::AttrForm::Integer:
    return std::to_string(value.as_integer());
  case ir::AttrForm::Float:
    return fmt::format("{}", value.as_number());
  case ir::AttrForm::String:
    return fmt::format("\"{}\"", program_.strings[value.as<ir::StringId>()].str());
  case ir::AttrForm::Kind:
    return ir::print(value.as_kind());
  case ir::AttrForm::Scale:
    return ir::print(program_.scales[value.as<ir::ScaleId>()], program_.strings);
  case ir::AttrForm::Dict:
    return attrs(value.as<ir::AttrsId>());
  case ir::AttrForm::List: {
    std::string text;
    for (const ir::AttrValue &item : program_.lists[value.as<ir::AttrListId>()].items)
      text += (text.empty() ? "" : ", ") + attr(item);
    return fmt::format("[{}]", text);
  }
  case ir::AttrForm::Axes: {
    std::string text;
    for (const ir::AxisRef &ref : program_.axis_refs[value.as<ir::AxisRefsId>()].refs)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", program_.strings[ref.axis].str());
    return fmt::format("({})", text);
  }
  case ir::AttrForm::Null:
  case ir::AttrForm::Expr:
  case ir::AttrForm::Claim:
  case ir::AttrForm::Function:
  case ir::AttrForm::Value:
    break;
  }
  return "null";
}

std::string Printer::attrs(ir::AttrsId id) const {
  std::string text;
  for (const ir::Attr &each : program_.attrs[id].attrs)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", program_.strings[each.key].str(),
                        attr(each.value));
  return text.empty() ? text : fmt::format(" {{ {} }}", text);
}

// Operands as the program has them: numbers stand where they stand.
std::string Printer::slots(const Compute &made) const {
  std::string text;
  llvm::ArrayRef<Use> operands = plan_.used(made.operands);
  for (uint32_t i = 0; i < made.slots.count; ++i) {
    const rules::Slot &slot = plan_.slots[made.slots.first + i];
    text += i ? ", " : "";
    if (slot.name.valid())
      text += program_.strings[slot.name].str() + " = ";
    if (slot.form == rules::Slot::Form::Missing)
      text += "null";
    else if (slot.form == rules::Slot::Form::Literal)
      text += attr(slot.literal);
    else if (slot.form == rules::Slot::Form::Tensor)
      text += name(operands[slot.first].buffer);
    else {
      text += "[";
      for (unsigned k = 0; k < slot.count; ++k)
        text += (k ? ", " : "") + name(operands[slot.first + k].buffer);
      text += "]";
    }
  }
  return text;
}

std::string Printer::compute(const Compute &made) const {
  return fmt::format("{} = {} {}{}", list(made.results), program_.op_name(made.op).str(),
                     slots(made), attrs(made.attrs));
}

std::string Printer::local_step(const LocalStep &made) const {
  std::string text =
      fmt::format("{} = {}", name(made.result), kLocalStepWords[static_cast<unsigned>(made.form)]);
  if (made.operands.count)
    text += " " + list(made.operands);
  if (made.group.valid())
    text += " over " + group(made.group);
  if (made.cut.valid())
    text += fmt::format(" dim {} by {}", made.dim, cut(made.cut));
  if (made.form == LocalStepForm::KeepOnRoot)
    text += fmt::format(" root {}", made.root);
  if (made.form == LocalStepForm::TakeRow)
    text += fmt::format(" row {}", made.row);
  if (made.form == LocalStepForm::Scale)
    text += fmt::format(" by {}/{}", made.factor, made.divisor);
  return text;
}

std::string Printer::communicate(const Communicate &made) const {
  std::string text = fmt::format("{} = {} {} over {}", name(made.result),
                                 rules::kCollectiveWords[static_cast<unsigned>(made.collective)],
                                 name(made.operand), group(made.group));
  if (made.collective == rules::Collective::AllReduce ||
      made.collective == rules::Collective::ReduceScatter)
    text += fmt::format(" {} in {}", ir::word(made.combiner), ir::info(made.dtype).word);
  if (made.collective == rules::Collective::Broadcast)
    text += fmt::format(" from {}", made.root);
  for (uint32_t i = 0; i + 1 < made.perm.count; i += 2)
    text += fmt::format("{}{}->{}", i ? ", " : " ", plan_.numbers[made.perm.first + i],
                        plan_.numbers[made.perm.first + i + 1]);
  if (made.counts.valid())
    text += " pairwise " + cut(made.counts);
  return text;
}

std::string Printer::body(const Step &step) const {
  switch (step.form) {
  case StepForm::Compute:
    return compute(plan_.computes[step.index]);
  case StepForm::LocalStep:
    return local_step(plan_.local_steps[step.index]);
  case StepForm::Communicate:
    return communicate(plan_.communicates[step.index]);
  case StepForm::Release:
    return "release " + name(plan_.releases[step.index].buffer);
  case StepForm::Branch: {
    const Branch &made = plan_.branches[step.index];
    return fmt::format("if {} to {} else to {}", name(made.predicate), made.then_end,
                       made.else_end);
  }
  case StepForm::Loop: {
    const Loop &made = plan_.loops[step.index];
    return fmt::format("while {}, asked to {}, to {}", name(made.predicate), made.cond_end,
                       made.body_end);
  }
  }
  return {};
}

void Printer::steps() {
  for (size_t i = 0; i < plan_.steps.size(); ++i)
    text_ += fmt::format("{:>5}  {}\n", i, body(plan_.steps[i]));
}

void Printer::buffers() {
  auto named = [&](llvm::ArrayRef<PlannedId> values, std::string_view word) {
    for (PlannedId id : values)
      text_ +=
          fmt::format("{} {} {}\n", word,
                      ir::print(program_.values[plan_.values[id].value].name, program_.strings),
                      name(plan_.values[id].buffer));
  };
  named(plan_.params, "param");
  named(plan_.outputs, "output");
  for (uint32_t b = 0; b < plan_.buffers.size(); ++b) {
    const Buffer &buffer = plan_.buffers[BufferId{b}];
    if (buffer.life.empty())
      continue;
    text_ += fmt::format("b{} {} at {} for {} bytes, steps {} to {}{}\n", b, dims(buffer),
                         buffer.offset, buffer.bytes, buffer.life.first, buffer.life.last - 1,
                         buffer.in_place.valid()
                             ? fmt::format(", in place of b{}", buffer.in_place.index)
                             : std::string());
  }
  text_ += fmt::format("peak {} bytes per rank\n", plan_.peak_bytes);
}

std::string Printer::run() {
  steps();
  buffers();
  return std::move(text_);
}

} // namespace

std::string print(const ir::Program &program, const Plan &plan) {
  return Printer(program, plan).run();
}

uint64_t fingerprint(const ir::Program &program, const Plan &plan) {
  std::string text = print(program, plan);
  return ir::fingerprint(text.data(), text.size());
}

uint32_t step_after(const Plan &plan, uint32_t step) {
  const Step &at = plan.steps[step];
  return at.form == StepForm::Branch ? plan.branches[at.index].else_end
         : at.form == StepForm::Loop ? plan.loops[at.index].body_end
                                     : step + 1;
}

std::string name_of(const ir::Program &program, const Step &step) {
  if (!step.inst.valid())
    return "the program";
  const ir::Inst &inst = program.insts[step.inst];
  std::string op = program.op_name(inst.op).str();
  if (inst.result_count == 0)
    return fmt::format("`{}`", op);
  return fmt::format("`{} = {}`",
                     ir::print(program.values[inst.first_result].name, program.strings), op);
}

} // namespace spmd::runtime
