// A fix as a framework says it. What is offered was typed again in our words; here only its name
// changes, and the rules are asked once more whether it still does the same.
#include "checker/dialect/printer.h"
#include "checker/fix/fix.h"

#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

class FixPrinter {
public:
  FixPrinter(ir::Program &program, ir::Dialect dialect)
      : program_(program), dialect_(dialect), printer_(program, dialect, ir::Dialect::Spmd) {}

  void put_in_words(Fix &fix) {
    std::string words, lines;
    for (const FixStep &step : fix.steps) {
      if (step.op == rules::TransitionOp::None) // a factor
        return;
      DialectText printed = printer_.print(call_of(fix, step));
      if (!printed.found)
        return;
      std::string value = ir::print_value(program_, step.value);
      words += (words.empty() ? "" : " and ") + called(printed, value);
      lines += (lines.empty() ? "" : "\n") + written(printed, value);
    }
    fix.words = words.empty() ? "" : words + fix.remark;
    fix.words_replacement = lines;
  }

private:
  TypedCall call_of(const Fix &fix, const FixStep &step) {
    TypedCall call{
        .op =
            ir::OpNameId{
                program_.strings.add("spmd." + std::string(rules::name_of(step.op))).index},
        .attrs = step.attrs,
        .context = program_.insts[fix.inst].context,
        .operands = program_.operand_lists.add({ir::Operand::value(step.value)}),
        .list = {},
        .args = {step.before},
        .results = {step.after},
        .claims = {{}}};
    call.list.read(program_, call.operands);
    return call;
  }
  std::string attribute(const ir::AttrValue &value) const {
    switch (value.form) {
    case ir::AttrForm::Axes: {
      std::string names;
      const ir::AxisRefs &refs = program_.axis_refs[value.as<ir::AxisRefsId>()];
      for (const ir::AxisRef &ref : refs.refs)
        names += (names.empty() ? "" : ", ") + program_.strings[ref.axis].str();
      return refs.refs.size() == 1 ? names : "(" + names + ")";
    }
    case ir::AttrForm::Kind:
      return ir::print(value.as_kind());
    case ir::AttrForm::Claim: {
      const ir::Claim &claim = program_.claims[value.as<ir::ClaimId>()];
      return ir::print_type_in(program_, program_.types[claim.type], claim.shape,
                               claim.global_shape, dialect_);
    }
    default:
      return value.form == ir::AttrForm::Bool && value.as_bool() ? "true" : "";
    }
  }
  std::string attributes(const DialectStep &step, std::string_view equals) const {
    std::string text;
    for (const ir::Attr &attr : program_.attrs[step.attrs].attrs) {
      llvm::StringRef key = program_.strings[attr.key];
      bool axis = key == "axis" && equals == "=";
      text += fmt::format("{}{}{}", text.empty() ? "" : ", ",
                          axis ? "" : (key == "type" ? "to" : key.str()) + std::string(equals),
                          attribute(attr.value));
    }
    return text;
  }
  // `unreduced_psum(%y, tp), then preduced(tp)`
  std::string called(const DialectText &printed, const std::string &value) const {
    std::string text;
    for (const DialectStep &step : printed.steps)
      text += text.empty() ? fmt::format("{}({}, {})", step.name, value, attributes(step, "="))
                           : fmt::format(", then {}({})", step.name, attributes(step, "="));
    return text;
  }
  std::string written(const DialectText &printed, const std::string &value) const {
    std::string text, at = value;
    for (size_t i = 0; i < printed.steps.size(); ++i) {
      std::string made = value + (i + 1 == printed.steps.size() ? ".fixed" : ".step");
      text += fmt::format("{}{} = {} {} {{ {} }}", text.empty() ? "" : "\n", made,
                          printed.steps[i].name, at, attributes(printed.steps[i], " = "));
      at = made;
    }
    return text;
  }

  ir::Program &program_;
  const ir::Dialect dialect_;
  DialectPrinter printer_;
};

} // namespace

void translate_fixes(ir::Program &program, ir::Dialect dialect, llvm::MutableArrayRef<Fix> fixes) {
  FixPrinter printer(program, dialect);
  for (Fix &fix : fixes)
    printer.put_in_words(fix);
}

} // namespace spmd::checker
