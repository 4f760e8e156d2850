// Each attribute that a row knows, generated from the table: a value of another form, out of range
// or under a misspelt name is found, a right one is not; and so are floats where a row takes an
// index.
#include "rules/attributes/attributes.h"

#include "checker/check.h"
#include "ir/input/input.h"
#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"
#include "tests/property/attribute_values.h"
#include "tests/property/equation_plan.h"
#include "tests/unit/catch.h"

#include <set>

namespace spmd::property {
namespace {

using rules::AttributeSpec;
using rules::Equation;

// The names of what is found in the last statement; `of`: only where a field of it is this text.
std::set<std::string> found_in(const std::string &text, const std::string &of = "") {
  ir::ReadResult read = ir::read_text(text);
  std::set<std::string> names;
  if (!read.errors.empty())
    return {"input-error: " + read.errors[0].message};
  checker::CheckResult result = checker::check(read.program, {});
  for (const checker::Finding &finding : result.findings) {
    bool named = of.empty();
    rules::for_each_field(finding.violation, [&](std::string_view, const rules::Field &field) {
      if (const auto *word = std::get_if<std::string>(&field))
        named |= *word == of;
    });
    if (named)
      names.insert(std::string(rules::info(finding.violation).name));
  }
  return names;
}

constexpr char kMesh[] = "trace { mode = local }\nmesh m { tp = 4 }\n";

// One application of a row, whose attributes are left open.
class RowText {
public:
  // `index`: an operand whose entries are floats although the row takes them for indices.
  explicit RowText(const rules::OpDef &row, std::optional<unsigned> index = std::nullopt)
      : row_(row), equation_(row.equation.equation), plan_(plan_as_written(equation_, 0)) {
    inputs_ = kMesh;
    std::vector<std::string> texts;
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      bool condition = false, written = false;
      for (unsigned r = 0; r < equation_.ref_count; ++r)
        if (equation_.refs[r].operand == i) {
          condition |= equation_.refs[r].role == rules::RefRole::Condition;
          written |= equation_.refs[r].has_dims;
        }
      std::string members;
      for (const TensorPlan &member : plan_.operands[i]) {
        std::string name = "%" + std::to_string(count_++), shape;
        for (const std::vector<uint8_t> &dim : member.dims)
          shape += (shape.empty() ? "" : ", ") + std::to_string(1 << dim.size());
        size_t rank = written ? member.dims.size() : 3;
        if (!written)
          shape = condition ? "2" : "2, 3, 4";
        if (i == 0 && members.empty())
          rank_ = rank;
        inputs_ +=
            name + " = input " + (condition && index != i ? "i64[" : "f32[") + shape + "] R\n";
        members += (members.empty() ? "" : ", ") + name;
      }
      bool list = equation_.operands[i].list != rules::ListForm::Single;
      texts.push_back(members.empty() ? "null" : list ? "[" + members + "]" : members);
    }
    rules::ResolvedOp op = rules::resolve_spelling({row.name.data(), row.name.size()}, "spmd");
    std::vector<std::string> ordered = op.order.empty() ? texts : std::vector<std::string>();
    for (uint8_t operand : op.order)
      if (operand < texts.size())
        ordered.push_back(texts[operand]);
    for (const std::string &text : ordered)
      operands_ += (operands_.empty() ? " " : ", ") + text;
  }

  std::string with(const std::string &attributes) const {
    std::string results;
    for (unsigned k = 0; k < equation_.result_count; ++k)
      results += (k ? ", %r" : "%r") + std::to_string(k);
    return inputs_ + results + " = spmd." + std::string(row_.name) + operands_ +
           (attributes.empty() ? "" : " { " + attributes + " }") + "\n";
  }
  size_t rank() const { return rank_; }

private:
  const rules::OpDef &row_;
  const Equation &equation_;
  ShapePlan plan_;
  std::string inputs_, operands_;
  size_t rank_ = 0;
  unsigned count_ = 0;
};

template <class Text>
void check_attribute(const AttributeSpec &spec, size_t rank, const Text &text, size_t &tried) {
  std::string name(spec.first_name());
  AttributeValues values = attribute_values(spec.form, rank, 4);
  for (const std::string &value : values.wrong) {
    std::string program = text(name + " = " + value);
    std::set<std::string> found = found_in(program, name);
    bool refused = found.count("attribute-mismatch") || !found_in(program).empty();
    INFO(program);
    CHECK(refused);
    ++tried;
  }
  for (const std::string &value : values.right) {
    std::string program = text(name + " = " + value);
    INFO(program);
    CHECK(found_in(program, name).count("attribute-mismatch") == 0);
    ++tried;
  }
  if (name.size() < 3 || name[0] == name[1])
    return;
  std::string misspelt = name;
  std::swap(misspelt[0], misspelt[1]);
  std::string program = text(misspelt + " = 1");
  INFO(program);
  CHECK(found_in(program, misspelt).count("attribute-mismatch"));
  ++tried;
}

} // namespace

TEST_CASE("attributes of op rows are held against what the row knows") {
  size_t tried = 0;
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      RowText text(row);
      if (found_in(text.with("")).count("operand-mismatch"))
        continue;
      rules::ResolvedOp op = rules::resolve_spelling({row.name.data(), row.name.size()}, "spmd");
      for (const AttributeSpec &spec : rules::attributes_of(row, op.alias).specs)
        check_attribute(
            spec, text.rank(), [&](const std::string &attr) { return text.with(attr); }, tried);
    }
  CHECK(tried > 1500);
}

TEST_CASE("attributes of transitions are held against what they know") {
  size_t tried = 0;
  std::set<std::string_view> names;
  for (llvm::ArrayRef<rules::Transition> rows : {rules::transitions(), rules::joint_transitions()})
    for (const rules::Transition &row : rows) {
      if (!names.insert(row.name()).second)
        continue;
      auto text = [&](const std::string &attr) {
        bool words = attr.find("rsc") == std::string::npos && attr.find("sdt") == std::string::npos;
        return std::string(kMesh) + "%x = input f32[8] " + std::string(ir::info(row.src).word) +
               "\n%r = " + std::string(row.name()) + " %x { axis = tp, " +
               (words ? "src = " + std::string(ir::info(row.src).word) +
                            ", dst = " + std::string(ir::info(row.dst).word) + ", "
                      : "") +
               attr + " }\n";
      };
      for (const AttributeSpec &spec : rules::attributes_of_transition(row.op).specs)
        if (spec.first_name() != "axis")
          check_attribute(spec, 1, text, tried);
    }
  CHECK(names.size() > 8);
  CHECK(tried > 50);
}

TEST_CASE("an index is a whole number") {
  size_t tried = 0;
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      const Equation &equation = row.equation.equation;
      for (unsigned r = 0; r < equation.ref_count; ++r) {
        const rules::Ref &ref = equation.refs[r];
        // Floats in the place of classes are probabilities of them.
        bool either = row.name == "cross_entropy";
        if (ref.role != rules::RefRole::Condition || ref.index == rules::kNoFactor || either)
          continue;
        std::string wrong = RowText(row, ref.operand).with(""), right = RowText(row).with("");
        INFO(wrong);
        CHECK(found_in(wrong).count("operand-mismatch"));
        CHECK_FALSE(found_in(right).count("operand-mismatch"));
        ++tried;
      }
    }
  CHECK(tried > 20);
}

} // namespace spmd::property
