// How one op is carried out on the tensors of one rank, or on those of one device. A kernel sees
// operands and results as arrays of one element type, the row and its attributes; never a mesh, a
// type or a rank. Where operands are blocks of larger tensors, it is given where they begin.
#pragma once

#include "runtime/tensor/tensor.h"

#include "rules/bind.h"
#include "rules/factors/shape_rule.h"
#include "rules/shapes/attrs.h"

#include "llvm/Support/Error.h"

#include <array>
#include <optional>
#include <string_view>

namespace spmd::runtime {

using rules::Variant;

// A tensor as kernels see it. `first`: per dimension, where this block begins in the whole;
// `whole`: the extents of the whole.
template <class T> struct View {
  const Dims *dims = nullptr;
  T *data = nullptr;
  ir::DType dtype = ir::DType::Unknown;
  const Dims *first = nullptr, *whole = nullptr;

  explicit operator bool() const { return data != nullptr; }
  int64_t size() const { return count(*dims); }
  unsigned rank() const { return static_cast<unsigned>(dims->size()); }
  int64_t dim(unsigned i) const { return (*dims)[i]; }
  T &operator[](int64_t i) const { return data[i]; }
};

// What is the same for all ranks that hold tensors of these extents: the row, the operands that
// fill it, and how their dimensions are made of factors. Shapes in `app` are those of the tensors
// at hand.
struct KernelContext {
  const rules::Application &app;
  const rules::OpDef &row;
  const rules::Binding &binding;
  const rules::FactorMap &map;
  Domain domain = Domain::Declared;
  // Random numbers: a draw is a hash of these, of the element's place in the whole, and, where the
  // state of the generator differs between ranks, of the rank.
  uint64_t seed = 0, op = 0, stream = 0;

  // Place of an operand in the row; it must be one of the row's.
  unsigned operand(std::string_view name) const { return row.equation.equation.find_operand(name); }
  unsigned members(unsigned operand) const {
    return binding[operand] ? binding[operand]->count : 0;
  }
  // The number that stands in the place of an operand, as a literal or by the attribute that the
  // row names (`from_attr`). None if a tensor or nothing stands there.
  std::optional<double> number(unsigned operand) const;
  // Unknown where no tensor stands there, or its element type is not known.
  ir::DType dtype(unsigned operand) const;
  ir::DType result_dtype() const; // of the first
  // An attribute that is a number; `absent` where it is not there or null.
  double number_attr(llvm::StringRef name, double absent) const;
  // Some rows are several functions (`cbrt` of row `sqrt`). `row` may be one that the operands
  // chose.
  Variant variant() const { return app.op.alias ? app.op.alias->variant : row.variant; }
  // The dimensions that attribute `dim` names, sorted, counted from 0; by default as the row says.
  llvm::SmallVector<unsigned, 4> dims(unsigned rank) const;
};

// A number or a truth value that stands in an attribute; none if it is neither.
std::optional<double> number_of(const ir::AttrValue &value);

// `row` cannot be run: why.
llvm::Error cannot_run(const KernelContext &context, const llvm::Twine &why);

// Operands and results of one call. Results have their extents, and are zero unless the kernel
// assigns (KernelDef); a null result is not asked for.
template <class T> struct Call {
  const KernelContext &context;
  llvm::ArrayRef<View<const T>> args; // as in Application::args
  llvm::ArrayRef<View<T>> results;    // as in RowUse::results

  // Null if nothing, or a number, stands there.
  View<const T> operand(std::string_view name, unsigned member = 0) const {
    return operand(context.operand(name), member);
  }
  View<const T> operand(unsigned place, unsigned member = 0) const {
    const rules::Slot *slot = context.binding[place];
    return slot && member < slot->count ? args[slot->first + member] : View<const T>();
  }
};

struct ScalarProgram; // commands/traced_number.h
class Var;            // a number that remembers how it was made (number.h)
struct Moves;
struct MoveSite;
class Composition;

// The gradient of one operand, from those of the results (null: none flows). `call` has the
// operands of the row; its results are those of the forward op, or null where they are not at hand.
struct VjpResult {
  unsigned operand, member;
  View<double> result; // extents of the operand; zero unless the kernel assigns
};
struct VjpCall {
  const Call<double> &call;
  llvm::ArrayRef<View<const double>> gradients; // per result of the row
  unsigned operand, member;
  View<double> result;
  llvm::ArrayRef<VjpResult> more = {}; // further operands (KernelDef::together)

  // The result for the operand of that name; null: it is not asked for.
  View<double> asked(std::string_view name) const;
};

// One row. An error says why a call cannot be carried out (an attribute with a value that we do not
// know, say). What is null is not special to the row: an equation that is the value needs no
// kernel.
struct KernelDef {
  std::string_view row;
  llvm::Error (*real)(const Call<double> &) = nullptr;
  llvm::Error (*complex)(const Call<Complex> &) = nullptr;
  // For residues: only what moves elements or is exact modulo a prime. All else is done by the
  // equation.
  llvm::Error (*modular)(const Call<Residue> &) = nullptr;
  // The same kernel on numbers that remember: gives the gradient of every differentiable operand.
  llvm::Error (*taped)(const Call<Var> &) = nullptr;
  // Written by hand where it is much faster than the tape.
  llvm::Error (*vjp)(const VjpCall &) = nullptr;
  // Kernels, or `vjp`, write every element of every result that is asked for and read none of them
  // before: they may hold anything.
  bool assigns = false, vjp_assigns = false;
  // `vjp` gives the gradients of several operands of one call for less than one after another. They
  // depend on no place in the whole, and on no random numbers.
  bool together = false;
  // Elements are moved or dropped, none is made anew but zeros: the gradient puts them back.
  bool moves = false;
  // The same faster, if the call is one that it can do: else false. It assigns.
  llvm::Expected<bool> (*puts_back)(const VjpCall &) = nullptr;
  // Of a function of numbers, element by element: it, or what its `derivative` by an operand makes
  // of a gradient, as a scalar program. Inputs: operands, by place in the row; kGradientInput.
  std::optional<ScalarProgram> (*traced)(const KernelContext &,
                                         std::optional<unsigned> derivative) = nullptr;
  // As formulas over whole tensors (runtime/kernels/composed/composition.h). False: this call is
  // not one that it can do.
  bool (*composed)(Composition &) = nullptr;
  // The value is the sum of products that the equation states, and the number of each of these
  // attributes (1 if absent) multiplies terms of it. A device adds the products in float.
  bool sums_products = false;
  std::array<std::string_view, 2> factors = {};
  // Which boxes of operands go where (moves.h).
  llvm::Expected<Moves> (*boxes)(const MoveSite &) = nullptr;
};

// Null if the row needs no kernel.
const KernelDef *find_kernel(std::string_view row);

} // namespace spmd::runtime
