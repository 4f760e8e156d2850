// Instruction by instruction: candidate words from the tables of rules, typed again with the
// operands at hand before they are taken.
#include "checker/dialect/translate.h"

#include "checker/dialect/printer.h"
#include "checker/rewrite/casts.h"
#include "checker/rewrite/inline.h"

#include "rules/shards/sizes.h"

#include "ir/claims.h"
#include "ir/dialect/dialect.h"
#include "ir/dialect/print_type.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

using ir::Dialect;
using ir::Inst;
using ir::InstId;
using ir::ValueId;

class Translator {
public:
  Translator(ir::Program &program, CheckResult result, Dialect to)
      : program_(program), result_(std::move(result)), to_(to), printer_(program, to),
        copier_(program) {}

  std::vector<NoEquivalent> run() {
    declarations();
    parameters();
    replace_each(program_,
                 [&](const Inst &inst, InstId, std::vector<Inst> &out) { translate(inst, out); });
    for (uint32_t i = 0; i < program_.outputs.size(); ++i)
      if (ir::TypeId type = program_.outputs[i].declared; type.valid())
        types_of({Place::Form::Output, i}, program_.outputs[i].value, type);
    std::string word(ir::kDialectWords[static_cast<unsigned>(to_)]);
    if (to_ == Dialect::LTensor && program_.mode != ir::Mode::Local) {
      program_.mode = ir::Mode::Local;
      bool declares = !program_.params.empty();
      if (declares || !program_.insts.empty())
        note_loss(declares ? Place{Place::Form::Param, 0} : Place::inst(InstId{0}),
                  "what is whole is a list of tensors there: no shards, no scales");
    }
    program_.dialect = to_ == Dialect::Spmd ? ir::StringId{} : program_.strings.add(word);
    return std::move(no_equivalent_);
  }

private:
  void note_loss(Place place, std::string text) {
    NoEquivalent &lost = no_equivalent_.emplace_back();
    lost.place = place;
    lost.text = std::move(text);
  }

  void declarations() {
    for (uint32_t i = 0; i < program_.params.size(); ++i) {
      ValueId value = program_.params[i].value;
      ir::TypeId declared = program_.values[value].declared;
      Place place{Place::Form::Param, i};
      if (declared.valid())
        types_of(place, value, declared);
      if (to_ == Dialect::Jax || to_ == Dialect::LTensor)
        unclaimed(place, value, declared);
    }
  }
  // Of a function that states no type the types are those of each call.
  void parameters() {
    for (uint32_t i = 0; i < program_.functions.size(); ++i)
      for (const ir::FunctionParam &param : program_.functions[ir::FunctionId{i}].params) {
        ir::TypeId declared = program_.values[param.value].declared;
        Place place{Place::Form::Function, i};
        if (!declared.valid())
          continue;
        types_of(place, param.value, declared);
        if (to_ == Dialect::Jax || to_ == Dialect::LTensor)
          unclaimed(place, param.value, declared);
      }
  }
  void types_of(Place place, ValueId value, ir::TypeId type) {
    std::string lost = ir::describe_loss(program_, program_.types[type], to_);
    if (!lost.empty())
      note_loss(place, fmt::format("{}: {}", ir::print_value(program_, value), lost));
  }
  // Claims in attributes: strided shards of uneven blocks stay in our words.
  void claims_of(Place place, const Inst &inst) {
    for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs) {
      if (attr.value.form != ir::AttrForm::Claim)
        continue;
      const ir::Claim claim = program_.claims[attr.value.as<ir::ClaimId>()];
      if (to_ != Dialect::DTensor || !claim.type.valid() || !claim.global_shape.valid())
        continue;
      const ir::Type type = program_.types[claim.type];
      llvm::StringRef key = program_.strings[attr.key];
      std::string text = ir::print_type_in(program_, type, claim.shape, {}, Dialect::DTensor);
      if (llvm::StringRef(text).contains("_StridedShard") &&
          rules::declared_sizes(program_, type, claim.shape, claim.global_shape,
                                program_.rank.value_or(0))
              .sizes.valid())
        note_loss(place,
                  fmt::format("`{}`: uneven blocks in another order than the mesh's", key.str()));
    }
  }
  // What a declaration leaves out is invariant there.
  void unclaimed(Place place, ValueId value, ir::TypeId declared) {
    ir::MeshId mesh = ir::mesh_of(program_, value, ir::MeshId{0});
    ir::AxisSet open = program_.meshes[mesh].typed_axes();
    if (declared.valid())
      open -= program_.types[declared].claimed() | program_.types[declared].unknown;
    if (open)
      note_loss(place, fmt::format("{}: no claim on {} is I", ir::print_value(program_, value),
                                   ir::print_axes(program_, mesh, open)));
  }

  void translate(const Inst &inst, std::vector<Inst> &out) {
    TypedCall call = call_of(program_, result_, inst);
    DialectText printed = printer_.print(call);
    for (size_t i = 0; i < printed.steps.size(); ++i) {
      const DialectStep &step = printed.steps[i];
      Inst made = inst;
      made.op = ir::OpNameId{program_.strings.add(step.name).index};
      made.attrs = step.attrs;
      if (step.operands.valid())
        made.operands = step.operands;
      if (i > 0)
        made.operands = program_.operand_lists.add({ir::Operand::value(out.back().first_result)});
      if (i + 1 < printed.steps.size()) {
        ir::Value between;
        between.name = copier_.fresh_name(
            ir::print(program_.values[inst.first_result].name, program_.strings).substr(1) +
            "_step");
        made.first_result = program_.values.add(between);
      }
      out.push_back(made);
    }
    Place place = Place::inst(InstId{static_cast<uint32_t>(out.size() - 1)});
    // What is about the instruction begins with its op, else it is about the result.
    for (const std::string &text : printed.no_equivalent)
      note_loss(place, text.front() == '`' || inst.result_count == 0
                           ? text
                           : ir::print_value(program_, inst.result(0)) + ": " + text);
    claims_of(place, inst);
    for (uint32_t i = 0; i < inst.result_count; ++i)
      if (ir::TypeId type = program_.values[inst.result(i)].declared; type.valid())
        types_of(place, inst.result(i), type);
  }

  ir::Program &program_;
  CheckResult result_;
  const Dialect to_;
  DialectPrinter printer_;
  BodyCopier copier_; // for names
  std::vector<NoEquivalent> no_equivalent_;
};

} // namespace

std::vector<NoEquivalent> translate(ir::Program &program, const CheckOptions &options, Dialect to) {
  if (to != Dialect::LTensor)
    write_casts(program, options);
  return Translator(program, check(program, options), to).run();
}

} // namespace spmd::checker
