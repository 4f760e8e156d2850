// Erased collectives whose result was left R or I: one pass backwards over the program finds the
// use that decides. Where none does, the word stays undecided and the report says so.
#include "checker/walk.h"

#include "checker/provenance.h"

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

namespace {

struct Decision {
  AxisSet replicate, invariant;
};

class Decider {
public:
  Decider(const ir::Program &program, CheckResult &result)
      : program_(program), result_(result), made_(program.values.size()) {}

  void run() {
    for (const ir::Output &out : program_.outputs)
      if (out.declared.valid())
        note(out.value, program_.types[out.declared]);
    for (uint32_t i = program_.main.last.index; i-- > program_.main.first.index;)
      visit(InstId{i});
    for (InferredAt &at : result_.inferred)
      settle(at);
  }

private:
  const Type &type(ValueId value) const { return program_.types[result_.types[value.index]]; }

  // What a use as this type says of an operand that is open.
  void note(ValueId value, const Type &used) {
    AxisSet open = type(value).either();
    made_[value.index].invariant |= open & (used.of(Kind::Invariant) - used.either());
    made_[value.index].replicate |=
        open &
        ((used.replicated() | used.of(Kind::Varying) | used.of(Kind::Partial)) - used.either());
  }

  void visit(InstId id) {
    const ir::Inst &inst = program_.insts[id];
    for (ValueId operand : tensors_of(program_, id)) {
      AxisSet open = type(operand).either();
      for (uint32_t r = 0; open && r < inst.result_count; ++r) {
        const Type &used = type(inst.result(r));
        if (used.mesh() != type(operand).mesh())
          continue;
        note(operand, used);
        const Decision &later = made_[inst.result(r).index];
        made_[operand.index].invariant |= open & later.invariant;
        made_[operand.index].replicate |= open & later.replicate;
      }
    }
  }

  // Without a gradient the two are one, and R is the word for it.
  void settle(InferredAt &at) const {
    if (at.word.dst.form != ir::KindWord::Form::Either)
      return;
    ValueId value = program_.insts[at.inst].first_result;
    const Decision &decision = made_[value.index];
    bool invariant = decision.invariant.contains(at.word.axes);
    bool replicate = decision.replicate.contains(at.word.axes) || type(value).gradient_free();
    if (invariant != replicate || (invariant && type(value).gradient_free()))
      at.word.dst = {.kind = invariant ? Kind::Invariant : Kind::Replicate};
  }

  const ir::Program &program_;
  CheckResult &result_;
  std::vector<Decision> made_;
};

} // namespace

void decide_erased(const ir::Program &program, CheckResult &result) {
  if (!result.inferred.empty())
    Decider(program, result).run();
}

} // namespace spmd::checker
