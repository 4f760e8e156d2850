// Symbols take values, calls are inlined, then every dimension of every value is a variable. Ops
// relate them by the factors of their rows, transitions by the sizes of axes; numbers in attributes
// follow the dimension that they size.
#include "runtime/extents/scale_down.h"

#include "runtime/extents/constraints.h"
#include "runtime/plan/tensor_sizes.h"
#include "runtime/tensor/element_bytes.h"

#include "checker/rewrite/inline.h"

#include "ir/mesh/symbols.h"
#include "ir/support/error.h"

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
      if (int64_t prime = prime_of(symbol.name); !value && resize.scale_down && prime)
        value = ir::assumed_ranks(program, prime);
      if (!value && symbol.min && symbol.min == symbol.max)
        value = symbol.min;
      for (const auto &[name, stated] : resize.symbols)
        if (name == program.strings[symbol.name])
          value = stated;
      if (value)
        values_[symbol.name.index] = *value;
    }
    for (uint32_t symbol : data_symbols(program))
      values_.erase(symbol);
  }

  // The symbol that alone is the size of an axis, named by the command line; none if it has a
  // number.
  static std::optional<std::string> symbol_of(const Program &program, llvm::StringRef axis) {
    for (const ir::Mesh &mesh : program.meshes)
      for (const ir::Axis &each : mesh.axes) {
        std::string qualified =
            program.strings[mesh.name].str() + "." + program.strings[each.name].str();
        if (axis != program.strings[each.name] && axis != qualified)
          continue;
        for (ir::SymbolPrime symbol_prime : program.symbol_primes)
          if (const ir::Expr &expr = program.exprs[symbol_prime.atom];
              symbol_prime.prime == each.size() && expr.form == ir::Expr::Form::Symbol)
            return program.strings[expr.symbol].str();
      }
    return std::nullopt;
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
  // That stands for the symbol in sizes of axes; 0: none does.
  int64_t prime_of(ir::StringId symbol) const {
    for (ir::SymbolPrime each : program_.symbol_primes)
      if (const ir::Expr &expr = program_.exprs[each.atom];
          expr.form == ir::Expr::Form::Symbol && expr.symbol == symbol)
        return each.prime;
    return 0;
  }

  Program &program_;
  llvm::DenseMap<uint32_t, int64_t> values_;
};

bool has_symbols(const Program &program) {
  return llvm::any_of(program.symbols, [](const ir::SymbolInfo &symbol) {
    return symbol.hint || (symbol.min && symbol.min == symbol.max);
  });
}

// Empty, or a symbol that is not there, or that no number stands for.
std::string unknown_symbol(const Program &program, const Resize &resize) {
  llvm::DenseSet<uint32_t> of_data = data_symbols(program);
  for (const auto &[name, value] : resize.symbols) {
    if (llvm::none_of(program.symbols, [&, &name = name](const ir::SymbolInfo &symbol) {
          return name == program.strings[symbol.name];
        }))
      return fmt::format("the program has no symbol `{}`", name);
    if (llvm::any_of(of_data, [&, &name = name](uint32_t symbol) {
          return name == program.strings[ir::StringId{symbol}];
        }))
      return fmt::format("`{}` is what the data say, on each rank another number", name);
  }
  return "";
}

// Empty, or why the program rules a value out that was asked for.
std::string ruled_out(const Program &program, const Resize &resize) {
  for (const auto &[name, value] : resize.symbols)
    for (const ir::SymbolInfo &symbol : program.symbols) {
      if (name != program.strings[symbol.name])
        continue;
      if (symbol.min && value < *symbol.min)
        return fmt::format("`{}` is {} at least, not {}", name, *symbol.min, value);
      if (symbol.max && value > *symbol.max)
        return fmt::format("`{}` is {} at most, not {}", name, *symbol.max, value);
      if (symbol.multiple_of && value % *symbol.multiple_of != 0)
        return fmt::format("`{}` is a multiple of {}, and {} is none", name, *symbol.multiple_of,
                           value);
    }
  return "";
}

} // namespace

// `shrinks`: axes as small as they may be, unless they are named.
static llvm::Expected<MeshResize> resized_meshes(const Program &program, const Resize &resize,
                                                 bool shrinks) {
  llvm::Expected<MeshResize> meshes = MeshResize::make(program);
  if (!meshes)
    return meshes.takeError();
  for (const auto &[axis, size] : resize.axes)
    if (llvm::Error error = meshes->set(program, axis, size))
      return error;
  if (shrinks)
    meshes->shrink();
  return meshes;
}

// Numbers in the place of symbols, in extents and in sizes of axes.
static llvm::Error give_values(Program &program, Resize &resize) {
  llvm::erase_if(resize.axes, [&](const auto &axis) {
    std::optional<std::string> symbol = SymbolValues::symbol_of(program, axis.first);
    if (symbol)
      resize.symbols.push_back({*symbol, axis.second});
    return symbol.has_value();
  });
  if (std::string problem = ruled_out(program, resize); !problem.empty())
    return make_error(problem);
  if (!has_symbols(program) && resize.symbols.empty() && program.symbol_primes.empty())
    return llvm::Error::success();
  SymbolValues values(program, resize);
  values.apply();
  if (program.symbol_primes.empty())
    return llvm::Error::success();
  llvm::Expected<MeshResize> meshes = MeshResize::make(program);
  if (!meshes)
    return meshes.takeError();
  if (llvm::Error none =
          meshes->resolve(program, [&](ir::Extent extent) { return values.value(extent); }))
    return none;
  return meshes->apply(program);
}

bool needs_resize(const Program &program, const Resize &resize) {
  return resize.scale_down || !resize.axes.empty() || !resize.symbols.empty() ||
         has_symbols(program) || !program.symbol_primes.empty();
}

llvm::Expected<std::vector<std::string>>
resize_program(Program &program, const checker::CheckResult &checked, Resize resize) {
  if (std::string text = unknown_symbol(program, resize); !text.empty())
    return make_error(text);
  bool retyped = !program.symbol_primes.empty();
  if (llvm::Error none = give_values(program, resize))
    return llvm::Expected<std::vector<std::string>>(std::move(none));
  bool shrinks = resize.scale_down;
  llvm::Expected<MeshResize> meshes = resized_meshes(program, resize, shrinks);
  if (!meshes)
    return meshes.takeError();
  if (!resize.scale_down && !meshes->changes())
    return std::vector<std::string>();
  checker::CheckResult seen = checked;
  if (!program.functions.empty() || has_symbols(program) || retyped) {
    checker::inline_calls(program);
    seen = checker::check(program, {});
    if (!seen.clean() && checked.clean() && !has_symbols(program) && !retyped)
      return make_error("other extents need the calls written out, and there a result is not what "
                        "its function or region declares of it unchecked");
    if (!seen.clean()) // with these values of its symbols: whoever checks it next says why
      return std::vector<std::string>();
  }
  auto constraints = std::make_unique<ExtentConstraints>(program, seen, *meshes);
  std::vector<std::string> notes;
  bool found = constraints->resize(resize.scale_down);
  if (!found && shrinks) {
    meshes = resized_meshes(program, resize, false);
    if (!meshes)
      return meshes.takeError();
    constraints = std::make_unique<ExtentConstraints>(program, seen, *meshes);
    found = constraints->resize(true);
    notes.push_back("axes keep their sizes: extents that follow them are tied to others");
  }
  if (!found)
    return make_error("extents that follow the axes do not divide, or are tied to numbers of "
                      "unknown role");
  if (llvm::Error error = constraints->apply())
    return error;
  if (llvm::Error error = meshes->apply(program))
    return error;
  for (std::string &note : constraints->notes())
    notes.push_back(std::move(note));
  return notes;
}

} // namespace spmd::runtime
