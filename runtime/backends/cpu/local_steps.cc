// Local steps: what a rank does alone to move data. Pieces of a dimension are runs of `inner`
// elements, met `outer` times.
#include "runtime/backends/cpu/steps.h"

#include "ir/support/check.h"

#include <numeric>

namespace spmd::runtime {
namespace {

// Operands have the element type of the result.
template <class T> class LocalStepRun {
public:
  LocalStepRun(const LocalStep &local, GroupPosition at, llvm::ArrayRef<const Tensor *> operands,
               Tensor &result)
      : local_(local), at_(at), operands_(operands), result_(result), to_(result.of<T>()) {}
  void run();

private:
  const std::vector<T> &from(size_t i) const { return operands_[i]->of<T>(); }
  int64_t first_of(uint32_t position) const {
    return std::accumulate(at_.lengths.begin(), at_.lengths.begin() + position, int64_t(0));
  }
  // Copies the piece of `whole` (extents `dims`) that begins at `first` to or from where it stands
  // alone.
  enum class Way { Out, In };
  static void piece(const Dims &dims, uint32_t dim, int64_t first, int64_t length, const T *source,
                    T *target, Way way);
  void split();
  void join();
  void overwrite();
  void stack_rows();
  void scale();

  const LocalStep &local_;
  GroupPosition at_;
  llvm::ArrayRef<const Tensor *> operands_;
  Tensor &result_;
  std::vector<T> &to_;
};

template <class T>
void LocalStepRun<T>::piece(const Dims &dims, uint32_t dim, int64_t first, int64_t length,
                            const T *source, T *target, Way way) {
  llvm::ArrayRef<int64_t> all(dims);
  int64_t outer = count(all.take_front(dim)), inner = count(all.drop_front(dim + 1));
  for (int64_t o = 0; o < outer; ++o) {
    int64_t whole = (o * dims[dim] + first) * inner, alone = o * length * inner;
    if (way == Way::Out)
      std::copy_n(source + whole, length * inner, target + alone);
    else
      std::copy_n(source + alone, length * inner, target + whole);
  }
}

template <class T> void LocalStepRun<T>::split() {
  const Dims &dims = operands_[0]->dims;
  llvm::ArrayRef<int64_t> all(dims);
  int64_t row = dims[local_.dim] ? count(all) / dims[local_.dim] : 0, first = 0;
  for (int64_t length : at_.lengths) {
    piece(dims, local_.dim, first, length, from(0).data(), to_.data() + first * row, Way::Out);
    first += length;
  }
}

template <class T> void LocalStepRun<T>::join() {
  const Dims &dims = result_.dims;
  llvm::ArrayRef<int64_t> all(dims);
  int64_t row = dims[local_.dim] ? count(all) / dims[local_.dim] : 0, first = 0;
  for (int64_t length : at_.lengths) {
    piece(dims, local_.dim, first, length, from(0).data() + first * row, to_.data(), Way::In);
    first += length;
  }
}

int64_t place(double number) { return static_cast<int64_t>(number); }
int64_t place(const Complex &number) { return static_cast<int64_t>(number.real()); }
int64_t place(Residue number) { return number.number(); }

template <class T> void LocalStepRun<T>::stack_rows() {
  auto at = to_.begin();
  for (size_t i = 0; i < operands_.size(); ++i)
    at = std::copy(from(i).begin(), from(i).end(), at);
}

template <class T> void LocalStepRun<T>::scale() {
  for (size_t i = 0; i < to_.size(); ++i) {
    if constexpr (std::is_same_v<T, Residue>)
      to_[i] = from(0)[i] * Residue(static_cast<int64_t>(local_.factor)) *
               Residue(static_cast<int64_t>(local_.divisor)).inverse();
    else
      to_[i] = from(0)[i] * local_.factor / local_.divisor;
  }
}

template <class T> void LocalStepRun<T>::run() {
  switch (local_.form) {
  case LocalStepForm::Copy:
  case LocalStepForm::Receive:
    to_ = from(0);
    break;
  case LocalStepForm::TakeOwnSlice:
    piece(operands_[0]->dims, local_.dim, first_of(at_.position), at_.lengths[at_.position],
          from(0).data(), to_.data(), Way::Out);
    break;
  case LocalStepForm::PlaceOwn:
    piece(result_.dims, local_.dim, first_of(at_.position), at_.lengths[at_.position],
          from(0).data(), to_.data(), Way::In);
    break;
  case LocalStepForm::KeepOnRoot:
    if (at_.position == local_.root)
      to_ = from(0);
    break;
  case LocalStepForm::Split:
    split();
    break;
  case LocalStepForm::Join:
    join();
    break;
  case LocalStepForm::Scale:
    scale();
    break;
  case LocalStepForm::Coordinate:
    std::fill(to_.begin(), to_.end(), T(at_.position));
    break;
  case LocalStepForm::TakeRow:
    std::copy_n(from(0).begin() + static_cast<ptrdiff_t>(local_.row * to_.size()), to_.size(),
                to_.begin());
    break;
  case LocalStepForm::StackRows:
    stack_rows();
    break;
  case LocalStepForm::Count:
    for (size_t i = 0; i < to_.size(); ++i)
      to_[i] = T(static_cast<int64_t>(i));
    break;
  case LocalStepForm::Overwrite:
    SPMD_CHECK(false, "overwriting takes elements of another element type");
    break;
  case LocalStepForm::Zero:
    break;
  }
}

// Operand 1 numbers elements; it is real, or of residues, whatever the others are.
void overwrite(llvm::ArrayRef<const Tensor *> operands, Tensor &result) {
  result.cells = operands[0]->cells;
  std::vector<int64_t> offsets;
  operands[1]->visit([&](const auto &cells) {
    for (const auto &cell : cells)
      offsets.push_back(place(cell));
  });
  result.visit([&](auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    const std::vector<T> &more = operands[2]->of<T>();
    for (size_t i = 0; i < offsets.size(); ++i)
      cells[static_cast<size_t>(offsets[i])] = more[i];
  });
}

} // namespace

void run_local_step(const LocalStep &local, GroupPosition at,
                    llvm::ArrayRef<const Tensor *> operands, Tensor &result, Domain domain) {
  if (local.form == LocalStepForm::Overwrite)
    return overwrite(operands, result);
  result.visit([&](auto &cells) {
    using T = typename std::decay_t<decltype(cells)>::value_type;
    LocalStepRun<T>(local, at, operands, result).run();
  });
  bool rounds = local.form == LocalStepForm::Scale ||
                (local.form == LocalStepForm::Copy && operands[0]->dtype != result.dtype);
  if (rounds)
    round_cells(result, domain);
}

} // namespace spmd::runtime
