// The op itself is run on magnitudes; an operand of terms that are subtracted enters with its sign
// turned, so that nothing cancels.
#include "runtime/reference/term_sums.h"

#include "ir/support/arrays.h"
#include "runtime/kernels/kernel.h"
#include "runtime/reference/blocks.h"

#include "rules/bind.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace spmd::runtime {

namespace {

struct Signs {
  bool known = true;                  // false: terms may cancel whatever is turned
  llvm::SmallVector<bool, 12> turned; // per operand of the row
};

Signs signs_of(const rules::Equation &equation) {
  Signs signs;
  llvm::SmallVector<bool, 12> added(equation.operand_count, false);
  signs.turned.assign(equation.operand_count, false);
  auto each_value = [&](const rules::Term &term, llvm::function_ref<void(unsigned)> f) {
    for (unsigned a = term.first_atom; a < unsigned(term.first_atom) + term.atom_count; ++a) {
      const rules::Atom &atom = equation.atoms[a];
      if (atom.form != rules::Atom::Form::Ref)
        continue;
      const rules::Ref &ref = equation.refs[atom.first];
      bool value = ref.role == rules::RefRole::Value && ref.index == rules::kNoFactor;
      if (value && ref.operand != rules::kGenerator)
        f(ref.operand);
    }
  };
  auto terms = ir::as_array(equation.terms.data(), equation.term_count);
  for (const rules::Term &term : terms)
    if (!term.negative)
      each_value(term, [&](unsigned operand) { added[operand] = true; });
  for (const rules::Term &term : terms) {
    if (!term.negative)
      continue;
    std::optional<unsigned> turn;
    unsigned turned = 0;
    each_value(term, [&](unsigned operand) {
      if (!added[operand] && !turn)
        turn = operand;
      turned += signs.turned[operand];
    });
    if (turned == 1)
      continue;
    signs.known &= turn.has_value() && turned == 0;
    if (turn)
      signs.turned[*turn] = true;
  }
  return signs;
}

bool only_moves(const rules::OpDef &row) {
  const KernelDef *kernel = find_kernel(row.name);
  return kernel && kernel->moves;
}

// That computes the value of a row, or of the row that it gives a gradient of.
const KernelDef *kernel_of(const rules::OpDef &row) {
  return find_kernel(row.derivative_of ? row.derivative_of->name : row.name);
}

// True if the equation is the value but for factors of its terms, or elements are only moved.
bool is_sum_of_products(const rules::OpDef &row) {
  const KernelDef *kernel = kernel_of(row);
  return !row.equation.equation.has_function && (!kernel || kernel->moves || kernel->sums_products);
}

// How many values a term multiplies.
unsigned values_in(const rules::Equation &equation, const rules::Term &term) {
  unsigned count = 0;
  for (unsigned a = 0; a < term.atom_count; ++a) {
    const rules::Atom &atom = equation.atoms[term.first_atom + a];
    count += atom.form == rules::Atom::Form::Ref &&
             equation.refs[atom.first].role == rules::RefRole::Value &&
             equation.refs[atom.first].index == rules::kNoFactor;
  }
  return count;
}

bool is_number(const ir::AttrValue &value) {
  return value.form == ir::AttrForm::Float || value.form == ir::AttrForm::Integer;
}

double number_in(const ir::AttrValue &value) {
  return value.form == ir::AttrForm::Float ? value.as_number()
                                           : static_cast<double>(value.as_integer());
}

void multiply_cells(Meaning &meaning, double factor) {
  for (Tensor &piece : meaning.pieces)
    for (double &cell : piece.of<double>())
      cell *= factor;
}

void fill_cells(Meaning &meaning, double value) {
  for (Tensor &piece : meaning.pieces)
    for (double &cell : piece.of<double>())
      cell = cell < 0 ? -value : value;
}

// What is computed with: operands by their magnitude, with the sign that makes all terms add up.
struct Magnitudes {
  Meanings operands;
  llvm::SmallVector<rules::Slot, 8> slots;
  ir::AttrDict attrs;
  bool literals = false, divides = false, multiplies = false;
  size_t terms = 0; // of one equation

  bool is_float(const ResolvedInst &seen, unsigned arg) const {
    return seen.from(arg) && ir::differentiable(seen.from(arg)->dtype()) &&
           !operands[arg].pieces.empty();
  }
};

// Turns the signs of what a row subtracts. False if the signs of its terms are not known.
bool turn_signs(const ResolvedInst &seen, const rules::RowUse &use, Magnitudes &with) {
  const rules::Equation &equation = use.row->equation.equation;
  with.terms = std::max<size_t>(with.terms, equation.term_count);
  for (unsigned t = 0; t < equation.term_count; ++t) {
    with.divides |= equation.terms[t].divisors != 0;
    with.multiplies |= values_in(equation, equation.terms[t]) > 1; // an operand by itself: a square
  }
  Signs signs = signs_of(equation);
  if (!signs.known)
    return false;
  rules::Application bound = seen.app().bound_to(use);
  rules::OperandMismatch ignored;
  std::optional<rules::Binding> binding = rules::bind_operands(bound, equation, ignored);
  if (!binding)
    return false;
  for (unsigned i = 0; i < equation.operand_count; ++i) {
    const rules::Slot *slot = (*binding)[i];
    for (unsigned m = 0; slot && m < slot->count; ++m)
      if (signs.turned[i] && with.is_float(seen, slot->first + m))
        multiply_cells(with.operands[slot->first + m], -1);
    if (!slot || slot->form != rules::Slot::Form::Literal || !is_number(slot->literal))
      continue;
    with.literals = true;
    double size = std::abs(number_in(slot->literal)) * (signs.turned[i] ? -1 : 1);
    for (rules::Slot &own : with.slots)
      if (own.form == rules::Slot::Form::Literal && own.literal == slot->literal)
        own.literal = ir::AttrValue::number(size);
  }
  return true;
}

// Calls `f` with each attribute whose number multiplies terms of a row.
void each_factor(const ir::Program &program, const ResolvedInst &seen, ir::AttrDict &attrs,
                 llvm::function_ref<void(ir::AttrValue &)> f) {
  for (const rules::RowUse &use : rules::row_uses(seen.app()))
    if (const KernelDef *kernel = kernel_of(*use.row))
      for (ir::Attr &attr : attrs.attrs)
        if (is_number(attr.value) &&
            llvm::is_contained(kernel->factors, std::string_view(program.strings[attr.key])))
          f(attr.value);
}

// Of ones, the sum counts its terms.
void make_ones(const ResolvedInst &seen, Magnitudes &with) {
  for (unsigned arg = 0; arg < with.operands.size(); ++arg)
    if (with.is_float(seen, arg))
      fill_cells(with.operands[arg], 1);
  for (rules::Slot &slot : with.slots)
    if (slot.form == rules::Slot::Form::Literal && is_number(slot.literal))
      slot.literal = ir::AttrValue::number(number_in(slot.literal) < 0 ? -1 : 1);
}

// The largest number of terms. A mean hides how many it is of.
double most_terms(const Meanings &counts, const Magnitudes &with) {
  double most = TermSums().count;
  for (const Meaning &each : counts)
    for (const Tensor &piece : each.pieces) {
      const Tensor counted = runtime::magnitudes(piece);
      for (double cell : counted.of<double>())
        most = std::max(most, cell);
    }
  for (const Meaning &operand : with.operands)
    for (const Tensor &piece : operand.pieces)
      if (with.divides)
        most = std::max(most, static_cast<double>(piece.size()));
  return most;
}

} // namespace

llvm::Expected<std::optional<TermSums>> term_sums(Reference &reference, const ResolvedInst &seen,
                                                  uint64_t draws, const Meanings &magnitudes) {
  using Found = std::optional<TermSums>;
  TermSums found;
  found.copies = true;
  ir::Program &program = reference.program();
  Magnitudes with{magnitudes,
                  {seen.app().slots.begin(), seen.app().slots.end()},
                  program.attrs[seen.inst().attrs]};
  size_t floats = 0;
  for (unsigned arg = 0; arg < magnitudes.size(); ++arg)
    if (with.is_float(seen, arg)) {
      ++floats;
      found.widest = std::max(found.widest, seen.from(arg)->dtype());
    }
  for (const rules::RowUse &use : rules::row_uses(seen.app())) {
    if (!is_sum_of_products(*use.row) || !turn_signs(seen, use, with))
      return Found();
    found.copies &= only_moves(*use.row);
  }
  if (found.copies)
    return Found(std::move(found));
  auto evaluate = [&] {
    return reference.equation(seen, draws, with.operands, with.slots,
                              program.attrs.add(with.attrs));
  };
  each_factor(program, seen, with.attrs, [](ir::AttrValue &factor) {
    factor = ir::AttrValue::number(std::abs(number_in(factor)));
  });
  llvm::Expected<Meanings> sums = evaluate();
  if (!sums)
    return sums.takeError();
  found.sums = std::move(*sums);
  for (Meaning &sum : found.sums)
    for (Tensor &piece : sum.pieces)
      piece = runtime::magnitudes(piece);
  make_ones(seen, with);
  each_factor(program, seen, with.attrs,
              [](ir::AttrValue &factor) { factor = ir::AttrValue::number(1); });
  llvm::Expected<Meanings> counts = evaluate();
  if (!counts)
    return counts.takeError();
  found.count = most_terms(*counts, with);
  found.copies = floats <= 1 && !with.literals && !with.divides && !with.multiplies &&
                 with.terms <= 1 && found.count <= 1 &&
                 with.attrs == program.attrs[seen.inst().attrs];
  return Found(std::move(found));
}

} // namespace spmd::runtime
