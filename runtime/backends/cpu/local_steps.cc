// Local steps: what a rank does alone to move data. Pieces of a dimension are runs of `inner`
// elements, met `outer` times.
#include "runtime/backends/cpu/steps.h"

#include "ir/support/check.h"

#include <array>
#include <numeric>

namespace spmd::runtime {
namespace {

// The forms that move the elements of their only operand, cells or packed ones.
template <class T> class Mover {
public:
  Mover(const LocalStep &local, GroupPosition at, llvm::ArrayRef<T> from, const Dims &from_dims,
        llvm::MutableArrayRef<T> to, const Dims &to_dims)
      : local_(local), at_(at), from_(from), to_(to), from_dims_(from_dims), to_dims_(to_dims) {}
  void run();

private:
  int64_t first_of(uint32_t position) const {
    return std::accumulate(at_.lengths.begin(), at_.lengths.begin() + position, int64_t(0));
  }
  // Copies the piece of `whole` (extents `dims`) that begins at `first` to or from where it stands
  // alone.
  enum class Direction { Out, In };
  static void piece(const Dims &dims, uint32_t dim, int64_t first, int64_t length, const T *source,
                    T *target, Direction direction);
  void own_piece(const Dims &whole, Direction direction) {
    piece(whole, local_.dim, first_of(at_.position), at_.lengths[at_.position], from_.data(),
          to_.data(), direction);
  }
  void pieces(const Dims &whole, Direction direction);

  const LocalStep &local_;
  GroupPosition at_;
  llvm::ArrayRef<T> from_;
  llvm::MutableArrayRef<T> to_;
  const Dims &from_dims_, &to_dims_;
};

template <class T>
void Mover<T>::piece(const Dims &dims, uint32_t dim, int64_t first, int64_t length, const T *source,
                     T *target, Direction direction) {
  llvm::ArrayRef<int64_t> all(dims);
  int64_t outer = count(all.take_front(dim)), inner = count(all.drop_front(dim + 1));
  for (int64_t o = 0; o < outer; ++o) {
    int64_t whole = (o * dims[dim] + first) * inner, alone = o * length * inner;
    if (direction == Direction::Out)
      std::copy_n(source + whole, length * inner, target + alone);
    else
      std::copy_n(source + alone, length * inner, target + whole);
  }
}

// One after another on the side where they stand alone.
template <class T> void Mover<T>::pieces(const Dims &whole, Direction direction) {
  int64_t row = whole[local_.dim] ? count(whole) / whole[local_.dim] : 0, first = 0;
  for (int64_t length : at_.lengths) {
    const int64_t alone = first * row;
    piece(whole, local_.dim, first, length, from_.data() + (direction == Direction::In ? alone : 0),
          to_.data() + (direction == Direction::Out ? alone : 0), direction);
    first += length;
  }
}

template <class T> void Mover<T>::run() {
  switch (local_.form) {
  case LocalStepForm::TakeOwnSlice:
    return own_piece(from_dims_, Direction::Out);
  case LocalStepForm::PlaceOwn:
    return own_piece(to_dims_, Direction::In);
  case LocalStepForm::Split:
    return pieces(from_dims_, Direction::Out);
  case LocalStepForm::Join:
    return pieces(to_dims_, Direction::In);
  case LocalStepForm::TakeRow:
    std::copy_n(from_.begin() + static_cast<ptrdiff_t>(local_.row * to_.size()), to_.size(),
                to_.begin());
    return;
  case LocalStepForm::KeepOnRoot:
    if (at_.position != local_.root)
      return;
    [[fallthrough]];
  case LocalStepForm::Copy:
  case LocalStepForm::Receive:
    std::copy(from_.begin(), from_.end(), to_.begin());
    return;
  default:
    SPMD_CHECK(false, "a form that moves elements");
  }
}

// Operands have the element type of the result.
template <class T> class LocalStepRun {
public:
  LocalStepRun(const LocalStep &local, GroupPosition at, llvm::ArrayRef<const Tensor *> operands,
               Tensor &result)
      : local_(local), at_(at), operands_(operands), result_(result), to_(result.of<T>()) {}
  void run();

private:
  const std::vector<T> &from(size_t i) const { return operands_[i]->of<T>(); }
  void stack_rows();
  void scale();

  const LocalStep &local_;
  GroupPosition at_;
  llvm::ArrayRef<const Tensor *> operands_;
  Tensor &result_;
  std::vector<T> &to_;
};

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
  if (moves_elements(local_.form))
    return Mover<T>(local_, at_, from(0), operands_[0]->dims, to_, result_.dims).run();
  switch (local_.form) {
  case LocalStepForm::Scale:
    scale();
    break;
  case LocalStepForm::Coordinate:
    std::fill(to_.begin(), to_.end(), T(at_.position));
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
  default: // zeros
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

namespace {

template <size_t Bytes>
void move_packed(const LocalStep &local, GroupPosition at, const BufferTensor &operand,
                 BufferTensor &result) {
  using Element = std::array<char, Bytes>;
  auto elements = [](auto &bytes) { return reinterpret_cast<Element *>(bytes.data()); };
  const auto *from = reinterpret_cast<const Element *>(operand.packed.data());
  Mover<Element>(local, at, {from, operand.packed.size() / Bytes}, operand.dims,
                 {elements(result.packed), result.packed.size() / Bytes}, result.dims)
      .run();
}

} // namespace

void move_packed(const LocalStep &local, GroupPosition at, size_t bytes,
                 const BufferTensor &operand, BufferTensor &result) {
  switch (bytes) {
  case 1:
    return move_packed<1>(local, at, operand, result);
  case 2:
    return move_packed<2>(local, at, operand, result);
  case 4:
    return move_packed<4>(local, at, operand, result);
  case 8:
    return move_packed<8>(local, at, operand, result);
  default:
    SPMD_CHECK(false, "packed elements have 1, 2, 4 or 8 bytes");
  }
}

} // namespace spmd::runtime
