// The elements of a tensor along some of its dimensions, for each place of the others: what a
// reduction, a scan or a normalisation works on.
#pragma once

#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

// Lanes are in row-major order of the dimensions left out, elements of a lane in that of the
// dimensions named.
class Lanes {
public:
  Lanes(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<unsigned> along);

  int64_t count() const { return static_cast<int64_t>(firsts_.size()); }
  int64_t length() const { return static_cast<int64_t>(steps_.size()); }
  int64_t place(int64_t lane, int64_t i) const {
    return firsts_[static_cast<size_t>(lane)] + steps_[static_cast<size_t>(i)];
  }

private:
  std::vector<int64_t> firsts_, steps_;
};

// One lane, read or written.
template <class T> class Lane {
public:
  Lane(const Lanes &lanes, int64_t lane, T *data) : lanes_(lanes), lane_(lane), data_(data) {}
  int64_t size() const { return lanes_.length(); }
  T &operator[](int64_t i) const { return data_[lanes_.place(lane_, i)]; }

private:
  const Lanes &lanes_;
  int64_t lane_;
  T *data_;
};

// Those of an operand along the dimensions that attribute `dim` names.
template <class T> Lanes lanes_of(const Site &site, const View<T> &view) {
  return Lanes(*view.dims, site.dims(view.rank()));
}

} // namespace spmd::runtime
