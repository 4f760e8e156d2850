// A claim holds where no finding stands at it, shown or not, and the types that it is about are
// known on all axes; of programs that declare nothing: where everything they were made of is known.
#include "checker/report/verdicts/verdicts.h"

#include "checker/gradual/step/returned.h"
#include "checker/program_queries.h"
#include "checker/report/provenance.h"
#include "checker/report/verdicts/blame.h"

#include "ir/dialect/print_type.h"
#include "ir/text/text.h"
#include "rules/ops/registry.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <map>

namespace spmd::checker {
namespace {

class Judge {
public:
  explicit Judge(const Report &report);
  std::vector<Verdict> run();

private:
  ir::AxisSet open_axes(ir::ValueId value) const;
  std::string axes_text(ir::ValueId value, ir::AxisSet axes) const;
  std::string label(ir::StringId name, ir::ValueId value) const {
    return name.valid() ? program_.strings[name].str() : ir::print_value(program_, value);
  }
  bool refute(Verdict &verdict, Place place) const;
  void leave_open(Verdict &verdict, ir::ValueId value) const;

  // Where something is said of the gradient of a parameter, and what it says it of.
  struct Witness {
    Place place;
    ir::ValueId value;
  };
  void find_witnesses();
  void find_updates();
  void gradient(uint32_t param, llvm::ArrayRef<Witness> witnesses);
  void assertion(ir::InstId id);
  void output(uint32_t index);

  using Key = std::pair<Place::Form, uint32_t>;
  const ir::Program &program_;
  const CheckResult &result_;
  const llvm::BitVector in_stages_;                      // proved_in_stages()
  std::map<Key, const Diagnostic *> shown_;              // the first one at each place
  std::map<Key, const Finding *> found_;                 // likewise, whether it is shown or not
  llvm::DenseMap<uint32_t, const Diagnostic *> blaming_; // by the value of the parameter
  llvm::DenseMap<uint32_t, llvm::SmallVector<Witness, 1>> witnesses_; // likewise
  std::vector<Verdict> verdicts_;
};

Judge::Judge(const Report &report)
    : program_(*report.program), result_(*report.result),
      in_stages_(result_.gradual ? proved_in_stages(program_, result_) : llvm::BitVector()) {
  for (const Finding &finding : result_.findings)
    found_.try_emplace({finding.place.form, finding.place.index}, &finding);
  for (const Diagnostic &diagnostic : report.diagnostics) {
    for (const Place &place : diagnostic.places) {
      const Diagnostic *&known = shown_[{place.form, place.index}];
      // What is the most severe refutes the claim; what is accepted does not.
      if (!known || known->first->suppressed ||
          (!diagnostic.first->suppressed &&
           diagnostic.first->severity() < known->first->severity()))
        known = &diagnostic;
    }
  }
  for (const Finding &finding : result_.findings) {
    auto at = shown_.find({finding.place.form, finding.place.index});
    if (at == shown_.end() || at->second->first->suppressed)
      continue;
    ir::ValueId blamed = parameter_of(program_, result_, finding);
    if (!blamed.valid())
      blamed = blamed_parameter(program_, finding);
    if (blamed.valid())
      blaming_.try_emplace(blamed.index, at->second);
  }
}

ir::AxisSet Judge::open_axes(ir::ValueId value) const {
  const ir::TypeId id = result_.types[value.index];
  if (!id.valid())
    return {};
  const ir::Type &type = program_.types[id];
  const ir::AxisSet typed = program_.meshes[type.mesh()].typed_axes();
  if (result_.gradual)
    return typed - proved_axes(result_, value);
  return (typed & type.unknown) | (typed - type.claimed());
}

std::string Judge::axes_text(ir::ValueId value, ir::AxisSet axes) const {
  return ir::print_axes(program_, program_.types[result_.types[value.index]].mesh(), axes);
}

// Whether a finding says something of the claim at a place.
bool Judge::refute(Verdict &verdict, Place place) const {
  const Key key{place.form, place.index};
  if (auto at = shown_.find(key); at != shown_.end()) {
    const Finding &finding = *at->second->first;
    verdict.place = place;
    if (finding.suppressed || finding.severity() == rules::Severity::Info) {
      verdict.form = Verdict::Form::Open;
      verdict.why =
          finding.suppressed ? "accepted: " + finding.reason : message_of(program_, finding);
    } else {
      verdict.form = Verdict::Form::Refuted;
      verdict.finding = at->second;
    }
    return true;
  }
  auto hidden = found_.find(key);
  if (hidden == found_.end())
    return false;
  verdict.form = Verdict::Form::Open;
  verdict.why = fmt::format("`{}` was found there and is not shown", hidden->second->info().name);
  return true;
}

void Judge::leave_open(Verdict &verdict, ir::ValueId value) const {
  if (!result_.types[value.index].valid()) {
    verdict.form = Verdict::Form::Open;
    verdict.why = "nothing calls it";
  } else if (const ir::AxisSet open = open_axes(value)) {
    verdict.form = Verdict::Form::Open;
    verdict.why =
        fmt::format("{} on {}", result_.gradual ? "not proved" : "unknown", axes_text(value, open));
  } else if (!in_stages_.empty() && !in_stages_.test(value.index)) {
    verdict.form = Verdict::Form::Open;
    verdict.why = "not proved between stages";
  }
}

void Judge::find_witnesses() {
  for (uint32_t i = 0; i < program_.insts.size(); ++i) {
    const ir::Inst &inst = program_.insts[ir::InstId{i}];
    const ir::Boundary op = rules::resolve_op(program_, inst.op).boundary;
    const llvm::SmallVector<ir::ValueId, 4> tensors = tensors_of(program_, ir::InstId{i});
    if (op == ir::Boundary::Grad && tensors.size() == 1 && inst.result_count)
      witnesses_[tensors[0].index].push_back({Place::inst(ir::InstId{i}), inst.result(0)});
    if (op == ir::Boundary::Step && tensors.size() == 2)
      witnesses_[tensors[0].index].push_back({Place::inst(ir::InstId{i}), tensors[1]});
  }
  for (uint32_t i = 0; i < program_.outputs.size(); ++i)
    if (const ir::Output &out = program_.outputs[i]; out.of.valid())
      witnesses_[out.of.index].push_back({{Place::Form::Output, i}, out.value});
}

// A step that is recorded by hand may state no output: what it writes over parameters stands for
// it.
void Judge::find_updates() {
  llvm::DenseMap<uint32_t, llvm::SmallVector<Witness, 1>> updates;
  for (uint32_t i = 0; i < program_.insts.size(); ++i) {
    const ir::Inst &inst = program_.insts[ir::InstId{i}];
    for (uint32_t r = 0; inst.phase == ir::Phase::Optimizer && r < inst.result_count; ++r) {
      const ir::ValueId root = storage_of(program_, inst.result(r));
      if (root != inst.result(r) && !witnesses_.count(root.index))
        updates[root.index].push_back({Place::inst(ir::InstId{i}), inst.result(r)});
    }
  }
  for (auto &[value, found] : updates)
    witnesses_[value] = std::move(found);
}

// A finding within the step leaves open what comes of it; it refutes the claim where it blames the
// parameter.
void Judge::gradient(uint32_t index, llvm::ArrayRef<Witness> witnesses) {
  const ir::Param &param = program_.params[index];
  Verdict verdict{.place = {Place::Form::Param, index},
                  .claim = "gradient of " + label(param.name, param.value)};
  bool said = refute(verdict, verdict.place);
  for (const Witness &witness : witnesses)
    said = said || refute(verdict, witness.place);
  if (!said) {
    for (const Witness &witness : witnesses)
      if (verdict.form == Verdict::Form::Holds)
        leave_open(verdict, witness.value);
    if (witnesses.empty())
      leave_open(verdict, param.value);
    if (auto blame = blaming_.find(param.value.index);
        verdict.form == Verdict::Form::Open && blame != blaming_.end() &&
        blame->second->first->severity() != rules::Severity::Info) {
      verdict.form = Verdict::Form::Refuted;
      verdict.finding = blame->second;
      verdict.why.clear();
    }
  }
  verdicts_.push_back(std::move(verdict));
}

void Judge::assertion(ir::InstId id) {
  const ir::Inst &inst = program_.insts[id];
  const ir::Boundary op = rules::resolve_op(program_, inst.op).boundary;
  if ((op != ir::Boundary::AssertType && op != ir::Boundary::FromLocal) || !inst.result_count)
    return;
  Verdict verdict{.place = Place::inst(id),
                  .claim = "type of " + ir::print_value(program_, inst.result(0))};
  if (!refute(verdict, verdict.place)) {
    if (program_.contexts[inst.context].check) {
      leave_open(verdict, inst.result(0));
    } else {
      verdict.form = Verdict::Form::Open;
      verdict.why = "checking is off there";
    }
  }
  verdicts_.push_back(std::move(verdict));
}

void Judge::output(uint32_t index) {
  const ir::Output &out = program_.outputs[index];
  std::string_view role = ir::kOutputRoleWords[static_cast<size_t>(out.role)];
  Verdict verdict{.place = {Place::Form::Output, index},
                  .claim = fmt::format("{} {}", role, label(out.name, out.value))};
  if (!refute(verdict, verdict.place))
    leave_open(verdict, out.value);
  verdicts_.push_back(std::move(verdict));
}

std::vector<Verdict> Judge::run() {
  find_witnesses();
  find_updates();
  for (uint32_t i = 0; i < program_.params.size(); ++i) {
    const ir::Param &param = program_.params[i];
    auto witnesses = witnesses_.find(param.value.index);
    if (param.role != ir::Role::Param)
      continue;
    if (witnesses != witnesses_.end())
      gradient(i, witnesses->second);
    else if (param.grad.stated)
      gradient(i, {});
  }
  for (uint32_t i = 0; i < program_.insts.size(); ++i)
    assertion(ir::InstId{i});
  for (uint32_t i = 0; i < program_.outputs.size(); ++i) {
    const ir::Output &out = program_.outputs[i];
    const ir::Param *of = out.of.valid() ? program_.find_param(out.of) : nullptr;
    if (!of || of->role != ir::Role::Param)
      output(i);
  }
  return std::move(verdicts_);
}

} // namespace

std::vector<Verdict> verdicts_of(const Report &report) { return Judge(report).run(); }

} // namespace spmd::checker
