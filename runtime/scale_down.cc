// Symbols take values, calls are inlined, then every dimension of every value is a variable. Ops tie
// them by the factors of their rows, transitions by the sizes of axes; numbers in attributes follow the
// dimension that they size.
#include "runtime/scale_down.h"

#include "runtime/element_bytes.h"
#include "runtime/extent_ties.h"

#include "checker/inline.h"
#include "checker/operand_list.h"

#include "ir/text.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::Program;

namespace {

// Extents with symbols as numbers.
class SymbolValues {
public:
  SymbolValues(Program &program, const Resize &resize) : program_(program) {
    for (const ir::SymbolInfo &symbol : program.symbols) {
      std::optional<int64_t> value = symbol.hint;
      if (!value && symbol.min && symbol.min == symbol.max)
        value = symbol.min;
      for (const auto &[name, stated] : resize.symbols)
        if (name == program.strings[symbol.name])
          value = stated;
      if (value)
        values_[symbol.name.index] = *value;
    }
  }

  std::optional<int64_t> value(ir::Extent extent) const {
    if (extent.is_number())
      return extent.number();
    const ir::Expr &expr = program_.exprs[extent.expr()];
    if (expr.form == ir::Expr::Form::Symbol) {
      auto found = values_.find(expr.symbol.index);
      return found == values_.end() ? std::nullopt : std::optional(found->second);
    }
    std::optional<int64_t> left = value(expr.left), right = value(expr.right);
    if (!left || !right)
      return std::nullopt;
    ir::ExprTable none;
    std::optional<ir::Extent> made = ir::combine(none, expr.form, *left, *right);
    return made && made->is_number() ? std::optional(made->number()) : std::nullopt;
  }
  ir::ShapeId shape(ir::ShapeId id) {
    if (!id.valid())
      return id;
    ir::Shape shape = program_.shapes[id];
    for (ir::Extent &extent : shape.dims)
      if (std::optional<int64_t> number = value(extent))
        extent = *number;
    return program_.shapes.add(shape);
  }
  ir::AttrValue attr(const ir::AttrValue &attr) {
    if (attr.form == ir::AttrForm::Expr)
      if (std::optional<int64_t> number = value(ir::Extent::symbolic(attr.as<ir::ExprId>())))
        return ir::AttrValue::integer(*number);
    if (attr.form != ir::AttrForm::List)
      return attr;
    ir::AttrList list = program_.lists[attr.as<ir::AttrListId>()];
    for (ir::AttrValue &item : list.items)
      item = this->attr(item);
    return ir::AttrValue::list(program_.lists.add(list));
  }

  void apply() {
    for (uint32_t i = 0; i < program_.values.size(); ++i) {
      ir::Value &value = program_.values[ir::ValueId{i}];
      value.shape = shape(value.shape);
      value.global_shape = shape(value.global_shape);
    }
    for (ir::AttrValue &literal : program_.literals)
      literal = attr(literal);
    for (uint32_t i = 0; i < program_.insts.size(); ++i) {
      ir::Inst &inst = program_.insts[ir::InstId{i}];
      ir::AttrDict dict = program_.attrs[inst.attrs];
      for (ir::Attr &each : dict.attrs)
        each.value = attr(each.value);
      inst.attrs = program_.attrs.add(dict);
    }
  }

private:
  Program &program_;
  llvm::DenseMap<uint32_t, int64_t> values_;
};

bool has_symbols(const Program &program) {
  return llvm::any_of(program.symbols, [](const ir::SymbolInfo &symbol) {
    return symbol.hint || (symbol.min && symbol.min == symbol.max);
  });
}

// Empty, or a symbol that is not there.
std::string unknown_symbol(const Program &program, const Resize &resize) {
  for (const auto &[name, value] : resize.symbols)
    if (llvm::none_of(program.symbols, [&, &name = name](const ir::SymbolInfo &symbol) {
          return name == program.strings[symbol.name];
        }))
      return fmt::format("the program has no symbol `{}`", name);
  return "";
}

} // namespace

llvm::Error refuse_sizes_of_data(const Program &program) {
  checker::OperandList operands;
  for (const ir::Inst &inst : program.insts.all()) {
    operands.read(program, inst.operands);
    for (const rules::Slot &slot : operands.slots) {
      if (!slot.name.valid() || slot.count == 0 || inst.result_count == 0)
        continue;
      llvm::StringRef name = program.strings[slot.name];
      if (name == "in_splits" || name == "out_splits" || name == "splits")
        return make_error(fmt::format(
            "`{} = {}` moves as many elements as the tensor {} says (`{}`): how many is known once "
            "it "
            "runs, and a plan needs it before; record the program with blocks of a fixed size",
            ir::print_value(program, inst.first_result), program.op_name(inst.op).str(),
            ir::print_value(program, operands.values[slot.first]), name.str()));
    }
  }
  return llvm::Error::success();
}

bool needs_resize(const Program &program, const Resize &resize) {
  return resize.scale_down || !resize.axes.empty() || !resize.symbols.empty() ||
         has_symbols(program);
}

llvm::Expected<std::vector<std::string>>
resize_program(Program &program, const checker::CheckResult &checked, const Resize &resize) {
  if (std::string text = unknown_symbol(program, resize); !text.empty())
    return make_error(std::move(text));
  if (llvm::Error error = refuse_sizes_of_data(program))
    return error;
  if (has_symbols(program) || !resize.symbols.empty())
    SymbolValues(program, resize).apply();
  llvm::Expected<MeshResize> meshes = MeshResize::make(program);
  if (!meshes)
    return meshes.takeError();
  for (const auto &[axis, size] : resize.axes)
    if (llvm::Error error = meshes->set(program, axis, size))
      return error;
  if (resize.scale_down)
    meshes->shrink();
  if (!resize.scale_down && !meshes->changes())
    return std::vector<std::string>();
  checker::CheckResult seen = checked;
  if (!program.functions.empty() || has_symbols(program)) {
    checker::inline_calls(program);
    seen = checker::check(program, {});
    if (!seen.clean()) // with these values of its symbols: whoever checks it next says why
      return std::vector<std::string>();
  }
  ExtentTies ties(program, seen, *meshes);
  if (!ties.resize(resize.scale_down))
    return make_error("extents that follow the axes do not divide, or are tied to numbers of "
                      "unknown role");
  if (llvm::Error error = ties.apply())
    return error;
  if (llvm::Error error = meshes->apply(program))
    return error;
  return ties.notes();
}

} // namespace spmd::runtime
