// One generator for all dtypes and domains. Indices and masks go by multiples of the golden ratio,
// which meet every part of their range evenly however few they are.
#include "runtime/inputs/generated_data.h"

#include <cmath>

namespace spmd::runtime {

using ir::DTypeClass;

namespace {

constexpr double kGolden = 0.61803398874989485;

// The finaliser of SplitMix64: each bit of the result depends on each bit of `bits`.
uint64_t scrambled(uint64_t bits) {
  bits += 0x9E3779B97F4A7C15u;
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9u;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
  return bits ^ bits >> 31;
}

// In [0, 1), in steps of 2^-53.
double fraction(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// Where an element stands: its number in the whole tensor, and its coordinates in the last
// dimensions.
struct ElementIndex {
  uint64_t index = 0;
  int64_t row = 0, column = 0, columns = 1;
};

class Generator {
public:
  Generator(const Content &content, uint64_t key, const NumberOptions &options, DTypeClass form,
            bool is_unsigned)
      : content_(content), key_(key), options_(options), form_(form), is_unsigned_(is_unsigned),
        start_(fraction(scrambled(~key))) {}

  double operator()(const ElementIndex &spot, uint64_t part = 0) const {
    uint64_t bits = scrambled(key_ ^ scrambled(2 * spot.index + part));
    switch (content_.form) {
    case ContentForm::Truth:
      return spread(spot) < 0.5;
    case ContentForm::Index:
      return std::floor(spread(spot) * static_cast<double>(std::max<int64_t>(content_.limit, 1)));
    case ContentForm::Starts:
      return std::floor(static_cast<double>(content_.limit) * static_cast<double>(spot.column) /
                        static_cast<double>(spot.columns));
    case ContentForm::Ends:
      return std::floor(static_cast<double>(content_.limit) * static_cast<double>(spot.column + 1) /
                        static_cast<double>(spot.columns));
    default:
      break;
    }
    if (form_ == DTypeClass::Boolean)
      return spread(spot) < 0.5;
    bool whole = options_.whole_numbers || form_ == DTypeClass::Integer;
    return whole ? whole_number(spot, bits) : real(spot, bits);
  }
  // Of `n` neighbours: what is plainly drawn has a loop of its own.
  void row(ElementIndex spot, int64_t n, double *to) const {
    bool plain =
        content_.form == ContentForm::Free && form_ == DTypeClass::Float && !options_.whole_numbers;
    for (int64_t i = 0; !plain && i < n; ++i, ++spot.index, ++spot.column)
      to[i] = (*this)(spot);
    for (int64_t i = 0; plain && i < n; ++i)
      to[i] = centred(scrambled(key_ ^ scrambled(2 * (spot.index + static_cast<uint64_t>(i)))));
  }
  // Any residue for what is real; what counts or picks stays what it is.
  Residue residue(const ElementIndex &spot) const {
    bool any = form_ == DTypeClass::Float || form_ == DTypeClass::Complex;
    return any && content_.form < ContentForm::Truth
               ? Residue::from_bits(scrambled(key_ ^ scrambled(2 * spot.index)))
               : residue_of((*this)(spot));
  }

private:
  // In [0, 1): neighbours are far apart, and as many positions as there are parts meet nearly all
  // parts.
  double spread(const ElementIndex &spot) const {
    double at = start_ + kGolden * static_cast<double>(spot.index);
    return at - std::floor(at);
  }

  double whole_number(const ElementIndex &spot, uint64_t bits) const {
    constexpr double kSmall[] = {-2, -1, 1, 2, 0};
    double any = kSmall[bits % (options_.nonzero || content_.form == ContentForm::Nonzero ? 4 : 5)];
    switch (content_.form) {
    case ContentForm::Positive:
    case ContentForm::AboveOne:
      return 1 + static_cast<double>(bits % 2);
    case ContentForm::Unit:
      return 1;
    case ContentForm::Sorted:
      return static_cast<double>(spot.column);
    case ContentForm::Definite:
      return spot.row == spot.column ? static_cast<double>(2 * spot.columns) : 1;
    case ContentForm::Distinct:
      return std::floor(spread(spot) * static_cast<double>(4 * spot.columns)) -
             (is_unsigned_ ? 0.0 : static_cast<double>(2 * spot.columns));
    default:
      return is_unsigned_ ? std::abs(any) : any;
    }
  }

  double real(const ElementIndex &spot, uint64_t bits) const {
    double even = fraction(bits), sign = bits & 1 ? 1 : -1;
    switch (content_.form) {
    case ContentForm::Nonzero:
      return sign * (0.25 + 0.75 * even);
    case ContentForm::Positive:
      return 0.25 + 1.5 * even;
    case ContentForm::AboveOne:
      return 1.125 + even;
    case ContentForm::Unit:
      return content_.factor * (0.125 + 0.75 * even);
    case ContentForm::Sorted:
      return 2 * (static_cast<double>(spot.column) + 0.875 * even) /
                 static_cast<double>(spot.columns) -
             1;
    case ContentForm::Definite:
      return definite(spot);
    case ContentForm::Distinct:
      return 2 * spread(spot) - 1;
    default:
      return centred(bits);
    }
  }
  // Never 0.
  double centred(uint64_t bits) const {
    double even = fraction(bits);
    return content_.factor * (even == 0.5 ? 0.25 : 2 * even - 1);
  }
  // The same at (i, j) and (j, i); rows of a matrix lie `columns` elements apart.
  double definite(const ElementIndex &spot) const {
    auto low = static_cast<uint64_t>(std::min(spot.row, spot.column));
    auto high = static_cast<uint64_t>(std::max(spot.row, spot.column));
    auto columns = static_cast<uint64_t>(spot.columns);
    uint64_t first =
        spot.index - static_cast<uint64_t>(spot.row) * columns - static_cast<uint64_t>(spot.column);
    double even = fraction(scrambled(key_ ^ scrambled(first + low * columns + high)));
    return spot.row == spot.column ? 1.5 + 0.5 * even : (even - 0.5) / static_cast<double>(columns);
  }

  const Content &content_;
  uint64_t key_;
  const NumberOptions &options_;
  DTypeClass form_;
  bool is_unsigned_;
  double start_;
};

// Calls `f` for each row of the block, in its order: with its first element, and how many there
// are.
template <class F> void for_each_row(const Block &block, F &&f) {
  size_t rank = block.dims.size();
  if (count(block.dims) == 0)
    return;
  Dims at(rank, 0);
  for (;;) {
    ElementIndex spot;
    for (size_t d = 0; d < rank; ++d)
      spot.index = spot.index * static_cast<uint64_t>(block.whole[d]) +
                   static_cast<uint64_t>(block.first[d] + at[d]);
    if (rank > 0) {
      spot.column = block.first[rank - 1];
      spot.columns = block.whole[rank - 1];
    }
    if (rank > 1)
      spot.row = block.first[rank - 2] + at[rank - 2];
    f(spot, rank ? block.dims[rank - 1] : 1);
    size_t d = rank ? rank - 1 : 0;
    while (d > 0 && ++at[d - 1] == block.dims[d - 1])
      at[--d] = 0;
    if (d == 0)
      return;
  }
}
// Calls `f` for each element.
template <class F> void for_each_spot(const Block &block, F &&f) {
  for_each_row(block, [&](ElementIndex spot, int64_t size) {
    for (int64_t i = 0; i < size; ++i, ++spot.index, ++spot.column)
      f(spot);
  });
}

bool is_unsigned(ir::DType dtype) {
  return dtype == ir::DType::U8 || dtype == ir::DType::U16 || dtype == ir::DType::U32 ||
         dtype == ir::DType::U64;
}

} // namespace

Tensor in_domain(Tensor tensor, Domain domain) {
  if (domain != Domain::Field || tensor.is_modular())
    return tensor;
  std::vector<Residue> residues;
  if (tensor.is_complex())
    for (const Complex &cell : tensor.of<Complex>())
      residues.push_back(residue_of(cell.real()));
  else
    for (double cell : tensor.of<double>())
      residues.push_back(residue_of(cell));
  tensor.cells = std::move(residues);
  return tensor;
}

uint64_t number_key(uint64_t seed, llvm::StringRef name, uint64_t index) {
  uint64_t key = scrambled(seed);
  for (char c : name)
    key = scrambled(key ^ static_cast<unsigned char>(c));
  return scrambled(key ^ scrambled(index));
}

void draw_numbers(Tensor &tensor, const Block &block, const Content &content, uint64_t key,
                  const NumberOptions &options) {
  Generator draw(content, key, options, ir::info(tensor.dtype).form, is_unsigned(tensor.dtype));
  size_t at = 0;
  if (tensor.is_modular())
    for_each_spot(
        block, [&](const ElementIndex &spot) { tensor.of<Residue>()[at++] = draw.residue(spot); });
  else if (tensor.is_complex())
    for_each_spot(block, [&](const ElementIndex &spot) {
      tensor.of<Complex>()[at++] = {draw(spot), draw(spot, 1)};
    });
  else
    for_each_row(block, [&](const ElementIndex &spot, int64_t size) {
      draw.row(spot, size, tensor.of<double>().data() + at);
      at += static_cast<size_t>(size);
    });
  round_cells(tensor, options.domain);
}

} // namespace spmd::runtime
