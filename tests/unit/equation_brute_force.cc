// Every row whose equation is its value, against loops over all positions of all factors.
#include "runtime/equation/equation.h"

#include "rules/ops/registry.h"
#include "tests/unit/catch.h"
#include "tests/unit/row_sample.h"

#include <cmath>

namespace spmd::test {
namespace {

using rules::Equation;
using runtime::Residue;

// The equation of a row, read term by term; nothing is planned.
template <class T> class Reader {
public:
  Reader(const RowSample &sample, const std::vector<Tensor> &args, std::vector<int64_t> extents)
      : sample_(sample), equation_(sample.row->equation.equation), args_(args),
        extents_(std::move(extents)), at_(extents_.size(), 0) {}

  std::vector<T> result(unsigned r) {
    unsigned s = 0;
    while (s + 1 < equation_.sum_count && r >= equation_.sums[s + 1].first_result)
      ++s;
    const rules::Sum &sum = equation_.sums[s];
    std::vector<T> made(static_cast<size_t>(runtime::count(sample_.results[r])));
    for (unsigned t = 0; t < sum.term_count; ++t)
      add(equation_.terms[sum.first_term + t], equation_.results[r], made);
    return made;
  }

private:
  void add(const rules::Term &term, const rules::Result &result, std::vector<T> &made) {
    std::vector<bool> used(extents_.size(), false);
    mark(result.first_dim, result.dim_count, used);
    T divisor(1);
    for (unsigned a = 0; a < term.atom_count; ++a) {
      const rules::Atom &atom = equation_.atoms[term.first_atom + a];
      if (atom.form == rules::Atom::Form::Integer)
        continue;
      const rules::Ref &ref = equation_.refs[atom.first];
      mark(ref.first_dim, ref.dim_count, used);
      if (ref.index != rules::kNoFactor)
        used[ref.index] = true;
    }
    for (size_t f = 0; f < extents_.size(); ++f)
      if (term.divisors >> f & 1)
        divisor = divisor * T(extents_[f]);
    do {
      T product = term.negative ? T(-1) : T(1);
      for (unsigned a = 0; a < term.atom_count; ++a)
        product = product * value(equation_.atoms[term.first_atom + a]);
      made[place(result.first_dim, result.dim_count)] += over(product, divisor);
    } while (advance(used));
  }
  static double over(double a, double b) { return a / b; }
  static Residue over(Residue a, Residue b) { return a * b.inverse(); }

  T value(const rules::Atom &atom) const {
    if (atom.form == rules::Atom::Form::Integer)
      return T(int64_t(atom.first));
    const rules::Ref &ref = equation_.refs[atom.first];
    T value(1);
    for (size_t i = 0; i < sample_.operand_of.size(); ++i)
      if (sample_.operand_of[i] == ref.operand)
        value = value * args_[i].of<T>()[place(ref.first_dim, ref.dim_count)];
    if (ref.index == rules::kNoFactor)
      return value;
    return value == T(at_[ref.index]) ? T(1) : T(0);
  }

  void mark(unsigned first, unsigned count, std::vector<bool> &used) const {
    each(first, count, [&](uint8_t factor) { used[factor] = true; });
  }
  size_t place(unsigned first, unsigned count) const {
    int64_t place = 0;
    each(first, count, [&](uint8_t factor) { place = place * extents_[factor] + at_[factor]; });
    return static_cast<size_t>(place);
  }
  template <class Visit> void each(unsigned first, unsigned count, Visit visit) const {
    for (unsigned d = first; d < first + count; ++d) {
      const rules::Dim &dim = equation_.dims[d];
      if (dim.form == rules::Dim::Form::Merged)
        for (unsigned m = 0; m < dim.count; ++m)
          visit(equation_.merged[dim.first + m]);
      else if (dim.form != rules::Dim::Form::One)
        visit(dim.first);
    }
  }
  bool advance(const std::vector<bool> &used) {
    for (size_t f = 0; f < at_.size(); ++f)
      if (used[f] && ++at_[f] < extents_[f])
        return true;
      else
        at_[f] = 0;
    return false;
  }

  const RowSample &sample_;
  const Equation &equation_;
  const std::vector<Tensor> &args_;
  std::vector<int64_t> extents_;
  std::vector<int64_t> at_; // per factor
};

double distance(double a, double b) { return std::abs(a - b); }
double distance(Residue a, Residue b) { return a == b ? 0 : 1; }

template <class T> unsigned compare_all(Domain domain) {
  unsigned count = 0;
  std::mt19937 random(11);
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      const Equation &equation = row.equation.equation;
      std::vector<int64_t> extents(rules::kRestFactor + 1);
      for (int64_t &extent : extents)
        extent = 1 + random() % 4;
      for (unsigned r = 0; r < equation.ref_count; ++r)
        if (equation.refs[r].index != rules::kNoFactor)
          extents[equation.refs[r].index] = 4;
      RowSample sample(row, [&](unsigned factor) { return extents[factor]; });
      // Parts of complex numbers are no matter of equations.
      bool parts = row.dtype == rules::DTypeRule::Real || row.dtype == rules::DTypeRule::Complex;
      if (!sample.usable || !runtime::is_value(row) || parts)
        continue;
      INFO(row.name << "  " << equation.text);
      Statement statement(sample.inputs, sample.text(), sample.results);
      std::vector<Tensor> args = statement.draw(random, domain, 4);
      std::vector<Tensor> got = statement.run(args, domain);
      INFO(statement.problem());
      REQUIRE(got.size() == sample.results.size());
      Reader<T> reader(sample, args, extents);
      for (unsigned r = 0; r < got.size(); ++r) {
        std::vector<T> want = reader.result(r);
        REQUIRE(want.size() == got[r].of<T>().size());
        for (size_t i = 0; i < want.size(); ++i)
          CHECK(distance(got[r].of<T>()[i], want[i]) <= 1e-12);
      }
      ++count;
    }
  return count;
}

} // namespace

TEST_CASE("rows whose equation is the value are what it says, in doubles") {
  CHECK(compare_all<double>(Domain::F64) > 30);
}

TEST_CASE("rows whose equation is the value are what it says, in residues") {
  CHECK(compare_all<Residue>(Domain::Field) > 30);
}

} // namespace spmd::test
