// The weight of a position is a product of one random residue for each dimension.
#include "runtime/judge/fingerprint.h"

#include "runtime/tensor/bits_hash.h"

#include "ir/support/check.h"
#include "ir/support/store.h"

#include <cmath>
#include <cstring>

namespace spmd::runtime {
namespace {

// Sums of products of residues, reduced once for several of them.
class ProductSum {
public:
  void add(Residue a, Residue b) {
    sum_ += static_cast<unsigned __int128>(a.value()) * b.value();
    if (++products_ == kMost)
      reduce();
  }
  Residue take() {
    reduce();
    return Residue::from_bits(static_cast<uint64_t>(sum_));
  }

private:
  static constexpr unsigned kMost = 32; // of 122 bits each

  void reduce() {
    auto part = [&](unsigned from) {
      return Residue::from_bits(static_cast<uint64_t>(sum_ >> from) & Residue::kPrime);
    };
    sum_ = (part(0) + part(61) + part(122)).value();
    products_ = 0;
  }
  unsigned __int128 sum_ = 0;
  unsigned products_ = 0;
};

Residue weight(uint64_t key, size_t dim, int64_t position) {
  return Residue::from_bits(ir::mix(ir::mix(key, dim), static_cast<uint64_t>(position)));
}
std::vector<Residue> weights(uint64_t key, size_t dim, int64_t first, int64_t count) {
  std::vector<Residue> made;
  made.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    made.push_back(weight(key, dim, first + i));
  return made;
}

std::optional<Residue> residue(Residue cell) { return cell; }
std::optional<Residue> residue(double cell) {
  return std::isfinite(cell) ? std::optional(residue_of(cell)) : std::nullopt;
}
std::optional<Residue> residue(Complex cell) {
  std::optional<Residue> real = residue(cell.real()), imaginary = residue(cell.imag());
  constexpr int64_t kImaginary = 0x1D8E4E27C47D124F;
  return real && imaginary ? std::optional(*real + *imaginary * Residue(kImaginary)) : std::nullopt;
}

// One row after another; columns in parts, so that the weights of all of a long row are never
// there at once.
class WeightedSum {
public:
  WeightedSum(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<int64_t> first, uint64_t key)
      : dims_(dims), first_(first), key_(key) {
    for (size_t d = 0; d + 1 < dims.size(); ++d)
      outer_.push_back(weights(key, d, first[d], dims[d]));
  }

  template <class Cell> std::optional<Residue> of(const std::vector<Cell> &cells) const {
    if (dims_.empty())
      return residue(cells.front());
    const int64_t columns = dims_.back();
    Residue sum;
    for (int64_t from = 0; from < columns; from += kPart) {
      const int64_t count = std::min(kPart, columns - from);
      std::vector<Residue> part = weights(key_, dims_.size() - 1, first_.back() + from, count);
      Dims row(outer_.size(), 0);
      for (const Cell *at = cells.data() + from, *end = cells.data() + cells.size(); at < end;
           at += columns) {
        ProductSum products;
        for (int64_t i = 0; i < count; ++i) {
          std::optional<Residue> cell = residue(at[i]);
          if (!cell)
            return std::nullopt;
          products.add(*cell, part[static_cast<size_t>(i)]);
        }
        sum += products.take() * weight_of(row);
        advance(row);
      }
    }
    return sum;
  }

private:
  static constexpr int64_t kPart = 4096;

  Residue weight_of(const Dims &row) const {
    Residue product = 1;
    for (size_t d = 0; d < row.size(); ++d)
      product *= outer_[d][static_cast<size_t>(row[d])];
    return product;
  }
  void advance(Dims &row) const {
    for (size_t d = row.size(); d-- > 0;) {
      if (++row[d] < dims_[d])
        return;
      row[d] = 0;
    }
  }

  llvm::ArrayRef<int64_t> dims_, first_;
  uint64_t key_;
  std::vector<std::vector<Residue>> outer_; // by dimension
};

// What has a fixed size of a fingerprint.
struct Record {
  uint64_t bits = 0, sum = 0;
  uint32_t dims = 0;
  ir::DType dtype = ir::DType::Unknown;
  bool there = false, summed = false;
};

template <class T> void append(std::string &to, const T &value) {
  to.append(reinterpret_cast<const char *>(&value), sizeof value);
}
template <class T> bool take(llvm::StringRef &from, T &value) {
  if (from.size() < sizeof value)
    return false;
  std::memcpy(&value, from.data(), sizeof value);
  from = from.drop_front(sizeof value);
  return true;
}

} // namespace

std::optional<Residue> weighted_sum(const Tensor &tensor, llvm::ArrayRef<int64_t> first,
                                    uint64_t key) {
  SPMD_CHECK(first.size() == tensor.dims.size(), "a position of the whole");
  if (tensor.size() == 0)
    return Residue();
  return tensor.visit(
      [&](const auto &cells) { return WeightedSum(tensor.dims, first, key).of(cells); });
}

Fingerprint fingerprint_of(const Tensor &tensor, std::optional<llvm::ArrayRef<int64_t>> first,
                           uint64_t key) {
  Fingerprint made{true, tensor.dtype, tensor.dims, bits_hash(tensor), std::nullopt};
  if (first)
    made.sum = weighted_sum(tensor, *first, key);
  return made;
}

void write(const Fingerprint &fingerprint, std::string &to) {
  Record record{fingerprint.bits,
                fingerprint.sum.value_or(Residue()).value(),
                static_cast<uint32_t>(fingerprint.dims.size()),
                fingerprint.dtype,
                fingerprint.there,
                fingerprint.sum.has_value()};
  append(to, record);
  for (int64_t dim : fingerprint.dims)
    append(to, dim);
}

bool read(llvm::StringRef &from, Fingerprint &fingerprint) {
  Record record;
  if (!take(from, record) || from.size() / sizeof(int64_t) < record.dims)
    return false;
  fingerprint = {record.there, record.dtype, Dims(record.dims, 0), record.bits, std::nullopt};
  if (record.summed)
    fingerprint.sum = Residue::from_bits(record.sum);
  for (int64_t &dim : fingerprint.dims)
    take(from, dim);
  return true;
}

} // namespace spmd::runtime
