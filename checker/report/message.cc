// Sentences of findings: fills the placeholders of DiagnosticInfo::message with the typed fields of
// the struct. Relies on ir/text/text.h for whatever has a text form.
#include "checker/report/message.h"

#include "checker/program_queries.h"

#include "ir/dialect/print_type.h"
#include "ir/mesh/symbols.h"
#include "ir/support/format.h"
#include "ir/text/text.h"
#include "rules/ops/registry.h"
#include "rules/violations/local.h"
#include "rules/violations/transitions.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

template <class... F> struct Overloaded : F... { using F::operator()...; };
template <class... F> Overloaded(F...) -> Overloaded<F...>;

constexpr std::string_view kPlaceWords[] = {"",         "",     "output", "rule",
                                            "suppress", "file", "func",   "symbol"};

std::string op_of(const ir::Program &program, const Place &place) {
  switch (place.form) {
  case Place::Form::Inst:
    return program.op_name(program.insts[place.as_inst()].op).str();
  case Place::Form::Param:
    return std::string(ir::kRoleWords[static_cast<unsigned>(program.params[place.index].role)]);
  case Place::Form::Rule:
    return program.strings[program.rules[place.index].op].str();
  default:
    return std::string(kPlaceWords[static_cast<unsigned>(place.form)]);
  }
}

ir::MeshId mesh_of_value(const ir::Program &program, ir::ValueId id) {
  const ir::Value &value = program.values[id];
  if (value.mesh.valid())
    return value.mesh;
  return value.declared.valid() ? program.types[value.declared].mesh()
                                : program.contexts[ir::ContextId{0}].mesh;
}

using Words = llvm::SmallVector<std::string, 4>;

// Names the tensors among some operands by position, `0`, `1[3]`, or by the word they were given
// with.
void add_words(const ir::Program &program, ir::OperandsId block, llvm::StringRef prefix,
               Words &words) {
  unsigned position = 0;
  std::string given;
  for (const ir::Operand &operand : program.operand_lists[block]) {
    if (operand.form == ir::Operand::Form::Name) {
      given = program.strings[operand.as_name()].str();
      continue;
    }
    std::string word = given.empty() ? std::to_string(position++) : given;
    if (!prefix.empty())
      word = fmt::format("{}[{}]", prefix, word);
    if (operand.is_value())
      words.push_back(word);
    else if (operand.form == ir::Operand::Form::List)
      add_words(program, operand.as_list(), word, words);
    given.clear();
  }
}

std::string operand_text(const ir::Program &program, const Finding &finding, unsigned index) {
  Words words;
  if (finding.place.form == Place::Form::Inst)
    add_words(program, program.insts[finding.place.as_inst()].operands, "", words);
  if (words.size() == 1)
    return "its operand";
  return fmt::format("operand {}", index < words.size() ? words[index] : std::to_string(index));
}

std::string kind_text(ir::WrittenKind word) {
  switch (word.form) {
  case ir::WrittenKind::Form::Shard:
    return fmt::format("sharded on dimension {}", word.dim);
  case ir::WrittenKind::Form::Either:
    return "replicate or invariant";
  case ir::WrittenKind::Form::Unknown:
    return "of unknown kind";
  case ir::WrittenKind::Form::Plain:
    break;
  }
  std::string name(info(word.kind).name);
  if (word.kind == ir::Kind::Partial && word.combiner != ir::Combiner::Sum)
    name += fmt::format(" ({})", ir::word(word.combiner));
  return name;
}

std::string type_text(const ir::Program &program, ir::TypeId type) {
  std::string text = type.valid() ? ir::print_kinds(program, program.types[type]) : "";
  return text.empty() ? "of no stated kind" : text;
}

// Whether the program states a type at the place, as opposed to an op that needs one by itself.
bool states_type(const ir::Program &program, const Place &place) {
  if (place.form == Place::Form::Output)
    return program.outputs[place.index].declared.valid();
  if (place.form != Place::Form::Inst)
    return true;
  const ir::Inst &inst = program.insts[place.as_inst()];
  for (uint32_t r = 0; r < inst.result_count; ++r)
    if (program.values[inst.result(r)].declared.valid())
      return true;
  if (program.find(inst.attrs, "out_types")) // of a region's or a function's results
    return true;
  return inst.attrs.valid() && llvm::any_of(program.attrs[inst.attrs].attrs, [](const auto &attr) {
           return attr.value.form == ir::AttrForm::Claim;
         });
}

// What stands between the type that a value has and the other one.
std::string claims_text(const ir::Program &program, const Place &place) {
  if (states_type(program, place))
    return "but it is stated as";
  if (place.form == Place::Form::Inst)
    return fmt::format("but `{}` needs", op_of(program, place));
  return "but the value that it replaces is";
}

// An average of copies is one of them.
std::string effect_text(const ir::Program &program, rules::RankCount factor) {
  return factor.count == 1
             ? "changes nothing and costs the communication"
             : fmt::format("multiplies it by {}", ir::print_ranks(program, factor.count));
}

// What goes wrong where an invariant operand meets another one: an addend of a sum is wrong in its
// value.
std::string loss_text(const ir::Program &program, const Finding &finding,
                      const rules::InvariantMixed &mixed) {
  std::string operand = operand_text(program, finding, mixed.operand.index);
  if (mixed.kind == ir::Kind::Partial && finding.place.form == Place::Form::Inst) {
    ir::OpNameId op = program.insts[finding.place.as_inst()].op;
    rules::ResolvedOp row = rules::resolve_op(program, op);
    if (row.form == rules::OpForm::Equation && row.row->equation.equation.term_count > 1)
      return operand + " would be added once per rank";
  }
  return fmt::format("the gradient of {} would miss a sum", operand);
}

// The text of `{name}` in the sentence of a finding; empty for an optional field that is not there.
std::string placeholder(const ir::Program &program, const Finding &finding, std::string_view name) {
  if (name == "op")
    return op_of(program, finding.place);
  if (name == "claims")
    return claims_text(program, finding.place);
  if (name == "effect")
    return effect_text(program, finding.violation.as<rules::ReduceOfReplicated>()->factor);
  if (name == "loss")
    return loss_text(program, finding, *finding.violation.as<rules::InvariantMixed>());
  std::string text;
  std::optional<rules::OperandIndex> first_operand; // the first one that the finding names
  rules::for_each_field(finding.violation, [&](std::string_view field, const rules::Field &value) {
    const auto *operand = std::get_if<rules::OperandIndex>(&value);
    if (field == name)
      text = operand && first_operand == *operand ? "itself" : field_text(program, finding, value);
    if (operand && !first_operand)
      first_operand = *operand;
  });
  return text;
}

// Fills `{name}`, and `{name noun}` with so many of them: `1 rank`, `2 ranks`. A part in brackets
// is left out if one of its fields is empty.
std::string fill(const ir::Program &program, const Finding &finding, std::string_view text) {
  std::string out;
  bool complete = true;
  size_t optional = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') {
      optional = out.size();
      complete = true;
    } else if (text[at] == ']') {
      if (!complete)
        out.resize(optional);
    } else if (text[at] == '{') {
      size_t end = text.find('}', at);
      auto [name, noun] = llvm::StringRef(text.data() + at + 1, end - at - 1).split(' ');
      std::string word = placeholder(program, finding, name);
      complete &= !word.empty();
      out += word;
      if (!noun.empty())
        out += fmt::format(" {}{}", noun, word == "1" ? "" : "s");
      at = end;
    } else {
      out += text[at];
    }
  }
  return out;
}

} // namespace

std::string declared_or_op(const ir::Program &program, const Place &place) {
  if (place.form != Place::Form::Param)
    return op_of(program, place);
  const ir::Param &param = program.params[place.index];
  return fmt::format("{} {}", op_of(program, place),
                     param.name.valid() ? program.strings[param.name].str()
                                        : ir::print_value(program, param.value));
}

ir::MeshId mesh_of(const ir::Program &program, const Place &place) {
  switch (place.form) {
  case Place::Form::Inst:
    return program.contexts[program.insts[place.as_inst()].context].mesh;
  case Place::Form::Param:
    return mesh_of_value(program, program.params[place.index].value);
  case Place::Form::Output:
    return mesh_of_value(program, program.outputs[place.index].value);
  case Place::Form::Function: {
    const ir::Function &function = program.functions[ir::FunctionId{place.index}];
    if (!function.params.empty())
      return mesh_of_value(program, function.params.front().value);
    return program.contexts[ir::ContextId{0}].mesh;
  }
  default:
    return program.contexts[ir::ContextId{0}].mesh;
  }
}

std::string field_text(const ir::Program &program, const Finding &finding,
                       const rules::Field &field) {
  return std::visit(
      Overloaded{
          [&](rules::OperandIndex operand) {
            return operand_text(program, finding, operand.index);
          },
          [&](rules::ResultIndex result) { return fmt::format("result {}", result.index); },
          [&](rules::Addend addend) {
            return addend.form == rules::Addend::Form::Number
                       ? std::string("a number")
                       : operand_text(program, finding, addend.operand.index);
          },
          [&](ir::AxisSet axes) {
            return ir::print_axes(program, mesh_of(program, finding.place), axes);
          },
          [&](ir::Kind kind) { return std::string(ir::info(kind).name); },
          [&](ir::WrittenKind word) { return kind_text(word); },
          [&](ir::Combiner combiner) { return std::string(ir::word(combiner)); },
          [&](int64_t number) { return std::to_string(number); },
          [&](rules::RankCount ranks) { return ir::print_ranks(program, ranks.count); },
          [&](ir::TypeId type) { return type_text(program, type); },
          [&](ir::ShapeId shape) {
            return shape.valid() ? ir::print_shape(program, shape) : "unknown";
          },
          [&](ir::ValueId value) {
            ir::ValueId named = value_of(program, finding, value);
            return named.valid() ? ir::print_named(program, named) : std::string("a value");
          },
          [&](const std::string &text) { return text; },
      },
      field);
}

ir::ValueId value_of(const ir::Program &program, const Finding &finding, ir::ValueId named) {
  if (named.valid() || finding.place.form != Place::Form::Inst)
    return named;
  llvm::SmallVector<ir::ValueId, 4> tensors = tensors_of(program, finding.place.as_inst());
  return tensors.empty() ? named : tensors.front();
}

std::string message_of(const ir::Program &program, const Finding &finding) {
  return fill(program, finding, finding.info().message);
}

} // namespace spmd::checker
