// The elements of a tensor along some of its dimensions, for each place of the others: what a
// reduction, a scan or a normalisation works on.
#pragma once

#include "runtime/kernels/kernel.h"

namespace spmd::runtime {

// Lines are in row-major order of the dimensions left out, elements of a line in that of the
// dimensions named.
class Lines {
public:
  Lines(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<unsigned> along);

  int64_t count() const { return static_cast<int64_t>(firsts_.size()); }
  int64_t length() const { return static_cast<int64_t>(steps_.size()); }
  int64_t position(int64_t line, int64_t i) const {
    return firsts_[static_cast<size_t>(line)] + steps_[static_cast<size_t>(i)];
  }

private:
  std::vector<int64_t> firsts_, steps_;
};

// One line, read or written.
template <class T> class Line {
public:
  Line(const Lines &lines, int64_t line, T *data) : lines_(lines), line_(line), data_(data) {}
  int64_t size() const { return lines_.length(); }
  T &operator[](int64_t i) const { return data_[lines_.position(line_, i)]; }

private:
  const Lines &lines_;
  int64_t line_;
  T *data_;
};

// Those of an operand along the dimensions that attribute `dim` names.
template <class T> Lines lines_of(const KernelContext &context, const View<T> &view) {
  return Lines(*view.dims, context.dims(view.rank()));
}

} // namespace spmd::runtime
