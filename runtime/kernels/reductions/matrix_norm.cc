// The largest or smallest sum of magnitudes of a row or a column.
#include "runtime/kernels/reductions/matrix_norm.h"

#include "runtime/kernels/lines.h"

namespace spmd::runtime {

namespace {

llvm::StringRef norm_word(const KernelContext &context) {
  return rules::word_attr(context.app, {"ord", "p"});
}
bool is_nuclear(const KernelContext &context) {
  return norm_word(context) == "nuc" || context.variant() == Variant::Nuclear;
}

// The positions of the rows and columns: torch takes `dim` in the order given.
std::pair<unsigned, unsigned> matrix_dims(const KernelContext &context, unsigned rank) {
  std::optional<rules::Numbers> dims = rules::dim_numbers(context.app);
  if (!dims || dims->size() != 2)
    return {rank - 2, rank - 1};
  return {*rules::place_of((*dims)[0], rank), *rules::place_of((*dims)[1], rank)};
}

} // namespace

double norm_order(const KernelContext &context) {
  llvm::StringRef word = norm_word(context);
  if (word == "inf" || word == "-inf")
    return word == "inf" ? kInfinity : -kInfinity;
  return context.number_attr("ord", context.number_attr("p", 2));
}

bool is_matrix_norm(const KernelContext &context, unsigned rank) {
  if (rank < 2 || norm_word(context) == "fro" || context.variant() == Variant::Frobenius)
    return false;
  bool stated = rules::any_attr(context.app, {"ord", "p"});
  if (is_nuclear(context) || context.variant() == Variant::OfMatrix)
    return stated || is_nuclear(context); // else Frobenius'
  std::optional<rules::Numbers> dims = rules::dim_numbers(context.app);
  return context.variant() == Variant::OfTwoDims && stated &&
         (dims ? dims->size() == 2 : rank == 2);
}

template <class T> llvm::Error matrix_norm(const Call<T> &call) {
  View<const T> a = call.operand("a");
  auto [rows, columns] = matrix_dims(call.context, a.rank());
  double order = norm_order(call.context);
  if (is_nuclear(call.context) || std::abs(order) == 2)
    return cannot_run(call.context, "it has no kernel for norms of singular values");
  if (std::abs(order) != 1 && !std::isinf(order))
    return cannot_run(call.context, "matrices have no norm of that order");
  bool of_rows = std::isinf(order);
  unsigned kept = of_rows ? rows : columns, summed = of_rows ? columns : rows;
  Lines lines(*a.dims, {rows, columns});
  for (int64_t line = 0; line < lines.count(); ++line) {
    T best = 0.0;
    for (int64_t k = 0; k < a.dim(kept); ++k) {
      T sum = 0.0;
      for (int64_t s = 0; s < a.dim(summed); ++s)
        sum += abs(
            a[lines.position(line, kept < summed ? k * a.dim(summed) + s : s * a.dim(kept) + k)]);
      if (k == 0 || (order > 0 ? sum > best : sum < best))
        best = sum;
    }
    call.results[0][line] = best;
  }
  return llvm::Error::success();
}
template llvm::Error matrix_norm(const Call<double> &);
template llvm::Error matrix_norm(const Call<Var> &);

} // namespace spmd::runtime
